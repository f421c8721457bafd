//! The system's clock is set while the server runs.
//!
//! libfaketime (Debian: libfaketime) stands between the server, the module with it, and the C library's clock; the file that
//! it reads says by how much the clock is off. Servers with jemalloc do not come up with it (it asks for the time while the
//! library asks for memory), so that these tests run on the Redis 6.2 of target/servers, which is built without.

use std::fs;
use std::path::{Path, PathBuf};

use harness::redis::Connection;
use harness::{Ask, Server, wait};

use crate::load::servers;

const SERVER: &str = "redis-6.2.14";
const HOUR_MS: i64 = 3_600_000;

struct Clocked {
    server: Server,
    connection: Connection,
    offset: PathBuf,
    _dir: tempfile::TempDir,
}

fn library() -> PathBuf {
    let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let found = places
        .iter()
        .map(|place| Path::new(place).join("faketime/libfaketime.so.1"))
        .find(|path| path.exists());
    found.expect("libfaketime is missing (Debian: apt-get install libfaketime)")
}

impl Clocked {
    fn start() -> Clocked {
        let dir = tempfile::tempdir().expect("a directory");
        let offset = dir.path().join("offset");
        fs::write(&offset, "+0").expect("a file");
        let found = servers().into_iter().find(|(name, _)| name == SERVER);
        let (_, binary) = found.unwrap_or_else(|| {
            panic!("{SERVER} is missing: make servers fetches it, and SERVERS, if set, must name it")
        });
        let server = Server::builder()
            .binary(&binary)
            .environment("LD_PRELOAD", &library().to_string_lossy())
            .environment("FAKETIME_TIMESTAMP_FILE", &offset.to_string_lossy())
            .environment("FAKETIME_NO_CACHE", "1")
            .environment("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .start();
        let connection = server.connection();
        Clocked { server, connection, offset, _dir: dir }
    }

    /// Sets the clock to so many seconds off the real one, and waits until the server sees it.
    fn set(&mut self, seconds: i64) {
        fs::write(&self.offset, format!("{seconds:+}")).expect("a file");
        wait::until(wait::PATIENCE, "the clock to be set", || {
            let (shown, _): (i64, i64) = self.connection.ask("TIME");
            let real =
                std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
            let off = shown - real.as_secs() as i64 - seconds;
            if off.abs() <= 2 { Ok(()) } else { Err(format!("{off} s off")) }
        });
    }

    fn take(&mut self, arguments: &str) -> [i64; 4] {
        self.connection.ask(&format!("RL.TAKE {arguments}"))
    }
}

#[test]
#[ignore = "needs libfaketime and target/servers: make test-faults"]
fn a_clock_set_forward_refills_up_to_the_capacity_and_not_beyond() {
    let mut clocked = Clocked::start();
    assert_eq!(clocked.take("k 10 4/h 10")[..2], [1, 0]);
    clocked.set(3600);
    let [allowed, remaining, _, reset] = clocked.take("k 10 4/h 1");
    assert_eq!([allowed, remaining], [1, 3], "an hour brought four tokens");
    // Seven are missing, of a quarter of an hour each.
    assert!((7 * HOUR_MS / 4 - 10_000..=7 * HOUR_MS / 4).contains(&reset), "{reset}");
    let left: i64 = clocked.connection.ask("PTTL k");
    assert!(left >= reset, "the bucket expires in {left} ms, before it is full in {reset}");
    clocked.set(100 * 3600);
    assert_eq!(clocked.take("k 10 4/h 1")[..2], [1, 9]);
}

#[test]
#[ignore = "needs libfaketime and target/servers: make test-faults"]
fn a_clock_set_back_grants_nothing_and_freezes_no_bucket() {
    let mut clocked = Clocked::start();
    clocked.take("slow 10 4/h 10");
    clocked.take("fast 10 1/s 10");
    clocked.set(-3600);
    // The slow bucket takes longer to fill than the clock is off: no time has passed until the clock has caught up.
    let [allowed, remaining, retry, _] = clocked.take("slow 10 4/h 1");
    assert_eq!([allowed, remaining], [0, 0], "time that ran back brings nothing");
    assert!((HOUR_MS + HOUR_MS / 4 - 10_000..=HOUR_MS + HOUR_MS / 4).contains(&retry), "{retry}");
    // The fast one cannot be that far ahead: its time is taken as now, and refill goes on from here.
    let [allowed, _, retry, _] = clocked.take("fast 10 1/s 1");
    // A part of a millisecond was taken off the balance when it was stored.
    assert!(allowed == 0 && (1000..=1001).contains(&retry), "{allowed} {retry}");
    wait::until(wait::PATIENCE, "a token", || match clocked.take("fast 10 1/s 1") {
        [1, ..] => Ok(()),
        denied => Err(format!("{denied:?}")),
    });
    clocked.set(0);
    let [allowed, ..] = clocked.take("slow 10 4/h 1");
    assert_eq!(allowed, 0, "and nothing was granted twice when the clock is right again");
    assert!(clocked.server.log().lines().all(|line| !line.contains("panick")));
}
