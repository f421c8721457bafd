//! What must hold whatever was sent.

use std::time::{SystemTime, UNIX_EPOCH};

use harness::redis::{Connection, Value, cmd};
use harness::{Ask, expire_at, server_version};

use crate::generate::{Call, Expect, FIXED, Module};

/// The clock of this machine, which is the server's too.
pub(crate) fn now_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_micros() as u64
}

/// The errors of the module, and the server's that can come before.
const ERRORS: &[&str] = &[
    "ERR key must be at most 1048576 bytes",
    "ERR capacity must be a number from 0 to 9007199254740991",
    "ERR cost must be a number from 0 to 9007199254740991",
    "ERR amount must be a number from 0 to 9007199254740991",
    "ERR rate must be tokens per second above 0, or tokens/period such as 100/m",
    "ERR bucket must fill within 100 years",
    "ERR a key is given twice",
    "ERR at most 64 buckets",
    "ERR RL.HOT takes DENIED and COUNT n, or RESET alone",
    "ERR count must be a whole number from 1 to 1024",
    "ERR hot keys are off, set rl.hot-keys to 1 or more",
    "ERR max_burst must be an integer from -1 to 9007199254740990",
    "ERR count must be an integer above 0",
    "ERR period must be an integer of seconds above 0",
    "ERR quantity must be an integer",
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    "WRONGTYPE the hash at this key is not a token bucket",
    "OOM command not allowed when used memory > 'maxmemory'.",
];

/// Checks `reply` and counts what it granted.
pub(crate) fn check_reply(call: &Call, reply: &Value, fixed: &mut Fixed) -> Result<(), String> {
    check(&call.expect, reply, fixed)
}

fn check(expect: &Expect, reply: &Value, fixed: &mut Fixed) -> Result<(), String> {
    if let Value::ServerError(error) = reply {
        let text = format!("{} {}", error.code(), error.details().unwrap_or_default());
        if text.contains("internal error") || text.contains(['\r', '\n']) {
            return Err("not an error that a command may answer".to_owned());
        }
        return match expect {
            Expect::Module(module) => check_error(module, &text),
            Expect::Exec(_) | Expect::Any => Ok(()),
        };
    }
    match (expect, reply) {
        (Expect::Module(module), reply) => {
            if (module.command.shape)(reply)? && module.command.takes {
                fixed.grant(&module.fixed);
            }
            Ok(())
        }
        (Expect::Exec(expected), Value::Array(replies)) => {
            if expected.len() != replies.len() {
                return Err(format!("{} replies of {} commands", replies.len(), expected.len()));
            }
            expected.iter().zip(replies).try_for_each(|(expect, reply)| check(expect, reply, fixed))
        }
        // A watched key was changed.
        (Expect::Exec(_), Value::Nil) | (Expect::Any, _) => Ok(()),
        (Expect::Exec(_), _) => Err("not what EXEC answers".to_owned()),
    }
}

fn check_error(module: &Module, text: &str) -> Result<(), String> {
    let arity = format!("ERR wrong number of arguments for '{}' command", module.command.name);
    // A script adds its own words to an error, and puts others in the place of some.
    let known = module.in_script || text.eq_ignore_ascii_case(&arity) || ERRORS.contains(&text);
    if !known {
        return Err("not an error of the module".to_owned());
    }
    if !module.fixed.is_empty() && !text.starts_with("OOM") && !module.in_script {
        return Err("a right request was refused".to_owned());
    }
    Ok(())
}

/// What the buckets of fixed limits have granted.
pub(crate) struct Fixed {
    start: u64,
    granted: [u64; FIXED.len()],
}

impl Fixed {
    pub(crate) fn new() -> Fixed {
        Fixed { start: now_micros(), granted: [0; FIXED.len()] }
    }

    fn grant(&mut self, costs: &[(usize, u64)]) {
        for (index, nanos) in costs {
            self.granted[*index] += nanos;
        }
    }

    pub(crate) fn granted_tokens(&self) -> u64 {
        self.granted.iter().sum::<u64>() / 1_000_000_000
    }

