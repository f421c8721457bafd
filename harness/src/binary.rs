//! The server binary and its version.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::process::Command;
use std::sync::OnceLock;

/// Who made a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
}

/// A server's own version. (Valkey also calls itself Redis 7.2.4, to clients that ask for that.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Who made it.
    pub vendor: Vendor,
    /// Major, minor, patch.
    pub number: (u32, u32, u32),
}

impl fmt::Display for Version {
    /// `Redis 7.0.15`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, patch) = self.number;
        write!(f, "{:?} {major}.{minor}.{patch}", self.vendor)
    }
}

impl Version {
    /// True if it has what came with Redis `major.minor`; every Valkey has what Redis 7.2 had.
    pub fn has_redis(&self, major: u32, minor: u32) -> bool {
        match self.vendor {
            Vendor::Redis => (self.number.0, self.number.1) >= (major, minor),
            Vendor::Valkey => (major, minor) <= (7, 2),
        }
    }
}

/// The server binary that tests run: `RL_SERVER`, or `redis-server` of the path.
pub(crate) fn server_binary() -> OsString {
    env::var_os("RL_SERVER").unwrap_or_else(|| "redis-server".into())
}

/// The version of the server that tests run.
///
/// # Panics
/// If it cannot be run.
pub fn server_version() -> Version {
    static VERSION: OnceLock<Version> = OnceLock::new();
    *VERSION.get_or_init(|| version_of(&server_binary()))
}

/// The version of any server.
///
/// # Panics
/// If it cannot be run.
pub(crate) fn version_of(binary: &OsStr) -> Version {
    let output = Command::new(binary).arg("--version").output().unwrap_or_else(|error| {
        panic!("cannot run the server {}: {error}; install redis-server or set RL_SERVER", binary.display())
    });
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    parse(&text).unwrap_or_else(|| panic!("{} --version printed no version: {text:?}", binary.display()))
}

/// Reads `Redis server v=7.0.15 sha=...` or `Valkey server v=9.1.2 ...`.
fn parse(text: &str) -> Option<Version> {
    let vendor = if text.starts_with("Valkey") { Vendor::Valkey } else { Vendor::Redis };
    let number = text.split_whitespace().find_map(|word| word.strip_prefix("v="))?;
    let mut parts = number.split('.').map(|part| part.parse().ok());
    Some(Version { vendor, number: (parts.next()??, parts.next()??, parts.next()??) })
}
