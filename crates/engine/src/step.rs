//! The steps that a plan asks of its caller, and their results.

use std::time::Duration;

use smallvec::SmallVec;

use super::lookup::{Lookup, LookupError, LookupResult};
use crate::patterns::throttle::ThrottleLimits;

/// What the caller must do next.
#[derive(Debug)]
pub enum Step {
    /// Send this upstream and pass the complete reply to the next call.
    Exchange(Vec<u8>),
    /// Send these upstream, one after the other without waiting, and pass the replies to the next call.
    ExchangeAll(SmallVec<[Vec<u8>; 1]>),
    /// Pass this lookup to the service, and its reply to the next call.
    Lookup(Lookup),
    /// Take a permit for each of these, in their order, and keep them until the last reply of the message has arrived.
    Permits(Vec<PermitRequest>),
    /// Wait this long, then call again.
    Pause(Duration),
    /// Yield to other connections, then call again: there are more statements to evaluate.
    Yield,
    /// Final: forward the original message; stream its reply, if one is expected.
    ForwardOriginal { expects_reply: bool },
    /// Final: forward this message instead; stream its reply, if one is expected.
    Forward { message: Vec<u8>, expects_reply: bool },
    /// Final: send this reply to the client.
    Reply(Vec<u8>),
    /// Final: the client expects no reply (w: 0).
    Silent,
    /// Final: close the connection; the text is for the log.
    Close(String),
}

impl Step {
    /// Returns whether it sends a message to the server.
    pub(super) fn sends(&self) -> bool {
        matches!(self, Self::Exchange(_) | Self::ExchangeAll(_) | Self::ForwardOriginal { .. } | Self::Forward { .. })
    }

    /// Returns whether the plan ends with this step.
    pub(super) fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::Exchange(_)
                | Self::ExchangeAll(_)
                | Self::Lookup(_)
                | Self::Permits(_)
                | Self::Pause(_)
                | Self::Yield
        )
    }
}

/// The result of the last step.
#[derive(Debug)]
pub enum Input {
    Start,
    Reply(Vec<u8>),
    Replies(SmallVec<[Vec<u8>; 1]>),
    Found(Result<LookupResult, LookupError>),
    /// All permits.
    Permits(Result<(), PermitRefusal>),
    /// Other connections have had their turn.
    Resumed,
    /// The pause is over; `elapsed` is the time since the first exchange.
    Paused {
        elapsed: Duration,
    },
}

/// A permit that a message needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermitRequest {
    /// The name of the rule. Rules of another rule set with the same name share their permits.
    pub rule: String,
    pub limits: ThrottleLimits,
    /// The application, user or address that shares the limit.
    pub key: String,
    /// The number of statements, for the rate.
    pub statements: u32,
    /// The message is only counted, and never waits.
    pub is_shadow: bool,
    /// The client's driver sends the message again after an overload error, so it does not wait in vain.
    pub is_retried: bool,
}

/// Why a message gets no permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermitRefusal {
    /// The number of the request whose limit is not free.
    pub at: usize,
    /// In this time it probably will be; `None`: that is not known.
    pub room_in: Option<Duration>,
}
