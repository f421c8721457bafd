import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, describe, test } from "node:test";
import express5 from "express";
import express4 from "express4";
import fastify from "fastify";
import { createLimiter, fields, status } from "../src/index.js";
import { rateLimit } from "../src/express.js";
import rateLimitPlugin from "../src/fastify.js";
import { single } from "./clients.js";
import { Server, freePort } from "./servers.js";

const POLICY = { tenant: "1000 burst, 100/s", route: "3 burst, 0.004/s", timeoutMs: 5000, onFailure: "closed" };

const QUOTA = { scope: "route", capacity: 50, timeToFillMs: 2500, remaining: 12, moreAfterMs: 30, resetAfterMs: 1880 };
const ALLOWED = { allowed: true, reason: null, retryAfterMs: null, never: false, soft: false, shadow: false, source: "server", quota: QUOTA };
const denial = (retryAfterMs) => ({ ...ALLOWED, allowed: false, reason: "route_limit", retryAfterMs, never: retryAfterMs === null });

test("an allowed request is told what remains", () => {
  assert.equal(status(ALLOWED), 200);
  assert.deepEqual(fields(ALLOWED), [["RateLimit-Policy", '"route";q=50;w=3'], ["RateLimit", '"route";r=12;t=1']]);
});

test("a full bucket says no time", () => {
  const full = { ...ALLOWED, quota: { ...QUOTA, remaining: 50, moreAfterMs: null, resetAfterMs: 0 } };
  assert.deepEqual(fields(full)[1], ["RateLimit", '"route";r=50']);
});

test("Retry-After is in whole seconds, rounded up, and at least 1", () => {
  for (const [ms, seconds] of [[1, 1], [999, 1], [1000, 1], [1001, 2], [2500, 3], [86_400_000, 86_400]]) {
    const denied = denial(ms);
    assert.equal(status(denied), 429);
    assert.deepEqual(fields(denied)[0], ["Retry-After", String(seconds)], `${ms} ms`);
    assert.deepEqual(fields(denied)[2], ["RateLimit", `"route";r=12;t=${seconds}`]);
  }
});

test("a request that can never succeed is not told when to retry", () => {
  assert.deepEqual(fields(denial(null)).map(([name]) => name), ["RateLimit-Policy", "RateLimit"]);
});

test("a denial by a closed failure policy is the service unavailable", () => {
  const closed = { ...denial(1000), reason: "unavailable", source: "failure_policy", quota: null };
  assert.deepEqual([status(closed), fields(closed)], [503, [["Retry-After", "1"]]]);
});

test("a denial in shadow mode looks allowed", () => {
  const shadowed = { ...denial(9000), allowed: true, shadow: true };
  assert.equal(status(shadowed), 200);
  assert.deepEqual(fields(shadowed), fields(ALLOWED));
});

test("the window is the time to fill, without a float's error", () => {
  const window = (timeToFillMs) => fields({ ...ALLOWED, quota: { ...QUOTA, timeToFillMs } })[0][1];
  for (const [ms, w] of [[0, 1], [400, 1], [3000.0000000000005, 3], [3000.01, 4]]) assert.equal(window(ms), `"route";q=50;w=${w}`);
});

let server, client, close;
before(async () => {
  server = await Server.start();
  ({ client, close } = await single["ioredis 5"](server));
});
after(async () => {
  close();
  await server.stop();
});

let names = 0;
const newTenant = () => `tenant-${names++}`;
const tenant = (request) => request.headers["x-tenant"];

/** The numbers of RateLimit and Retry-After; seconds are those of the whole wait if less than 50 s of it have passed. */
function told(response) {
  const whole = (seconds) => (seconds > 200 && seconds <= 250 ? 250 : seconds);
  const [, r, t] = /^"route";r=(\d+);t=(\d+)$/.exec(response.headers.get("ratelimit")) ?? [];
  const after = response.headers.get("retry-after");
  return { status: response.status, r: Number(r), t: whole(Number(t)), retryAfter: after && whole(Number(after)) };
}

