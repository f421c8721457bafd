// A capacity and a rate, `"50 burst, 20/s"`, and how they are cut into shards. The capacity is kept in whole nanotokens and
// the period in whole milliseconds; the rate's tokens stay as they were written, because the server reads their digits.

export const MAX_TOKENS = Number.MAX_SAFE_INTEGER;
const NANOS = 1_000_000_000n;
const UNITS_MS = { ms: 1n, s: 1_000n, m: 60_000n, h: 3_600_000n, d: 86_400_000n };
const MAX_FILL_MS = 100 * 31_557_600 * 1000;
const NUMBER = /^(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d{1,3}))?$/;

export class Limit {
  /** @param {string} text such as `"50 burst, 20/s"`, `"100 burst, 5/15m"` */
  constructor(text) {
    const [, capacity, tokens, period] = /^(.*?) burst, *([^/]*)(?:\/(.*))?$/s.exec(text) ?? [];
    if (capacity === undefined) throw wrong(text, "limit must be a capacity and a rate such as `50 burst, 20/s`");
    this.nanos = nanos(capacity);
    if (this.nanos === undefined) throw wrong(text, `capacity must be a number from 0 to ${MAX_TOKENS}`);
    this.rate = tokens;
    this.periodMs = period === undefined ? 1000n : periodMs(period);
    this.perMs = Number(tokens) / Number(this.periodMs);
    // A rate beyond these bounds is a slip; the server would take it, and the helper's estimates would not.
    if (!NUMBER.test(tokens) || !this.periodMs || !(this.perMs > 0 && this.perMs < Infinity)) {
      throw wrong(text, "rate must be tokens per second above 0, or tokens/period such as 100/m, in whole ms");
    }
    this.capacity = Number(this.nanos / NANOS);
    this.timeToFillMs = Number(this.nanos) / 1e9 / this.perMs;
    if (this.timeToFillMs > MAX_FILL_MS) throw wrong(text, "bucket must fill within 100 years");
  }

  /**
   * What each of `count` shards holds; they add up to the limit. Whole tokens go round the shards, a fraction of a token
   * goes to the first shard that got fewer, so no later shard ever holds more than an earlier one.
   */
  shards(count) {
    const whole = this.nanos / NANOS;
    const [each, more] = [whole / BigInt(count), whole % BigInt(count)];
    if (count > 1 && each === 0n) throw new RangeError(`capacity is less than one whole token for each of ${count} shards`);
    const rate = rateText(this.rate, this.periodMs * BigInt(count));
    return Array.from({ length: count }, (_, index) => {
      const at = BigInt(index);
      const part = count === 1 ? this.nanos : (each + (at < more ? 1n : 0n)) * NANOS + (at === more ? this.nanos % NANOS : 0n);
      return { capacity: decimal(part), rate, tokens: Number(part) / 1e9, perMs: this.perMs / count };
    });
  }
}

function wrong(text, why) {
  return new RangeError(`${JSON.stringify(text)}: ${why}`);
}

/** A decimal as whole nanotokens, rounded to nearest; undefined if it is none, out of range, or would round to 0. */
function nanos(text) {
  const [match, whole, fraction = "", exponent = "0"] = NUMBER.exec(text) ?? [];
  if (match === undefined || match.length > 400) return undefined;
  const digits = BigInt(whole + fraction);
  const shift = Number(exponent) - fraction.length + 9;
  const power = 10n ** BigInt(Math.abs(shift));
  const value = shift >= 0 ? digits * power : (digits + power / 2n) / power;
  return (value === 0n && digits > 0n) || value > BigInt(MAX_TOKENS) * NANOS ? undefined : value;
}

function periodMs(text) {
  const [, number, unit] = /^([^a-z]*)(ms|[smhd])?$/.exec(text) ?? [];
  if (number === undefined || (number === "" && !unit)) return undefined;
  const exact = (nanos(number || "1") ?? 0n) * UNITS_MS[unit ?? "s"];
  return exact % NANOS === 0n ? exact / NANOS : undefined;
}

function rateText(tokens, ms) {
  if (ms === 1000n) return tokens;
  return ms % 1000n === 0n ? `${tokens}/${ms / 1000n}` : `${tokens}/${ms}ms`;
}

function decimal(value) {
  const text = String(value).padStart(10, "0");
  return `${text.slice(0, -9)}.${text.slice(-9)}`.replace(/\.?0+$/, "");
}
