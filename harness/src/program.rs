//! A program beside the servers.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, io};

use tempfile::TempDir;

use crate::running;

/// Another program, such as a monitor of the servers, with a directory of its own. It is killed, and the directory removed,
/// when this is dropped.
#[derive(Debug)]
pub struct Program {
    pid: u32,
    dir: TempDir,
}

impl Program {
    /// Starts the command that `arguments` makes of `name` and a new directory, in which it then runs.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(name: &str, arguments: impl FnOnce(&Path, &mut Command) -> io::Result<()>) -> Program {
        let dir = tempfile::Builder::new().prefix("rl-").tempdir().expect("a temporary directory");
        let log = fs::File::create(dir.path().join("log")).expect("a log file");
        let mut command = Command::new(name);
        command.current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        arguments(dir.path(), &mut command)
            .unwrap_or_else(|error| panic!("cannot prepare to start {name}: {error}"));
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        Program { pid: running::add(child, dir.path()), dir }
    }

    /// What it wrote to its standard error, for a message about a failure.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        running::end(self.pid);
    }
}
