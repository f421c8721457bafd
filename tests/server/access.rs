//! ACL, memory, and who may do what.

use harness::{Ask, Server, server_version};

use crate::bucket::Bench;

/// flask-limiter#398
#[test]
fn one_permission_and_a_key_pattern_suffice() {
    let mut bench = Bench::new();
    bench.connection.ask::<()>("ACL SETUSER limiter on nopass ~rl:* +rl.take");
    let mut limited = bench.server.connection();
    limited.ask::<()>("AUTH limiter any");
    assert_eq!(limited.ask::<[i64; 4]>("RL.TAKE rl:x 5 1"), [1, 4, 0, 1000]);
    for line in ["RL.TAKE other 5 1", "RL.PEEK rl:x 5 1", "EVAL return 0", "HGETALL rl:x"] {
        let error = limited.ask_error(line);
        assert!(error.starts_with("NOPERM"), "{line}: {error}");
    }
    assert!(!bench.exists("other"));
}

#[test]
fn categories_give_and_take_the_commands() {
    let mut bench = Bench::new();
    let categories: Vec<String> = bench.connection.ask("ACL CAT");
    if categories.iter().any(|category| category == "ratelimit") {
        // Not by ACL CAT ratelimit: Redis 7.4 and Valkey 8.0 list no module's commands there.
        bench.connection.ask::<()>("ACL SETUSER limiter on nopass ~* +@ratelimit");
        let mut limited = bench.server.connection();
        limited.ask::<()>("AUTH limiter any");
        for command in ["RL.TAKE", "RL.PEEK"] {
            assert_eq!(limited.ask::<[i64; 4]>(&format!("{command} k 5 1"))[0], 1);
        }
        assert!(limited.ask_error("GET k").starts_with("NOPERM"));
    } else {
        // Redis before 7.4 lets no module add a category.
        let version = server_version();
        assert!(!version.has_redis(7, 4), "{version:?} has no category ratelimit: {categories:?}");
    }
    if server_version().has_redis(7, 2) {
        bench.connection.ask::<()>("ACL SETUSER reader on nopass ~* +@read");
        let mut reader = bench.server.connection();
        reader.ask::<()>("AUTH reader any");
        assert_eq!(reader.ask::<[i64; 4]>("RL.PEEK k 5 1")[0], 1);
        let error = reader.ask_error("RL.TAKE k 5 1");
        assert!(error.starts_with("NOPERM"), "{error}");
    }
}

/// "OOM under noeviction gave 500s"
#[test]
fn out_of_memory_a_take_is_refused_and_a_peek_works() {
    let mut bench = Bench::on(Server::builder().config("maxmemory-policy", "noeviction").start());
    bench.take("k 5 1/h 1");
    let before = bench.everything();
    bench.connection.ask::<()>("CONFIG SET maxmemory 1");
    let error = bench.connection.ask_error("RL.TAKE k 5 1/h 1");
    assert!(error.starts_with("OOM"), "{error}");
    assert_eq!(bench.peek("k 5 1/h 1")[..2], [1, 3]);
    bench.connection.ask::<()>("CONFIG SET maxmemory 0");
    assert_eq!(bench.everything(), before);
}

#[test]
fn an_evicted_bucket_is_full_again() {
    let mut bench = Bench::new();
    bench.take("k 5 1/h 5");
    assert_eq!(bench.take("k 5 1/h 1")[0], 0);
    bench.connection.ask::<()>("DEL k");
    assert_eq!(bench.take("k 5 1/h 1")[..2], [1, 4]);
}

#[test]
fn databases_hold_buckets_of_their_own() {
    let mut bench = Bench::new();
    bench.take("k 5 1/h 5");
    bench.connection.ask::<()>("SELECT 1");
    assert_eq!(bench.take("k 5 1/h 5")[0], 1);
}
