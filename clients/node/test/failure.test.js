import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { createLimiter, slot, tenantKeys } from "../src/index.js";
import { clusters, single } from "./clients.js";
import { Proxy, scripted } from "./proxy.js";
import { Cluster, Server, freePort, until } from "./servers.js";

const POLICY = { tenant: "1000 burst, 0.001/s", route: "5 burst, 0.01/s", timeoutMs: 60, onFailure: "open" };
/** What a busy machine may add to the timeout. */
const MARGIN_MS = 400;

let tenants = 0;
const newTenant = () => `tenant-${tenants++}`;

async function timed(promise) {
  const started = performance.now();
  const value = await promise;
  return [value, performance.now() - started];
}

for (const [name, connect] of Object.entries(single)) {
  describe(name, () => {
    let server;
    before(async () => (server = await Server.start()));
    after(() => server.stop());

    test("a server that hangs is decided for within the timeout, as the policy says, and asked again when it is back", async () => {
      const { client, close } = await connect(server);
      const events = [];
      const hooks = { onDecision: (event) => events.push(event), onUnavailable: (event) => events.push(event) };
      const limiters = Object.fromEntries(
        ["open", "closed", "local"].map((onFailure) => [onFailure, createLimiter({ client, policy: { ...POLICY, onFailure }, ...hooks })]),
      );
      await until("a server's answer", async () => (await limiters.open.authorize(newTenant(), "search", 1)).source === "server");
      server.pause();
      events.length = 0;

      const [open, openMs] = await timed(limiters.open.authorize(newTenant(), "search", 1));
      assert.deepEqual([open.allowed, open.reason, open.source, open.quota], [true, null, "failure_policy", null]);
      const [closed, closedMs] = await timed(limiters.closed.authorize(newTenant(), "search", 1));
      const closedSays = [closed.allowed, closed.reason, closed.retryAfterMs, closed.source];
      assert.deepEqual(closedSays, [false, "unavailable", 1000, "failure_policy"]);
      for (const ms of [openMs, closedMs]) assert.ok(ms >= 55 && ms < 60 + MARGIN_MS, `${ms} ms`);

      const tenant = newTenant();
      const local = await Promise.all(Array.from({ length: 7 }, () => limiters.local.authorize(tenant, "search", 1)));
      assert.equal(local.filter((decision) => decision.allowed).length, 5, "the local bucket has the limit");
      const { reason, source, retryAfterMs } = local[6];
      assert.deepEqual([reason, source], ["route_limit", "failure_policy"]);
      assert.ok(retryAfterMs > 90_000 && retryAfterMs <= 100_000, `${retryAfterMs}`);

      const counted = events.filter(({ counter }) => counter === "rate_limit.unavailable");
      assert.equal(counted.length, 9, "every failure is counted");
      for (const event of counted) assert.equal(event.reason, "timeout");
      const [first] = events.filter(({ event }) => event === "authorize");
      assert.deepEqual([first.counter, first.reason, first.failures[0].reason], ["rate_limit.allow", "unavailable", "timeout"]);
      await assert.rejects(limiters.open.give(tenant, "search", 1), { name: "RateLimitError", code: "unavailable" });

      server.resume();
      await until("a server's answer", async () => (await limiters.open.authorize(newTenant(), "search", 1)).source === "server");
      close();
    });

    test("a server that hangs is sent no more than a thousand commands, until it answers", async () => {
      const { client, close } = await connect(server);
      const messages = [];
      const onUnavailable = ({ message }) => messages.push(message);
      const limiter = createLimiter({ client, policy: { ...POLICY, timeoutMs: 20 }, onUnavailable });
      const takes = () => server.info("commandstats", "cmdstat_rl.takeall:calls");
      await until("a server's answer", async () => (await limiter.authorize(newTenant(), "search", 1)).source === "server");
      const before = await takes();
      server.pause();
      for (let i = 0; i < 15; i++) {
        const decisions = await Promise.all(Array.from({ length: 100 }, () => limiter.authorize(newTenant(), "search", 1)));
        assert.ok(decisions.every(({ source }) => source === "failure_policy"));
      }
      assert.equal(messages.at(-1), "1000 commands are without an answer");
      server.resume();
      await until("a server's answer", async () => (await limiter.authorize(newTenant(), "search", 1)).source === "server");
      const sent = (await takes()) - before;
      assert.ok(sent > 900 && sent <= 1100, `${sent} commands`);
      close();
    });

    test("a server that is gone is decided for at once or within the timeout, and asked again when it is back", async () => {
      let gone = await Server.start();
      const { client, close } = await connect(gone);
      const limiter = createLimiter({ client, policy: { ...POLICY, onFailure: "closed" }, onUnavailable: () => {} });
      await until("a server's answer", async () => (await limiter.authorize(newTenant(), "search", 1)).source === "server");
      const { port } = gone;
      await gone.stop();
      for (let i = 0; i < 20; i++) {
        const [decision, ms] = await timed(limiter.authorize(newTenant(), "search", 1));
        assert.equal(decision.reason, "unavailable");
        assert.ok(ms < 60 + MARGIN_MS, `${ms} ms`);
      }
      gone = await Server.start({ port });
      await until("a server's answer", async () => (await limiter.authorize(newTenant(), "search", 1)).source === "server");
      // None of the requests of meanwhile is carried out late.
      assert.ok((await gone.info("commandstats", "cmdstat_rl.takeall:calls")) <= 3);
      close();
      await gone.stop();
    });

    test("a take whose reply is lost is not sent again, though the client would", async () => {
      const proxy = await Proxy.start(server);
      const { client, close } = await connect(proxy);
      const events = [];
      const policy = { ...POLICY, timeoutMs: 2000 };
      const limiter = createLimiter({ client, policy, onUnavailable: (event) => events.push(event) });
      await until("a server's answer", async () => (await limiter.authorize(newTenant(), "search", 1)).source === "server");
      const tenant = newTenant();
      proxy.losing = true;
      const decision = await limiter.authorize(tenant, "search", 1);
      assert.deepEqual([decision.source, proxy.lost, events.map(({ reason }) => reason)], ["failure_policy", 1, ["connection"]]);
      await until("the client is back", async () => (await limiter.authorize(newTenant(), "search", 1)).source === "server");
      assert.equal(Math.round(await server.admin.hget(`{${tenant}}:rl:search:0`, "tokens")), 4, "one take");
      close();
      await proxy.stop();
    });

    test("a server without the module is told by its name, once", async () => {
      const bare = await Server.start({ module: false });
      const { client, close } = await connect(bare);
      const reasons = [];
      const policy = { ...POLICY, timeoutMs: 5000 };
      const limiter = createLimiter({ client, policy, onUnavailable: (event) => reasons.push(event.reason) });
      assert.equal((await limiter.authorize(newTenant(), "search", 1)).source, "failure_policy");
      assert.deepEqual(reasons, ["no_module"]);

      const warnings = [];
      const listen = (warning) => warnings.push(warning.message);
      process.on("warning", listen);
      const silent = createLimiter({ client, policy });
      for (let i = 0; i < 5; i++) await silent.authorize(newTenant(), "search", 1);
      await until("a warning", () => warnings.length > 0);
      process.off("warning", listen);
      assert.equal(warnings.length, 1);
      assert.match(warnings[0], /no_module.*module loaded/);
      close();
      await bare.stop();
    });

    test("a server that refuses for want of memory is decided for, and counted as its error", async () => {
      const { client, close } = await connect(server);
      const events = [];
      const policy = { ...POLICY, timeoutMs: 5000 };
      const limiter = createLimiter({ client, policy, onUnavailable: (event) => events.push(event) });
      await server.admin.config("SET", "maxmemory", "1");
      const decision = await limiter.authorize(newTenant(), "search", 1);
      const peek = await limiter.peek(newTenant(), "search", 1);
      await server.admin.config("SET", "maxmemory", "0");
      assert.deepEqual([decision.source, peek.source], ["failure_policy", "server"]);
      assert.deepEqual([events.length, events[0].reason], [1, "server_error"]);
      assert.match(events[0].message, /^OOM /);
      close();
    });
  });
}

