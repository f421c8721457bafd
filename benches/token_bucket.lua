-- The rival: a token bucket as most teams write it, with the client's clock, a write and an expiry whatever the outcome.
-- KEYS[1] bucket; ARGV: capacity, tokens per ms, now in ms, cost
local capacity, rate, now, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local stored = redis.call('HMGET', KEYS[1], 'tokens', 'ts')
local tokens, ts = tonumber(stored[1]) or capacity, tonumber(stored[2]) or now
tokens = math.min(capacity, tokens + math.max(0, now - ts) * rate)
local allowed = 0
if tokens >= cost then
    tokens = tokens - cost
    allowed = 1
end
redis.call('HMSET', KEYS[1], 'tokens', tokens, 'ts', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(2 * capacity / rate))
return {allowed, tokens}
