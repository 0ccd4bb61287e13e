//! Why a connection ended, sorted by who caused it. The texts go to the log.

use std::io;
use std::time::Duration;

use crate::engine::handshake::HandshakeError;
use crate::proxy::connection::pending_replies::ReplyOutOfOrder;
use crate::proxy::server_side::pool::CheckoutError;
use crate::wire::WireError;

/// The client sent a message that cannot be parsed or forwarded.
#[derive(Debug, thiserror::Error)]
pub(in crate::proxy) enum ClientFault {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error("the client sent a message of {length} bytes before it logged in; the limit until then is {limit}")]
    TooLongBeforeLogin { length: usize, limit: usize },
    #[error("its hello has {length} bytes, and the limit is {limit}")]
    HelloTooLong { length: usize, limit: usize },
    #[error("the client's message arrived too slowly while others waited for memory (limits: memory)")]
    Stalled,
    #[error(
        "it uses TLS, and this listener does not; remove tls=true from its connection string, or give docward a \
         certificate (--tls-certificate)"
    )]
    Tls,
}

impl ClientFault {
    /// What the log prints before the text: nothing if the client has not violated the protocol.
    fn prefix(&self) -> &'static str {
        match self {
            Self::Stalled | Self::TooLongBeforeLogin { .. } => "",
            Self::Wire(_) | Self::Handshake(_) | Self::HelloTooLong { .. } | Self::Tls => {
                "protocol error of the client: "
            }
        }
    }
}

/// The upstream sent a message that cannot be parsed or forwarded.
#[derive(Debug, thiserror::Error)]
pub(in crate::proxy) enum UpstreamFault {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    OutOfOrder(#[from] ReplyOutOfOrder),
    #[error("its reply to a hello has {length} bytes, and the limit is {limit}")]
    HelloTooLong { length: usize, limit: usize },
    #[error("it sent an additional or unexpected reply")]
    NotOneReply,
}

/// The reason why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(in crate::proxy) enum End {
    #[error("the client closed the connection")]
    ClientClosed,
    #[error("the upstream closed the connection")]
    UpstreamClosed,
    /// No server for it can be reached; the text names the last one and the reason.
    #[error("{0}")]
    Unreachable(String),
    #[error("docward is shutting down, or another docward with this address is")]
    Drained,
    #[error("the connection was as old as it may become (limits: max_lifetime)")]
    Expired,
    #[error("an operator closed the connection")]
    ClosedByOperator,
    /// See [`CheckoutError`].
    #[error("{0}")]
    LoginNeeded(CheckoutError),
    #[error("the client sent no message within {0:?} (limits: handshake_timeout)")]
    HandshakeTimeout(Duration),
    #[error("the client did not log in within {0:?} (limits: handshake_timeout)")]
    LoginTimeout(Duration),
    #[error("the client did not log in before newer connections needed its slot (limits: connections)")]
    Displaced,
    #[error("the client did not use it for {0:?} (limits: idle_timeout)")]
    Idle(Duration),
    #[error("the connection to the client broke: {0}")]
    ClientError(io::Error),
    #[error("the connection to the upstream broke: {0}")]
    UpstreamError(io::Error),
    #[error("{prefix}{0}", prefix = .0.prefix())]
    Client(#[from] ClientFault),
    #[error("protocol error of the upstream: {0}")]
    Upstream(#[from] UpstreamFault),
    #[error("a message could not be processed: {0}")]
    Unprocessable(String),
}

/// Of a client's message. The upstream's are [`UpstreamFault`]s.
impl From<WireError> for End {
    fn from(error: WireError) -> Self {
        Self::Client(error.into())
    }
}

impl From<CheckoutError> for End {
    fn from(error: CheckoutError) -> Self {
        match error {
            CheckoutError::Unreachable(error) => Self::UpstreamError(error),
            CheckoutError::Overloaded { .. }
            | CheckoutError::SentAway(_)
            | CheckoutError::LoginNeeded
            | CheckoutError::LoginGivenUp
            | CheckoutError::NoMember(_)
            | CheckoutError::TimeLimit(_)
            | CheckoutError::Staleness(_) => Self::LoginNeeded(error),
        }
    }
}

impl End {
    /// The label for counters, one of [`END_KINDS`](crate::proxy::process::connection_counts::END_KINDS).
    pub(in crate::proxy) fn kind(&self) -> &'static str {
        match self {
            Self::ClientClosed => "client_closed",
            Self::UpstreamClosed => "upstream_closed",
            Self::Unreachable(_) => "unreachable",
            Self::Drained => "drained",
            Self::Expired => "expired",
            Self::ClosedByOperator => "operator",
            Self::LoginNeeded(_) => "login_needed",
            Self::HandshakeTimeout(_) => "handshake_timeout",
            Self::LoginTimeout(_) => "login_timeout",
            Self::Displaced => "displaced",
            Self::Idle(_) => "idle",
            Self::ClientError(_) => "client_error",
            Self::UpstreamError(_) => "upstream_error",
            Self::Client(ClientFault::Wire(_)) => "client_message",
            Self::Client(ClientFault::Handshake(_) | ClientFault::HelloTooLong { .. }) => "client_handshake",
            Self::Client(ClientFault::Tls) => "client_tls",
            Self::Client(ClientFault::Stalled) => "client_stalled",
            Self::Client(ClientFault::TooLongBeforeLogin { .. }) => "client_too_long_before_login",
            Self::Upstream(UpstreamFault::Handshake(_) | UpstreamFault::HelloTooLong { .. }) => "upstream_handshake",
            Self::Upstream(_) => "upstream_message",
            Self::Unprocessable(_) => "unprocessable",
        }
    }

    /// Whether the server has caused it: then it carries out nothing more for the client.
    pub(in crate::proxy) fn is_of_server(&self) -> bool {
        matches!(self, Self::UpstreamClosed | Self::Unreachable(_) | Self::UpstreamError(_) | Self::Upstream(_))
    }

    /// Whether it is logged as a warning. Other ends are routine.
    pub(in crate::proxy) fn is_remarkable(&self) -> bool {
        matches!(
            self,
            Self::Client(_)
                | Self::Upstream(_)
                | Self::Unprocessable(_)
                | Self::HandshakeTimeout(_)
                | Self::LoginTimeout(_)
                | Self::Displaced
        )
    }
}
