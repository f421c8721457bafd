// A decision step by step: denials that still hold, both buckets of the tenant, the cell, and the failure policy.

import { Bucket, readReply } from "./bucket.js";
import { heldByAll, heldDenial, order } from "./choice.js";
import { Connection, Deadline, Failure } from "./connection.js";
import { allowed, answer, denied, longest, soonest, tighter } from "./decision.js";
import { RateLimitError } from "./error.js";
import { decideWithoutRedis } from "./fallback.js";
import { cellKeys, tenantKeys } from "./keys.js";
import { MAX_TOKENS } from "./limit.js";
import { Memory } from "./memory.js";
import { readPolicy } from "./policy.js";

/** How many routes, and as many tenants and cells, are remembered; a forgotten one costs a belief, not a decision of Redis. */
const REMEMBERED = 65_536;
/** For how long tokens that go back are tried to be delivered. */
const GIVE_BACK_MS = 500;

const now = () => performance.now();

export function createLimiter(options) {
  return new Limiter(options);
}

class Limiter {
  #connection;
  #policy;
  #hooks;
  #pairs = new Memory(REMEMBERED);
  #tenants = new Memory(REMEMBERED);
  #cells = new Memory(REMEMBERED);
  #warned = { at: -Infinity, noModule: false };

  constructor({ client, policy, onDecision, onUnavailable }) {
    this.#connection = new Connection(client);
    this.#policy = typeof policy === "function" ? policy : () => policy;
    this.#hooks = { onDecision, onUnavailable };
    if (typeof policy !== "function") readPolicy(policy);
  }

  async authorize(tenant, route, cost = 1) {
    const came = now();
    const request = await this.#request(tenant, route, cost, true);
    const decision = await this.#decide(request);
    const counter = decision.reason === null ? "rate_limit.allow" : "rate_limit.deny";
    const within = decision.soft ? "soft" : "within_limit";
    const reason = decision.reason ?? (decision.source === "failure_policy" ? "unavailable" : within);
    const { failures } = request;
    this.#decided({ event: "authorize", counter, reason, tenant, route, tokens: cost, decision, failures }, came);
    return decision;
  }

  async peek(tenant, route, cost = 1) {
    return this.#decide(await this.#request(tenant, route, cost, false));
  }

  give(tenant, route, amount) {
    return this.#settle("give", tenant, route, amount);
  }

  charge(tenant, route, amount) {
    return this.#settle("charge", tenant, route, amount);
  }

