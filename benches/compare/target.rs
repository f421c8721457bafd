//! What we promised ourselves, and whether this run kept it.

use rivals::Outcome::{self, Allowed, Denied, Either};

use crate::MANY;
use crate::figures::{Figure, Measured, Speed};

/// One promise: a ratio of two figures that may be at most, or must be at least, so much.
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) found: f64,
    pub(crate) bound: f64,
    pub(crate) at_most: bool,
}

impl Target {
    pub(crate) fn is_met(&self) -> bool {
        if self.at_most { self.found <= self.bound } else { self.found >= self.bound }
    }
}

/// All targets that the contenders of this run allow to be checked.
pub(crate) fn targets(all: &[Measured]) -> Vec<Target> {
    let mut list = List { all, targets: Vec::new() };
    let lua = "Lua by EVALSHA";
    let rival = all.last().map_or("", |last| last.contender.name.as_str());
    for (outcome, of_lua, of_rival) in [(Allowed, 1.0 / 5.0, 0.7), (Denied, 1.0 / 9.0, 0.65)] {
        let take = ("RL.TAKE", outcome);
        // With many keys the processor waits for memory most of the time, whoever asks.
        let views: [(String, View); 2] =
            [("one key".to_owned(), |one| &one.hot), (format!("{MANY} keys"), |one| &one.many)];
        for (keys, speed) in views {
            let cpu = |one: &Measured| speed(one).cpu.clone();
            let what = |what: &str| format!("{what}, {keys}");
            list.add(&what("CPU"), take, (lua, outcome), cpu, 1.0, AtMost(of_lua));
            list.add(
                &what("half of the CPU"),
                ("RL.TAKEALL of 2", outcome),
                (lua, outcome),
                cpu,
                2.0,
                AtMost(of_lua),
            );
            list.add(&what("CPU"), take, (rival, outcome), cpu, 1.0, AtMost(of_rival));
            for counting in ["RL.TAKE", "RL.TAKE, 1024 hot keys,"] {
                let without = ("RL.TAKE, 0 hot keys,", outcome);
                list.add(&what("CPU"), (counting, outcome), without, cpu, 1.0, AtMost(1.05));
            }
            if outcome == Allowed {
                list.add(
                    &what("an eighth of the CPU"),
                    ("RL.TAKEALL of 8", outcome),
                    take,
                    cpu,
                    8.0,
                    AtMost(1.0),
                );
                list.add(&what("CPU"), ("RL.TAKE with a bad rate", Either), take, cpu, 1.0, AtMost(1.0));
            }
            let pipelined = |one: &Measured| speed(one).pipelined.clone();
            list.add(&what("pipelined"), take, (lua, outcome), pipelined, 1.0, AtLeast(3.5));
            let single = |one: &Measured| speed(one).single.clone();
            list.add(&what("50 connections"), take, (lua, outcome), single, 1.0, AtLeast(1.2));
        }
        let replicated = if outcome == Allowed { 0.6 } else { 0.0 };
        list.add(
            "bytes replicated",
            take,
            (lua, outcome),
            |one| one.replication.clone(),
            1.0,
            AtMost(replicated),
        );
    }
    list.add("memory", ("RL.TAKE", Allowed), (lua, Allowed), |one| one.memory.clone(), 1.0, AtMost(1.0));
    list.targets
}

/// One half of the figures.
type View = fn(&Measured) -> &Speed;

/// What a ratio must be.
#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}
use Bound::{AtLeast, AtMost};

struct List<'a> {
    all: &'a [Measured],
    targets: Vec<Target>,
}

impl List<'_> {
    fn find(&self, (name, outcome): (&str, Outcome)) -> Option<&Measured> {
        self.all.iter().find(|one| one.contender.name == name && one.contender.outcome == outcome)
    }

    /// Compares a figure of ours, divided by `times`, with theirs, if both take part.
    fn add(
        &mut self,
        what: &str,
        ours: (&str, Outcome),
        theirs: (&str, Outcome),
        figure: impl Fn(&Measured) -> Figure,
        times: f64,
        bound: Bound,
    ) {
        let (Some(ours), Some(theirs)) = (self.find(ours), self.find(theirs)) else { return };
        if ours.contender.name == theirs.contender.name {
            return;
        }
        let (bound, at_most) = match bound {
            AtMost(bound) => (bound, true),
            AtLeast(bound) => (bound, false),
        };
        let target = Target {
            what: format!("{}: {what}, of {}", ours.contender.label(), theirs.contender.label()),
            found: figure(ours).over(&figure(theirs)) / times,
            bound,
            at_most,
        };
        self.targets.push(target);
    }
}
