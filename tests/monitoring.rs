//! The exporter, Prometheus and the alerts of `docker/monitoring`, on a cluster with a service in front. `make test-monitoring`
//! runs it: Prometheus needs its minute to be sure of an alert, so it is not among the other tests.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use harness::{Cluster, Port, Program, wait};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use redis_token_bucket_client::{Connection, Limiter, Policy};

/// An alert waits two minutes at most for its rate to rise, one minute to be sure, and two scrapes.
const FIRES: Duration = Duration::from_secs(200);

#[test]
#[ignore = "Prometheus, and minutes of waiting: make test-monitoring"]
fn a_deny_spike_and_a_node_without_the_module_are_alerts_and_nothing_else_is() {
    let mut cluster = Cluster::start(3, 1);
    let service = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let metrics = PrometheusBuilder::new().install_recorder().expect("the only recorder");
    let service_port = service.local_addr().expect("it is bound").port();
    thread::spawn(move || serve(&service, &metrics));

    let exporter_port = Port::lease();
    let _exporter = Program::start("prometheus-redis-exporter", |_, command| {
        command.arg("-redis.addr=").arg("-script").arg(monitoring("exporter.lua"));
        command.arg(format!("-web.listen-address=127.0.0.1:{}", exporter_port.number()));
        Ok(())
    });
    let nodes: Vec<u16> = cluster.nodes().iter().map(|node| node.port()).collect();
    let prometheus = Prometheus::start(&nodes, exporter_port.number(), service_port);
    wait::until(wait::PATIENCE, "all nodes and the service to be scraped", || {
        match prometheus.ask("count(redis_up == 1) + count(up{job=\"services\"} == 1)")?.as_slice() {
            [line] if line.starts_with("{} => 7 ") => Ok(()),
            other => Err(format!("{other:?}\n{}", prometheus.program.log())),
        }
    });

    // A replica loses the module; a tenant without tokens goes on asking, beside another that has enough.
    cluster.node_mut(4).kill();
    cluster.node_mut(4).start_again_without_module();
    let owner = cluster.master_of_slot(cluster.slot_of("{acme}")).port();
    let mut denied = 0;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let policy = |limit: &str| {
        let mut policy = Policy::new(limit.parse().unwrap(), limit.parse().unwrap());
        // The node counts only what reaches it.
        policy.denial_cache = false;
        Arc::new(policy)
    };
    let (poor, rich) = (policy("5 burst, 1/h"), policy("10000 burst, 1/h"));
    let limiter = runtime.block_on(async {
        let connection =
            Connection::cluster(cluster.urls().iter().map(String::as_str)).await.expect("a connection");
        Limiter::new(connection, move |tenant, _| Arc::clone(if tenant == "acme" { &poor } else { &rich }))
    });
    let expected: BTreeSet<String> = [
        format!("LimiterDenySpike 127.0.0.1:{owner}"),
        format!("LimiterModuleMissing 127.0.0.1:{}", nodes[4]),
        "TenantDenySpike acme".to_owned(),
    ]
    .into();
    let started = Instant::now();
    wait::until(FIRES, "the alerts to fire", || {
        // About 50 a second.
        for request in 0..50 {
            let tenant = if request % 10 == 0 { "other" } else { "acme" };
            let decision = runtime.block_on(limiter.authorize(tenant, "search", 1)).expect("a decision");
            denied += u32::from(!decision.is_allowed());
            thread::sleep(Duration::from_millis(20));
        }
        let firing = prometheus.firing()?;
        if firing == expected { Ok(()) } else { Err(format!("after {denied} denials: {firing:?}")) }
    });
    println!("fired after {:.0} s and {denied} denials: {expected:?}", started.elapsed().as_secs_f64());

    for expression in dashboard() {
        let series = prometheus.ask(&expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
        assert!(!series.is_empty(), "the dashboard shows nothing of {expression}");
    }

    // The module comes back.
    cluster.node_mut(4).kill();
    cluster.node_mut(4).start_again_with_module();
    wait::until(FIRES, "the alert about the module to end", || {
        let firing = prometheus.firing()?;
        if firing.iter().any(|alert| alert.starts_with("LimiterModuleMissing")) {
            return Err(format!("{firing:?}"));
        }
        Ok(())
    });
}

/// Prometheus as `docker/monitoring` configures it, on this cluster's addresses.
struct Prometheus {
    program: Program,
    url: String,
    _port: Port,
}

impl Prometheus {
    fn start(nodes: &[u16], exporter: u16, service: u16) -> Prometheus {
        let mut config = fs::read_to_string(monitoring("prometheus.yml")).expect("prometheus.yml");
        let mut replace = |from: &str, to: String| {
            assert!(config.contains(from), "prometheus.yml has no {from}");
            config = config.replace(from, &to);
        };
        for (index, port) in nodes.iter().enumerate() {
            replace(&format!("10.77.0.1{}:6379", index + 1), format!("127.0.0.1:{port}"));
        }
        replace("exporter:9121", format!("127.0.0.1:{exporter}"));
        let port = Port::lease();
        let url = format!("http://127.0.0.1:{}", port.number());
        let program = Program::start("prometheus", |dir, command| {
            fs::write(dir.join("prometheus.yml"), &config)?;
            fs::copy(monitoring("alerts.yml"), dir.join("alerts.yml"))?;
            fs::write(dir.join("services.yml"), format!("- targets: [127.0.0.1:{service}]\n"))?;
            command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=warn"]);
            command.arg(format!("--web.listen-address=127.0.0.1:{}", port.number()));
            Ok(())
        });
        Prometheus { program, url, _port: port }
    }

    /// The series that `expression` gives now, each as promtool prints it: `name{labels} => value @[time]`.
    fn ask(&self, expression: &str) -> Result<Vec<String>, String> {
        let output = Command::new("promtool")
            .args(["query", "instant", &self.url, expression])
            .output()
            .map_err(|error| format!("cannot run promtool: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect())
    }

    /// The alerts that fire, each with the node or tenant that it is about.
    fn firing(&self) -> Result<BTreeSet<String>, String> {
        let series = self.ask("ALERTS{alertstate=\"firing\"}")?;
        let label = |line: &str, name: &str| {
            let (_, rest) = line.split_once(&format!("{name}=\""))?;
            Some(rest.split_once('"')?.0.to_owned())
        };
        Ok(series
            .iter()
            .map(|line| {
                let about = label(line, "instance").or_else(|| label(line, "tenant")).unwrap_or_default();
                format!("{} {about}", label(line, "alertname").unwrap_or_default())
            })
            .collect())
    }
}

/// Shows what the helper counts, as a service would.
fn serve(service: &TcpListener, metrics: &PrometheusHandle) {
    for connection in service.incoming() {
        let Ok(mut connection) = connection else { continue };
        // Whatever is asked, this is the answer.
        let _ = connection.read(&mut [0; 4096]);
        let body = metrics.render();
        let _ = write!(
            connection,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
    }
}

/// All expressions of the dashboard.
fn dashboard() -> Vec<String> {
    let text = fs::read_to_string(monitoring("grafana/dashboard.json")).expect("dashboard.json");
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    targets.map(|target| target["expr"].as_str().expect("an expression").to_owned()).collect()
}

fn monitoring(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docker/monitoring").join(file)
}
