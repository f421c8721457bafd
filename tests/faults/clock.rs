//! The system's clock is set while the server runs.
//!
//! libfaketime (Debian: libfaketime) stands between the server, the module with it, and the C library's clock; the file that
//! it reads says by how much the clock is off. It does not come between everywhere. Most servers with jemalloc do not come up
//! with it, since it asks for the time while the library asks for memory. And where a server opens modules with RTLD_DEEPBIND
//! (Valkey from 8.1 on), they find the C library first. The tests run on the other servers of target/servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::redis::Connection;
use harness::{Ask, Server, wait};

use crate::load::servers;

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

/// Runs a test on every server whose clock can be set so, for its module, too.
fn each_server(test: impl Fn(&mut Clocked)) {
    let mut tested = 0;
    for (name, binary) in servers() {
        let version = Command::new(&binary).arg("--version").output().expect("a server runs").stdout;
        if !String::from_utf8_lossy(&version).contains("malloc=libc") {
            continue;
        }
        let mut clocked = Clocked::start(&binary);
        if clocked.is_module_reached() {
            println!("the clock of {name} is set");
            test(&mut clocked);
            tested += 1;
        }
    }
    assert!(
        tested > 0,
        "no server whose clock can be set: make servers fetches redis-6.2.14, and SERVERS, if set, must name it"
    );
}

impl Clocked {
    fn start(binary: &Path) -> Clocked {
        let dir = tempfile::tempdir().expect("a directory");
        let offset = dir.path().join("offset");
        fs::write(&offset, "+0").expect("a file");
        let server = Server::builder()
            .binary(binary)
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

    fn is_module_reached(&mut self) -> bool {
        self.set(1000);
        self.take("probe 10 1/h 1");
        let by_module: i64 = self.connection.ask("HGET probe ts");
        let (by_server, _): (i64, i64) = self.connection.ask("TIME");
        self.set(0);
        (by_server - by_module / 1000).abs() <= 2
    }

    fn take(&mut self, arguments: &str) -> [i64; 4] {
        self.connection.ask(&format!("RL.TAKE {arguments}"))
    }
}

#[test]
#[ignore = "needs libfaketime and target/servers: make test-faults"]
fn a_clock_set_forward_refills_up_to_the_capacity_and_not_beyond() {
    each_server(|clocked| {
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
    });
}

#[test]
#[ignore = "needs libfaketime and target/servers: make test-faults"]
fn a_clock_set_back_grants_nothing_and_freezes_no_bucket() {
    each_server(|clocked| {
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
    });
}
