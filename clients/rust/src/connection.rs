//! The connection to Redis: it routes, follows a cluster as it changes, and recovers by itself. It never sends a take again
//! whose reply may have been lost.
//!
//! The `redis` crate's own retries are off: they send a command again after a dropped connection or a timeout, when it may
//! well have been carried out. What is sent again here are commands that a server said it did not carry out: MOVED, ASK,
//! TRYAGAIN, CLUSTERDOWN, MASTERDOWN, LOADING, and READONLY in a cluster; and commands for which no node was found.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    RedisError, ServerErrorKind, Value,
};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::command::ReplyError;

/// How long connecting to a node, or an answer that no caller waits for any more, may take.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(500);

/// The pause before a command is sent again that a server said it cannot carry out now.
const PAUSE: Duration = Duration::from_millis(5);

/// The pause between two attempts to connect.
const RECONNECT_PAUSE: Duration = Duration::from_millis(250);

/// How many commands in a row, to keys of neighbouring slots, may go without an answer before a new connection is made.
/// (A node that hangs does not close its connections, and no one says that another has taken its place.)
const SILENCE: u32 = 8;

/// Slots of a cluster are watched for silence in this many parts.
const SLOT_PARTS: usize = 256;

/// A shared connection to one server or one cluster. Cloning gives another handle to the same.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<Shared>,
}

struct Shared {
    servers: Servers,
    live: RwLock<Option<Live>>,
    connecting: AtomicBool,
    silent: [AtomicU32; SLOT_PARTS],
    /// Connections to nodes that slots are moving to; the cluster client knows a node only once it has a slot.
    asked: Mutex<HashMap<(String, u16), MultiplexedConnection>>,
}

enum Servers {
    Single(Client),
    Cluster { client: Box<ClusterClient>, seed: ConnectionInfo },
}

#[derive(Clone)]
enum Live {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// Why there is no answer. Except after [`Failure::Server`], the command may or may not have been carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// None came in time.
    Timeout,
    /// There is no connection, or it broke.
    Connection(String),
    /// The server refused.
    Server(String),
    /// The server does not know the command.
    NoModule,
}

impl From<ReplyError> for Failure {
    fn from(error: ReplyError) -> Failure {
        Failure::Server(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Timeout => f.write_str("no answer within the timeout"),
            Failure::Connection(error) => write!(f, "connection: {error}"),
            Failure::Server(error) => f.write_str(error),
            Failure::NoModule => {
                f.write_str("the server does not have the rate limit module loaded (RL.TAKE is unknown)")
            }
        }
    }
}

