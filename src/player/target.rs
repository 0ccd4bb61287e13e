//! The deployment that a replay is sent to: finds its primary, and opens connections.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bson::oid::ObjectId;
use tokio::time::timeout;

use super::PlayerConnection;
use super::login::Login;
use super::target_error::TargetError;
use crate::command::Reply;
use crate::command::own::message;
use crate::document::{Document, Kind, Value};
use crate::proxy::{Address, Upstream, UpstreamError};
use crate::service::ConnectionString;
use crate::service::connection;

/// Bound on the handshake and the login of a connection.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Servers that are tried for one connection.
const MAX_SERVERS: usize = 60;
/// The application's name where the recording has none.
const APP: &str = "docward replay";

/// A deployment, given by a connection string.
#[derive(Debug)]
pub struct ReplayTarget {
    upstream: Upstream,
    login: Option<Login>,
    name: String,
    /// The server that accepted writes last.
    primary: Mutex<Option<Address>>,
}

/// What a server replied to the hello of a connection.
struct TargetHello {
    is_writable: bool,
    is_mongos: bool,
    /// The id of its process; `None` before MongoDB 4.4.
    process: Option<String>,
    /// Other servers of its replica set, the primary first.
    others: Vec<Address>,
}

impl ReplayTarget {
    /// Parses a connection string. `resolver`: see [`connection::options`].
    ///
    /// # Errors
    /// [`TargetError`]: the connection string cannot be used.
    pub async fn parse(uri: &ConnectionString, resolver: Option<SocketAddr>) -> Result<Self, TargetError> {
        let upstream = Upstream::parse(uri, resolver).await?;
        let options = connection::options(uri, resolver).await.map_err(UpstreamError::from)?;
        let login = Login::from_options(&options)?;
        let name = upstream.seeds.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        Ok(Self { upstream, login, name, primary: Mutex::default() })
    }

    /// Returns the hosts of the connection string.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens a connection to the primary, a mongos or a standalone server, and logs in. `app`: the application's name.
    ///
    /// # Errors
    /// [`TargetError`]: no such server can be reached, or the login failed.
    pub async fn connect(&self, app: Option<&str>) -> Result<PlayerConnection, TargetError> {
        self.find_primary(app).await.map(|(connection, ..)| connection)
    }

    /// Describes a server of the connection string that is not a member of the replica set that it names; `None` if all
    /// are, as far as they answer.
    pub async fn other_set(&self) -> Option<String> {
        self.upstream.other_set().await
    }

