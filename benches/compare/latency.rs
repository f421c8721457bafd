//! How long a decision takes under a given load.
//!
//! The load is open: requests are due at fixed times, whether or not earlier ones were answered, as those of many
//! independent clients are. A latency counts from when the request was due, not from when it could be sent, so a stall of
//! the server is seen by all requests that were due meanwhile (a client that waits for its reply before it asks again would
//! leave them out).

use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

use harness::Server;
use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::MANY;
use crate::figures::{Latency, Measured};
use rivals::{Contender, Inbox, Requests, stream};

const CONNECTIONS: usize = 50;
const SECONDS: f64 = 1.0;
/// How long after the last request was due its reply may come.
const PATIENCE: Duration = Duration::from_secs(30);

struct Line {
    stream: TcpStream,
    inbox: Inbox,
    /// When the requests were due that have no reply yet.
    due: VecDeque<Instant>,
    /// Replies of the first of them that have come.
    replies: usize,
}

/// One round of one contender at half of its highest load without pipelining: with one key and with many.
pub(crate) fn measure(server: &Server, measured: &mut Measured) {
    for (keys, speed) in [(1, &mut measured.hot), (MANY, &mut measured.many)] {
        let load = speed.single.median() / 2.0;
        run(server, &measured.contender, keys, load, &mut speed.latency);
    }
}

fn run(server: &Server, contender: &Contender, keys: usize, load: f64, found: &mut Latency) {
    let requests = Requests::new(contender, keys, (load * SECONDS) as usize);
    let interval = Duration::from_secs_f64(1.0 / load);
    let mut poll = Poll::new().expect("epoll");
    let mut events = Events::with_capacity(CONNECTIONS);
    let mut lines: Vec<Line> = (0..CONNECTIONS)
        .map(|index| {
            let stream = stream(server);
            stream.set_nonblocking(true).expect("a non-blocking socket");
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(index), Interest::READABLE).expect("epoll");
            Line { stream, inbox: Inbox::default(), due: VecDeque::new(), replies: 0 }
        })
        .collect();

    let mut latencies: Histogram<u64> =
        Histogram::new_with_max(60_000_000_000, 3).expect("three digits to a minute");
    let mut lateness: Histogram<u64> =
        Histogram::new_with_max(60_000_000_000, 3).expect("three digits to a minute");
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(SECONDS) + PATIENCE;
    let (mut sent, mut received) = (0, 0);
    while received < requests.calls() {
        // The client has a core of its own and never sleeps: waking up would be part of the latency.
        let mut now = Instant::now();
        assert!(now < end, "{}: {received} of {} replies", contender.label(), requests.calls());
        while sent < requests.calls() && start + interval * sent as u32 <= now {
            let due = start + interval * sent as u32;
            let line = &mut lines[sent % CONNECTIONS];
            // A socket's buffer holds thousands of requests; a server so far behind fails the measurement.
            line.stream.write_all(requests.part(sent, 1).0).expect("room for a request");
            line.due.push_back(due);
            now = Instant::now();
            lateness.saturating_record((now - due).as_nanos() as u64);
            sent += 1;
        }
        poll.poll(&mut events, Some(Duration::ZERO)).expect("epoll");
        for event in &events {
            let line = &mut lines[event.token().0];
            loop {
                match line.inbox.fill(&mut line.stream) {
                    Ok(0) => panic!("{}: the server closed the connection", contender.label()),
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{}: {error}", contender.label()),
                }
            }
            let arrived = Instant::now();
            while let Some(reply) = line.inbox.reply() {
                line.replies += 1;
                if line.replies < contender.replies() {
                    continue;
                }
                line.replies = 0;
                contender.check(reply);
                let due = line.due.pop_front().expect("a reply to a request");
                latencies.saturating_record((arrived - due).as_nanos() as u64);
                received += 1;
            }
        }
    }
    let Latency { load: loads, p50, p99, p999, late_p99 } = found;
    let micros = |histogram: &Histogram<u64>, quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
    loads.push(load);
    p50.push(micros(&latencies, 0.5));
    p99.push(micros(&latencies, 0.99));
    p999.push(micros(&latencies, 0.999));
    late_p99.push(micros(&lateness, 0.99));
}
