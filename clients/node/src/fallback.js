// The failure policy: what is decided when Redis does not answer.

import { allowed, answer, denied, tighter } from "./decision.js";

/** When to try again after a denial by a closed failure policy: nobody knows, and a second is the least that HTTP can say. */
const CLOSED_RETRY_MS = 1000;

/** Decides about the buckets that have not answered; `quota` is what the others said, null if none did. */
export function decideWithoutRedis(request, targets, quota, now) {
  const { shadow, onFailure } = request.policy;
  if (onFailure === "open") return allowed(request, quota, "failure_policy");
  if (onFailure === "closed") {
    const retry = { reason: "unavailable", retryAfterMs: CLOSED_RETRY_MS, never: false };
    return { allowed: shadow, ...retry, soft: false, shadow, source: "failure_policy", quota: null };
  }
  // The buckets in this process have the whole limits; from all of them or from none.
  const whole = targets.map(({ bucket, rule }) => ({ bucket, rule: { limit: rule.limit, parts: rule.limit.shards(1) } }));
  const replies = whole.map(({ bucket, rule }) => bucket.askLocal(rule.parts[0], request.cost, now));
  const answers = replies.map((reply, i) => answer(whole[i], 0, reply, "failure_policy"));
  const no = answers.find((answer) => !answer.allowed);
  if (no) return denied(request, no);
  if (request.takes) for (const reply of replies) reply.take();
  return allowed(request, quota ?? tighter(answers.map((answer) => answer.quota)), "failure_policy");
}
