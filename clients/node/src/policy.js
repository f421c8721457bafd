// What is allowed to whom, and what happens when Redis is away. A policy is plain data, from code or a config file; here it
// is checked and its limits are read, once for each policy object.

import { Limit } from "./limit.js";

const DEFAULTS = { softLimit: 0, shards: 1, timeoutMs: 50, onFailure: "open", shadow: false, denialCache: true };
const FIELDS = new Set(["tenant", "route", "cell", ...Object.keys(DEFAULTS)]);
const CELL_FIELDS = new Set(["name", "limit", "shards"]);

const read = new WeakMap();

/** The policy with its defaults, and with the limits of each shard instead of their text. */
export function readPolicy(policy) {
  if (typeof policy !== "object" || policy === null) throw new TypeError("policy must be an object");
  let ready = read.get(policy);
  if (!ready) read.set(policy, (ready = check(policy)));
  return ready;
}

function check(policy) {
  refuseUnknown("policy", policy, FIELDS);
  const ready = { ...DEFAULTS };
  for (const name of Object.keys(DEFAULTS)) if (policy[name] !== undefined) ready[name] = policy[name];
  const { softLimit, shards, timeoutMs, onFailure, shadow, denialCache } = ready;
  demand(Number.isSafeInteger(softLimit) && softLimit >= 0, "softLimit must be a whole number from 0");
  demand(Number.isFinite(timeoutMs) && timeoutMs > 0 && timeoutMs < 2 ** 31, "timeoutMs must be a number of ms above 0");
  demand(["open", "closed", "local"].includes(onFailure), 'onFailure must be "open", "closed" or "local"');
  demand(typeof shadow === "boolean" && typeof denialCache === "boolean", "shadow and denialCache must be true or false");
  ready.tenant = bucket(policy.tenant, shards);
  ready.route = bucket(policy.route, shards);
  ready.cell = undefined;
  if (policy.cell) {
    refuseUnknown("cell", policy.cell, CELL_FIELDS);
    const { name, limit, shards = 1 } = policy.cell;
    ready.cell = { name, ...bucket(limit, shards) };
  }
  return ready;
}

function bucket(text, shards) {
  demand(Number.isInteger(shards) && shards >= 1 && shards <= 16384, "shards must be from 1 to 16384");
  const limit = new Limit(String(text));
  return { limit, parts: limit.shards(shards) };
}

function refuseUnknown(what, given, known) {
  for (const name of Object.keys(given)) demand(known.has(name), `${what} has no field ${JSON.stringify(name)}`);
}

function demand(holds, why) {
  if (!holds) throw new RangeError(why);
}