test("ioredis by itself sends a command again whose reply was lost", async () => {
  const server = await Server.start();
  const proxy = await Proxy.start(server);
  const { client, close } = await single["ioredis 5"](proxy);
  proxy.losing = true;
  await client.call("RL.TAKE", "k", "5", "0.01");
  assert.equal(Math.round(await server.admin.hget("k", "tokens")), 3, "two takes: what the limiter must prevent");
  close();
  await proxy.stop();
  await server.stop();
});

for (const name of ["ioredis 5", "ioredis 6"]) {
  const connect = (url) => single[name]({ url }, { enableReadyCheck: false, ...(name === "ioredis 6" ? { protocol: 2 } : {}) });

  test(`what a server did not carry out is sent again within the timeout: ${name}`, async () => {
    const allowed = "*4\r\n:1\r\n:0\r\n*4\r\n:1\r\n:999\r\n:0\r\n:1\r\n*4\r\n:1\r\n:4\r\n:0\r\n:1\r\n";
    const server = await scripted(["-LOADING Redis is loading\r\n", "-TRYAGAIN Multiple keys\r\n", "-CLUSTERDOWN down\r\n", "-MASTERDOWN x\r\n", allowed]);
    const { client, close } = await connect(server.url);
    const decision = await createLimiter({ client, policy: { ...POLICY, timeoutMs: 2000 } }).authorize("acme", "search", 1);
    assert.deepEqual([decision.source, decision.quota.remaining, server.commands.length], ["server", 4, 5]);
    close();
    await server.stop();
  });

  test(`what a server refused otherwise, or answered strangely, is not sent again: ${name}`, async () => {
    for (const reply of ["-ERR something\r\n", "-READONLY x\r\n", "-MOVED 1 127.0.0.1:1\r\n", "+OK\r\n", "*0\r\n", "*3\r\n:1\r\n:0\r\n*1\r\n:1\r\n"]) {
      const server = await scripted([reply]);
      const { client, close } = await connect(server.url);
      const events = [];
      const limiter = createLimiter({ client, policy: { ...POLICY, timeoutMs: 2000 }, onUnavailable: (event) => events.push(event) });
      const decision = await limiter.authorize("acme", "search", 1);
      const seen = [decision.source, events.map((event) => event.reason), server.commands];
      assert.deepEqual(seen, ["failure_policy", ["server_error"], ["RL.TAKEALL"]], reply);
      close();
      await server.stop();
    }
  });
}

