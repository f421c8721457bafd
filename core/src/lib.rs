//! The token bucket as pure arithmetic.
