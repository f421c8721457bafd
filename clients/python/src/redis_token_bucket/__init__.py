"""Rate limits for services over redis-token-bucket: tenants, routes, shards, cells, and what to do when Redis is away."""
