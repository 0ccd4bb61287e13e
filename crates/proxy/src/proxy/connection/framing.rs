//! Decides from a frame's first bytes whether it streams through or must be collected, and why.
//!
//! For a compressed frame, the decompressed beginning decides. It streams through unchanged if the other side agreed
//! to the same compressor. This module owns no state; [`crate::proxy::connection::relay`] moves the bytes.

use crate::engine::handshake::negotiation::{Negotiation, is_never_compressed};
use crate::engine::sharing::{MAX_BODY_LENGTH, is_enough};
use crate::engine::{ClientState, RequestHead, Triage, retried};
use crate::proxy::connection::drain_state::DrainState;
use crate::proxy::connection::end::{ClientFault, End, UpstreamFault};
use crate::proxy::connection::pending_replies::{PendingReplies, ReplyAction, more_to_come};
use crate::proxy::connection::pooling::{Arriving, OpenedCursor, Pooling, Route};
use crate::proxy::interceptor::Interceptor;
use crate::proxy::process::close_spacing::CloseSpacing;
use crate::proxy::process::connection_counts::ConnectionCounters;
use crate::proxy::recording::{Captures, Sink};
use crate::proxy::telemetry::meter::Meter;
use crate::proxy::telemetry::slowest::LatestRequest;
use crate::proxy::transport::socket::ServerSocket;
use crate::wire::compressed::{CompressedEnvelope, Compressor, DecompressLimit, peek, peek_length};
use crate::wire::op_msg::FLAGS_LENGTH;
use crate::wire::splitter::FrameClass;
use crate::wire::{HEADER_LENGTH, Header, OpCode};

/// Bytes of a hello or its reply; real ones have a few thousand.
const MAX_HELLO_LENGTH: usize = 1 << 20;
/// The largest plain message that is compressed on its way. Larger ones stream through as they are, so that the memory
/// per connection stays small.
const MAX_COMPRESSED_LENGTH: usize = 128 * 1024;
/// Bytes of a reply that is looked at for an error; longer ones stream through.
const MAX_ERROR_LENGTH: usize = 8 * 1024;
/// The same, of an uncompressed reply that begins as an error or as one to a write (not as a bulkWrite's): a validator
/// shows the values that it refuses.
const MAX_WRITE_REPLY_LENGTH: usize = 128 * 1024;
/// Bytes of a message before login. The newest mongod releases have the same limit; drivers stay far below.
const MAX_LENGTH_BEFORE_LOGIN: usize = 64 * 1024;
/// Decompressed bytes that triage sees. Commands are shorter, except for the documents they carry.
const MAX_TRIAGE_LENGTH: usize = 16 * 1024;

/// Requests that must be collected whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum Request {
    Hello,
    /// A step of the login of a client that shares connections.
    Login,
    Evaluate,
    /// It is sent again: a member that had it was lost, or is no primary any more.
    Repeat,
    /// It is forwarded with a different compression than it arrived in.
    Convert,
}

/// Replies that must be collected whole, and the compression the client expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum ReplyToCollect {
    Hello(Option<Compressor>),
    /// The reply to a login step; it may confirm the login.
    Login,
    /// It does not go to the client.
    Discard,
    /// Any other, compressed for the client as given. It may contain the id of a cursor that is remembered.
    Other(Option<Compressor>, Option<OpenedCursor>),
}

/// The state that sorting a client's frame reads and updates.
pub(in crate::proxy) struct Requests<'r, P, U: ServerSocket> {
    pub(in crate::proxy) rules: &'r P,
    pub(in crate::proxy) client_state: &'r mut ClientState,
    pub(in crate::proxy) pending: &'r mut PendingReplies,
    pub(in crate::proxy) negotiation: &'r mut Negotiation,
    /// Set if the client shares server connections.
    pub(in crate::proxy) pooling: Option<&'r mut Pooling<U>>,
    pub(in crate::proxy) drain_state: &'r DrainState,
    pub(in crate::proxy) close_spacing: &'r CloseSpacing,
    pub(in crate::proxy) connection_counters: &'r ConnectionCounters,
    pub(in crate::proxy) meter: &'r Meter,
    pub(in crate::proxy) captures: &'r Captures,
    /// Set if statements are measured.
    pub(in crate::proxy) latest: Option<&'r mut LatestRequest>,
}

