import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { createLimiter } from "../src/index.js";
import { single } from "./clients.js";
import { Server } from "./servers.js";

// A script of the kind that is replaced: the same two fields, the caller's clock, refill per ms, a fixed expiry.
const SCRIPT = `
local size, perMs, at, want = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local level = tonumber(redis.call('HGET', KEYS[1], 'tokens') or size)
local last = tonumber(redis.call('HGET', KEYS[1], 'ts') or at)
level = math.min(size, level + math.max(0, at - last) * perMs)
local ok = level >= want
if ok then level = level - want end
redis.call('HSET', KEYS[1], 'tokens', level, 'ts', at)
redis.call('PEXPIRE', KEYS[1], 60000)
return ok and 1 or 0`;

let server, client, close;
before(async () => {
  server = await Server.start();
  ({ client, close } = await single["ioredis 5"](server));
});
after(async () => {
  close();
  await server.stop();
});

test("a script and the limiter take from the same buckets, in turns", async () => {
  const limiter = createLimiter({ client, policy: { tenant: "1000 burst, 0.001/s", route: "51 burst, 0.001/s", timeoutMs: 5000, onFailure: "closed" } });
  const old = async () => (await client.eval(SCRIPT, 1, "{acme}:rl:search:0", 51, 0.000001, Date.now(), 1)) === 1;
  const taken = { old: 0, limiter: 0 };
  for (let i = 0; i < 40; i++) {
    taken.old += await old();
    taken.limiter += (await limiter.authorize("acme", "search", 1)).allowed;
  }
  assert.deepEqual(taken, { old: 26, limiter: 25 });
  assert.equal(await old(), false);
});

test("going back to the script is possible: it reads what the limiter has left", async () => {
  const limiter = createLimiter({ client, policy: { tenant: "1000 burst, 0.001/s", route: "10 burst, 0.001/s", timeoutMs: 5000, onFailure: "closed" } });
  for (let i = 0; i < 7; i++) await limiter.authorize("back", "search", 1);
  const old = async () => (await client.eval(SCRIPT, 1, "{back}:rl:search:0", 10, 0.000001, Date.now(), 1)) === 1;
  assert.deepEqual([await old(), await old(), await old(), await old()], [true, true, true, false]);
});
