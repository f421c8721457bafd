// Which shards to ask, and which need not be asked.

import { answer, longest, soonest } from "./decision.js";
import { RateLimitError } from "./error.js";

/**
 * The shards to ask, in order: of two at random the one believed fuller, then the other. With one random shard, some run dry
 * while others are full; asking more would cost round trips exactly when a tenant is over its limit.
 */
export function order(targets, cost, now) {
  const count = targets[0].rule.parts.length;
  if (count === 1) return [0];
  // No later shard holds more than an earlier one, so those that can hold the cost are the first ones.
  const fit = Math.min(...targets.map(({ rule }) => rule.parts.filter((part) => cost <= part.tokens).length));
  if (fit === 0) {
    throw new RateLimitError("cost_above_shard", `cost ${cost} is above the capacity of each of ${count} shards`);
  }
  if (fit === 1) return [0];
  const one = Math.floor(Math.random() * fit);
  const other = (one + 1 + Math.floor(Math.random() * (fit - 1))) % fit;
  const least = (index) => Math.min(...targets.map((target) => fullness(target, index, now)));
  return least(one) >= least(other) ? [one, other] : [other, one];
}

/**
 * The tokens that a shard is believed to hold, less what its part of an uneven capacity has more than the smallest: counted
 * in, a tenant far below its limit would always ask its first shards.
 */
function fullness({ bucket, rule: { parts } }, index, now) {
  return bucket.believed(index, parts[index], now) - (parts[index].tokens - parts.at(-1).tokens);
}

/** The denial by one shard that still holds: of several buckets' the one that lasts longest. */
export function heldDenial({ policy, takes, cost }, targets, index, now) {
  if (!policy.denialCache || !takes) return undefined;
  const denials = targets.flatMap((target) => {
    const reply = target.bucket.held(index, target.rule.parts[index], cost, now);
    return reply ? [answer(target, index, reply, "denial_cache")] : [];
  });
  return denials.length ? longest(denials) : undefined;
}

/** The denial that needs no server: all shards to ask have denied before, and that still holds. */
export function heldByAll(request, targets, shards, now) {
  const held = shards.map((index) => heldDenial(request, targets, index, now));
  return held.every(Boolean) ? soonest(held) : undefined;
}
