import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { RateLimitError, cellKeys, createLimiter, logLine, tenantKeys } from "../src/index.js";
import { pool, single } from "./clients.js";
import { Server, until } from "./servers.js";

// Slow servers are other tests' subject; on a busy machine 50 ms may pass.
const POLICY = { tenant: "1000 burst, 0.001/s", route: "5 burst, 0.01/s", timeoutMs: 5000, onFailure: "closed" };

let server;
before(async () => (server = await Server.start()));
after(() => server.stop());

let tenants = 0;
const newTenant = () => `tenant-${tenants++}`;
const calls = (name) => server.info("commandstats", `cmdstat_${name}:calls`);
// To the nearest: the balance is stored as of the begin of its millisecond, a little less than what was left.
const tokens = async (key) => Math.round(Number((await server.admin.hget(key, "tokens")) ?? NaN));

for (const [name, connect] of Object.entries(single)) {
  describe(name, () => {
    let client, close;
    before(async () => ({ client, close } = await connect(server)));
    after(() => close());

    test("a route's bucket is emptied, then denies with the time to wait", async () => {
      const limiter = createLimiter({ client, policy: POLICY });
      const tenant = newTenant();
      for (let left = 4; left >= 0; left--) {
        const decision = await limiter.authorize(tenant, "search", 1);
        assert.deepEqual([decision.allowed, decision.reason, decision.source], [true, null, "server"]);
        assert.deepEqual([decision.quota.scope, decision.quota.remaining, decision.quota.capacity], ["route", left, 5]);
      }
      const denied = await limiter.authorize(tenant, "search", 1);
      assert.deepEqual([denied.allowed, denied.reason, denied.never, denied.source], [false, "route_limit", false, "server"]);
      assert.ok(denied.retryAfterMs > 90_000 && denied.retryAfterMs <= 100_000, `${denied.retryAfterMs}`);
      assert.equal(await tokens(`{${tenant}}:rl:_tenant:0`), 995, "a denied route costs the tenant nothing");
      assert.equal((await limiter.authorize(tenant, "upload", 1)).allowed, true, "another route has its own bucket");
    });

    test("the tenant-wide bucket holds for all routes together", async () => {
      const limiter = createLimiter({ client, policy: { ...POLICY, tenant: "7 burst, 0.01/s" } });
      const tenant = newTenant();
      assert.equal((await limiter.authorize(tenant, "search", 4)).quota.scope, "route", "the tighter one");
      assert.equal((await limiter.authorize(tenant, "upload", 3)).quota.scope, "tenant");
      const denied = await limiter.authorize(tenant, "list", 1);
      assert.deepEqual([denied.reason, denied.quota.scope], ["tenant_limit", "tenant"]);
    });

    test("a denial is answered without a round trip until its retry after has passed", async () => {
      const limiter = createLimiter({ client, policy: { ...POLICY, route: "1 burst, 4/s" } });
      const tenant = newTenant();
      await limiter.authorize(tenant, "search", 1);
      const first = await limiter.authorize(tenant, "search", 1);
      const before = await calls("rl.takeall");
      const second = await limiter.authorize(tenant, "search", 1);
      assert.deepEqual([first.source, second.source, second.reason], ["server", "denial_cache", "route_limit"]);
      assert.equal(await calls("rl.takeall"), before);
      assert.ok(second.retryAfterMs <= first.retryAfterMs && second.retryAfterMs > 0);
      await until("allowed again", async () => (await limiter.authorize(tenant, "search", 1)).allowed);

      const asking = createLimiter({ client, policy: { ...POLICY, route: "1 burst, 0.01/s", denialCache: false } });
      const other = newTenant();
      for (const source of ["server", "server", "server"]) {
        assert.equal((await asking.authorize(other, "search", 1)).source, source, "without the cache");
      }
    });

    test("a cost above the capacity is denied for ever", async () => {
      const limiter = createLimiter({ client, policy: POLICY });
      const denied = await limiter.authorize(newTenant(), "search", 6);
      assert.deepEqual([denied.allowed, denied.never, denied.retryAfterMs, denied.reason], [false, true, null, "route_limit"]);
    });

    test("a cell's denial returns the tenant's tokens", async () => {
      const cell = { name: `db-${newTenant()}`, limit: "2 burst, 0.01/s" };
      const limiter = createLimiter({ client, policy: { ...POLICY, cell, denialCache: false } });
      const [one, two] = [newTenant(), newTenant()];
      assert.equal((await limiter.authorize(one, "search", 2)).allowed, true);
      const denied = await limiter.authorize(two, "search", 1);
      assert.deepEqual([denied.allowed, denied.reason, denied.quota.scope], [false, "cell_limit", "cell"]);
      assert.equal(await tokens(`{${two}}:rl:_tenant:0`), 1000);
      assert.equal(await tokens(`{${two}}:rl:search:0`), 5);
    });

    test("a cell that is known to deny costs no round trip", async () => {
      const cell = { name: `db-${newTenant()}`, limit: "1 burst, 0.01/s", shards: 1 };
      const limiter = createLimiter({ client, policy: { ...POLICY, cell } });
      await limiter.authorize(newTenant(), "search", 1);
      assert.equal((await limiter.authorize(newTenant(), "search", 1)).source, "server");
      const before = await calls("rl.takeall");
      const denied = await limiter.authorize(newTenant(), "search", 1);
      assert.deepEqual([denied.source, denied.reason], ["denial_cache", "cell_limit"]);
      assert.equal(await calls("rl.takeall"), before);
    });

    test("a peek says what a take would, and takes nothing", async () => {
      const limiter = createLimiter({ client, policy: { ...POLICY, cell: { name: newTenant(), limit: "9 burst, 1/s" } } });
      const tenant = newTenant();
      const peeked = await limiter.peek(tenant, "search", 2);
      assert.deepEqual([peeked.allowed, peeked.quota.remaining], [true, 3]);
      assert.equal(await server.admin.exists(`{${tenant}}:rl:search:0`, `{${tenant}}:rl:_tenant:0`), 0);
      await limiter.authorize(tenant, "search", 5);
      assert.deepEqual((({ allowed, reason }) => [allowed, reason])(await limiter.peek(tenant, "search", 1)), [false, "route_limit"]);
    });

    test("what is given can be taken again, and a charge goes below zero", async () => {
      const limiter = createLimiter({ client, policy: POLICY });
      const tenant = newTenant();
      await limiter.authorize(tenant, "search", 5);
      assert.equal((await limiter.authorize(tenant, "search", 1)).allowed, false);
      assert.equal((await limiter.give(tenant, "search", 2)).remaining, 2);
      assert.equal((await limiter.authorize(tenant, "search", 2)).allowed, true, "the denial is forgotten");
      assert.equal((await limiter.charge(tenant, "search", 10)).remaining, 0);
      assert.equal(await tokens(`{${tenant}}:rl:search:0`), -10);
      assert.ok((await limiter.authorize(tenant, "search", 1)).retryAfterMs > 1_000_000, "the debt is waited for");
    });

    test("an allowed decision is soft when fewer tokens remain", async () => {
      const limiter = createLimiter({ client, policy: { ...POLICY, softLimit: 3 } });
      const tenant = newTenant();
      const soft = [];
      for (let i = 0; i < 5; i++) soft.push((await limiter.authorize(tenant, "search", 1)).soft);
      assert.deepEqual(soft, [false, false, true, true, true]);
    });

    test("in shadow mode what would be denied is allowed, and says why", async () => {
      const events = [];
      const policy = { ...POLICY, shadow: true };
      const limiter = createLimiter({ client, policy, onDecision: (event) => events.push(event) });
      const tenant = newTenant();
      await limiter.authorize(tenant, "search", 5);
      const denied = await limiter.authorize(tenant, "search", 1);
      assert.deepEqual([denied.allowed, denied.shadow, denied.reason], [true, true, "route_limit"]);
      assert.deepEqual(events.map(({ counter }) => counter), ["rate_limit.allow", "rate_limit.deny"]);
    });

    test("a big tenant has all its tokens, over shards that add up to the limit", async () => {
      const policy = { ...POLICY, tenant: "1000 burst, 0.001/s", route: "43 burst, 0.001/s", shards: 4 };
      const limiter = createLimiter({ client, policy });
      const tenant = newTenant();
      let taken = 0;
      for (let i = 0; i < 500; i++) taken += (await limiter.authorize(tenant, "search", 1)).allowed;
      assert.equal(taken, 43);
      await assert.rejects(limiter.authorize(tenant, "search", 12), { name: "RateLimitError", code: "cost_above_shard" });
      const big = await createLimiter({ client, policy }).authorize(newTenant(), "search", 11);
      assert.equal(big.allowed, true, "11 is in three shards of four");
    });
  });
}

