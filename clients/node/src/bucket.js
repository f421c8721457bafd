// What this process knows of one bucket: how full each shard was last seen, which denials still hold, and the local bucket
// that stands in when Redis is away. Times are ms of a clock that does not step.

/** A reply of RL.TAKE, RL.PEEK, RL.GIVE, RL.CHARGE, or one inner array of RL.TAKEALL. */
export function readReply(reply) {
  const numbers = Array.isArray(reply) && reply.length === 4 ? reply.map(Number) : [];
  if (numbers.length !== 4 || !numbers.every(Number.isSafeInteger)) throw new Error("not the reply of a bucket");
  const [allowed, remaining, retryAfterMs, resetAfterMs] = numbers;
  return { allowed: allowed === 1, remaining, retryAfterMs, resetAfterMs };
}

export class Bucket {
  /** @param {"tenant"|"route"|"cell"} scope @param keys one for each shard, as they are sent */
  constructor(scope, keys) {
    this.scope = scope;
    this.shards = keys.map((key) => ({ ...key, seen: undefined, denial: undefined }));
    this.local = undefined;
  }

  /** How many tokens a shard is believed to hold: what it had plus the refill since. One that nothing is known of is full. */
  believed(index, part, now) {
    const { seen } = this.shards[index];
    return seen ? Math.min(part.tokens, seen.remaining + (now - seen.at) * part.perMs) : part.tokens;
  }

  /** Remembers what a shard answered. */
  saw(index, part, cost, reply, now) {
    const shard = this.shards[index];
    shard.seen = { remaining: reply.remaining, at: now };
    // What can never succeed is for the server to say, and a bucket that allows is best asked.
    shard.denial = reply.allowed || reply.retryAfterMs < 0 ? undefined : { until: now + reply.retryAfterMs, cost, part };
  }

  /**
   * The denial by an earlier reply, if it still holds. Another cost than the one that was denied is there later or earlier by
   * the refill of the difference, to within the millisecond to which the server rounded; that one is left to the server.
   */
  held(index, part, cost, now) {
    const { denial } = this.shards[index];
    if (!denial || cost === 0 || cost > part.tokens) return undefined;
    if (denial.part.capacity !== part.capacity || denial.part.rate !== part.rate) return undefined;
    const later = cost === denial.cost ? 0 : (cost - denial.cost) / part.perMs - 1;
    const left = denial.until + later - now;
    if (left <= 0) return undefined;
    const tokens = this.believed(index, part, now);
    const resetAfterMs = Math.ceil((part.tokens - tokens) / part.perMs);
    return { allowed: false, remaining: Math.floor(tokens), retryAfterMs: Math.ceil(left), resetAfterMs };
  }

  /** Asks the local bucket, which has the whole limit and starts full; `take` is called if all buckets allowed. */
  askLocal(part, cost, now) {
    const refilled = this.local ? this.local.tokens + Math.max(0, now - this.local.at) * part.perMs : part.tokens;
    const tokens = Math.min(part.tokens, refilled);
    // A nanotoken of tolerance, so that waiting exactly as long as was said is enough in spite of binary fractions.
    const allowed = tokens + 1e-9 >= cost;
    const left = Math.max(0, allowed ? tokens - cost : tokens);
    return {
      allowed,
      remaining: Math.floor(left + 1e-9),
      retryAfterMs: allowed ? 0 : cost > part.tokens ? -1 : Math.ceil((cost - tokens) / part.perMs - 1e-6),
      resetAfterMs: Math.ceil((part.tokens - left) / part.perMs - 1e-6),
      take: () => (this.local = { tokens: left, at: now }),
    };
  }

  /** How the bucket stands after a reply. If it has shards, all but the capacity is an estimate from the one that was asked. */
  quota(index, { limit, parts }, reply) {
    const part = parts[index];
    // Counted back from full, which the server gave exactly: what will still be missing when the next token is there.
    const missingThen = Math.max(0, part.tokens - (reply.remaining + 1));
    const moreAfterMs = Math.max(1, reply.resetAfterMs - Math.floor(missingThen / part.perMs));
    return {
      scope: this.scope,
      capacity: limit.capacity,
      timeToFillMs: limit.timeToFillMs,
      remaining: Math.min(limit.capacity, reply.remaining * parts.length),
      moreAfterMs: reply.resetAfterMs > 0 ? moreAfterMs : null,
      resetAfterMs: reply.resetAfterMs,
    };
  }
}
