//! CL.THROTTLE beside redis-cell 0.5.0 itself.
//!
//! redis-cell is not part of this project. `redis_cell.txt` holds what it answered to inputs drawn at random, and every
//! test run compares with that. Whoever has the library can compare anew, on far more inputs, and write the file again
//! (`REDIS_CELL_RECORD=1`):
//!
//! ```text
//! REDIS_CELL_SO=/path/to/libredis_cell.so cargo test --test server redis_cell -- --ignored
//! ```
//!
//! redis-cell reads a clock that nobody can set. So a state is given as a time from now, each input is asked twice, one
//! millisecond early and [`WINDOW_MICROS`] late, and only when both answers are the same it counts: it then holds for all
//! of that time.

use std::panic::catch_unwind;
use std::{env, fmt, fs};

use harness::redis::{Connection, Value, pipe};
use harness::{Ask, Builder, Server, wait};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::bucket::Bench;

const RECORDED: &str = include_str!("redis_cell.txt");
const RECORDED_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/redis_cell.txt");
/// How many are recorded, and how many are compared when redis-cell is there.
const RECORDED_CASES: usize = 400;
const LIVE_CASES: usize = 10_000;

const EARLY_MICROS: i64 = 1_000;
const WINDOW_MICROS: i64 = 20_000;

const YEAR_SECONDS: i64 = 31_557_600;

/// A bucket and what is asked of it, one after the other.
#[derive(Clone, Debug, PartialEq)]
struct Case {
    max_burst: i64,
    count: i64,
    period: i64,
    /// In how many µs redis-cell's bucket is full; a missing key if there is none.
    full_in: Option<i64>,
    quantities: Vec<i64>,
}

/// `[limited, limit, remaining, retry_after, reset_after]`
type Answer = [i64; 5];

impl Case {
    /// redis-cell's time between two tokens, which it cuts to whole nanoseconds.
    fn interval_nanos(&self) -> i64 {
        self.period * 1_000_000_000 / self.count
    }

    /// Whether a missing key is full again less than a microsecond before a whole millisecond from now. redis-cell counts
    /// nanoseconds; where times are whole microseconds, that is the millisecond, and it may be the one that makes a second.
    fn is_between_two_clocks(&self) -> bool {
        let [quantity] = self.quantities[..] else { return false };
        let nanos = i128::from(quantity) * i128::from(self.period) * 1_000_000_000 / i128::from(self.count);
        self.full_in.is_none() && nanos % 1_000_000 >= 999_000
    }

    /// Asks, on a bucket that is full `shift` µs later than the case says. The answers are as many as there are until the
    /// first error; with them comes the time in µs that has passed at the end.
    fn ask(&self, connection: &mut Connection, shift: i64) -> (Vec<Answer>, i64) {
        let micros = |(seconds, micros): (i64, i64)| seconds * 1_000_000 + micros;
        let base = micros(connection.ask("TIME"));
        let mut batch = pipe();
        batch.atomic().ignore_errors().cmd("DEL").arg("k");
        if let Some(full_in) = self.full_in {
            batch.cmd("SET").arg("k").arg(format!("{}000", base + full_in + shift));
        }
        for quantity in &self.quantities {
            batch.cmd("CL.THROTTLE").arg("k").arg(&[self.max_burst, self.count, self.period, *quantity]);
        }
        batch.cmd("TIME");
        let mut replies: Vec<Value> = batch.query(connection).expect("replies");
        let end = replies.pop().expect("the time");
        let end = micros(harness::redis::from_redis_value(end).expect("the time"));
        let answers = replies.split_off(replies.len() - self.quantities.len());
        let answers = answers.into_iter().map_while(|reply| harness::redis::from_redis_value(reply).ok());
        (answers.collect(), end - base)
    }

    /// As [`Case::ask`] with no shift, again if what is to be compared no longer holds by the time the answers are there.
    fn ask_in_time(&self, connection: &mut Connection) -> Vec<Answer> {
        wait::until(wait::PATIENCE, "answers in time", || match self.ask(connection, 0) {
            (answers, passed) if passed < WINDOW_MICROS => Ok(answers),
            (_, passed) => Err(format!("{passed} µs passed")),
        })
    }

    /// What redis-cell answers, if that holds for a while.
    fn ask_redis_cell(&self, connection: &mut Connection) -> Option<Vec<Answer>> {
        let (early, passed) = self.ask(connection, EARLY_MICROS);
        let (late, _) = self.ask(connection, -WINDOW_MICROS);
        (passed < EARLY_MICROS && early == late && !early.is_empty()).then_some(early)
    }

    /// Whether `ours` is what it should be where redis-cell answers `theirs`.
    fn agrees(&self, theirs: &[Answer], ours: &[Answer]) -> bool {
        // redis-cell fills a bucket above its capacity when more is given back than was taken.
        let too_much = |(quantity, ours): (&i64, &Answer)| *quantity < 0 && ours[4] == 0;
        let comparable = self.quantities.iter().zip(ours).position(too_much).unwrap_or(theirs.len());
        ours.len() == self.quantities.len()
            && theirs.iter().zip(ours).take(comparable).all(|(theirs, ours)| {
                let most = self.remaining_by_redis_cell(ours[2]);
                let others = |answer: &Answer| [answer[0], answer[1], answer[3], answer[4]];
                others(theirs) == others(ours) && (ours[2]..=most).contains(&theirs[2])
            })
    }

