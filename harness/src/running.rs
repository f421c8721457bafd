//! The server processes of this program.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Child, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A process and its directory, by process id.
static RUNNING: Mutex<BTreeMap<u32, (Child, PathBuf)>> = Mutex::new(BTreeMap::new());

fn running() -> MutexGuard<'static, BTreeMap<u32, (Child, PathBuf)>> {
    // A panic of another test says nothing about the map.
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn add(child: Child, dir: &Path) -> u32 {
    let pid = child.id();
    running().insert(pid, (child, dir.to_owned()));
    pid
}

/// The status with which a process has ended by itself.
pub(crate) fn ended(pid: u32) -> Option<ExitStatus> {
    running().get_mut(&pid)?.0.try_wait().ok()?
}

/// Kills a process (SIGKILL) and waits for its end; its directory stays.
pub(crate) fn end(pid: u32) {
    let entry = running().remove(&pid);
    if let Some((mut child, _)) = entry {
        // It may have ended by itself, which is as good.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// On Ctrl-C (or SIGTERM, SIGHUP), ends all servers of this program, removes their directories and exits with 130.
///
/// # Panics
/// If called twice.
pub fn end_all_on_ctrl_c() {
    ctrlc::set_handler(|| {
        // Held to the end: nobody starts another server meanwhile.
        let mut running = running();
        for (child, dir) in running.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
            let _ = fs::remove_dir_all(dir);
        }
        eprintln!("interrupted; all servers were stopped");
        process::exit(130);
    })
    .expect("the only handler");
}
