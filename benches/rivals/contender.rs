//! Who is compared: what each sends for one decision, and what must come back.
//!
//! All have the same limit, 100 000 000 tokens refilled at 10 000 a second, and keys of the same length. Every key is called
//! once before anything is measured: what is to be denied takes the whole capacity and asks for it again, what is to be
//! allowed takes half and goes on with single tokens. So buckets are neither new nor full, and none expires meanwhile.

use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs};

use harness::redis::{Connection, Value, cmd};
use harness::script::SCRIPT;
use harness::{Ask, Builder, Server, server_version};

const CAPACITY: &str = "100000000";
const HALF: &str = "50000000";

/// Which answer a contender is made to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Tokens were there and were taken.
    Allowed,
    /// Too few were there.
    Denied,
    /// It does the same work whatever the answer is, or has no answer.
    Either,
}

impl Outcome {
    /// The word for it; empty for [`Outcome::Either`].
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Allowed => "allowed",
            Outcome::Denied => "denied",
            Outcome::Either => "",
        }
    }
}

/// What every reply must begin and end with, byte for byte in RESP2.
#[derive(Clone, Debug)]
struct Expected {
    start: Vec<u8>,
    end: Vec<u8>,
}

/// One way to decide, with one outcome.
#[derive(Clone, Debug)]
pub struct Contender {
    /// What it is called, whatever the outcome.
    pub name: String,
    /// What it is made to answer.
    pub outcome: Outcome,
    /// What commandstats books its time under.
    pub booked: Vec<String>,
    /// `rl.hot-keys` while it is measured, if not the default.
    pub hot_keys: Option<u16>,
    /// It leaves a bucket per key, whose memory is worth measuring.
    pub keeps: bool,
    /// It belongs in the comparison of latencies and bytes, where every contender costs minutes.
    pub main: bool,
    /// The commands of one decision; `{key}`, `{now}` (ms) stand for what changes.
    lines: Vec<Vec<String>>,
    /// Those of the first call of a key.
    first: Vec<Vec<String>>,
    expected: Expected,
    /// Keeps the keys of this contender apart from the others'.
    number: usize,
}

impl Contender {
    /// What is shown for it.
    pub fn label(&self) -> String {
        format!("{} {}", self.name, self.outcome.word()).trim_end().to_owned()
    }

    /// How many replies one decision has.
    pub fn replies(&self) -> usize {
        self.lines.len()
    }

    /// The bytes that ask for one decision about the key of this number.
    pub fn encode(&self, key: usize, now: u128, to: &mut Vec<u8>) {
        let key = format!("{{{:02}.{key:07}}}:rl:search:0", self.number);
        for line in &self.lines {
            let mut command = harness::redis::Cmd::new();
            for word in line {
                command.arg(word.replace("{key}", &key).replace("{now}", &now.to_string()));
            }
            to.extend_from_slice(&command.get_packed_command());
        }
    }

    /// The first call of each key, content with every reply.
    pub fn first(&self) -> Contender {
        let expected = Expected { start: Vec::new(), end: Vec::new() };
        Contender { lines: self.first.clone(), expected, ..self.clone() }
    }

    fn first_calls(&mut self, line: &str) {
        self.first = vec![words(line)];
    }

    /// Checks the last reply of a decision.
    ///
    /// # Panics
    /// If it is another answer than was asked for: nobody is fast by doing something else.
    pub fn check(&self, reply: &[u8]) {
        let Expected { start, end } = &self.expected;
        assert!(
            reply.starts_with(start) && reply.ends_with(end),
            "{}: a reply of {:?} ... {:?} was expected, not {:?}",
            self.label(),
            start.escape_ascii().to_string(),
            end.escape_ascii().to_string(),
            reply.escape_ascii().to_string(),
        );
    }
}

/// Unix time in ms, as a client's clock tells it.
pub(crate) fn now_millis() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_millis()
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// A server that can run them all: over TCP, with the rival module of `RIVAL_SO` if there is one.
pub fn builder() -> Builder {
    let builder = Server::builder().tcp();
    let Some(rival) = env::var_os("RIVAL_SO") else { return builder };
    let path =
        fs::canonicalize(&rival).unwrap_or_else(|error| panic!("RIVAL_SO={}: {error}", rival.display()));
    builder.config("loadmodule", &path.to_string_lossy())
}

