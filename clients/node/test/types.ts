// Compiled, not run: what a caller writes has types, and what is wrong is refused.

import { createWriteStream } from "node:fs";
import express from "express";
import fastify from "fastify";
import { Cluster, Redis } from "ioredis";
import { Cluster as Cluster6, Redis as Redis6 } from "ioredis6";
import { createClient, createCluster } from "redis";
import { createClient as createClient5, createCluster as createCluster5 } from "redis5";
import { createLimiter, logLine, type Decision, type Policy } from "redis-token-bucket";
import { rateLimit } from "redis-token-bucket/express";
import rateLimitPlugin from "redis-token-bucket/fastify";

const policy: Policy = { tenant: "1000 burst, 200/s", route: "50 burst, 20/s", onFailure: "local" };

const limiters = [
  createLimiter({ client: new Redis(), policy }),
  createLimiter({ client: new Redis6(), policy }),
  createLimiter({ client: new Cluster([]), policy }),
  createLimiter({ client: new Cluster6([]), policy }),
  createLimiter({ client: createClient(), policy: async (tenant, route) => (tenant === route ? policy : { ...policy, shards: 16 }) }),
  createLimiter({ client: createCluster({ rootNodes: [] }), policy }),
  createLimiter({ client: createClient5(), policy }),
  createLimiter({ client: createCluster5({ rootNodes: [] }), policy }),
];

const log = createWriteStream("decisions.log");
const limiter = createLimiter({
  client: new Redis(),
  policy,
  onDecision: (event) => {
    log.write(`${logLine(event)}\n`);
    if (event.event === "authorize") event.decision.quota?.remaining.toFixed();
    else event.quota.remaining.toFixed();
  },
  onUnavailable: ({ reason }) => console.error(reason satisfies string),
});

const decision: Decision = await limiter.authorize("acme", "search");
const wait: number | null = decision.retryAfterMs;
await limiter.give("acme", "search", wait ?? 1);

const app = express();
app.use(rateLimit(limiter, { tenant: (request: express.Request) => String(request.get("x-tenant")), route: "search" }));
app.get("/", rateLimit(limiter, { tenant: () => "acme", route: "search", cost: 3, skip: () => false }), (request, response) => {
  response.json(request.rateLimit?.quota);
});

const server = fastify();
server.register(rateLimitPlugin, { limiter, tenant: (request) => String(request.headers["x-tenant"]), route: "search" });
server.get("/", async (request) => request.rateLimit?.quota);

// @ts-expect-error a policy has two limits
createLimiter({ client: new Redis(), policy: { tenant: "1 burst, 1/s" } });
// @ts-expect-error no such field
createLimiter({ client: new Redis(), policy: { ...policy, time_out: 5 } });
// @ts-expect-error no client
createLimiter({ client: "redis://127.0.0.1", policy });
// @ts-expect-error a tenant is text
limiter.authorize(42, "search");
// @ts-expect-error a tenant must be told
rateLimit(limiter, { route: "search" });

export { limiters };
