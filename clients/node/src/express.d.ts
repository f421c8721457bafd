import type { IncomingMessage, ServerResponse } from "node:http";
import type { Decision, Limiter } from "./index.js";

type Next = (error?: unknown) => void;

export interface RateLimitOptions<Request, Response> {
  /** The tenant that a request is for: what the client has proved to be, not what it says. */
  tenant: (request: Request) => string | Promise<string>;
  /** One of a few names of your own, not a path with ids in it: each has a bucket. */
  route: string | ((request: Request) => string | Promise<string>);
  /** 1 by default. */
  cost?: number | ((request: Request) => number | Promise<number>);
  /** Requests that pass unasked. */
  skip?: (request: Request) => boolean | Promise<boolean>;
  /** Called before an allowed request goes on: for what is `soft`, say. */
  onAllowed?: (request: Request, response: Response, decision: Decision) => unknown;
  /** Answers a denied request; status and fields are set. */
  onDenied?: (request: Request, response: Response, next: Next, decision: Decision) => unknown;
}

/** Middleware for Express; handlers find the decision in `request.rateLimit`. */
export function rateLimit<Request extends IncomingMessage = any, Response extends ServerResponse = any>(
  limiter: Limiter,
  options: RateLimitOptions<Request, Response>,
): (request: Request, response: Response, next: Next) => Promise<void>;

declare global {
  namespace Express {
    interface Request {
      rateLimit?: Decision;
    }
  }
}
