//! Commands and replies as the `redis` crate has them.

use std::io::Write;

use redis::{Cmd, RedisWrite, Value};

use crate::command::{Bucket, BucketReply, ReplyError, Verb, take_all};

/// What `RL.TAKEALL` or two `RL.PEEK`s say of a tenant's two buckets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairReply {
    pub(crate) allowed: bool,
    pub(crate) tenant: BucketReply,
    pub(crate) route: BucketReply,
}

/// Room for the numbers of one bucket: capacity, rate and cost.
const NUMBERS_LEN: usize = 80;

pub(crate) fn command(verb: Verb, bucket: Bucket<'_>, tokens: u64) -> Cmd {
    let mut command = Cmd::with_capacity(5, 16 + bucket.key.len() + NUMBERS_LEN);
    verb.arguments(bucket, tokens, |pieces| push(&mut command, pieces));
    command
}

pub(crate) fn take_both(tenant: Bucket<'_>, route: Bucket<'_>, cost: u64) -> Cmd {
    let mut command = Cmd::with_capacity(9, 16 + tenant.key.len() + route.key.len() + 2 * NUMBERS_LEN);
    take_all(&[tenant, route], cost, |pieces| push(&mut command, pieces));
    command
}

fn push(command: &mut Cmd, pieces: &[&[u8]]) {
    let mut argument = command.writer_for_next_arg();
    for piece in pieces {
        // Writing to the command's own buffer does not fail.
        let _ = argument.write_all(piece);
    }
}

pub(crate) fn read_bucket(value: &Value) -> Result<BucketReply, ReplyError> {
    let Value::Array(items) = value else { return Err(ReplyError) };
    let mut integers = [0; 4];
    if items.len() != integers.len() {
        return Err(ReplyError);
    }
    for (integer, item) in integers.iter_mut().zip(items) {
        let Value::Int(value) = item else { return Err(ReplyError) };
        *integer = *value;
    }
    BucketReply::read(&integers)
}

pub(crate) fn read_both(value: &Value) -> Result<PairReply, ReplyError> {
    let Value::Array(items) = value else { return Err(ReplyError) };
    let [Value::Int(allowed), Value::Int(_), tenant, route] = items.as_slice() else {
        return Err(ReplyError);
    };
    Ok(PairReply { allowed: *allowed == 1, tenant: read_bucket(tenant)?, route: read_bucket(route)? })
}
