//! The arguments of the RL commands and the meaning of their replies, without any connection.
//!
//! An argument is handed out in pieces, so that a key and a number can go straight into whatever buffer is sent:
//!
//! ```
//! use redis_token_bucket_client::command::{Bucket, BucketReply, Verb};
//! use redis_token_bucket_client::limit::Limit;
//!
//! let limit: Limit = "50 burst, 20/s".parse()?;
//! let bucket = Bucket { key: b"{acme}:rl:search:0", shard: limit.shard(0, 1)? };
//! let mut sent = Vec::new();
//! Verb::Take.arguments(bucket, 3, |pieces| sent.push(pieces.concat()));
//! assert_eq!(sent, [&b"RL.TAKE"[..], b"{acme}:rl:search:0", b"50", b"20", b"3"]);
//!
//! let reply = BucketReply::read(&[1, 47, 0, 150])?;
//! assert_eq!((reply.outcome, reply.remaining), (redis_token_bucket_client::command::Outcome::Allowed, 47));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;

use redis_token_bucket_core::NumberText;
pub use redis_token_bucket_core::Outcome;

use crate::limit::Shard;

/// The commands on one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `RL.TAKE`: takes the cost, or nothing.
    Take,
    /// `RL.PEEK`: what a take would answer; changes nothing.
    Peek,
    /// `RL.GIVE`: gives tokens back, never above capacity.
    Give,
    /// `RL.CHARGE`: takes unconditionally, if need be below zero.
    Charge,
}

/// The name of the command on several buckets: takes the cost from each, or nothing from any.
const TAKE_ALL: &str = "RL.TAKEALL";

impl Verb {
    /// The command's name.
    pub const fn name(self) -> &'static str {
        match self {
            Verb::Take => "RL.TAKE",
            Verb::Peek => "RL.PEEK",
            Verb::Give => "RL.GIVE",
            Verb::Charge => "RL.CHARGE",
        }
    }

    /// Passes the command's name and arguments on, each as the pieces it is made of. `tokens` is the cost or amount.
    pub fn arguments(self, bucket: Bucket<'_>, tokens: u64, mut argument: impl FnMut(&[&[u8]])) {
        argument(&[self.name().as_bytes()]);
        bucket.arguments(tokens, &mut argument);
    }
}

/// Passes the name and arguments of an `RL.TAKEALL` on, which takes `cost` from every bucket or nothing from any.
pub fn take_all(buckets: &[Bucket<'_>], cost: u64, mut argument: impl FnMut(&[&[u8]])) {
    argument(&[TAKE_ALL.as_bytes()]);
    for bucket in buckets {
        bucket.arguments(cost, &mut argument);
    }
}

/// A bucket as the commands name it.
#[derive(Clone, Copy, Debug)]
pub struct Bucket<'a> {
    /// The key, see [`crate::keys`].
    pub key: &'a [u8],
    /// Its capacity and rate.
    pub shard: Shard<'a>,
}

impl Bucket<'_> {
    fn arguments(&self, tokens: u64, argument: &mut impl FnMut(&[&[u8]])) {
        argument(&[self.key]);
        argument(&[self.shard.capacity().text().as_bytes()]);
        match self.shard.rate_pieces() {
            (per_second, None) => argument(&[per_second.as_bytes()]),
            (per_period, Some((number, unit))) => {
                let number = NumberText::integer(number);
                argument(&[per_period.as_bytes(), b"/", number.as_bytes(), unit.as_bytes()]);
            }
        }
        argument(&[NumberText::integer(tokens).as_bytes()]);
    }
}

/// What a command says of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketReply {
    /// Whether the cost was there; if not, how long to wait for it. `RL.GIVE` and `RL.CHARGE` are always allowed.
    pub outcome: Outcome,
    /// Whole tokens left, rounded down.
    pub remaining: u64,
    /// Fewest ms until the bucket is full.
    pub reset_after_ms: u64,
}

impl BucketReply {
    /// Reads the four integers that a command answers for a bucket.
    ///
    /// # Errors
    /// If they are not four, or not in the range that the module answers.
    pub fn read(integers: &[i64]) -> Result<BucketReply, ReplyError> {
        let &[allowed, remaining, retry_after_ms, reset_after_ms] = integers else { return Err(ReplyError) };
        let natural = |integer: i64| u64::try_from(integer).map_err(|_| ReplyError);
        let outcome = match (allowed, retry_after_ms) {
            (1, _) => Outcome::Allowed,
            (0, -1) => Outcome::Never,
            (0, wait) => Outcome::RetryAfter(natural(wait)?),
            _ => return Err(ReplyError),
        };
        Ok(BucketReply { outcome, remaining: natural(remaining)?, reset_after_ms: natural(reset_after_ms)? })
    }
}

/// The server answered something that the module does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyError;

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reply is not one of the rate limit module")
    }
}

impl std::error::Error for ReplyError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;

    fn text(command: impl FnOnce(&mut dyn FnMut(&[&[u8]]))) -> String {
        let mut sent = Vec::new();
        command(&mut |pieces| sent.push(String::from_utf8(pieces.concat()).unwrap()));
        sent.join(" ")
    }

    #[test]
    fn arguments_are_those_of_the_command_table() {
        let limit: Limit = "50.5 burst, 100/m".parse().unwrap();
        let route = Bucket { key: b"r", shard: limit.shard(0, 1).unwrap() };
        let shard = Bucket { key: b"s", shard: limit.shard(3, 4).unwrap() };
        assert_eq!(text(|out| Verb::Give.arguments(shard, 2, out)), "RL.GIVE s 12 100/240 2");
        assert_eq!(text(|out| Verb::Charge.arguments(route, 2, out)), "RL.CHARGE r 50.5 100/60 2");
        assert_eq!(text(|out| Verb::Peek.arguments(route, 0, out)), "RL.PEEK r 50.5 100/60 0");
        assert_eq!(
            text(|out| take_all(&[route, shard], 7, out)),
            "RL.TAKEALL r 50.5 100/60 7 s 12 100/240 7"
        );
    }

    #[test]
    fn replies_tell_not_now_from_never() {
        let outcome = |integers| BucketReply::read(integers).map(|reply| reply.outcome);
        assert_eq!(outcome(&[1, 5, 0, 100]), Ok(Outcome::Allowed));
        assert_eq!(outcome(&[1, 0, 250, 1000]), Ok(Outcome::Allowed), "the reply of RL.CHARGE names a wait");
        assert_eq!(outcome(&[0, 0, 250, 1000]), Ok(Outcome::RetryAfter(250)));
        assert_eq!(outcome(&[0, 5, -1, 0]), Ok(Outcome::Never));
    }

    #[test]
    fn a_reply_of_something_else_is_refused() {
        for integers in
            [&[][..], &[1], &[1, 2, 3], &[1, 2, 3, 4, 5], &[2, 0, 0, 0], &[1, -1, 0, 0], &[0, 0, -2, 0]]
        {
            assert_eq!(BucketReply::read(integers), Err(ReplyError), "{integers:?}");
        }
    }
}
