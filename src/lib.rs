//! Native token buckets for Redis and Valkey.
