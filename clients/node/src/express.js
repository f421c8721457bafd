// Middleware for Express 4 and 5. It uses only what Node's own response has, so connect and others like it will do.

import { body, fields, judge, status } from "./http.js";

export function rateLimit(limiter, options) {
  const { onAllowed, onDenied = refuse } = options;
  const ask = judge(limiter, options);
  return async function rateLimit(request, response, next) {
    try {
      const decision = await ask(request);
      if (decision) {
        request.rateLimit = decision;
        for (const [name, value] of fields(decision)) response.setHeader(name, value);
        if (!decision.allowed) {
          response.statusCode = status(decision);
          return await onDenied(request, response, next, decision);
        }
        await onAllowed?.(request, response, decision);
      }
    } catch (error) {
      return next(error);
    }
    next();
  };
}

function refuse(request, response, next, decision) {
  response.setHeader("Content-Type", "text/plain; charset=utf-8");
  response.end(body(decision));
}
