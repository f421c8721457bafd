//! Random commands.

use std::fmt;

use fastrand::Rng;

use crate::commands::{COMMANDS, Command, Form};

/// One command of a pipeline.
pub(crate) struct Call {
    pub(crate) argv: Vec<Vec<u8>>,
    pub(crate) expect: Expect,
}

/// What a reply has to be.
pub(crate) enum Expect {
    /// Anything.
    Any,
    /// A reply of this command of the module, or one of its errors.
    Module(Module),
    /// An array of replies, or an error: what EXEC answers.
    Exec(Vec<Expect>),
}

/// A call of the module.
pub(crate) struct Module {
    pub(crate) command: &'static Command,
    /// The costs by buckets of fixed limits, in nanotokens.
    pub(crate) fixed: Vec<(usize, u64)>,
    /// Whether the server's own words may come with it: a script wraps errors.
    pub(crate) in_script: bool,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.argv.iter().map(|word| word.escape_ascii().to_string()).collect();
        let line = words.join(" ");
        write!(f, "{}", line.get(..line.len().min(400)).unwrap_or(&line))
    }
}

/// Buckets that are always asked with the same limit: key, capacity, rate, and both as numbers (tokens, tokens per second).
pub(crate) const FIXED: [(&str, &str, &str, f64, f64); 8] = [
    ("fixed:fast", "10", "100", 10.0, 100.0),
    ("fixed:week", "5", "1/7d", 5.0, 1.0 / 604_800.0),
    ("fixed:thousand", "1000", "1000/s", 1000.0, 1000.0),
    ("fixed:fraction", "0.5", "3/250ms", 0.5, 12.0),
    ("fixed:minute", "50", "20/m", 50.0, 1.0 / 3.0),
    ("fixed:million", "1e6", "1E+6", 1e6, 1e6),
    ("fixed:ninth", "1", "0.1111111111111111", 1.0, 1.0 / 9.0),
    ("fixed:closed", "0", "1", 0.0, 1.0),
];

/// All other keys, of which anything may become.
const WILD: usize = 30;

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "5",
    "10",
    "0.5",
    "0.000000001",
    "100",
    "1e3",
    "9007199254740991",
    "9007199254740990.999999999",
    "3.3",
    "1E-05",
    "1e15",
];
const BAD_NUMBERS: &[&str] = &[
    "",
    "-1",
    "+1",
    "nan",
    "inf",
    "1e400",
    "1e-400",
    "0x10",
    " 1",
    "1\n",
    "1.",
    ".5",
    "9007199254740992",
    "0.0000000001",
    "\0",
    "1e",
    "\u{663}",
    "1_0",
    "%s%n",
    "-0",
];
const RATES: &[&str] = &[
    "1",
    "10",
    "1000",
    "1e6",
    "0.4",
    "100/m",
    "5/15m",
    "1000/1h",
    "3/250ms",
    "20/16",
    "1/7d",
    "17/30",
    "1/h",
    "0.1111111111111111",
    "9007199254740991",
    "9007199254740991/1ms",
    "1e300",
    "1/99y",
    "1/36525d",
];
const BAD_RATES: &[&str] = &["0", "", "1/", "/s", "1/0", "-1", "1//s", "1/S", "nan", "1 /s", "1/s\n", "0/m"];

pub(crate) struct Generator {
    rng: Rng,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Generator {
        Generator { rng: Rng::with_seed(seed) }
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.rng.usize(..limit)
    }

