/** What onDecision is given as one line of JSON, without its line break: for quotas that are billed. */
export function logLine({ timeMs, event, tenant, route, tokens, decision }) {
  const line = { time_ms: timeMs, event, tenant, route, tokens, allowed: decision?.allowed ?? true };
  if (!decision) return JSON.stringify(line);
  const { reason, soft, shadow, source, quota, retryAfterMs } = decision;
  return JSON.stringify({ ...line, reason, soft, shadow, source, remaining: quota?.remaining ?? null, retry_after_ms: retryAfterMs });
}