/// Makes a server ready for contenders that another one has listed.
pub fn prepare(connection: &mut Connection) {
    load_lua(connection);
}

/// Makes the server ready and lists the contenders that it can run.
pub fn contenders(server: &Server) -> Vec<Contender> {
    let connection = &mut server.connection();
    let mut all = List::default();
    all.add("SET", Outcome::Either, &["SET {key} 99999999.1234"], &["set"], "+OK").keeps = true;
    let line = "HSET {key} tokens 99999999.1234 ts {now}";
    all.add("HSET of two fields", Outcome::Either, &[line], &["hset"], ":0").keeps = true;
    let lines = ["MULTI", "INCR {key}", "EXPIRE {key} 3600", "EXEC"];
    // EXEC is booked with what it executes.
    all.add("INCR and EXPIRE in MULTI", Outcome::Either, &lines, &["multi", "exec"], "*2\r\n:").keeps = true;
    if server_knows(connection, "increx") {
        let line = |cost: &str| format!("INCREX {{key}} BYINT {cost} UBOUND {CAPACITY} EX 10000 ENX");
        for (outcome, took) in [(Outcome::Allowed, ":1\r\n"), (Outcome::Denied, ":0\r\n")] {
            all.pair("INCREX", outcome, line, "increx", "*2\r\n:").expected.end = took.into();
        }
    }
    lua(&mut all, &load_lua(connection));
    module(&mut all);
    if let Ok(command) = env::var("RIVAL_CMD") {
        rival(&mut all, server, &command);
    }
    all.contenders
}

/// The contenders so far.
#[derive(Default)]
struct List {
    contenders: Vec<Contender>,
}

impl List {
    fn add(
        &mut self,
        name: &str,
        outcome: Outcome,
        lines: &[&str],
        booked: &[&str],
        reply: &str,
    ) -> &mut Contender {
        let lines: Vec<_> = lines.iter().map(|line| words(line)).collect();
        self.contenders.push(Contender {
            name: name.to_owned(),
            outcome,
            booked: booked.iter().map(|&name| name.to_owned()).collect(),
            hot_keys: None,
            keeps: false,
            main: true,
            first: lines.clone(),
            lines,
            expected: Expected { start: reply.as_bytes().to_vec(), end: b"\r\n".to_vec() },
            number: self.contenders.len(),
        });
        self.contenders.last_mut().expect("one was added")
    }

    /// A contender whose command for a given cost is `line`.
    fn pair(
        &mut self,
        name: &str,
        outcome: Outcome,
        line: impl Fn(&str) -> String,
        booked: &str,
        reply: &str,
    ) -> &mut Contender {
        let allowed = outcome == Outcome::Allowed;
        let (first, cost) = if allowed { (HALF, "1") } else { (CAPACITY, CAPACITY) };
        let contender = self.add(name, outcome, &[&line(cost)], &[booked], reply);
        contender.first_calls(&line(first));
        contender.keeps = allowed;
        contender
    }
}

fn server_knows(connection: &mut Connection, command: &str) -> bool {
    let info: Vec<Value> = connection.ask(&format!("COMMAND INFO {command}"));
    info.first().is_some_and(|entry| *entry != Value::Nil)
}

/// The verdicts as replies have them: 1 for allowed, 0 for denied.
const VERDICTS: [(Outcome, &str); 2] = [(Outcome::Allowed, ":1\r\n"), (Outcome::Denied, ":0\r\n")];

/// A way to call the script: its name, the beginning of the command, and what commandstats books it under.
type Way = (&'static str, String, &'static str);

/// Loads the token bucket that most teams write, as a cached script and, where there are any, as a function.
fn load_lua(connection: &mut Connection) -> Vec<Way> {
    let sha: String = cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query(connection).expect("SCRIPT LOAD");
    let mut ways = vec![("Lua by EVALSHA", format!("EVALSHA {sha}"), "evalsha")];
    if server_knows(connection, "fcall") {
        let library = format!(
            "#!lua name=rival\nredis.register_function('token_bucket', function(KEYS, ARGV)\n{SCRIPT}\nend)\n"
        );
        let _: Value = cmd("FUNCTION").arg("LOAD").arg(library).query(connection).expect("FUNCTION LOAD");
        ways.push(("Lua by FCALL", "FCALL token_bucket".to_owned(), "fcall"));
    }
    ways
}

