//! When a key expires.

use redis::Connection;

use crate::wait;

/// The Unix time in ms at which `key` expires; -1 for never. PEXPIRETIME came with Redis 7.0; before, it is the time left
/// and the server's clock, read within one millisecond.
pub fn expire_at(connection: &mut Connection, key: &[u8]) -> i64 {
    // The server asked need not be the one of RL_SERVER.
    if let Ok(at) = redis::cmd("PEXPIRETIME").arg(key).query(connection) {
        return at;
    }
    wait::until(wait::PATIENCE, "a clock reading within one millisecond", || {
        // No transaction: Redis 6.2 refuses those that hold TIME when memory is out.
        let mut pipeline = redis::pipe();
        pipeline.cmd("TIME").cmd("PTTL").arg(key).cmd("TIME");
        let (before, left, after): ((i64, i64), i64, (i64, i64)) =
            pipeline.query(connection).map_err(|error| error.to_string())?;
        let millis = |(seconds, micros): (i64, i64)| seconds * 1000 + micros / 1000;
        if millis(before) != millis(after) {
            return Err(format!("from {before:?} to {after:?}"));
        }
        Ok(if left < 0 { left } else { left + millis(after) })
    })
}