impl<P: Interceptor, U: ServerSocket> Requests<'_, P, U> {
    /// Sorts a client's frame that begins with `head`. If its reply will stream through, that reply is pending from
    /// now on.
    ///
    /// # Errors
    /// The connection must close.
    pub(in crate::proxy) fn sort(&mut self, header: &Header, head: &[u8]) -> Result<FrameClass<Request>, End> {
        self.refuse_before_login(header)?;
        if header.op_code == OpCode::Compressed {
            return self.sort_compressed(header, head);
        }
        let parsed = RequestHead::after(Some(*header), head);
        let triage = self.triage(&parsed);
        // Triage decides for every whole frame. If it does not, the frame is evaluated, never forwarded unchecked.
        if triage == Triage::More && head.len() < header.length {
            return Ok(FrameClass::More);
        }
        if triage == Triage::Evaluate && is_tls(head) {
            return Err(ClientFault::Tls.into());
        }
        let is_whole = head.len() >= header.length;
        self.act(triage, header, Arriving { head: &parsed, is_whole, frame: head, length: header.length }, None)
    }

    /// A message that is recorded is collected like one that a rule may apply to.
    fn triage(&self, head: &RequestHead<'_>) -> Triage {
        let triage = self.rules.triage(head, &self.client_state.listener_kind);
        let is_selected =
            |sink: &Sink| head.name().is_some_and(|name| sink.selects(name, self.client_state.app_name()));
        match triage {
            Triage::Forward { .. } if self.captures.sink().is_some_and(|sink| is_selected(&sink)) => Triage::Evaluate,
            other => other,
        }
    }

    fn refuse_before_login(&self, header: &Header) -> Result<(), ClientFault> {
        if self.client_state.must_log_in && header.length > MAX_LENGTH_BEFORE_LOGIN {
            return Err(ClientFault::TooLongBeforeLogin { length: header.length, limit: MAX_LENGTH_BEFORE_LOGIN });
        }
        Ok(())
    }

    /// Frames that cannot be read, or use a compressor that was not agreed on, go to evaluation, which reports the
    /// error.
    fn sort_compressed(&mut self, header: &Header, head: &[u8]) -> Result<FrameClass<Request>, End> {
        let envelope = match CompressedEnvelope::parse(head) {
            Ok(Some(envelope)) if self.negotiation.is_agreed_with_client(envelope.compressor) => envelope,
            Ok(None) if head.len() < header.length => return Ok(FrameClass::More),
            _ => return Ok(FrameClass::Whole(Request::Evaluate)),
        };
        self.refuse_before_login(&envelope.header)?;
        if head.len() < header.length.min(peek_length(envelope.compressor, MAX_TRIAGE_LENGTH)) {
            return Ok(FrameClass::More);
        }
        let is_whole = head.len() >= header.length;
        let mut inner = peek(head, DecompressLimit::Checked(MAX_TRIAGE_LENGTH));
        // Only clients that share connections need the whole body.
        if self.pooling.as_ref().is_some_and(|pooling| pooling.is_shared())
            && inner.as_ref().is_ok_and(|inner| !is_enough(&RequestHead::new(inner)))
        {
            if !is_whole {
                return Ok(FrameClass::More);
            }
            inner = peek(head, DecompressLimit::UpTo(FLAGS_LENGTH + 1 + MAX_BODY_LENGTH));
        }
        match inner {
            Ok(inner) => {
                let frame = head;
                let head = RequestHead::after(Some(envelope.header), &inner);
                let triage = self.triage(&head);
                let arriving = Arriving { head: &head, is_whole, frame, length: header.length };
                self.act(triage, &envelope.header, arriving, Some(envelope.compressor))
            }
            Err(_) => Ok(FrameClass::Whole(Request::Evaluate)),
        }
    }

    /// `header` and `head` are those of the decompressed message.
    fn act(
        &mut self,
        triage: Triage,
        header: &Header,
        arriving: Arriving<'_>,
        came: Option<Compressor>,
    ) -> Result<FrameClass<Request>, End> {
        let head = arriving.head;
        // Nothing of it has been sent, and no reply is lost.
        if let Some(closes) = self.drain_state.closes
            && self.pending.is_empty()
            && !self.pooling.as_deref().is_some_and(Pooling::holds_transaction)
            && retried(head).is_some_and(|retried| retried <= closes)
            && self.close_spacing.take_turn(|| self.connection_counters.open())
        {
            return Err(self.drain_state.end());
        }
        if let Some(pooling) = self.pooling.as_deref_mut().filter(|pooling| pooling.is_shared()) {
            match triage {
                Triage::Authenticate { .. } => return Ok(FrameClass::Whole(Request::Login)),
                Triage::Forward { expects_reply } => match pooling.route(arriving, expects_reply, self.negotiation) {
                    Route::Ready => {}
                    Route::NotYet => return Ok(FrameClass::More),
                    Route::Own => return Ok(FrameClass::Whole(Request::Evaluate)),
                },
                Triage::Hello | Triage::Evaluate | Triage::More => {}
            }
        }
        self.pending.command = self.meter.command(head);
        if let Some(latest) = &mut self.latest {
            latest.remember(head);
        }
        self.pending.span = self.meter.open_forwarded(head);
        if let Triage::Authenticate { .. } = triage {
            self.client_state.forget_users();
        }
        match triage {
            Triage::Forward { expects_reply } | Triage::Authenticate { expects_reply } => {
                let goes = self.negotiation.for_upstream(came).map(|method| method.compressor);
                if goes != came && (came.is_some() || may_be_compressed(head)) {
                    return Ok(FrameClass::Whole(Request::Convert));
                }
                if expects_reply {
                    let logs_in = self.client_state.must_log_in && matches!(triage, Triage::Authenticate { .. });
                    let opens_cursor = self.pooling.as_deref_mut().and_then(Pooling::takes_cursor);
                    let action = match (logs_in, opens_cursor) {
                        (true, _) => ReplyAction::Login,
                        (false, Some(why)) => ReplyAction::Cursor(came, why),
                        (false, None) if self.pooling.as_deref().is_some_and(Pooling::is_routed) => {
                            ReplyAction::Examine(came)
                        }
                        (false, None) => ReplyAction::Forward,
                    };
                    self.pending.push(header.request_id, action);
                }
                Ok(FrameClass::Stream)
            }
            Triage::Hello if header.length > MAX_HELLO_LENGTH => {
                Err(ClientFault::HelloTooLong { length: header.length, limit: MAX_HELLO_LENGTH }.into())
            }
            Triage::Hello => Ok(FrameClass::Whole(Request::Hello)),
            Triage::Evaluate | Triage::More => Ok(FrameClass::Whole(Request::Evaluate)),
        }
    }
}