    /// The most that redis-cell tells for `remaining` tokens: it divides by the interval cut to whole microseconds, and so
    /// tells too much when that is no whole number of them.
    fn remaining_by_redis_cell(&self, remaining: i64) -> i64 {
        let (whole, rest) = (self.interval_nanos() / 1000, self.interval_nanos() % 1000);
        if rest == 0 { remaining } else { remaining + (remaining + 1) / whole + 1 }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { max_burst, count, period, full_in, quantities } = self;
        let full_in = full_in.map_or("-".to_owned(), |micros| micros.to_string());
        write!(f, "{max_burst} {count} {period} {full_in}")?;
        quantities.iter().try_for_each(|quantity| write!(f, " {quantity}"))
    }
}

/// Whole numbers from 1 to 10^`digits`, of all sizes alike.
fn sizes(digits: f64) -> impl Strategy<Value = i64> {
    (0.0..digits).prop_map(|exponent| 10_f64.powf(exponent) as i64)
}

/// Inputs of every kind to which redis-cell has a right answer.
fn cases() -> impl Strategy<Value = Case> {
    let max_burst = prop_oneof![20 => sizes(6.0), 4 => Just(0), 1 => Just(-1)];
    let period = prop_oneof![sizes(6.0), Just(1), Just(60), Just(3600), Just(86_400)];
    let full = prop_oneof![3 => Just(None), 10 => (0.0..1.0).prop_map(Some), 2 => (1.0..1.5).prop_map(Some)];
    let quantity = prop_oneof![
        4 => Just((0.0, 1)),
        1 => Just((0.0, 0)),
        2 => (1..20_i64).prop_map(|n| (0.0, n)),
        2 => (-20..0_i64).prop_map(|n| (0.0, n)),
        4 => (0.0..1.0).prop_map(|part| (part, 0)),
        1 => Just((1.0, 0)),
        1 => Just((1.0, 1)),
        1 => (1..=i64::MAX / 1_000_000_000_000).prop_map(|n| (0.0, n)),
    ];
    (max_burst, sizes(6.0), period, full, prop::collection::vec(quantity, 1..5))
        .prop_map(|(max_burst, count, period, full, quantities)| {
            let limit = (max_burst + 1) as f64;
            let fill_micros = limit * period as f64 / count as f64 * 1e6;
            let full_in = full.map(|part: f64| (part * fill_micros) as i64);
            let mut quantities: Vec<i64> =
                quantities.into_iter().map(|(part, more)| (part * limit) as i64 + more).collect();
            match full {
                // What happens after the first call depends on the time since, which nobody can choose.
                None => quantities.truncate(1),
                // A gift to a bucket in debt is refused by redis-cell.
                Some(part) if part > 1.0 => quantities.retain(|quantity| *quantity >= 0),
                Some(_) => {}
            }
            Case { max_burst, count, period, full_in, quantities }
        })
        .prop_filter("fills within 100 years, and no sooner than redis-cell can count", |case| {
            let fill_seconds = (case.max_burst + 1) as f64 * case.period as f64 / case.count as f64;
            // A quantity times the interval must fit 64 bits, too.
            let largest = case.quantities.iter().max().copied().unwrap_or(0) as f64;
            let increment = largest * case.interval_nanos() as f64;
            !case.quantities.is_empty()
                && fill_seconds < (100 * YEAR_SECONDS) as f64
                && increment < 9e18
                && case.interval_nanos() >= 1000
                && !case.is_between_two_clocks()
        })
}

fn ours() -> Server {
    Server::builder().module_arguments("cl-throttle yes").start()
}

/// A server with redis-cell alone.
fn redis_cell() -> Builder {
    let path = env::var("REDIS_CELL_SO").expect("REDIS_CELL_SO must name redis-cell's library");
    Server::builder().without_module().config("loadmodule", &path)
}

/// Reads a line of the file: a case as it is shown, `=`, and the answers, separated by commas.
fn recorded(line: &str) -> Option<(Case, Vec<Answer>)> {
    let integers = |text: &str| text.split_whitespace().map(str::parse).collect::<Result<Vec<i64>, _>>().ok();
    let (case, answers) = line.split_once('=')?;
    let words: Vec<&str> = case.split_whitespace().collect();
    let [max_burst, count, period, full_in, quantities @ ..] = words.as_slice() else { return None };
    let case = Case {
        max_burst: max_burst.parse().ok()?,
        count: count.parse().ok()?,
        period: period.parse().ok()?,
        full_in: if *full_in == "-" { None } else { Some(full_in.parse().ok()?) },
        quantities: integers(&quantities.join(" "))?,
    };
    let answers = answers.split(',').map(|answer| integers(answer)?.try_into().ok());
    Some((case, answers.collect::<Option<_>>()?))
}

