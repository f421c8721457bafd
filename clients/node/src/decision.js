// The one answer to every request, and which of several answers counts.

/** `quota` is of the tighter of the tenant-wide and the route bucket; null if no bucket was looked at. */
export function allowed({ policy }, quota, source) {
  const soft = quota !== null && quota.remaining < policy.softLimit;
  return { allowed: true, reason: null, retryAfterMs: null, never: false, soft, shadow: policy.shadow, source, quota };
}

/** In shadow mode a denial is allowed; its reason says what would have been. */
export function denied({ policy: { shadow } }, { scope, retryAfterMs, quota, source }) {
  const never = retryAfterMs < 0;
  const retry = { reason: `${scope}_limit`, retryAfterMs: never ? null : retryAfterMs, never };
  return { allowed: shadow, ...retry, soft: false, shadow, source, quota };
}

/** The answer of one bucket to a request: its reply, and how it stands. */
export function answer({ bucket, rule }, index, reply, source) {
  return { ...reply, scope: bucket.scope, quota: bucket.quota(index, rule, reply), source };
}

const waits = ({ retryAfterMs }) => (retryAfterMs < 0 ? Infinity : retryAfterMs);

/** Of denials by buckets that must all allow, the one that lasts longest; the first of equals. */
export const longest = (denials) => denials.reduce((one, other) => (waits(other) > waits(one) ? other : one));

/** Of denials by shards of which one must allow, the one that is over soonest; the first of equals. */
export const soonest = (denials) => denials.reduce((one, other) => (waits(other) < waits(one) ? other : one));

/** Of the quotas of the tenant-wide and the route bucket the one with fewer tokens left. */
export const tighter = ([tenant, route]) => (tenant.remaining < route.remaining ? tenant : route);
