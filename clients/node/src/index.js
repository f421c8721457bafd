export { RateLimitError } from "./error.js";
export { fields, status } from "./http.js";
export { cellKeys, slot, tenantKeys } from "./keys.js";
export { Limit } from "./limit.js";
export { createLimiter } from "./limiter.js";
export { logLine } from "./log.js";