    /// Returns what is the same for all targets whose data are the same: the id of the sharded cluster, or of the process of
    /// the primary or standalone server, even behind a proxy; its address if it is too old to have one.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub async fn data_id(&self) -> Result<String, TargetError> {
        let (mut connection, hello_reply, address) = self.find_primary(None).await?;
        let cluster = if hello_reply.is_mongos { cluster_id(&mut connection).await? } else { None };
        Ok(cluster.or(hello_reply.process).unwrap_or_else(|| address.to_string()))
    }

    async fn find_primary(&self, app: Option<&str>) -> Result<(PlayerConnection, TargetHello, Address), TargetError> {
        let known = self.primary.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut waiting: Vec<Address> = known.into_iter().chain(self.upstream.seeds.iter().cloned()).rev().collect();
        let mut tried: Vec<Address> = Vec::new();
        let mut failure = None;
        while let Some(address) = waiting.pop() {
            if tried.contains(&address) || tried.len() >= MAX_SERVERS {
                continue;
            }
            tried.push(address.clone());
            match self.open(&address, app).await {
                Ok((connection, hello_reply)) if hello_reply.is_writable || self.upstream.direct => {
                    *self.primary.lock().unwrap_or_else(PoisonError::into_inner) = Some(address.clone());
                    return Ok((connection, hello_reply, address));
                }
                Ok((_, hello_reply)) => waiting.extend(hello_reply.others.into_iter().rev()),
                Err(TargetError::Io(error)) => failure = failure.or(Some(TargetError::Server(address, error))),
                Err(other) => return Err(other),
            }
        }
        Err(failure.unwrap_or_else(|| TargetError::NoPrimary(self.name.clone())))
    }

    /// Returns the names of the target's servers and the ids of their processes, to recognise a deployment. No login is
    /// needed.
    ///
    /// # Errors
    /// [`TargetError`]: no server can be reached.
    pub async fn identity(&self) -> Result<BTreeSet<String>, TargetError> {
        let mut failure = None;
        for address in &self.upstream.seeds {
            match self.identify(address).await {
                Ok(names) => return Ok(names),
                Err(error) => failure = failure.or(Some(TargetError::Server(address.clone(), error))),
            }
        }
        Err(failure.unwrap_or_else(|| TargetError::NoPrimary(self.name.clone())))
    }

    /// Returns what [`identity`](Self::identity) does for the deployment with this connection string; empty if it does not
    /// reply.
    pub async fn server_names(uri: &ConnectionString, resolver: Option<SocketAddr>) -> Vec<String> {
        let Ok(target) = Self::parse(uri, resolver).await else { return Vec::new() };
        target.identity().await.unwrap_or_default().into_iter().collect()
    }

    /// Returns the name by which the primary calls itself in its log, as `host:port`; `None` if the user may not ask for it.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub async fn own_name(&self) -> Result<Option<String>, TargetError> {
        let mut connection = self.connect(None).await?;
        let reply = connection.command("admin", |w| w.int32("serverStatus", 1)).await?;
        let reply = Reply::parse(&reply).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        let host = reply.body.get("host").and_then(Value::as_str);
        // The port is missing if it is the default.
        Ok(host.map(|host| if host.contains(':') { host.to_owned() } else { format!("{host}:27017") }))
    }

    async fn identify(&self, address: &Address) -> io::Result<BTreeSet<String>> {
        let reply = timeout(HANDSHAKE, async {
            let mut connection = PlayerConnection::new(self.upstream.connect(address).await?);
            connection.command("admin", |w| w.int32("hello", 1)).await
        });
        let reply = reply.await??;
        let reply = Reply::parse(&reply).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        let mut names: BTreeSet<String> = members(reply.body).map(str::to_owned).collect();
        names.insert(address.to_string());
        names.extend(process(reply.body));
        Ok(names)
    }

    async fn open(&self, address: &Address, app: Option<&str>) -> Result<(PlayerConnection, TargetHello), TargetError> {
        let opened = timeout(HANDSHAKE, async {
            let mut connection = PlayerConnection::new(self.upstream.connect(address).await?);
            let reply = connection.exchange(&self.hello(app.unwrap_or(APP))).await?;
            let reply = Reply::parse(&reply).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            let hello_reply = TargetHello::from_reply(&reply);
            if let Some(login) = self.login.as_ref().filter(|_| hello_reply.is_writable || self.upstream.direct) {
                login.log_in(&mut connection, &reply).await?;
            }
            Ok((connection, hello_reply))
        });
        opened.await.unwrap_or_else(|_| Err(io::Error::from(ErrorKind::TimedOut).into()))
    }

    fn hello(&self, app: &str) -> Vec<u8> {
        message(1, "admin", |w| {
            w.int32("hello", 1);
            w.nested("client", |w| {
                w.nested("application", |w| w.string("name", app));
                w.nested("driver", |w| {
                    w.string("name", APP);
                    w.string("version", env!("CARGO_PKG_VERSION"));
                });
                w.nested("os", |w| w.string("type", std::env::consts::OS));
            });
            if let Some(login) = &self.login {
                w.string("saslSupportedMechs", login.full_name());
            }
        })
    }
}

impl TargetHello {
    fn from_reply(reply: &Reply<'_>) -> Self {
        let is_writable = reply.body.get("isWritablePrimary").and_then(Value::as_bool) == Some(true);
        let primary = reply.body.get("primary").and_then(Value::as_str);
        let others = primary.into_iter().chain(members(reply.body)).filter_map(Address::parse).collect();
        let is_mongos = reply.body.get("msg").and_then(Value::as_str) == Some("isdbgrid");
        Self { is_writable, is_mongos, process: process(reply.body), others }
    }
}

/// The id of the process in a reply to hello.
fn process(hello: Document<'_>) -> Option<String> {
    let version = hello.get("topologyVersion").and_then(Value::as_document)?;
    version.get("processId").and_then(object_id)
}

fn object_id(id: Value<'_>) -> Option<String> {
    let bytes = id.bytes.try_into().ok().filter(|_| id.kind == Kind::ObjectId)?;
    Some(ObjectId::from_bytes(bytes).to_hex())
}

/// The id of a sharded cluster; `None` if the user may not read it.
async fn cluster_id(connection: &mut PlayerConnection) -> io::Result<Option<String>> {
    let reply = connection.command("config", |w| {
        w.string("find", "version");
        w.int32("limit", 1);
    });
    let reply = reply.await?;
    let reply = Reply::parse(&reply).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    let version = reply.first_batch().and_then(|batch| batch.values().next()).and_then(Value::as_document);
    Ok(version.and_then(|version| version.get("clusterId")).and_then(object_id))
}

/// The names of the members of a replica set in a reply to hello.
fn members(hello: Document<'_>) -> impl Iterator<Item = &str> {
    let lists = ["hosts", "passives"].into_iter().filter_map(move |name| hello.get(name).and_then(Value::as_array));
    lists.flat_map(Document::values).filter_map(Value::as_str)
}