fn lua(all: &mut List, ways: &[Way]) {
    for (name, call, booked) in ways {
        // The script wants the rate in tokens per ms.
        let line = |cost: &str| format!("{call} 1 {{key}} {CAPACITY} 10 {{now}} {cost}");
        for (outcome, verdict) in VERDICTS {
            all.pair(name, outcome, line, booked, &format!("*2\r\n{verdict}"));
        }
    }
}

fn module(all: &mut List) {
    // Redis 6.2 has no settings of modules, and one server cannot be measured with both.
    let sizes: &[u16] = if server_version().has_redis(7, 0) { &[0, 1024] } else { &[] };
    for (outcome, verdict) in VERDICTS {
        let line = |command: &str, cost: &str| format!("{command} {{key}} {CAPACITY} 10000 {cost}");
        let take = |cost: &str| line("RL.TAKE", cost);
        let reply = format!("*4\r\n{verdict}");
        let first = all.pair("RL.TAKE", outcome, take, "rl.take", &reply).first.clone();
        for &size in sizes {
            let name = format!("RL.TAKE, {size} hot keys,");
            let sized = all.pair(&name, outcome, take, "rl.take", &reply);
            (sized.hot_keys, sized.keeps, sized.main) = (Some(size), false, false);
        }
        let peek = all.pair("RL.PEEK", outcome, |cost| line("RL.PEEK", cost), "rl.peek", &reply);
        (peek.first, peek.keeps, peek.main) = (first, false, false);
    }
    for buckets in [2, 4, 8] {
        for (outcome, verdict) in VERDICTS {
            let line = |cost: &str| {
                let bucket = |number: i32| format!("{{key}}{number} {CAPACITY} 10000 {cost}");
                format!("RL.TAKEALL {}", (0..buckets).map(bucket).collect::<Vec<_>>().join(" "))
            };
            let name = format!("RL.TAKEALL of {buckets}");
            let reply = format!("*{}\r\n{verdict}", buckets + 2);
            let stack = all.pair(&name, outcome, line, "rl.takeall", &reply);
            (stack.keeps, stack.main) = (false, buckets == 2);
        }
    }
    let line = format!("RL.TAKE {{key}} {CAPACITY} many 1");
    all.add("RL.TAKE with a bad rate", Outcome::Either, &[&line], &["rl.take"], "-ERR rate").main = false;
}

/// Another module's command, as `RIVAL_CMD` gives it, `{cost}` standing for the tokens asked for. What it answers when it
/// allows and denies is found out first, from buckets of their own.
fn rival(all: &mut List, server: &Server, command: &str) {
    assert!(command.contains("{key}"), "RIVAL_CMD must say where the key goes: {{key}}");
    assert!(command.contains("{cost}"), "RIVAL_CMD must say where the tokens asked for go: {{cost}}");
    let name = command.split_whitespace().next().expect("not blank").to_uppercase();
    let mut connection = server.connection();
    let line = |cost: &str| command.replace("{cost}", cost);
    let mut verdicts = Vec::new();
    for (outcome, first, cost) in [(Outcome::Allowed, HALF, "1"), (Outcome::Denied, CAPACITY, CAPACITY)] {
        let probe = format!("probe:{}", outcome.word());
        connection.ask::<Value>(&line(first).replace("{key}", &probe));
        let reply: Value = connection.ask(&line(cost).replace("{key}", &probe));
        let (head, verdict) = match &reply {
            Value::Array(items) => (format!("*{}\r\n", items.len()), items.first()),
            other => (String::new(), Some(other)),
        };
        let Some(Value::Int(verdict)) = verdict else {
            panic!("RIVAL_CMD must answer with an integer first, not {reply:?}");
        };
        all.pair(&name, outcome, line, &name.to_lowercase(), &format!("{head}:{verdict}\r\n"));
        verdicts.push(*verdict);
    }
    assert!(
        verdicts[0] != verdicts[1],
        "RIVAL_CMD answers {verdicts:?} first, whether it allows 1 token or denies {CAPACITY}"
    );
}
