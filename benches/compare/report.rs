//! The figures for people and for programs.

use std::fmt::Write as _;
use std::fs;

use harness::{Server, server_version};
use serde_json::json;

use crate::MANY;
use crate::bytes::BUCKETS;
use crate::figures::{Figure, Latency, Measured, Speed};
use crate::target::targets;

/// The machine and the server, for whoever reads the figures elsewhere.
pub(crate) struct Setting {
    pub(crate) server: String,
    pub(crate) allocator: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) rounds: usize,
}

impl Setting {
    pub(crate) fn of(server: &Server, rounds: usize) -> Setting {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Setting {
            server: server_version().to_string(),
            allocator: server.info("memory", "mem_allocator"),
            processor: model.map_or("unknown", |(_, model)| model).to_owned(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            rounds,
        }
    }
}

/// The whole report as Markdown.
pub(crate) fn markdown(setting: &Setting, all: &[Measured]) -> String {
    let mut text = format!(
        "# Benchmark\n\n{} ({}), {} cores of {}, {} rounds, all contenders in turn in each round. Figures are medians, in \
         brackets the least and the most.\n",
        setting.server, setting.allocator, setting.cores, setting.processor, setting.rounds
    );
    section(
        &mut text,
        "The server's CPU per decision",
        "µs, from INFO commandstats. Reading the request and sending the reply are not in it, for nobody.",
        &["one key", &format!("{MANY} keys"), "bytes of reply"],
        all,
        |one| vec![range(&one.hot.cpu, 2), range(&one.many.cpu, 2), format!("{:.0}", one.reply_bytes)],
    );
    section(
        &mut text,
        "Decisions per second",
        "Thousands. Pipelined: 4 connections with 100 under way on each; otherwise 50 connections with one each.",
        &["pipelined, one key", &format!("pipelined, {MANY} keys"), "one key", &format!("{MANY} keys")],
        all,
        |one| {
            let speeds = [&one.hot.pipelined, &one.many.pipelined, &one.hot.single, &one.many.single];
            speeds.iter().map(|figure| thousands(figure)).collect()
        },
    );
    for (keys, speed) in [("one key", hot as fn(&Measured) -> &Speed), (&format!("{MANY} keys"), many)] {
        section(
            &mut text,
            &format!("Latency, {keys}"),
            "µs at half of the contender's own highest load without pipelining. Open loop: counted from when a request was \
             due. The last column is how late the client itself was.",
            &["decisions/s", "p50", "p99", "p99.9", "client late, p99"],
            all,
            |one| {
                let Latency { load, p50, p99, p999, late_p99 } = &speed(one).latency;
                if !p50.is_measured() {
                    return Vec::new();
                }
                let mut cells = vec![thousands(load) + " k"];
                cells.extend([p50, p99, p999, late_p99].map(|figure| range(figure, 0)));
                cells
            },
        );
    }
    section(
        &mut text,
        "Bytes",
        &format!("Per decision in steady use; memory per bucket with {BUCKETS} buckets of keys of 24 bytes."),
        &["to a replica", "to the AOF", "memory"],
        all,
        |one| {
            if !one.replication.is_measured() {
                return Vec::new();
            }
            let memory =
                if one.memory.is_measured() { format!("{:.0}", one.memory.median()) } else { String::new() };
            vec![format!("{:.0}", one.replication.median()), format!("{:.0}", one.aof.median()), memory]
        },
    );
    text.push_str("\n## Targets\n\n| | found | target | |\n|---|---|---|---|\n");
    for target in targets(all) {
        let sign = if target.at_most { '≤' } else { '≥' };
        let verdict = if target.is_met() { "met" } else { "**missed**" };
        let _ = writeln!(
            text,
            "| {} | {:.3} | {sign} {:.3} | {verdict} |",
            target.what, target.found, target.bound
        );
    }
    text
}

fn section(
    text: &mut String,
    title: &str,
    what: &str,
    columns: &[&str],
    all: &[Measured],
    cells: impl Fn(&Measured) -> Vec<String>,
) {
    let _ = writeln!(text, "\n## {title}\n\n{what}\n\n| | {} |", columns.join(" | "));
    let _ = writeln!(text, "|---|{}", "---:|".repeat(columns.len()));
    for one in all {
        let cells = cells(one);
        if !cells.is_empty() {
            let _ = writeln!(text, "| {} | {} |", one.contender.label(), cells.join(" | "));
        }
    }
}

fn hot(one: &Measured) -> &Speed {
    &one.hot
}

fn many(one: &Measured) -> &Speed {
    &one.many
}

fn range(figure: &Figure, digits: usize) -> String {
    format!("{:.digits$} ({:.digits$}-{:.digits$})", figure.median(), figure.least(), figure.most())
}

fn thousands(figure: &Figure) -> String {
    format!("{:.0} ({:.0}-{:.0})", figure.median() / 1e3, figure.least() / 1e3, figure.most() / 1e3)
}

/// All rounds of all figures.
pub(crate) fn json(setting: &Setting, all: &[Measured]) -> String {
    let targets: Vec<_> = targets(all)
        .iter()
        .map(|target| json!({"what": target.what, "found": target.found, "bound": target.bound, "met": target.is_met()}))
        .collect();
    let report = json!({
        "server": setting.server,
        "allocator": setting.allocator,
        "processor": setting.processor,
        "cores": setting.cores,
        "many_keys": MANY,
        "buckets_of_memory": BUCKETS,
        "contenders": all.iter().map(Measured::json).collect::<Vec<_>>(),
        "targets": targets,
    });
    serde_json::to_string_pretty(&report).expect("figures are numbers")
}
