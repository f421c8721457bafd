// A plugin for fastify 5: `app.register(rateLimit, { limiter, tenant, route })`.

import { body, fields, judge, status } from "./http.js";

export default async function rateLimit(app, options) {
  const { limiter, hook = "onRequest", onAllowed, onDenied } = options;
  const ask = judge(limiter, options);
  if (!app.hasRequestDecorator("rateLimit")) app.decorateRequest("rateLimit", null);
  app.addHook(hook, async (request, reply) => {
    const decision = await ask(request);
    if (!decision) return;
    request.rateLimit = decision;
    for (const [name, value] of fields(decision)) reply.header(name, value);
    if (decision.allowed) return void (await onAllowed?.(request, reply, decision));
    reply.code(status(decision));
    if (onDenied) await onDenied(request, reply, decision);
    else reply.send(body(decision));
    return reply;
  });
}

// It holds for the routes of the application that registers it, not only for those inside the plugin.
rateLimit[Symbol.for("skip-override")] = true;
