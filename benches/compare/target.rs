//! What we promised ourselves, and whether this run kept it.

use crate::figures::{Figure, Measured};
use rivals::Outcome;

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

/// All targets that the contenders of this run allow to be checked, a rival module's last.
pub(crate) fn targets(all: &[Measured]) -> Vec<Target> {
    let mut targets = Vec::new();
    let find = |name: &str, outcome: Outcome| {
        all.iter().find(|one| one.contender.name == name && one.contender.outcome == outcome)
    };
    let mut compare = |what: &str,
                       ours: (&str, Outcome),
                       theirs: (&str, Outcome),
                       figure: fn(&Measured) -> &Figure,
                       times: f64,
                       (bound, at_most): (f64, bool)| {
        if let (Some(ours), Some(theirs)) = (find(ours.0, ours.1), find(theirs.0, theirs.1)) {
            targets.push(Target {
                what: format!("{}: {what} of {}", ours.contender.label(), theirs.contender.label()),
                found: figure(ours).over(figure(theirs)) / times,
                bound,
                at_most,
            });
        }
    };
    let rival = all.iter().skip_while(|one| one.contender.name != "RL.TAKE with a bad rate").nth(1);
    let rival = rival.map_or("", |one| one.contender.name.as_str());
    let cpu: fn(&Measured) -> &Figure = |one| &one.many.cpu;
    for (outcome, of_lua, of_lua_stack, of_rival) in
        [(Outcome::Allowed, 1.0 / 5.0, 1.0 / 5.0, 0.7), (Outcome::Denied, 1.0 / 9.0, 1.0 / 9.0, 0.65)]
    {
        let (take, lua) = (("RL.TAKE", outcome), ("Lua by EVALSHA", outcome));
        for (what, cpu) in cpu {
            compare(what, take, lua, cpu, 1.0, (of_lua, true));
            compare(what, take, (rival, outcome), cpu, 1.0, (of_rival, true));
            let stack = ("RL.TAKEALL of 2", outcome);
            compare(&format!("half of the {what}"), stack, lua, cpu, 2.0, (of_lua, true));
        }
        compare("calls/s, pipelined,", take, lua, |one| &one.many.pipelined, 1.0, (3.5, false));
        compare("calls/s, 50 connections,", take, lua, |one| &one.many.single, 1.0, (1.2, false));
        let bytes = if outcome == Outcome::Allowed { 0.6 } else { 0.0 };
        compare("replicated bytes", take, lua, |one| &one.replication, 1.0, (bytes, true));
    }
    // Many keys that come at random take over a counter nearly each time, which is the most that counting costs.
    for outcome in [Outcome::Allowed, Outcome::Denied] {
        for counting in ["RL.TAKE", "RL.TAKE, 1024 hot keys,"] {
            for (what, cpu) in cpu {
                compare(what, (counting, outcome), ("RL.TAKE, 0 hot keys,", outcome), cpu, 1.0, (1.05, true));
            }
        }
    }
    let allowed = |name| (name, Outcome::Allowed);
    compare("memory", allowed("RL.TAKE"), allowed("Lua by EVALSHA"), |one| &one.memory, 1.0, (1.0, true));
    for (what, cpu) in cpu {
        let eighth = format!("an eighth of the {what}");
        compare(&eighth, allowed("RL.TAKEALL of 8"), allowed("RL.TAKE"), cpu, 8.0, (1.0, true));
        compare(
            what,
            ("RL.TAKE with a bad rate", Outcome::Either),
            allowed("RL.TAKE"),
            cpu,
            1.0,
            (1.0, true),
        );
    }
    targets
}