impl Connection {
    /// Connects to one server, such as `redis://127.0.0.1:6379`. If it cannot be reached, this returns all the same after
    /// half a second at most, and goes on trying in the background; until then the failure policy decides.
    ///
    /// # Errors
    /// If the address is malformed.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn single(address: &str) -> Result<Connection, RedisError> {
        Ok(Connection::start(Servers::Single(Client::open(address)?)).await)
    }

    /// Connects to a cluster through some of its nodes; the others are found. Otherwise like [`Connection::single`].
    ///
    /// # Errors
    /// If there is no address, or one is malformed.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn cluster<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Result<Connection, RedisError> {
        let seeds = addresses
            .into_iter()
            .map(|address| address.into_connection_info())
            .collect::<Result<Vec<_>, _>>()?;
        let seed = seeds.first().cloned();
        let client = ClusterClientBuilder::new(seeds)
            .retries(0)
            .connection_timeout(NODE_TIMEOUT)
            .response_timeout(NODE_TIMEOUT)
            .build()?;
        let seed = seed.ok_or((ErrorKind::InvalidClientConfig, "a cluster needs at least one address"))?;
        Ok(Connection::start(Servers::Cluster { client: Box::new(client), seed }).await)
    }

    async fn start(servers: Servers) -> Connection {
        let shared = Arc::new(Shared {
            servers,
            live: RwLock::new(None),
            connecting: AtomicBool::new(false),
            silent: [const { AtomicU32::new(0) }; SLOT_PARTS],
            asked: Mutex::default(),
        });
        let connection = Connection { shared };
        // The attempt goes on in the background if it takes longer.
        if let Some(attempt) = connection.reconnect() {
            let _ = timeout(NODE_TIMEOUT, attempt).await;
        }
        connection
    }

    /// Sends a command to the node of `slot` and waits for its reply until `deadline`.
    pub(crate) async fn send(&self, slot: u16, command: &Cmd, deadline: Instant) -> Result<Value, Failure> {
        let silent = &self.shared.silent[usize::from(slot) * SLOT_PARTS / usize::from(crate::keys::SLOTS)];
        let mut ask = None;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let attempt = async {
                match ask.take() {
                    Some(node) => self.ask(node, command).await,
                    None => self.live()?.request(command).await,
                }
            };
            let error = match timeout_at(deadline, attempt).await {
                Ok(Ok(value)) => {
                    if silent.load(Ordering::Relaxed) != 0 {
                        silent.store(0, Ordering::Relaxed);
                    }
                    return Ok(value);
                }
                Ok(Err(error)) => error,
                Err(_) => {
                    if silent.fetch_add(1, Ordering::Relaxed) + 1 >= SILENCE {
                        silent.store(0, Ordering::Relaxed);
                        self.reconnect();
                    }
                    return Err(Failure::Timeout);
                }
            };
            match self.next_step(&error) {
                Next::Ask(node) => ask = Some(node),
                Next::Again if attempts == 1 => {}
                Next::Again | Next::Later => {
                    let next = Instant::now() + PAUSE;
                    if next >= deadline {
                        return Err(Failure::Server(error.to_string()));
                    }
                    sleep_until(next).await;
                }
                Next::GiveUp(failure) => return Err(failure),
            }
        }
    }

    /// What an error means for the command: whether it was surely not carried out, and what to do then.
    fn next_step(&self, error: &RedisError) -> Next {
        let cluster = matches!(self.shared.servers, Servers::Cluster { .. });
        match error.kind() {
            ErrorKind::Server(kind) => match kind {
                // The cluster client looks up the slots anew before it sends the next command.
                ServerErrorKind::Moved if cluster => Next::Again,
                ServerErrorKind::Ask if cluster => {
                    match error.redirect_node().and_then(|(node, _)| host_and_port(node)) {
                        Some(node) => Next::Ask(node),
                        None => Next::GiveUp(Failure::Server(error.to_string())),
                    }
                }
                ServerErrorKind::ReadOnly if cluster => Next::Later,
                ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::BusyLoading => Next::Later,
                _ => Next::GiveUp(server_failure(error)),
            },
            ErrorKind::ClusterConnectionNotFound => Next::Later,
            ErrorKind::Extension => Next::GiveUp(server_failure(error)),
            _ => {
                // A cluster client repairs its connections itself.
                if !cluster {
                    self.reconnect();
                }
                Next::GiveUp(Failure::Connection(error.to_string()))
            }
        }
    }

    /// Sends the command to a node that a slot is moving to. ASKING counts for the next command of the connection, so both
    /// go as one piece: the connection is shared.
    async fn ask(&self, node: (String, u16), command: &Cmd) -> Result<Value, RedisError> {
        let Servers::Cluster { seed, .. } = &self.shared.servers else {
            return Err((ErrorKind::InvalidClientConfig, "ASK from a single server").into());
        };
        let asked = || self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let known = asked().get(&node).cloned();
        let mut connection = match known {
            Some(connection) => connection,
            None => {
                let address = match seed.addr() {
                    ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                        host: node.0.clone(),
                        port: node.1,
                        insecure: *insecure,
                        tls_params: tls_params.clone(),
                    },
                    _ => ConnectionAddr::Tcp(node.0.clone(), node.1),
                };
                let client = Client::open(seed.clone().set_addr(address))?;
                let connection =
                    client.get_multiplexed_async_connection_with_config(&single_config()).await?;
                asked().insert(node.clone(), connection.clone());
                connection
            }
        };
        let mut pipeline = redis::pipe();
        pipeline.add_command(redis::cmd("ASKING")).ignore().add_command(command.clone());
        match connection.req_packed_commands(&pipeline, 0, 2).await {
            Ok(mut replies) => replies.pop().unwrap_or(Value::Nil).extract_error(),
            Err(error) => {
                asked().remove(&node);
                Err(error)
            }
        }
    }

    fn live(&self) -> Result<Live, RedisError> {
        let live = self.shared.live.read().unwrap_or_else(PoisonError::into_inner);
        live.clone().ok_or_else(|| (ErrorKind::Io, "not connected yet").into())
    }

    /// Makes a new connection in the background, unless that is under way already, and goes on until it has one.
    fn reconnect(&self) -> Option<tokio::task::JoinHandle<()>> {
        if self.shared.connecting.swap(true, Ordering::AcqRel) {
            return None;
        }
        // Weak: with the last handle gone there is no one to connect for.
        let shared = Arc::downgrade(&self.shared);
        Some(tokio::spawn(async move {
            let mut failing = false;
            while let Some(shared) = shared.upgrade() {
                match shared.servers.connect().await {
                    Ok(live) => {
                        tracing::info!("connected to Redis");
                        *shared.live.write().unwrap_or_else(PoisonError::into_inner) = Some(live);
                        shared.connecting.store(false, Ordering::Release);
                        return;
                    }
                    Err(error) if !failing => {
                        tracing::warn!(%error, "cannot connect to Redis, trying on");
                        failing = true;
                    }
                    Err(_) => {}
                }
                drop(shared);
                sleep(RECONNECT_PAUSE).await;
            }
        }))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("connected", &self.live().is_ok()).finish()
    }
}

impl Servers {
    async fn connect(&self) -> Result<Live, RedisError> {
        match self {
            Servers::Single(client) => {
                client.get_multiplexed_async_connection_with_config(&single_config()).await.map(Live::Single)
            }
            Servers::Cluster { client, .. } => client.get_async_connection().await.map(Live::Cluster),
        }
    }
}

impl Live {
    async fn request(self, command: &Cmd) -> Result<Value, RedisError> {
        let value = match self {
            Live::Single(mut connection) => connection.req_packed_command(command).await,
            Live::Cluster(mut connection) => connection.req_packed_command(command).await,
        };
        value?.extract_error()
    }
}

enum Next {
    /// Send it again at once.
    Again,
    /// Send it again after a pause.
    Later,
    /// Send it to this node, which the slot is moving to.
    Ask((String, u16)),
    GiveUp(Failure),
}

fn single_config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(NODE_TIMEOUT))
        .set_response_timeout(Some(NODE_TIMEOUT))
}

fn server_failure(error: &RedisError) -> Failure {
    match error.detail() {
        Some(detail) if detail.starts_with("unknown command") => Failure::NoModule,
        _ => Failure::Server(error.to_string()),
    }
}

fn host_and_port(node: &str) -> Option<(String, u16)> {
    let (host, port) = node.rsplit_once(':')?;
    Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
}
