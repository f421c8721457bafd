//! What a call costs the server: its CPU time per call from INFO commandstats, on one server in one run, all contenders
//! in turn, pipelined over 1000 keys. All have the same limits; what is denied asks for the whole capacity.
//!
//! The figure is the command's own: parsing the request and sending the reply are the server's and left out, for all
//! contenders alike. Every reply is checked, so that nobody is fast by answering something else.

use std::time::{SystemTime, UNIX_EPOCH};

use harness::redis::{Connection, Pipeline, Value, cmd, pipe};
use harness::{Ask, Server};

const KEYS: usize = 1000;
const BATCH: usize = 100;
const CALLS: usize = 40_000;
const ROUNDS: usize = 9;

/// One thing to measure.
struct Contender {
    label: &'static str,
    /// As commandstats calls it.
    command: &'static str,
    /// The arguments, `{}` standing for a key.
    arguments: Vec<String>,
    reply: Expected,
    /// µs per call, one figure a round.
    rounds: Vec<f64>,
}

/// What every reply must be, after each key was called once.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Allowed,
    Denied,
    Error,
    Any,
}

impl Expected {
    fn holds(self, reply: &Value) -> bool {
        match (self, reply) {
            (Expected::Any, _) | (Expected::Error, Value::ServerError(_)) => true,
            (Expected::Allowed, Value::Array(items)) => items.first() == Some(&Value::Int(1)),
            (Expected::Denied, Value::Array(items)) => items.first() == Some(&Value::Int(0)),
            _ => false,
        }
    }
}

fn main() {
    harness::end_all_on_ctrl_c();
    let server = Server::start();
    let mut connection = server.connection();
    let sha: String = cmd("SCRIPT")
        .arg("LOAD")
        .arg(include_str!("token_bucket.lua"))
        .query(&mut connection)
        .expect("SCRIPT LOAD");
    let mut contenders = contenders(&sha);
    for contender in &mut contenders {
        contender.fill(&mut connection);
    }
    for round in 1..=ROUNDS {
        eprint!("\rround {round} of {ROUNDS}");
        for contender in &mut contenders {
            contender.measure(&server, &mut connection);
        }
    }
    eprintln!();
    report(&contenders);
}

fn contenders(sha: &str) -> Vec<Contender> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_millis();
    let contender = |label, command, line: &str, reply| Contender {
        label,
        command,
        arguments: line.split_whitespace().map(str::to_owned).collect(),
        reply,
        rounds: Vec::new(),
    };
    let eight: Vec<String> = (0..8).map(|index| format!("h{index}:{{}} 1000000 1000 1")).collect();
    vec![
        contender("HSET, two fields", "hset", "HSET f:{} tokens 123.456 ts 1700000000000", Expected::Any),
        contender("RL.TAKE allowed", "rl.take", "RL.TAKE a:{} 1000000 1000 1", Expected::Allowed),
        contender("RL.TAKE denied", "rl.take", "RL.TAKE d:{} 1000000 1000 1000000", Expected::Denied),
        contender("RL.TAKE bad rate", "rl.take", "RL.TAKE a:{} 1000000 many 1", Expected::Error),
        contender("RL.PEEK", "rl.peek", "RL.PEEK a:{} 1000000 1000 1", Expected::Allowed),
        contender(
            "RL.TAKEALL of 2 allowed",
            "rl.takeall",
            "RL.TAKEALL t:{} 1000000 1000 1 r:{} 1000000 1000 1",
            Expected::Allowed,
        ),
        contender(
            "RL.TAKEALL of 2 denied",
            "rl.takeall",
            "RL.TAKEALL td:{} 1000000 1000 1000000 rd:{} 1000000 1000 1000000",
            Expected::Denied,
        ),
        contender(
            "RL.TAKEALL of 8 allowed",
            "rl.takeall",
            &format!("RL.TAKEALL {}", eight.join(" ")),
            Expected::Allowed,
        ),
        contender(
            "Lua allowed",
            "evalsha",
            &format!("EVALSHA {sha} 1 la:{{}} 1000000 1 {now} 1"),
            Expected::Allowed,
        ),
        contender(
            "Lua denied",
            "evalsha",
            &format!("EVALSHA {sha} 1 ld:{{}} 1000000 1 {now} 1000000"),
            Expected::Denied,
        ),
    ]
}

