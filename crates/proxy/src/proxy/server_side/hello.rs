//! Sends a hello to a server and parses the reply. [`crate::proxy::members::membership`] interprets the results.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use memchr::memmem;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::command::Reply;
use crate::command::own::member_hello;
use crate::document::{Document, Kind, Value};
use crate::text::one_line;
use crate::wire::{HEADER_LENGTH, Header};

/// Connect timeout: longer than the retransmission of a lost SYN, shorter than any driver's timeout.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a reply to docward's own hellos and logins; real ones have a few thousand.
const MAX_HELLO_LENGTH: usize = 1 << 20;

/// One server's reply to a hello.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::proxy) struct Hello {
    pub(in crate::proxy) me: Option<String>,
    /// `setName`; empty for a member whose set is not initiated yet, `None` for other servers.
    pub(in crate::proxy) set: Option<String>,
    /// Members that hold data, as the set's configuration names them; empty unless it is a replica set.
    pub(in crate::proxy) members: Vec<String>,
    pub(in crate::proxy) role: Role,
    /// `setVersion`.
    pub(in crate::proxy) set_version: i64,
    /// `electionId`, of a primary.
    pub(in crate::proxy) election: Option<[u8; 12]>,
    /// `lastWrite.lastWriteDate`, in milliseconds since 1970 UTC by the primary's clock.
    pub(in crate::proxy) last_write: Option<i64>,
    /// As BSON. Sent back, it makes the server delay its reply until its topology changes.
    pub(in crate::proxy) topology_version: Option<Vec<u8>>,
    /// The reply message as received.
    pub(in crate::proxy) reply: Arc<[u8]>,
}

/// The current role of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::proxy) enum Role {
    Primary,
    Secondary,
    /// A standalone or a mongos, which has no set.
    Standalone,
    /// Starting, recovering, an arbiter or removed: not usable for queries.
    #[default]
    Other,
}

impl Role {
    pub(in crate::proxy) fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Secondary => "secondary",
            Self::Standalone => "standalone",
            Self::Other => "other",
        }
    }
}

impl Hello {
    /// Sends a hello and returns the reply. With `topology_version` the server replies when its topology changes or
    /// after `await_for`.
    ///
    /// # Errors
    /// I/O errors of the socket, `TimedOut`, or `InvalidData` for an invalid reply.
    pub(in crate::proxy) async fn ask<S>(
        stream: &mut S,
        topology_version: Option<&[u8]>,
        await_for: Duration,
    ) -> io::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        timeout(CONNECT_TIMEOUT + await_for, async {
            Hello::parse(&exchange(stream, &member_hello(topology_version, await_for)).await?)
        })
        .await?
    }

    /// Whether two servers can belong to one deployment: one replica set, the mongos of one cluster, or one standalone server.
    pub(in crate::proxy) fn is_of_same_deployment(&self, other: &Self) -> bool {
        let shares_member = || self.members.iter().any(|member| other.members.contains(member));
        match (self.set.as_deref(), other.set.as_deref()) {
            // It may still join the other's set.
            (Some(""), _) | (_, Some("")) => true,
            (Some(own), Some(other)) => own == other && shares_member(),
            // A proxy in front of the deployment, or a server that is older.
            _ if self.process().is_none() || other.process().is_none() => true,
            (None, None) if self.is_mongos() && other.is_mongos() => true,
            (None, None) => self.is_mongos() == other.is_mongos() && self.process() == other.process(),
            _ => false,
        }
    }

    /// Describes its deployment, for people.
    pub(in crate::proxy) fn deployment(&self) -> String {
        match &self.set {
            Some(set) => format!("of the replica set '{set}' ({})", self.members.join(", ")),
            None if self.is_mongos() => "a mongos".to_owned(),
            None => "a standalone server".to_owned(),
        }
    }

    fn is_mongos(&self) -> bool {
        memmem::find(&self.reply, b"isdbgrid").is_some()
    }

    /// The random name of the server's process, from MongoDB 4.4 on.
    fn process(&self) -> Option<&[u8]> {
        let version = Document::parse(self.topology_version.as_deref()?).ok()?;
        Some(version.get("processId")?.bytes)
    }

    /// Ordering key: newer views of a set compare greater. A primary's view is above a secondary's; primaries compare
    /// as in the driver specification "Server Discovery And Monitoring".
    pub(in crate::proxy) fn rank(&self) -> (bool, Option<[u8; 12]>, i64) {
        let primary = self.role == Role::Primary;
        (primary, self.election.filter(|_| primary), self.set_version)
    }

    fn parse(reply: &[u8]) -> io::Result<Self> {
        let Reply { body, .. } = accepted(reply)?;
        let text = |value: Value<'_>| value.as_str().map(str::to_owned);
        let list =
            |key| body.get(key).and_then(Value::as_array).into_iter().flat_map(Document::values).filter_map(text);
        let last_write = body.get("lastWrite").and_then(Value::as_document);
        Ok(Self {
            me: body.get("me").and_then(text),
            set: match body.get("isreplicaset").and_then(Value::as_bool) {
                Some(true) => Some(String::new()),
                _ => body.get("setName").and_then(text),
            },
            members: list("hosts").chain(list("passives")).collect(),
            role: Role::from_hello(body),
            set_version: body.get("setVersion").and_then(Value::as_integer).unwrap_or(0),
            election: body
                .get("electionId")
                .filter(|id| id.kind == Kind::ObjectId)
                .and_then(|id| id.bytes.try_into().ok()),
            last_write: last_write.and_then(|write| write.get("lastWriteDate")).and_then(Value::as_raw_i64),
            topology_version: body
                .get("topologyVersion")
                .and_then(Value::as_document)
                .map(|version| version.as_bytes().to_vec()),
            reply: reply.into(),
        })
    }
}