    pub(crate) fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.rng.usize(..from.len())]
    }

    fn one_in(&mut self, times: u32) -> bool {
        self.rng.u32(..times) == 0
    }

    /// One command, or a few that belong together.
    pub(crate) fn calls(&mut self) -> Vec<Call> {
        match self.rng.u32(..10_000) {
            0..2500 => vec![self.fixed()],
            2500..6200 => vec![self.module()],
            6200..6500 => vec![self.garbage()],
            6500..6800 => vec![self.script()],
            6800..7100 => self.transaction(),
            7100..9930 => vec![self.other()],
            9930..9999 => vec![self.setting()],
            _ => vec![self.rare()],
        }
    }

    /// A call on buckets of fixed limits, which no other command of this generator touches.
    fn fixed(&mut self) -> Call {
        let eligible: Vec<&'static Command> = COMMANDS.iter().filter(|command| command.keeps_bound).collect();
        let command = *self.choose(&eligible);
        let mut indices: Vec<usize> = (0..FIXED.len()).collect();
        self.rng.shuffle(&mut indices);
        indices.truncate(if command.form == Form::Stack { 1 + self.below(3) } else { 1 });
        let (mut argv, mut fixed) = (vec![command.name.into()], Vec::new());
        for index in indices {
            let (key, capacity, rate, tokens, _) = FIXED[index];
            let most = (tokens * 1e9) as u64 + 2;
            let nanos = match self.below(4) {
                0 => self.rng.u64(..most),
                1 => self.rng.u64(..most / 10 + 1),
                2 => 0,
                _ => 1_000_000_000,
            };
            let cost = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
            argv.extend([key.into(), capacity.into(), rate.into(), cost.into_bytes()]);
            fixed.push((index, nanos));
        }
        Call { argv, expect: Expect::Module(Module { command, fixed, in_script: false }) }
    }

    /// A call on other keys, mostly right.
    pub(crate) fn module(&mut self) -> Call {
        let command = self.choose(COMMANDS);
        let mut argv = vec![command.name.into()];
        let buckets = match command.form {
            Form::Stack if self.one_in(50) => 60 + self.below(10),
            Form::Stack => 1 + self.below(4),
            Form::Take | Form::Settle => 1,
            Form::Throttle | Form::Hot => 0,
        };
        for _ in 0..buckets {
            argv.extend([self.key(), self.number(), self.rate(), self.number()]);
        }
        if command.form == Form::Throttle {
            argv.extend([self.key(), self.integer(), self.integer(), self.integer(), self.integer()]);
            argv.truncate(5 + self.below(2));
        }
        if command.form == Form::Hot {
            let words = *self.choose(&[
                "",
                "DENIED",
                "COUNT 5",
                "DENIED COUNT 1024",
                "RESET",
                "COUNT",
                "COUNT 0",
                "RESET 1",
            ]);
            argv.extend(words.split_whitespace().map(Vec::from));
        }
        if command.form == Form::Take && self.one_in(4) {
            argv.pop();
        }
        if self.one_in(30) {
            match self.below(2) {
                // A command without its name is none, and gets no reply.
                0 => argv.truncate(1.max(argv.len() - 1)),
                _ => argv.push(self.bytes()),
            }
        }
        Call { argv, expect: Expect::Module(Module { command, fixed: Vec::new(), in_script: false }) }
    }

    /// A command's name and random bytes.
    fn garbage(&mut self) -> Call {
        let command = self.choose(COMMANDS);
        let mut argv: Vec<Vec<u8>> = vec![command.name.into()];
        for _ in 0..self.below(12) {
            argv.push(self.bytes());
        }
        Call { argv, expect: Expect::Module(Module { command, fixed: Vec::new(), in_script: false }) }
    }

    fn script(&mut self) -> Call {
        let inner = if self.one_in(2) { self.fixed() } else { self.module() };
        let call = *self.choose(&["call", "pcall"]);
        let body = format!("return redis.{call}(unpack(ARGV))");
        let mut argv = vec![b"EVAL".to_vec(), body.into_bytes(), b"0".to_vec()];
        argv.extend(inner.argv);
        let Expect::Module(module) = inner.expect else { unreachable!("a call of the module") };
        Call { argv, expect: Expect::Module(Module { in_script: true, ..module }) }
    }

    fn transaction(&mut self) -> Vec<Call> {
        let any = |argv: Vec<Vec<u8>>| Call { argv, expect: Expect::Any };
        let mut calls = Vec::new();
        if self.one_in(3) {
            calls.push(any(vec![b"WATCH".to_vec(), self.key()]));
        }
        calls.push(any(vec![b"MULTI".to_vec()]));
        let mut expected = Vec::new();
        for _ in 0..1 + self.below(5) {
            let call = match self.below(4) {
                0 => self.fixed(),
                1 => self.other(),
                2 => self.garbage(),
                _ => self.module(),
            };
            expected.push(call.expect);
            calls.push(any(call.argv));
        }
        if self.one_in(8) {
            calls.push(any(vec![b"DISCARD".to_vec()]));
        } else {
            calls.push(Call { argv: vec![b"EXEC".to_vec()], expect: Expect::Exec(expected) });
        }
        calls
    }

    /// What else is done to keys: other types, fields that are no numbers, ends and moves.
    fn other(&mut self) -> Call {
        let line = *self.choose(&[
            "SET K V",
            "SET K ARRIVAL",
            "APPEND K V",
            "RPUSH K V V",
            "SADD K V",
            "ZADD K 1 V",
            "XADD K * f V",
            "PFADD K V",
            "HSET K f V",
            "HSET K tokens S",
            "HSET K ts S",
            "HSET K tokens S ts S",
            "HSET K tokens 3 ts NOW",
            "HSET K tokens -5.5 ts NOW",
            "HSET K tokens S ts NOW",
            "HDEL K tokens",
            "HDEL K ts f",
            "HINCRBYFLOAT K tokens 1.5",
            "HINCRBY K ts 1000",
            "DEL K",
            "DEL K",
            "UNLINK K K",
            "PEXPIRE K 1",
            "PEXPIRE K 50",
            "PEXPIRE K 100000",
            "PEXPIREAT K 1",
            "PERSIST K",
            "RENAME K K",
            "COPY K K REPLACE",
            "GETDEL K",
            "SETBIT K 7 1",
            "LPOP K",
            "TYPE K",
            "OBJECT ENCODING K",
            "TTL K",
            "DUMP K",
            "HGETALL K",
            "MEMORY USAGE K",
            "SORT K STORE K",
            "MOVE K 1",
            "TOUCH K",
            "SETRANGE K 5 V",
            "EXISTS K",
        ]);
        self.filled(line)
    }

    /// What is done to the server and the connection.
    fn setting(&mut self) -> Call {
        let line = *self.choose(&[
            "CONFIG SET maxmemory 1",
            "CONFIG SET maxmemory 0",
            "CONFIG SET maxmemory 0",
            "CONFIG SET maxmemory-policy noeviction",
            "CONFIG SET hash-max-ziplist-entries 0",
            "CONFIG SET hash-max-ziplist-entries 128",
            "CONFIG SET hash-max-ziplist-value 1",
            "CONFIG SET hash-max-ziplist-value 64",
            "CONFIG SET notify-keyspace-events KEA",
            "CONFIG SET lazyfree-lazy-expire yes",
            "CONFIG SET lazyfree-lazy-expire no",
            "CONFIG SET slowlog-log-slower-than 0",
            "CONFIG SET latency-monitor-threshold 1",
            "CONFIG SET hz 100",
            "CONFIG SET appendonly yes",
            "CONFIG SET appendonly no",
            "CONFIG SET maxmemory-samples 1",
            "CONFIG RESETSTAT",
            "CONFIG SET rl.hot-keys 0",
            "CONFIG SET rl.hot-keys 5",
            "CONFIG SET rl.hot-keys 64",
            "CONFIG REWRITE",
            "CLIENT TRACKING on BCAST",
            "CLIENT TRACKING off",
            "HELLO 2",
            "HELLO 3",
            "INFO everything",
            "INFO rl",
            "COMMAND",
            "COMMAND DOCS",
            "ACL CAT",
            "MODULE LIST",
            "SCRIPT FLUSH",
            "SLOWLOG RESET",
            "LATENCY LATEST",
            "CLIENT PAUSE 1 WRITE",
            "SCAN 0",
            "DBSIZE",
            "RANDOMKEY",
            "WAIT 0 0",
            "ACL SETUSER u on nopass ~w:* +@all -rl.give",
            "CLIENT NO-EVICT on",
            "UNWATCH",
            "MEMORY PURGE",
            "DEBUG STRINGMATCH-LEN 10 a",
        ]);
        self.filled(line)
    }

    /// What takes long. Not DEBUG RELOAD: it drops what has expired without telling the replica.
    fn rare(&mut self) -> Call {
        let line = *self.choose(&["SAVE", "BGREWRITEAOF", "BGSAVE", "MEMORY DOCTOR"]);
        self.filled(line)
    }

    /// A line with its capitals replaced: K a key, V any bytes, S what may stand in a field, NOW about the time in ms,
    /// ARRIVAL the same in ns, as redis-cell keeps it.
    fn filled(&mut self, line: &str) -> Call {
        let word = |word: &str| match word {
            "K" => self.key(),
            "V" => self.bytes(),
            "S" => self.field(),
            "NOW" => self.now(),
            "ARRIVAL" => [self.now(), b"000000".to_vec()].concat(),
            word => word.into(),
        };
        Call { argv: line.split(' ').map(word).collect(), expect: Expect::Any }
    }

    /// A key that is not one of the fixed.
    pub(crate) fn key(&mut self) -> Vec<u8> {
        match self.below(40) {
            0 => Vec::new(),
            1 => b"w:\0\xff\r\n".to_vec(),
            _ => format!("w:{}", self.below(WILD)).into_bytes(),
        }
    }

    pub(crate) fn number(&mut self) -> Vec<u8> {
        match self.below(20) {
            0 => (*self.choose(BAD_NUMBERS)).into(),
            1 => format!("{}.{:09}", self.rng.u32(..1000), self.rng.u32(..1_000_000_000)).into_bytes(),
            2..8 => self.rng.u32(1..20).to_string().into_bytes(),
            _ => (*self.choose(NUMBERS)).into(),
        }
    }

    fn integer(&mut self) -> Vec<u8> {
        (*self.choose(&[
            "1",
            "2",
            "5",
            "10",
            "30",
            "60",
            "1000",
            "0",
            "-1",
            "-5",
            "3600",
            "9223372036854775807",
            "x",
            "1.5",
        ]))
        .into()
    }

    pub(crate) fn rate(&mut self) -> Vec<u8> {
        match self.below(20) {
            0 => (*self.choose(BAD_RATES)).into(),
            1..4 => {
                let unit = *self.choose(&["", "ms", "s", "m", "h", "d"]);
                format!("{}/{}{unit}", self.rng.u32(1..1000), self.rng.u32(1..100)).into_bytes()
            }
            _ => (*self.choose(RATES)).into(),
        }
    }

    /// What a script, or somebody who knows no buckets, may have left in a field.
    fn field(&mut self) -> Vec<u8> {
        match self.below(4) {
            0 => (*self.choose(&[
                "1e308",
                "-1e308",
                "-0",
                "4.9999999999999996",
                "99999999999999999999999",
                "1e-300",
            ]))
            .into(),
            1 => self.now(),
            2 => self.bytes(),
            _ => self.number(),
        }
    }

    /// A time in ms, from a day ago to a second ahead.
    fn now(&mut self) -> Vec<u8> {
        let ahead = *self.choose(&[0_i64, 0, 1000, -10, -1000, -60_000, -86_400_000]);
        (crate::check::now_micros() as i64 / 1000 + ahead).to_string().into_bytes()
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = *self.choose(&[0, 1, 3, 8, 20, 100, 2000]);
        let mut bytes: Vec<u8> = (0..len).map(|_| self.rng.u8(..)).collect();
        if self.one_in(2) {
            // Bytes that could be a number.
            bytes.iter_mut().for_each(|byte| *byte = b"0123456789.eE+-/msh"[usize::from(*byte) % 19]);
        }
        bytes
    }
}
