//! One take looked at closely, with nobody else at work.

use harness::redis::{Connection, Value, cmd};
use harness::{Ask, expire_at};

use crate::check::now_micros;
use crate::generate::Generator;

/// All that a take could change.
#[derive(Debug, PartialEq)]
struct State {
    dump: Value,
    expire_at: i64,
    replication_offset: String,
}

impl State {
    fn of(connection: &mut Connection, key: &[u8]) -> State {
        let dump = cmd("DUMP").arg(key).query(connection).expect("DUMP");
        let expire_at = expire_at(connection, key);
        let info: String = connection.ask("INFO replication");
        let offset = info.lines().find(|line| line.starts_with("master_repl_offset:")).expect("an offset");
        State { dump, expire_at, replication_offset: offset.to_owned() }
    }
}

/// Peeks, takes and looks what changed. Returns 1 if the take was answered, 0 if it was refused.
pub(crate) fn probe(connection: &mut Connection, generator: &mut Generator) -> u64 {
    connection.ask::<()>("DEBUG SET-ACTIVE-EXPIRE 0");
    let arguments = [generator.key(), generator.number(), generator.rate(), generator.number()];
    let key = &arguments[0];
    let shown = arguments.each_ref().map(|word| word.escape_ascii().to_string()).join(" ");

    let before = State::of(connection, key);
    let stored_ts: Option<f64> = stored(connection, key);
    let peek_at = now_micros();
    let peek = cmd("RL.PEEK").arg(&arguments).query::<[i64; 4]>(connection);
    let take = cmd("RL.TAKE").arg(&arguments).query::<[i64; 4]>(connection);
    let take_at = now_micros();
    let after = State::of(connection, key);
    connection.ask::<()>("DEBUG SET-ACTIVE-EXPIRE 1");

    let expired = before.expire_at != -1 && before.expire_at <= take_at as i64 / 1000 + 1;
    if expired {
        return 0;
    }
    let (peek, take) = match (peek, take) {
        (Ok(peek), Ok(take)) => (peek, take),
        (Err(peek), Err(take)) => {
            assert_eq!(peek.to_string(), take.to_string(), "{shown}: peek and take are refused differently");
            assert_eq!(before, after, "{shown} was refused");
            return 0;
        }
        (peek, take) => panic!("{shown}: peek {peek:?}, take {take:?}"),
    };
    let [allowed, remaining, retry, reset] = take;
    let passed = (take_at - peek_at).div_ceil(1000) as i64 + 1;
    // Time only brings tokens: what the peek allows the take allows, and a denial turns only when its wait is over.
    assert!(allowed >= peek[0], "{shown}: peek {peek:?}, take {take:?}");
    if allowed == peek[0] {
        assert!(remaining >= peek[1], "{shown}: peek {peek:?}, take {take:?}");
        let near = |peek: i64, take: i64| take <= peek && take >= peek.saturating_sub(passed) || peek == take;
        assert!(
            near(peek[2], retry) && near(peek[3], reset),
            "{shown}: peek {peek:?}, take {take:?} within {passed} ms"
        );
    } else {
        assert!((1..=passed).contains(&peek[2]), "{shown}: peek {peek:?}, take {take:?} within {passed} ms");
    }

    let costs_nothing =
        arguments[3].iter().take_while(|byte| **byte != b'e').all(|byte| matches!(byte, b'0' | b'.'));
    if costs_nothing {
        assert_eq!(before, after, "{shown} costs nothing: {take:?}");
        return 1;
    }
    let exists = after.dump != Value::Nil;
    if exists {
        let full_at = peek_at as i64 / 1000 + reset;
        // -1 would be none; a reset that is cut at its largest says less than the expiry.
        assert!(after.expire_at >= full_at, "{shown}: full at {full_at}, but {after:?}");
    }
    if allowed == 1 {
        assert!(exists && after.dump != before.dump, "{shown} was allowed {take:?} and left {after:?}");
        assert_ne!(before.replication_offset, after.replication_offset, "{shown} was allowed");
        return 1;
    }
    // A denial changes nothing, but an expiry that is too short and a time too far ahead.
    let enough = before.expire_at > take_at as i64 / 1000 + reset || !exists;
    let ahead = stored_ts.is_some_and(|ts| ts > peek_at as f64 / 1000.0);
    if enough && !ahead {
        assert_eq!(before, after, "{shown} was denied {take:?}");
    } else if !ahead {
        assert_eq!(before.dump, after.dump, "{shown} was denied {take:?}");
    }
    1
}

fn stored(connection: &mut Connection, key: &[u8]) -> Option<f64> {
    let text: Option<String> = cmd("HGET").arg(key).arg("ts").query(connection).ok()?;
    text?.parse().ok()
}
