//! Where the module's library is.

use std::env;
use std::path::PathBuf;

/// The library to load: `RL_MODULE`, or the one that cargo built for the running test, bench or example.
///
/// cargo puts it beside the test's own binary, in `deps`. The file of the same name one directory up is not it:
/// `cargo test` leaves that one as the last `cargo build` made it.
///
/// # Panics
/// If there is no such file.
pub fn path() -> PathBuf {
    if let Some(path) = env::var_os("RL_MODULE") {
        let path = PathBuf::from(path);
        return path.canonicalize().unwrap_or_else(|error| panic!("RL_MODULE={}: {error}", path.display()));
    }
    let exe = env::current_exe().expect("the running program has a path");
    let dir = exe.parent().expect("a program is in a directory");
    let name = format!("{}redis_token_bucket{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let places = [dir.join(&name), dir.join("../deps").join(&name)];
    places.iter().find(|path| path.exists()).cloned().unwrap_or_else(|| {
        panic!("the module is not built: neither {} nor {} exists", places[0].display(), places[1].display())
    })
}
