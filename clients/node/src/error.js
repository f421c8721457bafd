/**
 * A request that can never be decided (`cost`, `cost_above_shard`), or a gift or charge that Redis did not confirm
 * (`unavailable`). That Redis is away is no error of `authorize`: its failure policy decides.
 */
export class RateLimitError extends Error {
  constructor(code, message, cause) {
    super(message, { cause });
    this.name = "RateLimitError";
    this.code = code;
  }
}