impl Role {
    fn from_hello(hello: Document<'_>) -> Self {
        let is = |key| hello.get(key).and_then(Value::as_bool) == Some(true);
        match (hello.get("setName").is_some(), is("isWritablePrimary"), is("secondary")) {
            (false, true, _) => Self::Standalone,
            (true, true, _) => Self::Primary,
            // Delayed members must be hidden, and drivers never select a hidden member.
            (true, _, true) if !is("hidden") => Self::Secondary,
            _ => Self::Other,
        }
    }
}

/// Parses the reply to a command of docward's own.
///
/// # Errors
/// The server replied with an error, or `InvalidData` for an invalid reply.
fn accepted(reply: &[u8]) -> io::Result<Reply<'_>> {
    let parsed = Reply::parse(reply).map_err(invalid)?;
    if parsed.is_ok() {
        return Ok(parsed);
    }
    let text = parsed.body.get("errmsg").and_then(Value::as_str).unwrap_or("without a message");
    Err(io::Error::other(format!("it replies with an error: {}", one_line(text))))
}

/// Sends a message of docward's own and returns the whole reply.
///
/// # Errors
/// As [`exchange_up_to`].
pub(in crate::proxy) async fn exchange<S>(stream: &mut S, request: &[u8]) -> io::Result<Vec<u8>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    exchange_up_to(MAX_HELLO_LENGTH, stream, request).await
}

/// Sends a message and returns the whole reply.
///
/// # Errors
/// I/O errors of the socket, or `InvalidData` for a reply that is invalid, longer than `most` bytes, or to another request.
pub async fn exchange_up_to<S>(most: usize, stream: &mut S, request: &[u8]) -> io::Result<Vec<u8>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(request).await?;
    stream.flush().await?;
    let mut reply = vec![0; HEADER_LENGTH];
    stream.read_exact(&mut reply).await?;
    let header = Header::parse(&reply).map_err(invalid)?.ok_or(ErrorKind::InvalidData)?;
    let asked = Header::of_frame(request).map_err(invalid)?;
    if header.length > most {
        return Err(invalid(format!("the reply has {} bytes, and {most} at most are read", header.length)));
    }
    if header.response_to != asked.request_id {
        return Err(invalid("the reply is to another request"));
    }
    reply.resize(header.length, 0);
    stream.read_exact(reply.get_mut(HEADER_LENGTH..).unwrap_or_default()).await?;
    Ok(reply)
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}