impl Contender {
    fn batch(&self, first: usize) -> Pipeline {
        let mut batch = pipe();
        batch.ignore_errors();
        for index in first..first + BATCH {
            let key = (index % KEYS).to_string();
            let words = self.arguments.iter().map(|word| word.replace("{}", &key));
            batch.add_command(words.fold(harness::redis::Cmd::new(), |mut command, word| {
                command.arg(word);
                command
            }));
        }
        batch
    }

    /// Calls every key once: from then on, a cost of the whole capacity is denied.
    fn fill(&self, connection: &mut Connection) {
        for first in (0..KEYS).step_by(BATCH) {
            let _: Vec<Value> = self.batch(first).query(connection).expect("replies");
        }
    }

    fn measure(&mut self, server: &Server, connection: &mut Connection) {
        let batches: Vec<Pipeline> = (0..KEYS).step_by(BATCH).map(|first| self.batch(first)).collect();
        connection.ask::<()>("CONFIG RESETSTAT");
        for batch in batches.iter().cycle().take(CALLS / BATCH) {
            let replies: Vec<Value> = batch.query(connection).expect("replies");
            let wrong = replies.iter().find(|reply| !self.reply.holds(reply));
            assert!(wrong.is_none(), "{}: {:?} was expected, not {wrong:?}", self.label, self.reply);
        }
        let (calls, micros) = server.command_stats(self.command);
        assert_eq!(calls, CALLS as u64, "{}", self.label);
        self.rounds.push(micros as f64 / calls as f64);
    }

    fn sorted(&self) -> Vec<f64> {
        let mut rounds = self.rounds.clone();
        rounds.sort_by(f64::total_cmp);
        rounds
    }
}

fn report(contenders: &[Contender]) {
    println!("{:26} {:>8} {:>8} {:>8}   µs of the server's time per call", "", "median", "least", "most");
    for contender in contenders {
        let rounds = contender.sorted();
        let (least, most) = (rounds[0], rounds[ROUNDS - 1]);
        println!("{:26} {:8.2} {least:8.2} {most:8.2}", contender.label, rounds[ROUNDS / 2]);
    }
    println!();
    let rounds = |label: &str| -> &[f64] {
        &contenders.iter().find(|contender| contender.label == label).expect("a contender").rounds
    };
    // Within a round the contenders ran within a second of each other; a slow spell of the machine slows both.
    let ratio = |rival: &str, ours: &str| -> f64 {
        let mut ratios: Vec<f64> =
            rounds(rival).iter().zip(rounds(ours)).map(|(rival, ours)| rival / ours).collect();
        ratios.sort_by(f64::total_cmp);
        ratios[ROUNDS / 2]
    };
    for (times, rival, ours, target) in [
        (1.0, "Lua allowed", "RL.TAKE allowed", 4.0),
        (1.0, "Lua denied", "RL.TAKE denied", 8.0),
        (2.0, "Lua allowed", "RL.TAKEALL of 2 allowed", 5.0),
        (2.0, "Lua denied", "RL.TAKEALL of 2 denied", 9.0),
        (8.0, "RL.TAKE allowed", "RL.TAKEALL of 8 allowed", 1.0),
        (1.0, "RL.TAKE allowed", "RL.TAKE bad rate", 1.0),
    ] {
        let found = times * ratio(rival, ours);
        let verdict = if found >= target { "met" } else { "missed" };
        println!(
            "{ours:26} is {found:5.2} times cheaper than {times} x {rival:16} (target {target}: {verdict})"
        );
    }
}