describe("on a cluster", () => {
  let cluster;
  before(async () => (cluster = await Cluster.start()));
  after(() => cluster.stop());

  /** A client that reaches the first node through a proxy, and tenants whose buckets are on that node, or are not. */
  async function throughProxy(name) {
    const [first] = cluster.nodes;
    const proxy = await Proxy.start(first);
    const natMap = { [`127.0.0.1:${first.port}`]: { host: "127.0.0.1", port: proxy.port } };
    const options = name.startsWith("node-redis") ? { nodeAddressMap: natMap } : { natMap: (key) => natMap[key] ?? null };
    const { client, close } = await clusters[name](cluster, options);
    const tenantOn = (wanted) => {
      for (;;) {
        const tenant = newTenant();
        if ((cluster.master(slot(tenantKeys(tenant, "search", 1)[0].route)) === first) === wanted) return tenant;
      }
    };
    const tokens = async (tenant) => first.admin.hget(`{${tenant}}:rl:search:0`, "tokens");
    return { proxy, client, close: () => (close(), proxy.stop()), tenantOn, tokens };
  }

  for (const name of Object.keys(clusters)) {
    test(`a take that waited for a node in vain is not carried out when the node is back: ${name}`, async () => {
      const { proxy, client, close, tenantOn, tokens } = await throughProxy(name);
      const limiter = createLimiter({ client, policy: POLICY, onUnavailable: () => {} });
      const served = (on) => async () => (await limiter.authorize(tenantOn(on), "search", 1)).source === "server";
      await until("a server's answer", served(true));
      proxy.hold();
      const tenant = tenantOn(true);
      await until("a take waits in the connection that is being made", async () => {
        const [decision, ms] = await timed(limiter.authorize(tenant, "search", 1));
        assert.equal(decision.source, "failure_policy");
        assert.ok(ms < 60 + MARGIN_MS, `${ms} ms`);
        return proxy.held.length > 0;
      });
      for (let i = 0; i < 3; i++) assert.equal((await limiter.authorize(tenant, "search", 1)).source, "failure_policy");
      assert.equal(await served(false)(), true, "other nodes are not held up");
      proxy.release();
      await until("the node is back", served(true));
      assert.equal(await tokens(tenant), null);
      await close();
    });

    test(`a take whose reply is lost is not sent again: ${name}`, async () => {
      const { proxy, client, close, tenantOn, tokens } = await throughProxy(name);
      const events = [];
      const policy = { ...POLICY, timeoutMs: 2000 };
      const limiter = createLimiter({ client, policy, onUnavailable: (event) => events.push(event.reason) });
      const served = async () => (await limiter.authorize(tenantOn(true), "search", 1)).source === "server";
      await until("a server's answer", served);
      const tenant = tenantOn(true);
      proxy.losing = true;
      const decision = await limiter.authorize(tenant, "search", 1);
      assert.deepEqual([proxy.lost, decision.source, events.at(-1)], [1, "failure_policy", "connection"]);
      await until("the client is back", served);
      assert.equal(Math.round(await tokens(tenant)), 4, "one take");
      await close();
    });
  }
});