describe("a limiter", () => {
  let client, close;
  before(async () => ({ client, close } = await single["ioredis 5"](server)));
  after(() => close());

  test("tells its hook everything about a decision", async () => {
    const events = [];
    const policy = { ...POLICY, softLimit: 4 };
    const limiter = createLimiter({ client, policy, onDecision: (event) => events.push(event) });
    const tenant = newTenant();
    const decision = await limiter.authorize(tenant, "search", 2);
    const { timeMs, durationMs, ...event } = events[0];
    assert.ok(Math.abs(Date.now() - timeMs) < 60_000 && durationMs > 0);
    const told = { event: "authorize", counter: "rate_limit.allow", reason: "soft", tenant, route: "search", tokens: 2 };
    assert.deepEqual(event, { ...told, decision, failures: [] });
    await limiter.authorize(tenant, "search", 4);
    assert.deepEqual([events[1].counter, events[1].reason], ["rate_limit.deny", "route_limit"]);
    await limiter.peek(tenant, "search", 1);
    await limiter.charge(tenant, "search", 3);
    assert.deepEqual(events.slice(2).map(({ event, tokens }) => [event, tokens]), [["charge", 3]], "a peek is not counted");

    const line = JSON.parse(logLine(events[0]));
    const logged = { time_ms: timeMs, event: "authorize", tenant, route: "search", tokens: 2, allowed: true, reason: null };
    assert.deepEqual(line, { ...logged, soft: true, shadow: false, source: "server", remaining: 3, retry_after_ms: null });
    assert.equal(JSON.parse(logLine(events[2])).event, "charge");
  });

  test("decides although its hook fails", async () => {
    const warnings = [];
    const listen = (warning) => warnings.push(warning);
    process.on("warning", listen);
    for (const onDecision of [() => { throw new Error("no metrics"); }, async () => { throw new Error("no metrics"); }]) {
      const limiter = createLimiter({ client, policy: POLICY, onDecision });
      assert.equal((await limiter.authorize(newTenant(), "search", 1)).allowed, true);
    }
    await until("both failures are warnings", () => warnings.length === 2);
    process.off("warning", listen);
    for (const warning of warnings) assert.match(warning.message, /a hook failed: .*no metrics/);
  });

  test("asks for the policy at every request", async () => {
    let route = "1 burst, 0.001/s";
    const limiter = createLimiter({ client, policy: async (tenant, name) => ({ ...POLICY, route: name === "free" ? "9 burst, 1/s" : route }) });
    const tenant = newTenant();
    assert.equal((await limiter.authorize(tenant, "search", 2)).never, true);
    route = "50 burst, 0.001/s";
    assert.equal((await limiter.authorize(tenant, "search", 2)).quota.remaining, 48);
    assert.equal((await limiter.authorize(tenant, "free", 2)).quota.capacity, 9);
  });

  test("refuses what can never be decided", async () => {
    const limiter = createLimiter({ client, policy: POLICY });
    for (const cost of [-1, 0.5, NaN, Infinity, "1", 2 ** 53]) {
      await assert.rejects(limiter.authorize("acme", "search", cost), RateLimitError, `${cost}`);
      await assert.rejects(limiter.give("acme", "search", cost), { code: "cost" }, `${cost}`);
    }
    for (const [tenant, route] of [["", "search"], ["acme", ""], [undefined, "search"], ["acme", 7]]) {
      await assert.rejects(limiter.authorize(tenant, route, 1), TypeError);
    }
  });

  test("refuses a policy that says something else than it seems to", () => {
    for (const [wrong, why] of [
      [{ time_out: 5 }, /no field "time_out"/],
      [{ tenant: undefined }, /a capacity and a rate/],
      [{ route: "50 burst, 0/s" }, /rate must/],
      [{ shards: 0 }, /shards must/],
      [{ shards: 2.5 }, /shards must/],
      [{ shards: 6 }, /less than one whole token for each of 6 shards/],
      [{ timeoutMs: 0 }, /timeoutMs must/],
      [{ onFailure: "allow" }, /onFailure must/],
      [{ shadow: "no" }, /shadow and denialCache/],
      [{ softLimit: -1 }, /softLimit must/],
      [{ cell: { name: "db", limits: "5 burst, 1/s" } }, /cell has no field "limits"/],
    ]) {
      assert.throws(() => createLimiter({ client, policy: { ...POLICY, ...wrong } }), why);
    }
    for (const client of [undefined, {}, "redis://127.0.0.1"]) {
      assert.throws(() => createLimiter({ client, policy: POLICY }), /client must be/);
    }
  });

  test("takes cost 0 as a peek", async () => {
    const limiter = createLimiter({ client, policy: POLICY });
    const tenant = newTenant();
    assert.equal((await limiter.authorize(tenant, "search", 0)).quota.remaining, 5);
    assert.equal(await server.admin.exists(`{${tenant}}:rl:search:0`), 0);
  });

  test("shares a bucket with a script that keeps tokens and ts", async () => {
    const limiter = createLimiter({ client, policy: POLICY });
    const tenant = newTenant();
    // The fields as a script leaves them: a ts in ms of the caller's clock, tokens of a double.
    await server.admin.hset(`{${tenant}}:rl:search:0`, "tokens", "2.5000000000000004", "ts", String(Date.now()));
    const decision = await limiter.authorize(tenant, "search", 1);
    assert.deepEqual([decision.allowed, decision.quota.remaining], [true, 1]);
    const { tokens, ts, ...others } = await server.admin.hgetall(`{${tenant}}:rl:search:0`);
    assert.deepEqual(others, {});
    assert.ok(Number(tokens) >= 1.5 && Number(tokens) < 1.6 && /^\d{13}$/.test(ts), `${tokens} ${ts}`);
  });

  test("keeps apart names that mean something elsewhere: to JavaScript, in a key, to the protocol", async () => {
    const limiter = createLimiter({ client, policy: (tenant, cell) => ({ ...POLICY, cell: { name: cell, limit: "5 burst, 0.01/s" } }) });
    const names = ["__proto__", "constructor", "toString", "a}b", "a%7Db", "{}", "a:b", "a b", "a\r\nb", "a\0b", "\u2028", "🦀"];
    for (const tenant of names) {
      const taken = [];
      for (let i = 0; i < 6; i++) taken.push((await limiter.authorize(tenant, tenant, 1)).allowed);
      assert.deepEqual(taken, [true, true, true, true, true, false], JSON.stringify(tenant));
      const { tenant: wide, route } = tenantKeys(tenant, tenant, 1)[0];
      assert.deepEqual([await tokens(wide), await tokens(route)], [995, 0], JSON.stringify(tenant));
      assert.equal(await tokens(cellKeys(tenant, 1)[0]), 0, JSON.stringify(tenant));
    }
  });

  test("keeps the same key under keyPrefix that ioredis would", async () => {
    for (const [name, prefix] of [["ioredis 5", "app:"], ["ioredis 6", "é{x}"], ["node-redis 6", "app:"]]) {
      const { client, close } = await single[name](server, { keyPrefix: prefix });
      const tenant = newTenant();
      await createLimiter({ client, policy: POLICY }).authorize(tenant, "search", 1);
      // Read through the client's own commands.
      const read = client.hGet ? client.hGet(`{${tenant}}:rl:search:0`, "tokens") : client.hget(`{${tenant}}:rl:search:0`, "tokens");
      assert.equal(Math.round(Number(await read)), 4, `${name} ${prefix}`);
      assert.equal(await server.admin.exists(`${prefix}{${tenant}}:rl:_tenant:0`), 1);
      close();
    }
  });

  test("works with options that change replies and how commands are sent", async () => {
    for (const [name, options] of [
      ["ioredis 5", { enableAutoPipelining: true }],
      ["ioredis 6", { enableAutoPipelining: true }],
      ["ioredis 5", { stringNumbers: true }],
      ["ioredis 6", { protocol: 3 }],
      ["ioredis 5", { lazyConnect: false, commandTimeout: 5000 }],
      ["node-redis 6", { RESP: 2 }],
      ["a pool of node-redis 6", {}],
      ["node-redis 6", { RESP: 3, commandOptions: { typeMapping: { 58: String } } }],
    ]) {
      const { client, close } = await (single[name] ?? pool)(server, options);
      const limiter = createLimiter({ client, policy: POLICY });
      const tenant = newTenant();
      const decisions = await Promise.all(Array.from({ length: 20 }, () => limiter.authorize(tenant, "search", 1)));
      assert.equal(decisions.filter((decision) => decision.allowed).length, 5, `${name} ${JSON.stringify(options)}`);
      assert.ok(decisions.every((decision) => decision.source !== "failure_policy"), name);
      close();
    }
  });

  test("waits for a client of ioredis that has not connected yet", async () => {
    const { Redis } = await import("ioredis");
    for (const options of [{}, { lazyConnect: true }, { enableOfflineQueue: false }]) {
      const client = new Redis(server.url, options);
      const decision = await createLimiter({ client, policy: POLICY }).authorize(newTenant(), "search", 1);
      assert.deepEqual([decision.allowed, decision.source], [true, "server"], JSON.stringify(options));
      client.disconnect();
    }
  });
});