async function listening(express, middleware, handler = (request, response) => response.send("found"), onError) {
  const app = express();
  app.use(middleware);
  app.get("/search", handler);
  app.use((error, request, response, next) => {
    onError?.(error);
    response.status(500).send(error.name);
  });
  const listener = app.listen(0, "127.0.0.1");
  await once(listener, "listening");
  const get = (tenant, path = "/search") =>
    fetch(`http://127.0.0.1:${listener.address().port}${path}`, { headers: { "x-tenant": tenant } });
  return { get, stop: () => new Promise((resolve) => (listener.close(resolve), listener.closeAllConnections())) };
}

for (const [name, express] of Object.entries({ "Express 4": express4, "Express 5": express5 })) {
  describe(name, () => {
    test("requests are served with their fields, then answered 429", async () => {
      const limiter = createLimiter({ client, policy: POLICY });
      const seen = [];
      const handler = (request, response) => response.json(seen.push(request.rateLimit));
      const { get, stop } = await listening(express, rateLimit(limiter, { tenant, route: "search" }), handler);
      const who = newTenant();
      for (const left of [2, 1, 0]) {
        const response = await get(who);
        assert.equal(response.headers.get("ratelimit-policy"), '"route";q=3;w=750');
        assert.deepEqual(told(response), { status: 200, r: left, t: 250, retryAfter: null });
      }
      const denied = await get(who);
      assert.deepEqual(told(denied), { status: 429, r: 0, t: 250, retryAfter: 250 });
      assert.equal(await denied.text(), "Too Many Requests");
      assert.equal((await get(newTenant())).status, 200, "another tenant");
      assert.equal(seen.length, 4, "the handler was not asked for the denied one");
      assert.equal(seen[0].quota.remaining, 2);
      await stop();
    });

    test("keys, costs and skipped requests are the service's own", async () => {
      const limiter = createLimiter({ client, policy: POLICY });
      const options = {
        tenant: async (request) => `${tenant(request)}-of-${request.query.plan ?? "free"}`,
        route: (request) => request.path.slice(1),
        cost: (request) => Number(request.query.cost ?? 1),
        skip: (request) => request.query.skip === "yes",
      };
      const { get, stop } = await listening(express, rateLimit(limiter, options));
      const who = newTenant();
      assert.equal(told(await get(who, "/search?cost=3")).r, 0);
      assert.equal((await get(who)).status, 429);
      assert.equal((await get(who, "/search?plan=gold")).status, 200);
      const skipped = await get(who, "/search?skip=yes");
      assert.deepEqual([skipped.status, skipped.headers.get("ratelimit")], [200, null]);
      const never = await get(who, "/search?plan=gold&cost=4");
      assert.deepEqual([never.status, never.headers.get("retry-after")], [429, null]);
      await stop();
    });

    test("hooks see the decision and answer in their own way", async () => {
      const limiter = createLimiter({ client, policy: { ...POLICY, softLimit: 2 } });
      const options = {
        tenant,
        route: "search",
        onAllowed: (request, response, { soft }) => response.setHeader("x-soft", String(soft)),
        onDenied: (request, response, next, { reason }) => response.json({ reason }),
      };
      const { get, stop } = await listening(express, rateLimit(limiter, options));
      const who = newTenant();
      const soft = [];
      for (let i = 0; i < 3; i++) soft.push((await get(who)).headers.get("x-soft"));
      assert.deepEqual(soft, ["false", "true", "true"]);
      const denied = await get(who);
      assert.deepEqual(told(denied), { status: 429, r: 0, t: 250, retryAfter: 250 });
      assert.deepEqual(await denied.json(), { reason: "route_limit" });
      await stop();
    });

    test("what cannot be decided goes to the error handler, but a cost above every shard is a denial", async () => {
      const errors = [];
      const limiter = createLimiter({ client, policy: POLICY });
      const options = { tenant: (request) => request.headers["x-no-such"], route: "search" };
      const wrong = await listening(express, rateLimit(limiter, options), undefined, (error) => errors.push(error));
      assert.equal((await wrong.get("acme")).status, 500);
      assert.match(errors[0].message, /tenant must be a string/);
      await wrong.stop();

      // Two that fail at the same time are one error, and no unhandled rejection that would end the service.
      const fail = (message) => { throw new Error(message); };
      const both = { tenant: async () => fail("no tenant"), route: () => fail("no route") };
      const twice = await listening(express, rateLimit(limiter, both), undefined, (error) => errors.push(error));
      assert.equal((await twice.get("acme")).status, 500);
      assert.match(errors[1].message, /^no (tenant|route)$/);
      await twice.stop();

      const sharded = createLimiter({ client, policy: { ...POLICY, shards: 3 } });
      const { get, stop } = await listening(express, rateLimit(sharded, { tenant, route: "search", cost: 2 }));
      const denied = await get(newTenant());
      assert.deepEqual([denied.status, denied.headers.get("retry-after")], [429, null]);
      await stop();
    });
  });
}

