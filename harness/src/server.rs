//! One server process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use redis::{Client, Connection};
use tempfile::TempDir;

use crate::ask::Ask;
use crate::binary::{server_binary, server_version, version_of};
use crate::port::Port;
use crate::{module, running, wait};

/// How long one command of a test may take before the test fails.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// What a server is started with.
#[derive(Debug, Default)]
pub struct Builder {
    config: Vec<(String, String)>,
    plain: bool,
    tcp: bool,
    file: Option<PathBuf>,
    module_arguments: Vec<String>,
    binary: Option<PathBuf>,
    wrapper: Vec<String>,
    environment: Vec<(String, String)>,
    data: Vec<(PathBuf, String)>,
}

impl Builder {
    /// Starts it with a configuration file, which other directives override.
    #[must_use]
    pub fn with_file(mut self, path: &Path) -> Builder {
        self.file = Some(path.to_owned());
        self
    }

    /// Adds arguments, separated by blanks, to the line that loads the module.
    #[must_use]
    pub fn module_arguments(mut self, arguments: &str) -> Builder {
        self.module_arguments.extend(arguments.split_whitespace().map(str::to_owned));
        self
    }

    /// Adds a directive, as in `redis.conf`.
    #[must_use]
    pub fn config(mut self, name: &str, value: &str) -> Builder {
        self.config.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Does not load the module.
    #[must_use]
    pub fn without_module(mut self) -> Builder {
        self.plain = true;
        self
    }

    /// Listens on a TCP port too: for replicas, clusters and other programs.
    #[must_use]
    pub fn tcp(mut self) -> Builder {
        self.tcp = true;
        self
    }

    /// Runs this server binary instead of the one that the environment names.
    #[must_use]
    pub fn binary(mut self, path: &Path) -> Builder {
        self.binary = Some(path.to_owned());
        self
    }

    /// Starts it by a command that becomes the server: the server's command line follows these words.
    #[must_use]
    pub fn wrapper(mut self, words: &[&str]) -> Builder {
        self.wrapper = words.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Builder {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Puts a copy of a file into its directory first, under this name.
    #[must_use]
    pub fn data(mut self, file: &Path, name: &str) -> Builder {
        self.data.push((file.to_owned(), name.to_owned()));
        self
    }

    /// Starts it as a replica of `master`, which must listen on TCP, and waits for the first synchronisation.
    pub fn start_replica_of(self, master: &Server) -> Server {
        let replica = self.config("replicaof", &format!("127.0.0.1 {}", master.port())).tcp().start();
        replica.await_replication("master_link_status", "up");
        replica
    }

    /// Starts it.
    ///
    /// # Panics
    /// If it does not answer in time; with the end of its log.
    pub fn start(self) -> Server {
        self.try_start().unwrap_or_else(|reason| panic!("the server did not come up: {reason}"))
    }

    /// Starts it.
    ///
    /// # Errors
    /// Why it did not come up: how it ended, and the end of its log.
    pub fn try_start(self) -> Result<Server, String> {
        let dir = tempfile::Builder::new().prefix("rl-").tempdir().expect("a temporary directory");
        let port = self.tcp.then(Port::lease);
        for (file, name) in &self.data {
            fs::copy(file, dir.path().join(name)).expect("a copy");
        }
        let mut server = Server { pid: None, dir, port, builder: self };
        server.try_launch()?;
        Ok(server)
    }
}

/// A running server. It is killed, and its directory removed, when this is dropped.
#[derive(Debug)]
pub struct Server {
    pid: Option<u32>,
    dir: TempDir,
    port: Option<Port>,
    builder: Builder,
}

impl Server {
    /// Starts a server with the module loaded, without persistence, on a Unix socket.
    pub fn start() -> Server {
        Server::builder().start()
    }

    /// Starts with a configuration of the caller's.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn launch(&mut self) {
        self.try_launch().unwrap_or_else(|reason| panic!("the server did not come up: {reason}"));
    }

    fn try_launch(&mut self) -> Result<(), String> {
        let (binary, version) = match &self.builder.binary {
            Some(binary) => (binary.clone().into_os_string(), version_of(binary.as_os_str())),
            None => (server_binary(), server_version()),
        };
        let mut command = match &self.builder.wrapper[..] {
            [] => Command::new(binary),
            [program, words @ ..] => {
                let mut command = Command::new(program);
                command.args(words).arg(binary);
                command
            }
        };
        command.envs(self.builder.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let port = self.port.as_ref().map_or(0, |port| port.number).to_string();
        let socket = self.socket();
        if let Some(file) = &self.builder.file {
            command.arg(file);
        }
        let mut set = |name: &str, values: &[&str]| {
            command.arg(format!("--{name}")).args(values);
        };
        set("bind", &["127.0.0.1"]);
        set("port", &[&port]);
        set("unixsocket", &[&socket.to_string_lossy()]);
        set("logfile", &["server.log"]);
        // An empty value stands for no save points.
        set("save", &[""]);
        // Five seconds by default, in the hope of more replicas to serve at once.
        set("repl-diskless-sync-delay", &["0"]);
        if version.has_redis(7, 0) {
            set("enable-debug-command", &["yes"]);
        }
        for (name, value) in &self.builder.config {
            set(name, &value.split(' ').collect::<Vec<_>>());
        }
        if !self.builder.plain {
            command.arg("--loadmodule").arg(module::path()).args(&self.builder.module_arguments);
        }
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        self.pid = Some(running::add(child, self.dir.path()));
        self.await_ready()
    }

    fn await_ready(&self) -> Result<(), String> {
        let ready = wait::try_until(wait::PATIENCE, || {
            if let Some(status) = self.pid.and_then(running::ended) {
                return Ok(Err(format!("it ended with {status}")));
            }
            let mut connection = self.try_connection("").map_err(|error| error.to_string())?;
            // LOADING is an error reply, and so not yet a PONG.
            connection.try_ask::<String>("PING").map(|_| Ok(())).map_err(|error| error.to_string())
        });
        ready
            .and_then(|ended| ended)
            .map_err(|reason| format!("{reason}\nthe end of its log:\n{}", tail(&self.log(), 30)))
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    fn try_connection(&self, parameters: &str) -> redis::RedisResult<Connection> {
        let url = format!("redis+unix://{}{parameters}", self.socket().display());
        let connection = Client::open(url)?.get_connection()?;
        connection.set_read_timeout(Some(wait::scaled(REPLY_TIMEOUT)))?;
        connection.set_write_timeout(Some(wait::scaled(REPLY_TIMEOUT)))?;
        Ok(connection)
    }

    /// A new connection.
    ///
    /// # Panics
    /// If the server does not answer.
    #[track_caller]
    pub fn connection(&self) -> Connection {
        self.try_connection("")
            .unwrap_or_else(|error| panic!("no connection: {error}\n{}", tail(&self.log(), 30)))
    }

    /// A new connection that speaks RESP3.
    ///
    /// # Panics
    /// If the server does not answer.
    #[track_caller]
    pub fn connection_resp3(&self) -> Connection {
        self.try_connection("?protocol=resp3").unwrap_or_else(|error| panic!("no connection: {error}"))
    }

    /// The TCP port.
    ///
    /// # Panics
    /// If it was started without [`Builder::tcp`].
    pub fn port(&self) -> u16 {
        self.port.as_ref().expect("started with .tcp()").number
    }

    /// The process id; of no use after [`Server::kill`].
    pub fn pid(&self) -> u32 {
        self.pid.expect("the server is running")
    }

    /// Its directory, where it keeps its data.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("server.log")).unwrap_or_default()
    }

    /// The value of `field` in a section of INFO; empty if there is none.
    pub fn info(&self, section: &str, field: &str) -> String {
        let text: String = self.connection().ask(&format!("INFO {section}"));
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.unwrap_or_default().trim_end().to_owned()
    }

    /// Calls of `command` and the server's time for them in µs, since the last CONFIG RESETSTAT.
    pub fn command_stats(&self, command: &str) -> (u64, u64) {
        let text = self.info("commandstats", &format!("cmdstat_{command}"));
        let number = |name: &str| {
            let value = text.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            value.map_or(0, |value| value.parse().expect("a whole number in commandstats"))
        };
        (number("calls"), number("usec"))
    }

    /// Bytes that the server has allocated.
    pub fn used_memory(&self) -> i64 {
        let used = self.info("memory", "used_memory");
        used.parse().unwrap_or_else(|_| panic!("used_memory is {used:?}"))
    }

    /// Waits until a field of `INFO replication` has a value.
    #[track_caller]
    pub fn await_replication(&self, field: &str, wanted: &str) {
        wait::until(wait::PATIENCE, "a role or a link to change", || {
            let value = self.info("replication", field);
            if value == wanted { Ok(()) } else { Err(format!("{field} is {value:?}, not {wanted:?}")) }
        });
    }

    /// Bytes written to the replication stream so far.
    pub fn replication_offset(&self) -> u64 {
        let offset = self.info("replication", "master_repl_offset");
        offset.parse().unwrap_or_else(|_| panic!("master_repl_offset is {offset:?}"))
    }

    /// Waits until this replica has applied all that `master` has sent by now.
    pub fn await_offset_of(&self, master: &Server) {
        let target = master.replication_offset();
        wait::until(wait::PATIENCE, "the replica to catch up", || {
            let offset = self.info("replication", "slave_repl_offset");
            let caught_up = offset.parse::<u64>().is_ok_and(|offset| offset >= target);
            if caught_up { Ok(()) } else { Err(format!("at offset {offset} of {target}")) }
        });
    }

    /// Sends the process a signal, by its name such as `STOP`. By the shell, which can do so itself: a bare machine has no
    /// program `kill`.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        let line = format!("kill -{name} {}", self.pid());
        let status = Command::new("sh").args(["-c", &line]).status();
        assert!(status.as_ref().is_ok_and(|status| status.success()), "{line}: {status:?}");
    }

    /// Kills the process (SIGKILL): nothing more is written.
    pub fn kill(&mut self) {
        if let Some(pid) = self.pid.take() {
            running::end(pid);
        }
    }

    /// Ends the process as an operator would; with the data saved if it is configured to save any.
    pub fn shutdown(&mut self) {
        // The connection breaks instead of a reply.
        let _ = self.connection().try_ask::<String>("SHUTDOWN");
        wait::until(wait::PATIENCE, "the server to shut down", || match running::ended(self.pid()) {
            Some(_) => Ok(()),
            None => Err("still running".to_owned()),
        });
        self.kill();
    }

    /// Starts the process again on the same data, after [`Server::kill`] or [`Server::shutdown`].
    pub fn start_again(&mut self) {
        self.launch();
    }

    /// As [`Server::start_again`], but without the module: what a server without it makes of the data.
    pub fn start_again_without_module(&mut self) {
        self.builder.plain = true;
        self.launch();
    }

    /// As [`Server::start_again`], and with the module, though it ran without before.
    pub fn start_again_with_module(&mut self) {
        self.builder.plain = false;
        self.launch();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