fn record((case, answers): &(Case, Vec<Answer>)) -> String {
    let answers: Vec<String> =
        answers.iter().map(|answer| answer.map(|integer| integer.to_string()).join(" ")).collect();
    format!("{case} = {}\n", answers.join(", "))
}

#[test]
fn it_answers_what_redis_cell_has_answered() {
    let server = ours();
    let mut connection = server.connection();
    let lines: Vec<&str> = RECORDED.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines.len(), RECORDED_CASES);
    for line in lines {
        let (case, theirs) = recorded(line).unwrap_or_else(|| panic!("not readable: {line}"));
        let ours = case.ask_in_time(&mut connection);
        assert!(case.agrees(&theirs, &ours), "{line}\n  is answered {ours:?}");
    }
}

#[test]
#[ignore = "needs redis-cell: REDIS_CELL_SO=libredis_cell.so"]
fn redis_cell_itself_answers_the_same() {
    let (theirs, ours) = (redis_cell().start(), ours());
    let (mut their_connection, mut our_connection) = (theirs.connection(), ours.connection());
    let mut runner = TestRunner::deterministic();
    let cases = cases();
    let mut compared = Vec::new();
    let mut asked = 0;
    while compared.len() < LIVE_CASES {
        asked += 1;
        assert!(asked < 4 * LIVE_CASES, "only {} of {asked} answers held for a while", compared.len());
        let case = cases.new_tree(&mut runner).expect("a case").current();
        let Some(theirs) = case.ask_redis_cell(&mut their_connection) else { continue };
        let ours = case.ask_in_time(&mut our_connection);
        assert!(case.agrees(&theirs, &ours), "{case}\n  redis-cell: {theirs:?}\n  CL.THROTTLE: {ours:?}");
        compared.push((case, theirs));
    }
    println!(
        "{} of {asked} inputs compared; the others' answers change within {WINDOW_MICROS} µs",
        compared.len()
    );
    if env::var_os("REDIS_CELL_RECORD").is_some() {
        let header = "# max_burst count period full_in_micros quantity ... = redis-cell 0.5.0's answers; see redis_cell.rs\n";
        let lines: String = compared.iter().take(RECORDED_CASES).map(record).collect();
        fs::write(RECORDED_PATH, format!("{header}{lines}")).expect("the file");
    }
}

#[test]
#[ignore = "needs redis-cell: REDIS_CELL_SO=libredis_cell.so"]
fn a_server_with_redis_cell_has_its_command_and_our_buckets() {
    let path = env::var("REDIS_CELL_SO").expect("REDIS_CELL_SO must name redis-cell's library");
    let beside = || Server::builder().config("loadmodule", &path);
    let mut bench = Bench::on(beside().start());
    assert_eq!(bench.connection.ask::<Answer>("CL.THROTTLE cell 15 30 60"), [0, 16, 15, -1, 2]);
    assert_eq!(bench.connection.ask::<String>("TYPE cell"), "string");
    assert_eq!(bench.take("ours 16 30/60")[..2], [1, 15]);
    let panic = catch_unwind(|| beside().module_arguments("cl-throttle yes").start());
    let message = panic.map(|_| ()).expect_err("two modules with the same command");
    let message = message.downcast_ref::<String>().expect("a message");
    let words = "command cl.throttle could not be registered; is its name taken?";
    assert!(message.contains(words), "{message}");
}

/// Node by node: a replica with this module takes the place of its master, which has redis-cell.
#[test]
#[ignore = "needs redis-cell: REDIS_CELL_SO=libredis_cell.so"]
fn a_replica_goes_on_where_its_master_with_redis_cell_was() {
    let mut theirs = Bench::on(redis_cell().tcp().start());
    let before = theirs.connection.ask::<Answer>("CL.THROTTLE before 15 1 86400 6");
    assert_eq!(before[2], 10);
    let replica = Server::builder().module_arguments("cl-throttle yes").start_replica_of(&theirs.server);
    // redis-cell replicates its calls; the replica runs them on its own buckets.
    assert_eq!(theirs.connection.ask::<Answer>("CL.THROTTLE before 15 1 86400 2")[2], 8);
    assert_eq!(theirs.connection.ask::<Answer>("CL.THROTTLE after 15 1 86400 5")[2], 11);
    assert_eq!(theirs.connection.ask::<Answer>("CL.THROTTLE after 15 1 86400 12")[0], 1);
    replica.await_offset_of(&theirs.server);
    theirs.server.kill();
    let mut ours = Bench::on(replica);
    ours.connection.ask::<()>("REPLICAOF NO ONE");
    for (key, remaining) in [("before", 8), ("after", 11)] {
        let reply = ours.connection.ask::<Answer>(&format!("CL.THROTTLE {key} 15 1 86400 0"));
        assert_eq!(reply[..3], [0, 16, remaining], "{key}");
        assert_eq!(ours.peek(&format!("{key} 16 1/86400 0"))[..2], [1, remaining], "{key}");
    }
}