  /** Looks up what is needed to decide, and checks it. */
  async #request(tenant, route, cost, takes, fits = cost) {
    if (!Number.isSafeInteger(cost) || cost < 0) {
      throw new RateLimitError("cost", `cost must be a whole number from 0 to ${MAX_TOKENS}, not ${cost}`);
    }
    const policy = readPolicy(await this.#policy(tenant, route));
    const known = this.#pair(tenant, route, policy.shards);
    const pair = [
      { bucket: known.tenant, rule: policy.tenant },
      { bucket: known.route, rule: policy.route },
    ];
    const cell = policy.cell && [{ bucket: this.#cell(policy.cell.name, policy.cell.parts.length), rule: policy.cell }];
    const came = now();
    const orders = { pairOrder: order(pair, fits, came), cellOrder: cell && order(cell, fits, came) };
    return { tenant, route, cost, takes, policy, pair, cell, ...orders, failures: [] };
  }

  #pair(tenant, route, shards) {
    return this.#pairs.get([tenant, route, shards], () => {
      const keys = tenantKeys(tenant, route, shards);
      const bucket = (scope) => new Bucket(scope, keys.map((key) => this.#connection.place(key[scope])));
      return { tenant: this.#tenants.get([tenant, shards], () => bucket("tenant")), route: bucket("route") };
    });
  }

  #cell(name, shards) {
    const places = () => cellKeys(name, shards).map((key) => this.#connection.place(key));
    return this.#cells.get([name, shards], () => new Bucket("cell", places()));
  }

  async #decide(request) {
    const { pair, cell, pairOrder, cellOrder, takes, policy } = request;
    // From a cell that is known to deny it is not worth taking the tenant's tokens and giving them back.
    const held = heldByAll(request, pair, pairOrder, now()) ?? (cell && heldByAll(request, cell, cellOrder, now()));
    if (held) return denied(request, held);
    const deadline = new Deadline(policy.timeoutMs);
    try {
      const said = await this.#ask(request, pair, pairOrder, deadline);
      if (!said) return decideWithoutRedis(request, [...pair, ...(cell ?? [])], null, now());
      if (!said.allowed) return denied(request, said);
      const quota = tighter(said.quotas);
      if (!cell) return allowed(request, quota, "server");
      const cellSaid = await this.#ask(request, cell, cellOrder, deadline);
      if (cellSaid?.allowed) return allowed(request, quota, "server");
      const decision = cellSaid ? denied(request, cellSaid) : decideWithoutRedis(request, cell, quota, now());
      if (takes && decision.reason !== null) await this.#giveBack(request, said.index, deadline);
      return decision;
    } finally {
      deadline.end();
    }
  }

  /** Asks the buckets in one shard, and in another one if that denied; undefined if there is no answer. */
  async #ask(request, targets, shards, deadline) {
    const denials = [];
    for (const index of shards) {
      const held = heldDenial(request, targets, index, now());
      try {
        const said = held ?? (await this.#askShard(request, targets, index, deadline));
        if (said.allowed) return said;
        denials.push(said);
      } catch (error) {
        this.#failed(request, error);
        // One shard that denied is an answer, though the other gave none.
        break;
      }
    }
    return denials.length ? soonest(denials) : undefined;
  }

  async #askShard(request, targets, index, deadline) {
    const { cost, takes } = request;
    let replies;
    if (takes && targets.length > 1) {
      const words = targets.flatMap((target) => bucketWords(target, index, cost));
      const reply = await this.#connection.send("RL.TAKEALL", targets[0].bucket.shards[index], words, deadline);
      replies = read(() => reply.slice(2).map(readReply));
      if (replies.length !== targets.length) throw new Failure("server_error", "not the reply of RL.TAKEALL");
    } else {
      const name = takes ? "RL.TAKE" : "RL.PEEK";
      replies = await Promise.all(targets.map((target) => this.#askBucket(name, target, index, cost, deadline)));
    }
    const at = now();
    targets.forEach(({ bucket, rule }, i) => bucket.saw(index, rule.parts[index], cost, replies[i], at));
    const answers = targets.map((target, i) => answer(target, index, replies[i], "server"));
    const denials = answers.filter((answer) => !answer.allowed);
    return denials.length ? longest(denials) : { allowed: true, index, quotas: answers.map((answer) => answer.quota) };
  }

  async #askBucket(name, target, index, tokens, deadline) {
    const words = bucketWords(target, index, tokens);
    const reply = await this.#connection.send(name, target.bucket.shards[index], words, deadline);
    return read(() => readReply(reply));
  }

  /** Returns what was taken from the tenant's two buckets: on its own, but waited for as long as the decision has time. */
  async #giveBack(request, index, decisionDeadline) {
    const deadline = new Deadline(GIVE_BACK_MS);
    const gifts = request.pair.map((target) =>
      this.#askBucket("RL.GIVE", target, index, request.cost, deadline).then(
        (reply) => target.bucket.saw(index, target.rule.parts[index], request.cost, reply, now()),
        (error) => this.#failed(request, error),
      ),
    );
    const given = Promise.all(gifts).finally(() => deadline.end());
    await Promise.race([given, decisionDeadline.expired]).catch(() => {});
  }

  /** Gives or charges on all buckets; of two random shards the emptier for a gift, so that it does not overflow. */
  async #settle(event, tenant, route, amount) {
    const came = now();
    // An amount need not fit a shard.
    const request = await this.#request(tenant, route, amount, true, 0);
    const pick = ([fuller, emptier = fuller]) => (event === "give" ? emptier : fuller);
    const chosen = request.pair.map((target) => [target, pick(request.pairOrder)]);
    if (request.cell) chosen.push([request.cell[0], pick(request.cellOrder)]);
    const name = event === "give" ? "RL.GIVE" : "RL.CHARGE";
    const deadline = new Deadline(request.policy.timeoutMs);
    const settled = await Promise.allSettled(
      chosen.map(async ([target, index]) => {
        const reply = await this.#askBucket(name, target, index, amount, deadline);
        // An allowed reply, so an earlier denial is forgotten.
        target.bucket.saw(index, target.rule.parts[index], amount, reply, now());
        return target.bucket.quota(index, target.rule, reply);
      }),
    );
    deadline.end();
    const failed = settled.filter(({ status }) => status === "rejected").map(({ reason }) => reason);
    for (const error of failed) this.#failed(request, error);
    if (failed.length) throw new RateLimitError("unavailable", `Redis did not confirm: ${failed[0].message}`, failed[0]);
    const quota = tighter([settled[0].value, settled[1].value]);
    this.#decided({ event, counter: null, reason: null, tenant, route, tokens: amount, quota, failures: [] }, came);
    return quota;
  }

  #decided(event, came) {
    tell(this.#hooks.onDecision, { ...event, timeMs: Date.now(), durationMs: now() - came });
  }

  /** Counts and reports a failure; without a hook as a warning, one a second at most, and a missing module once. */
  #failed({ tenant, route, failures }, error) {
    if (!(error instanceof Failure)) throw error;
    const { reason, message } = error;
    failures.push({ reason, message });
    const event = { counter: "rate_limit.unavailable", reason, message, tenant, route, error };
    if (this.#hooks.onUnavailable) return tell(this.#hooks.onUnavailable, event);
    const missing = reason === "no_module";
    if (missing ? this.#warned.noModule : now() - this.#warned.at < 1000) return;
    if (missing) this.#warned.noModule = true;
    else this.#warned.at = now();
    process.emitWarning(`Redis did not answer (${reason}): ${message}`, "RateLimitWarning");
  }
}

/** Calls a hook. What it throws is no part of a decision. */
function tell(hook, event) {
  const warn = (error) => process.emitWarning(`a hook failed: ${error?.stack ?? error}`, "RateLimitWarning");
  try {
    Promise.resolve(hook?.(event)).catch(warn);
  } catch (error) {
    warn(error);
  }
}

/** The arguments that name one bucket in a command. */
function bucketWords({ bucket, rule }, index, tokens) {
  const { capacity, rate } = rule.parts[index];
  return [bucket.shards[index].key, capacity, rate, String(tokens)];
}

function read(reader) {
  try {
    return reader();
  } catch (error) {
    throw new Failure("server_error", `unexpected reply: ${error.message}`, error);
  }
}
