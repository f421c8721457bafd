// A decision as HTTP says it: the status, and the fields Retry-After, RateLimit-Policy and RateLimit of
// draft-ietf-httpapi-ratelimit-headers-10. Shared by the Express middleware and the fastify plugin.

/** 429 for a limit, 503 when Redis is away and the failure policy is closed, 200 when the request may go on. */
export function status(decision) {
  if (decision.allowed) return 200;
  return decision.reason === "unavailable" ? 503 : 429;
}

/** The fields to send with the response, allowed or not: `[name, value]` pairs. */
export function fields(decision) {
  const { quota } = decision;
  const wait = decision.allowed ? null : decision.retryAfterMs;
  const fields = [];
  if (wait !== null) fields.push(["Retry-After", String(seconds(wait))]);
  if (quota) {
    const more = wait ?? quota.moreAfterMs;
    fields.push(["RateLimit-Policy", `"${quota.scope}";q=${quota.capacity};w=${seconds(quota.timeToFillMs)}`]);
    fields.push(["RateLimit", `"${quota.scope}";r=${quota.remaining}${more === null ? "" : `;t=${seconds(more)}`}`]);
  }
  return fields;
}

/** Whole seconds, rounded up, at least 1; the error of a float, below a µs, makes no second. */
function seconds(ms) {
  return Math.max(1, Math.ceil(Number((ms / 1000).toFixed(6))));
}

/** Checks the options that Express and fastify share, and returns the function that asks about a request. */
export function judge(limiter, { tenant, route, cost = 1, skip }) {
  if (typeof limiter?.authorize !== "function") throw new TypeError("limiter must be one of createLimiter");
  if (typeof tenant !== "function") throw new TypeError("tenant must be a function of the request");
  if (!route || !["string", "function"].includes(typeof route)) throw new TypeError("route must be a name or a function");
  // async, so that one that throws does not leave another's rejection unhandled.
  const value = async (given, request) => (typeof given === "function" ? given(request) : given);
  return async (request) => {
    if (await skip?.(request)) return undefined;
    const [who, what, tokens] = await Promise.all([tenant, route, cost].map((given) => value(given, request)));
    try {
      return await limiter.authorize(who, what, tokens);
    } catch (error) {
      if (error.code !== "cost_above_shard") throw error;
      // A denial for ever that no bucket was asked for.
      const never = { allowed: false, reason: "route_limit", retryAfterMs: null, never: true, soft: false };
      return { ...never, shadow: false, source: "server", quota: null };
    }
  };
}

/** What a denied request is answered if the service says nothing else. */
export const body = (decision) => (status(decision) === 503 ? "Service Unavailable" : "Too Many Requests");