    /// No bucket has granted more than its capacity and what has come in since the start.
    pub(crate) fn check_bounds(&self) {
        let seconds = (now_micros() - self.start) as f64 / 1e6;
        for ((key, _, _, capacity, rate), granted) in FIXED.iter().zip(self.granted) {
            let granted = granted as f64 / 1e9;
            // The last term is the precision of these doubles.
            let bound = capacity + rate * seconds + 1e-8 + granted * 1e-14;
            assert!(
                granted <= bound,
                "{key} granted {granted} tokens in {seconds} s, where {bound} is the bound"
            );
        }
    }

    /// Every one of them that exists has an expiry, and not before it is full.
    pub(crate) fn check_expiries(&self, connection: &mut Connection) {
        for (key, capacity, rate, ..) in FIXED {
            let before = now_micros() / 1000;
            let at = expire_at(connection, key.as_bytes());
            let reply: [i64; 4] = connection.ask(&format!("RL.PEEK {key} {capacity} {rate} 0"));
            let full_at = before as i64 + reply[3];
            // -2: there is no such key, as after its expiry.
            assert!(at == -2 || at >= full_at, "{key} expires at {at}, and is full at {full_at}: {reply:?}");
        }
    }
}

/// After all was replicated, the replica has the same data and expiries.
pub(crate) fn replica_is_equal(master: &mut Connection, replica: &mut Connection) {
    // A key that expires between two looks would be a difference that is none.
    master.ask::<()>("DEBUG SET-ACTIVE-EXPIRE 0");
    let mut keys: Vec<Vec<u8>> = master.ask("KEYS *");
    keys.sort();
    let expiries: Vec<i64> = keys.iter().map(|key| expire_at(master, key)).collect();
    // A WAIT waits for the writes of its own connection; this is one that is nobody's key.
    master.ask::<()>("SET fence 1");
    let replicas: i64 = master.ask("WAIT 1 20000");
    assert_eq!(replicas, 1, "replicas that caught up in 20 s");
    let digests: [String; 2] = [master.ask("DEBUG DIGEST"), replica.ask("DEBUG DIGEST")];
    if digests[0] != digests[1] {
        panic!("the replica's data differ: {}", differences(master, replica).join("\n"));
    }
    // Before 7.0 a server sends PEXPIRE as it came, so that the replica counts from its own clock. The module never does.
    let absolute = server_version().has_redis(7, 0);
    for (key, at) in keys.iter().zip(expiries).filter(|(key, _)| absolute || key.starts_with(b"fixed:")) {
        let theirs = expire_at(replica, key);
        let expired = at != -1 && at <= now_micros() as i64 / 1000 + 1;
        assert!(
            theirs == at || expired,
            "{} expires at {at}, on the replica at {theirs}",
            key.escape_ascii()
        );
    }
    let calls: u64 = cmd("INFO")
        .arg("commandstats")
        .query::<String>(replica)
        .expect("INFO")
        .matches("cmdstat_rl.take:")
        .count() as u64;
    assert_eq!(calls, 0, "the replica executed a take");
    master.ask::<()>("DEBUG SET-ACTIVE-EXPIRE 1");
}

/// What is at the keys whose values differ.
fn differences(master: &mut Connection, replica: &mut Connection) -> Vec<String> {
    let mut found = Vec::new();
    for database in 0..=1 {
        let [mut keys, theirs]: [Vec<Vec<u8>>; 2] = [&mut *master, &mut *replica].map(|connection| {
            connection.ask::<()>(&format!("SELECT {database}"));
            connection.ask("KEYS *")
        });
        keys.extend(theirs);
        keys.sort();
        keys.dedup();
        for key in keys {
            let [ours, theirs] = [&mut *master, &mut *replica].map(|connection| {
                let expire_at = expire_at(connection, &key);
                let digest: Value =
                    cmd("DEBUG").arg("DIGEST-VALUE").arg(&key).query(connection).expect("DEBUG DIGEST-VALUE");
                let kind: String = cmd("TYPE").arg(&key).query(connection).expect("TYPE");
                format!("{kind} {digest:?}, expires at {expire_at}")
            });
            if ours != theirs {
                found.push(format!("database {database}, {}:\n  {ours}\n  {theirs}", key.escape_ascii()));
            }
        }
    }
    found
}