/// Whether the bytes are a TLS ClientHello. As a message it would have a length of 33 MB and an unknown opcode.
fn is_tls(head: &[u8]) -> bool {
    const HANDSHAKE_OF_TLS_1: [u8; 2] = [0x16, 3];
    head.starts_with(&HANDSHAKE_OF_TLS_1)
        && Header::parse(head)
            .is_ok_and(|header| header.is_none_or(|header| matches!(header.op_code, OpCode::Unknown(_))))
}

/// Whether a plain message may be compressed on its way.
pub(in crate::proxy) fn may_be_compressed(head: &RequestHead<'_>) -> bool {
    let is_short = |header: Header| header.op_code == OpCode::Msg && header.length <= MAX_COMPRESSED_LENGTH;
    head.header.is_some_and(is_short) && !head.name().is_some_and(is_never_compressed)
}

/// Where the name of an uncompressed reply's first field begins: after a byte each for the section's kind and the field's
/// type, and four for the document's length.
const FIRST_NAME: usize = HEADER_LENGTH + FLAGS_LENGTH + 1 + 4 + 1;

/// Whether an uncompressed reply that begins with `head` is one to a write, or an error.
fn is_write_or_error(head: &[u8]) -> bool {
    matches!(head.get(FIRST_NAME..), Some([b'n', 0, ..] | [b'o', b'k', 0, ..]))
}

/// Sorts an upstream reply that begins with `head`.
///
/// # Errors
/// [`UpstreamFault`]: the connection must close.
pub(in crate::proxy) fn sort_reply(
    pending: &mut PendingReplies,
    header: &Header,
    head: &[u8],
) -> Result<FrameClass<ReplyToCollect>, UpstreamFault> {
    let compressed = header.op_code == OpCode::Compressed;
    let came = match compressed.then(|| CompressedEnvelope::parse(head)).transpose()? {
        None => None,
        Some(Some(envelope)) => Some(envelope),
        Some(None) => return Ok(FrameClass::More),
    };
    let enough = came.map_or(FIRST_NAME + "ok\0".len(), |came| peek_length(came.compressor, FLAGS_LENGTH));
    if head.len() < enough.min(header.length) {
        return Ok(FrameClass::More);
    }
    let another_follows = match came {
        None => more_to_come(header, head),
        Some(came) => more_to_come(&came.header, &peek(head, DecompressLimit::UpTo(FLAGS_LENGTH))?),
    };
    let came = came.map(|came| came.compressor);
    Ok(match pending.match_reply(header, another_follows)? {
        ReplyAction::Hello(_) if header.length > MAX_HELLO_LENGTH => {
            return Err(UpstreamFault::HelloTooLong { length: header.length, limit: MAX_HELLO_LENGTH });
        }
        ReplyAction::Hello(goes) => FrameClass::Whole(ReplyToCollect::Hello(goes)),
        ReplyAction::Login if header.length <= MAX_HELLO_LENGTH => FrameClass::Whole(ReplyToCollect::Login),
        ReplyAction::Cursor(goes, why) if header.length <= MAX_HELLO_LENGTH || why == OpenedCursor::Elsewhere => {
            FrameClass::Whole(ReplyToCollect::Other(goes, Some(why)))
        }
        // Compressed as it is: both sides agreed on the request's compressor.
        ReplyAction::Examine(_)
            if header.length <= MAX_ERROR_LENGTH
                || came.is_none() && header.length <= MAX_WRITE_REPLY_LENGTH && is_write_or_error(head) =>
        {
            FrameClass::Whole(ReplyToCollect::Other(came, None))
        }
        ReplyAction::Discard => FrameClass::Whole(ReplyToCollect::Discard),
        ReplyAction::Convert(goes) | ReplyAction::Cursor(goes, _)
            if goes != came && (came.is_some() || header.length <= MAX_COMPRESSED_LENGTH) =>
        {
            FrameClass::Whole(ReplyToCollect::Other(goes, None))
        }
        ReplyAction::Convert(_)
        | ReplyAction::Cursor(..)
        | ReplyAction::Login
        | ReplyAction::Examine(_)
        | ReplyAction::Forward => FrameClass::Stream,
    })
}
