//! How the module compares with other ways to limit a rate, on one server binary: `make bench`.
//!
//! - `ROUNDS=5` (default): in each round every contender is measured once, in turn, so that a slow spell of the machine
//!   meets all of them.
//! - `RL_SERVER=path`: another server.
//! - `RIVAL_SO=path RIVAL_CMD="CL.THROTTLE {key} 99999999 10000 1 {cost}"`: another module beside ours.
//!
//! Prints the report and writes `target/bench/`: report.md, report.json and the charts.

mod bytes;
mod chart;
mod figures;
mod latency;
mod report;
mod speed;
mod target;

use std::path::Path;
use std::{env, fs};

use figures::{Figure, Measured};
use indicatif::{ProgressBar, ProgressStyle};
use report::Setting;
use rivals::contenders;
use speed::Wires;

/// How often each contender is measured, unless `ROUNDS` says otherwise.
const ROUNDS: usize = 5;

/// The keys of the runs that are not of one hot key.
const MANY: usize = 100_000;

fn main() {
    let rounds = match env::var("ROUNDS") {
        Ok(text) => text.parse().ok().filter(|&rounds| rounds > 0).expect("ROUNDS is a whole number above 0"),
        Err(_) => ROUNDS,
    };
    harness::end_all_on_ctrl_c();
    let server = rivals::builder().start();
    let mut all: Vec<Measured> = contenders(&server).into_iter().map(Measured::new).collect();
    let mut wires = Wires::connect(&server);

    let bar = progress("filling", all.len());
    for measured in &all {
        for keys in [1, MANY] {
            wires.fill(measured, keys);
        }
        bar.inc(1);
    }
    bar.finish();
    let bar = progress("cost and speed", rounds * all.len());
    for _ in 0..rounds {
        for measured in &mut all {
            wires.measure(&server, measured);
            bar.inc(1);
        }
    }
    bar.finish();
    let main = |one: &&mut Measured| one.contender.main;
    let bar = progress("latency", rounds * all.iter().filter(|one| one.contender.main).count());
    for _ in 0..rounds {
        for measured in all.iter_mut().filter(main) {
            latency::measure(&server, measured);
            bar.inc(1);
        }
    }
    bar.finish();
    let bar = progress("bytes written", all.len());
    bytes::written(&mut all, || bar.inc(1));
    bar.finish();
    let bar = progress("memory", all.iter().filter(|one| one.contender.keeps).count());
    bytes::memory(&mut all, || bar.inc(1));
    bar.finish();

    let setting = Setting::of(&server, rounds);
    write(&setting, &all);
}

fn progress(what: &'static str, steps: usize) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{prefix:16} {wide_bar} {pos}/{len} {elapsed}").expect("a template");
    ProgressBar::new(steps as u64).with_prefix(what).with_style(style)
}

fn write(setting: &Setting, all: &[Measured]) {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
    fs::create_dir_all(&target).expect("target/bench");
    let markdown = report::markdown(setting, all);
    fs::write(target.join("report.md"), &markdown).expect("report.md");
    fs::write(target.join("report.json"), report::json(setting, all)).expect("report.json");
    let main: Vec<&Measured> = all.iter().filter(|one| one.contender.main).collect();
    let on = format!("on {}, median of {} rounds", setting.server, setting.rounds);
    let many = format!("{MANY} keys");
    type Pick = fn(&Measured) -> &Figure;
    let charts: [(&str, &str, String, usize, Pick); 5] = [
        ("cpu", "Time of the server's one thread per decision", format!("µs, {many}, {on}"), 2, |one| {
            &one.many.cpu
        }),
        ("pipelined", "Decisions per second, pipelined", format!("{many}, {on}"), 0, |one| {
            &one.many.pipelined
        }),
        ("unpipelined", "Decisions per second, 50 connections", format!("{many}, {on}"), 0, |one| {
            &one.many.single
        }),
        (
            "latency",
            "99 of 100 decisions take at most",
            format!("µs at half of each one's highest load, {on}"),
            0,
            |one| &one.many.latency.p99,
        ),
        (
            "memory",
            "Memory per bucket",
            format!("bytes, one million buckets, {}", setting.server),
            0,
            |one| &one.memory,
        ),
    ];
    for (name, title, unit, digits, figure) in charts {
        let path = target.join(format!("{name}.svg"));
        chart::bars(&path, title, &unit, digits, &main, figure)
            .unwrap_or_else(|error| panic!("{name}.svg: {error}"));
    }
    println!("{markdown}\nWritten to target/bench: report.md, report.json and the charts (*.svg).");
}
