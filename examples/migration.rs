//! `make try-migration`: two moves on throw-away servers, with figures. From a Lua script, both at once on one bucket; and
//! from redis-cell, by a replica that takes its master's place.
//!
//! With REDIS_CELL_SO the second one has redis-cell itself on the master; without, the strings that it would have left.

use std::env;
use std::time::Duration;

use harness::redis::{Connection, cmd, pipe};
use harness::script::{Bucket, Callers, SCRIPT, mended};
use harness::{Ask, Server};

fn main() {
    harness::end_all_on_ctrl_c();
    from_a_script();
    from_redis_cell();
    println!("\nEvery sum was as it should be. docs/migrating.md says how to move your own.");
}

fn from_a_script() {
    println!(
        "From a Lua script: 22 callers for 3 s on one bucket of 100 tokens that refills at 100 a second\n"
    );
    let server = Server::start();
    let mended = mended();
    let callers = Callers {
        script: SCRIPT,
        by_script: 22,
        by_module: 0,
        skew: 0,
        calls: 0,
        time: Duration::from_secs(3),
    };
    let half = Callers { by_script: 11, by_module: 11, ..callers };
    for (index, (who, callers, most)) in [
        ("the script alone, exact clocks", callers, None),
        ("the script alone, clocks up to 200 ms off", Callers { skew: 200, ..callers }, None),
        ("script and module, exact clocks", half, None),
        ("script and module, clocks up to 200 ms off", Callers { skew: 200, ..half }, None),
        (
            "mended script and module, clocks up to 200 ms off",
            Callers { script: &mended, skew: 200, ..half },
            Some(0.4),
        ),
        ("the module alone", Callers { by_script: 0, by_module: 22, ..callers }, Some(0.0)),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("bucket:{index}");
        let (granted, seconds) =
            callers.take_from(&server, &Bucket { key: &key, capacity: 100, rate: 100.0 });
        let bound = 100.0 + 100.0 * seconds;
        println!("  {who:52} granted {granted:6}  of {bound:.0}");
        if let Some(spread) = most {
            assert!(
                granted as f64 <= bound + 100.0 * spread,
                "more than the bucket's and {spread} s of refill"
            );
            assert!(granted as f64 >= 0.97 * bound, "less than the bucket gives");
        }
    }
    println!(
        "\n  The script's excess is its own: it sets the time back when a slow clock follows a fast one."
    );
    println!(
        "  Mended, it never does; what is left is granted once: the clocks' spread of 0.4 s, 40 tokens.\n"
    );

    let mut connection = server.connection();
    let debt: [i64; 4] = connection.ask("RL.CHARGE back 10 1 13");
    let now = server_millis(&mut connection);
    let bucket = Bucket { key: "back", capacity: 10, rate: 1.0 };
    let mut by_script = |later| bucket.take_by_script(&mut connection, SCRIPT, now + later, 1);
    assert_eq!((debt[2], by_script(0), by_script(3900), by_script(4001)), (4000, false, false, true));
    println!(
        "  Back: the module charged 13 of 10 tokens. The script denies for the 4 s that the module told, then allows."
    );
}

const KEYS: i64 = 1000;
const DAY_SECONDS: i64 = 86_400;

fn from_redis_cell() {
    let library = env::var("REDIS_CELL_SO").ok();
    let left_by = if library.is_some() { "redis-cell itself" } else { "strings as redis-cell leaves them" };
    println!("\nFrom redis-cell ({left_by}): {KEYS} keys of 16 tokens, one a day, partly used\n");
    let mut builder = Server::builder().without_module().tcp();
    if let Some(library) = &library {
        builder = builder.config("loadmodule", library);
    }
    let mut master = builder.start();
    let mut connection = master.connection();
    let left: i64 = (0..KEYS).map(|key| use_up(&mut connection, key, library.is_some())).sum();
    println!("  on the master               {left} tokens are left");

    let replica = Server::builder().module_arguments("cl-throttle yes").start_replica_of(&master);
    replica.await_offset_of(&master);
    master.kill();
    let mut connection = replica.connection();
    connection.ask::<()>("REPLICAOF NO ONE");
    let replies: Vec<[i64; 5]> = throttle_all(&mut connection, 0);
    let taken_over: i64 = replies.iter().map(|reply| reply[2]).sum();
    println!("  on the promoted replica     {taken_over} tokens are left");
    assert_eq!(taken_over, left);

    // Old callers and new ones in turn, far more often than there are tokens.
    let (mut old, mut new) = (0, 0);
    for _ in 0..9 {
        let replies: Vec<[i64; 5]> = throttle_all(&mut connection, 1);
        old += replies.iter().map(|reply| 1 - reply[0]).sum::<i64>();
        let mut batch = pipe();
        for key in 0..KEYS {
            batch.cmd("RL.TAKE").arg(key).arg(&["16", "1/d"]);
        }
        let replies: Vec<[i64; 4]> = batch.query(&mut connection).expect("replies");
        new += replies.iter().map(|reply| reply[0]).sum::<i64>();
    }
    println!("  granted by CL.THROTTLE      {old}\n  granted by RL.TAKE          {new}");
    assert_eq!(old + new, left, "the sum granted must be what was left");
    let kinds: Vec<String> = (0..KEYS).map(|key| connection.ask(&format!("TYPE {key}"))).collect();
    let hashes = kinds.iter().filter(|kind| *kind == "hash").count();
    println!("  keys that are buckets now   {hashes} of {KEYS}");
    assert_eq!(hashes as i64, KEYS);
}

/// Leaves key number `key` as redis-cell does after some of its 16 tokens were taken; how many are left.
fn use_up(connection: &mut Connection, key: i64, by_redis_cell: bool) -> i64 {
    let used = 1 + key % 16;
    if by_redis_cell {
        let reply: [i64; 5] = connection.ask(&format!("CL.THROTTLE {key} 15 1 {DAY_SECONDS} {used}"));
        assert_eq!(reply[0], 0, "a fresh bucket has them");
    } else {
        let millis = used * DAY_SECONDS * 1000;
        let full_at = server_millis(connection) + millis;
        connection.ask::<()>(&format!("SET {key} {full_at}000000 PX {millis}"));
    }
    16 - used
}

fn throttle_all(connection: &mut Connection, quantity: i64) -> Vec<[i64; 5]> {
    let mut batch = pipe();
    for key in 0..KEYS {
        let mut call = cmd("CL.THROTTLE");
        call.arg(&[key, 15, 1, DAY_SECONDS, quantity]);
        batch.add_command(call);
    }
    batch.query(connection).expect("replies")
}

fn server_millis(connection: &mut Connection) -> i64 {
    let (seconds, micros): (i64, i64) = connection.ask("TIME");
    seconds * 1000 + micros / 1000
}