test("without Redis a closed failure policy answers 503, an open one serves", async () => {
  const { Redis } = await import("ioredis");
  const away = new Redis({ port: await freePort(), retryStrategy: () => 20 });
  away.on("error", () => {});
  for (const [onFailure, expected] of [["closed", 503], ["open", 200], ["local", 200]]) {
    const limiter = createLimiter({ client: away, policy: { ...POLICY, timeoutMs: 50, onFailure }, onUnavailable: () => {} });
    const { get, stop } = await listening(express5, rateLimit(limiter, { tenant, route: "search" }));
    const response = await get(newTenant());
    assert.equal(response.status, expected);
    assert.equal(response.headers.get("retry-after"), expected === 503 ? "1" : null);
    await stop();
  }
  away.disconnect();
});

test("options that could not work are refused when the service starts", () => {
  const limiter = createLimiter({ client, policy: POLICY });
  assert.throws(() => rateLimit({}, { tenant, route: "search" }), /limiter must/);
  assert.throws(() => rateLimit(limiter, { route: "search" }), /tenant must/);
  assert.throws(() => rateLimit(limiter, { tenant }), /route must/);
});

test("fastify serves requests with their fields, then answers 429, on routes beside the plugin", async () => {
  const limiter = createLimiter({ client, policy: POLICY });
  const app = fastify();
  const options = { limiter, tenant, route: "search", skip: (request) => request.url === "/health" };
  await app.register(rateLimitPlugin, options);
  app.get("/search", async (request) => request.rateLimit.quota.remaining);
  app.get("/health", async () => "up");
  const address = await app.listen({ port: 0, host: "127.0.0.1" });
  const who = newTenant();
  const get = (path) => fetch(`${address}${path}`, { headers: { "x-tenant": who } });
  for (const left of [2, 1, 0]) {
    const response = await get("/search");
    assert.deepEqual(told(response), { status: 200, r: left, t: 250, retryAfter: null });
    assert.equal(await response.json(), left);
  }
  const denied = await get("/search");
  assert.deepEqual(told(denied), { status: 429, r: 0, t: 250, retryAfter: 250 });
  assert.equal(await denied.text(), "Too Many Requests");
  assert.equal((await get("/health")).status, 200);
  await app.close();

  const own = fastify();
  await own.register(rateLimitPlugin, { ...options, onDenied: (request, reply, { reason }) => reply.send({ reason }) });
  own.get("/search", async () => "found");
  const response = await fetch(`${await own.listen({ port: 0, host: "127.0.0.1" })}/search`, { headers: { "x-tenant": who } });
  assert.deepEqual([response.status, await response.json()], [429, { reason: "route_limit" }]);
  await own.close();
});

test("fastify bears the plugin twice: for the whole application, and once more for what is dear", async () => {
  const limiter = createLimiter({ client, policy: (_, route) => ({ ...POLICY, route: `${route === "all" ? 3 : 1} burst, 0.004/s` }) });
  const app = fastify();
  await app.register(rateLimitPlugin, { limiter, tenant, route: "all" });
  app.get("/search", async () => "found");
  await app.register(async (dear) => {
    await dear.register(rateLimitPlugin, { limiter, tenant, route: "export" });
    dear.get("/export", async () => "exported");
  });
  const address = await app.listen({ port: 0, host: "127.0.0.1" });
  const who = newTenant();
  const statuses = [];
  for (const path of ["/export", "/export", "/search", "/search"]) {
    statuses.push((await fetch(`${address}${path}`, { headers: { "x-tenant": who } })).status);
  }
  assert.deepEqual(statuses, [200, 429, 200, 429]);
  await app.close();
});
