/** A client of ioredis 5 or 6: `Redis` or `Cluster`. */
export interface IoredisClient {
  readonly status: string;
  createBuiltinCommand(commandName: string): { string: any };
  sendCommand(command: any): unknown;
}

/** A client of node-redis 5 or later: from `createClient`, `createClientPool` or `createCluster`. */
export interface NodeRedisClient {
  sendCommand(...args: any[]): Promise<any>;
}

/** The limits of one tenant on one route, and how to decide on them. Plain data: it may come from a config file. */
export interface Policy {
  /**
   * The limit of the tenant over all its routes, such as `"1000 burst, 200/s"`. Give every route of a tenant the same one:
   * they share the bucket.
   */
  readonly tenant: string;
  /** The limit of the tenant on this route, such as `"50 burst, 20/s"` or `"100 burst, 5/15m"`. */
  readonly route: string;
  /** The limit of a downstream that many tenants share. */
  readonly cell?: { readonly name: string; readonly limit: string; readonly shards?: number };
  /** An allowed decision is `soft` when fewer whole tokens than this remain. 0, the default, marks none. */
  readonly softLimit?: number;
  /** How many shards the tenant's buckets are cut into: 1, the default, for all but a tenant too big for one node. */
  readonly shards?: number;
  /** How long to wait for Redis, all round trips of a decision together; 50 by default. */
  readonly timeoutMs?: number;
  /** What to decide when Redis does not answer; `"open"` by default. `"local"` is by buckets in this process. */
  readonly onFailure?: "open" | "closed" | "local";
  /** Decide and tell as always, but allow every request; false by default. */
  readonly shadow?: boolean;
  /** Whether a bucket that denied is left alone until its retry after has passed; true by default. */
  readonly denialCache?: boolean;
}

export type Reason = "tenant_limit" | "route_limit" | "cell_limit" | "unavailable";

/** How a bucket stands after a decision. If it is cut into shards, all but the capacity is an estimate from one of them. */
export interface Quota {
  readonly scope: "tenant" | "route" | "cell";
  /** Most whole tokens it holds. */
  readonly capacity: number;
  readonly timeToFillMs: number;
  /** Whole tokens left, rounded down. */
  readonly remaining: number;
  /** Time until one more whole token is there; null if it is full. */
  readonly moreAfterMs: number | null;
  /** Time until it is full. */
  readonly resetAfterMs: number;
}

export interface Decision {
  /** Whether the request may go on; in shadow mode always. */
  readonly allowed: boolean;
  /** Which limit denied, in shadow mode too; null if none. */
  readonly reason: Reason | null;
  /** How long to wait until the same request can succeed; null if it is allowed, or never will be. */
  readonly retryAfterMs: number | null;
  /** The cost is above the capacity: the request can never succeed. */
  readonly never: boolean;
  /** Allowed, with fewer whole tokens left than the policy's soft limit. */
  readonly soft: boolean;
  readonly shadow: boolean;
  /** Who decided: Redis, a denial of it that still holds, or the failure policy because Redis did not answer. */
  readonly source: "server" | "denial_cache" | "failure_policy";
  /** The bucket that denied or has fewer tokens left; null if none was looked at. */
  readonly quota: Quota | null;
}

export type FailureReason = "timeout" | "connection" | "server_error" | "no_module";

interface EventBase {
  readonly tenant: string;
  readonly route: string;
  readonly tokens: number;
  /** What Redis did not answer to on the way. */
  readonly failures: ReadonlyArray<{ readonly reason: FailureReason; readonly message: string }>;
  /** When it was decided, Unix time. */
  readonly timeMs: number;
  readonly durationMs: number;
}

export interface AuthorizeEvent extends EventBase {
  readonly event: "authorize";
  /** The counter to add 1 to, with the labels tenant, route and `reason`. */
  readonly counter: "rate_limit.allow" | "rate_limit.deny";
  readonly reason: Reason | "within_limit" | "soft";
  readonly decision: Decision;
}

export interface SettledEvent extends EventBase {
  readonly event: "give" | "charge";
  readonly counter: null;
  readonly reason: null;
  readonly quota: Quota;
}

export type LimiterEvent = AuthorizeEvent | SettledEvent;

export interface UnavailableEvent {
  readonly counter: "rate_limit.unavailable";
  readonly reason: FailureReason;
  readonly message: string;
  readonly tenant: string;
  readonly route: string;
  readonly error: Error;
}

export interface LimiterOptions {
  /** The caller's own client. It is not changed. */
  client: IoredisClient | NodeRedisClient;
  /** What is allowed to whom; as a function it is asked for every request. Let it return objects that are kept. */
  policy: Policy | ((tenant: string, route: string) => Policy | Promise<Policy>);
  /** Told of every decision, gift and charge, after it was made. */
  onDecision?: (event: LimiterEvent) => unknown;
  /** Told whenever Redis did not answer. Without it there are warnings of the process, one a second at most. */
  onUnavailable?: (event: UnavailableEvent) => unknown;
}

export interface Limiter {
  /**
   * Takes `cost` tokens (1 by default) from the tenant-wide bucket, the route's and the cell's, or from none of them. It
   * rejects only what can never be decided: an empty name, a cost that fits no shard.
   */
  authorize(tenant: string, route: string, cost?: number): Promise<Decision>;
  /** What `authorize` would answer now. Takes nothing, and tells `onDecision` nothing. */
  peek(tenant: string, route: string, cost?: number): Promise<Decision>;
  /** Gives tokens back, never above the capacity. Rejects if Redis did not confirm. */
  give(tenant: string, route: string, amount: number): Promise<Quota>;
  /** Takes tokens unconditionally, if need be below zero. Rejects if Redis did not confirm. */
  charge(tenant: string, route: string, amount: number): Promise<Quota>;
}

export function createLimiter(options: LimiterOptions): Limiter;

export class RateLimitError extends Error {
  readonly code: "cost" | "cost_above_shard" | "unavailable";
}

/** 429 for a limit, 503 when only a closed failure policy denied, 200 when the request may go on. */
export function status(decision: Decision): 200 | 429 | 503;
/** The fields Retry-After, RateLimit-Policy and RateLimit to send, with their values. */
export function fields(decision: Decision): Array<[name: string, value: string]>;

/** An event as one line of JSON, without its line break: for quotas that are billed. */
export function logLine(event: LimiterEvent): string;

/** A limit such as `"50 burst, 20/s"`; throws a RangeError that says what is wrong with it. */
export class Limit {
  constructor(text: string);
  /** Most whole tokens. */
  readonly capacity: number;
  readonly timeToFillMs: number;
  /** The arguments of each of `count` shards. */
  shards(count: number): Array<{ capacity: string; rate: string; tokens: number; perMs: number }>;
}

/** The keys of a tenant's buckets on a route, one pair for each shard. */
export function tenantKeys(tenant: string, route: string, shards: number): Array<{ tenant: string; route: string }>;
/** The keys of a cell, one for each shard. */
export function cellKeys(cell: string, shards: number): string[];
/** The cluster slot of a key. */
export function slot(key: string | Uint8Array): number;
