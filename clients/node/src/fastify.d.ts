import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from "fastify";
import type { Decision, Limiter } from "./index.js";

export interface RateLimitOptions {
  limiter: Limiter;
  /** The tenant that a request is for: what the client has proved to be, not what it says. */
  tenant: (request: FastifyRequest) => string | Promise<string>;
  /** One of a few names of your own, not a path with ids in it: each has a bucket. */
  route: string | ((request: FastifyRequest) => string | Promise<string>);
  /** 1 by default. */
  cost?: number | ((request: FastifyRequest) => number | Promise<number>);
  /** Requests that pass unasked. */
  skip?: (request: FastifyRequest) => boolean | Promise<boolean>;
  /** When to ask; `"onRequest"`, the first, by default. */
  hook?: "onRequest" | "preParsing" | "preValidation" | "preHandler";
  onAllowed?: (request: FastifyRequest, reply: FastifyReply, decision: Decision) => unknown;
  /** Answers a denied request with `reply.send`; status and fields are set. */
  onDenied?: (request: FastifyRequest, reply: FastifyReply, decision: Decision) => unknown;
}

declare const rateLimit: FastifyPluginAsync<RateLimitOptions>;
export default rateLimit;

declare module "fastify" {
  interface FastifyRequest {
    rateLimit: Decision | null;
  }
}