test("a cluster of ioredis by itself sends a command again whose reply was lost", async () => {
  const cluster = await Cluster.start();
  const [first] = cluster.nodes;
  const proxy = await Proxy.start(first);
  const natMap = { [`127.0.0.1:${first.port}`]: { host: "127.0.0.1", port: proxy.port } };
  const { client, close } = await clusters["ioredis 5"](cluster, { natMap });
  client.defineCommand("take", { numberOfKeys: 1, lua: "return redis.call('HINCRBY', KEYS[1], 'taken', 1)" });
  const key = ["a", "b", "c", "d", "e", "f"].find((key) => cluster.master(slot(key)) === first);
  await client.take(key);
  proxy.pattern = /eval/i;
  proxy.losing = true;
  await client.take(key);
  assert.equal(await first.admin.hget(key, "taken"), "3", "of two calls: what the limiter must prevent");
  close();
  await proxy.stop();
  await cluster.stop();
});

test("a client that is closed, and one that never connects, are decided for", async () => {
  const { Redis } = await import("ioredis");
  const { createClient } = await import("redis");
  const port = await freePort();
  const closed = new Redis({ port, lazyConnect: true });
  closed.disconnect();
  const never = new Redis({ port, lazyConnect: true });
  never.on("error", () => {});
  for (const client of [closed, never, createClient({ url: `redis://127.0.0.1:${port}` })]) {
    const limiter = createLimiter({ client, policy: { ...POLICY, onFailure: "closed" }, onUnavailable: () => {} });
    const [decision, ms] = await timed(limiter.authorize("acme", "search", 1));
    assert.equal(decision.reason, "unavailable");
    assert.ok(ms < 60 + MARGIN_MS, `${ms} ms`);
  }
  never.disconnect();
});
