//! The client of the benches: requests encoded beforehand, replies looked at where they arrive.
//!
//! A general client allocates for every reply, and with the fast contenders the measurement would be of the client. This one
//! only finds where a reply ends and hands its bytes to the check.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use harness::Server;

use crate::contender::{Contender, now_millis};

/// Decisions to ask for, encoded.
#[derive(Debug)]
pub struct Requests {
    bytes: Vec<u8>,
    /// Where each decision's bytes end.
    ends: Vec<usize>,
}

impl Requests {
    /// `calls` decisions of a contender over the keys below `keys`: in order if there is one call for each, else at random.
    pub fn new(contender: &Contender, keys: usize, calls: usize) -> Requests {
        let mut requests = Requests { bytes: Vec::new(), ends: Vec::with_capacity(calls) };
        let mut random = fastrand::Rng::with_seed(1);
        let now = now_millis();
        for call in 0..calls {
            let key = if keys == calls { call } else { random.usize(..keys) };
            contender.encode(key, now, &mut requests.bytes);
            requests.ends.push(requests.bytes.len());
        }
        requests
    }

    /// How many decisions.
    pub fn calls(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of the decisions from `first` on, `count` of them or as many as there are, and how many that is.
    pub fn part(&self, first: usize, count: usize) -> (&[u8], usize) {
        let end = (first + count).min(self.calls());
        let start = if first == 0 { 0 } else { self.ends[first - 1] };
        (&self.bytes[start..self.ends[end - 1]], end - first)
    }
}

/// What has arrived and was not looked at.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    seen: usize,
}

impl Inbox {
    /// Reads what there is, once. 0 is the end of the connection.
    pub fn fill(&mut self, from: &mut impl Read) -> std::io::Result<usize> {
        self.bytes.drain(..self.seen);
        self.seen = 0;
        let had = self.bytes.len();
        self.bytes.resize(had + 64 * 1024, 0);
        let read = from.read(&mut self.bytes[had..]);
        self.bytes.truncate(had + read.as_ref().unwrap_or(&0));
        read
    }

    /// The next reply that has arrived as a whole.
    pub fn reply(&mut self) -> Option<&[u8]> {
        let waiting = &self.bytes[self.seen..];
        let length = reply_length(waiting)?;
        self.seen += length;
        Some(&waiting[..length])
    }
}

/// The length of the RESP2 reply at the start of `bytes`, if all of it is there.
fn reply_length(bytes: &[u8]) -> Option<usize> {
    let line = memchr::memchr(b'\n', bytes)? + 1;
    let count = || -> i64 {
        let digits = std::str::from_utf8(&bytes[1..line - 2]).expect("a count in digits");
        digits.parse().expect("a count in digits")
    };
    match bytes[0] {
        b'*' => {
            let mut length = line;
            for _ in 0..count() {
                length += reply_length(&bytes[length..])?;
            }
            Some(length)
        }
        b'$' => {
            let length = usize::try_from(count()).map_or(line, |payload| line + payload + 2);
            (length <= bytes.len()).then_some(length)
        }
        _ => Some(line),
    }
}

/// One connection, used in turns: send, then receive.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    inbox: Inbox,
}

impl Wire {
    /// Connects over TCP.
    pub fn connect(server: &Server) -> Wire {
        Wire { stream: stream(server), inbox: Inbox::default() }
    }

    /// Receives the replies of `calls` decisions, checks them, and says how many bytes they were.
    fn receive(&mut self, contender: &Contender, calls: usize) -> usize {
        let mut length = 0;
        for _ in 0..calls {
            for reply in 1..=contender.replies() {
                loop {
                    if let Some(bytes) = self.inbox.reply() {
                        length += bytes.len();
                        if reply == contender.replies() {
                            contender.check(bytes);
                        }
                        break;
                    }
                    let read = self.inbox.fill(&mut self.stream).expect("a reply");
                    assert!(read > 0, "{}: the server closed the connection", contender.label());
                }
            }
        }
        length
    }
}

/// A connection over TCP, with a deadline for every read.
pub fn stream(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
    stream.set_nodelay(true).expect("TCP_NODELAY");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a read timeout");
    stream
}

/// What a run took, and how long its replies were.
#[derive(Debug)]
pub struct Run {
    /// From the first request to the last reply.
    pub time: Duration,
    /// The replies of all decisions together.
    pub reply_bytes: usize,
}

/// Makes all requests over the connections in turn, each with `batch` decisions under way: a connection gets the next
/// batch as soon as the replies of the last were read.
pub fn run(wires: &mut [Wire], contender: &Contender, requests: &Requests, batch: usize) -> Run {
    let start = Instant::now();
    let mut reply_bytes = 0;
    let mut under_way = vec![0; wires.len()];
    for (turn, first) in (0..requests.calls()).step_by(batch).enumerate() {
        let turn = turn % wires.len();
        reply_bytes += wires[turn].receive(contender, under_way[turn]);
        let (bytes, calls) = requests.part(first, batch);
        wires[turn].stream.write_all(bytes).expect("the server reads");
        under_way[turn] = calls;
    }
    for (wire, calls) in wires.iter_mut().zip(under_way) {
        reply_bytes += wire.receive(contender, calls);
    }
    Run { time: start.elapsed(), reply_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_handed_out_when_its_last_byte_has_come_and_not_before() {
        for reply in [
            "+OK\r\n",
            ":-12\r\n",
            "-ERR no\r\n",
            "$5\r\na\r\nbc\r\n",
            "$0\r\n\r\n",
            "$-1\r\n",
            "*0\r\n",
            "*-1\r\n",
            "*3\r\n:1\r\n*2\r\n$1\r\n*\r\n:0\r\n+x\r\n",
        ] {
            let bytes = reply.as_bytes();
            for end in 0..bytes.len() {
                assert_eq!(reply_length(&bytes[..end]), None, "{reply:?} cut after {end} bytes");
            }
            let more = [bytes, b":7\r\n"].concat();
            let mut inbox = Inbox::default();
            assert_eq!(inbox.fill(&mut more.as_slice()).ok(), Some(more.len()));
            assert_eq!(inbox.reply(), Some(bytes), "{reply:?}");
            assert_eq!(inbox.reply(), Some(&b":7\r\n"[..]), "after {reply:?}");
            assert_eq!(inbox.reply(), None, "after all of it");
        }
    }
}
