//! What becomes of a frame, told by its first bytes: it streams through, or it must be here whole, and why.
//!
//! A compressed frame is told apart by the beginning of what is in it, and streams through as it came where the
//! other side agreed to the same compressor. Owns nothing; [`super::relay`] moves the bytes.

use super::end::{ClientFault, UpstreamFault};
use super::interceptor::Interceptor;
use super::meter::Meter;
use super::pending_replies::{PendingReplies, ReplyAction, more_to_come};
use super::transactions::Transactions;
use crate::document;
use crate::engine::handshake::negotiation::{Negotiation, is_never_compressed};
use crate::engine::{Session, Triage};
use crate::wire::compressed::{Compressor, Depth, Envelope, peek, peek_length};
use crate::wire::splitter::Class;
use crate::wire::{HEADER_LENGTH, Header, OpCode};

/// Bytes of a hello or of its reply; real ones have a few thousand.
const MAX_HELLO_LENGTH: usize = 1 << 20;
/// The largest plain message that is compressed on its way: whatever is larger streams through as it is, so that
/// a connection stays small.
const MAX_PACKED_LENGTH: usize = 128 * 1024;
/// Bytes of a message before a login; mongod's newest releases have the same bound. Drivers' are far below.
const MAX_LENGTH_BEFORE_LOGIN: usize = 64 * 1024;
/// Bytes of a compressed message that triage sees: commands are shorter, but for the documents they carry.
const TRIAGED: usize = 16 * 1024;
/// OP_MSG's flags.
const FLAGS_LENGTH: usize = 4;
/// Where the body's first field begins in an OP_MSG whose body comes first: flags, kind, length.
const FIRST_FIELD_AT: usize = HEADER_LENGTH + FLAGS_LENGTH + 1;

/// Requests that must be here whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    Hello,
    Evaluate,
    /// It goes on in another form than it came in.
    Convert,
}

/// Replies that must be here whole, and the form the client is to get them in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    Hello(Option<Compressor>),
    /// To a step of a login; it may say that the client is logged in.
    Login,
    Convert(Option<Compressor>),
}

/// What is asked and told when a client's frame begins.
pub(super) struct Requests<'r, P> {
    pub(super) rules: &'r P,
    pub(super) session: &'r mut Session,
    pub(super) pending: &'r mut PendingReplies,
    pub(super) negotiation: &'r Negotiation,
    pub(super) transactions: &'r Transactions,
    pub(super) meter: &'r Meter,
}

impl<P: Interceptor> Requests<'_, P> {
    /// Sorts a client's frame, of which `head` is here; a reply that will stream through is pending from now on.
    ///
    /// # Errors
    /// [`ClientFault`]: the connection is at its end.
    pub(super) fn sort(&mut self, header: &Header, head: &[u8]) -> Result<Class<Request>, ClientFault> {
        self.refuse_before_login(header)?;
        if header.op_code == OpCode::Compressed {
            return self.sort_compressed(header, head);
        }
        let triage = self.rules.triage(head, &self.session.listener_kind);
        // Triage tells about every whole frame; should it not, the frame is evaluated, never waved through.
        if triage == Triage::More && head.len() < header.length {
            return Ok(Class::More);
        }
        if triage == Triage::Evaluate && is_tls(head) {
            return Err(ClientFault::Tls);
        }
        self.act(triage, header, head, None)
    }

    fn refuse_before_login(&self, header: &Header) -> Result<(), ClientFault> {
        if self.session.must_log_in && header.length > MAX_LENGTH_BEFORE_LOGIN {
            return Err(ClientFault::TooLongBeforeLogin { length: header.length, limit: MAX_LENGTH_BEFORE_LOGIN });
        }
        Ok(())
    }

    /// What cannot be read, or was not agreed on, is refused where messages are evaluated.
    fn sort_compressed(&mut self, header: &Header, head: &[u8]) -> Result<Class<Request>, ClientFault> {
        let envelope = match Envelope::parse(head) {
            Ok(Some(envelope)) if self.negotiation.is_agreed_with_client(envelope.compressor) => envelope,
            Ok(None) if head.len() < header.length => return Ok(Class::More),
            _ => return Ok(Class::Whole(Request::Evaluate)),
        };
        self.refuse_before_login(&envelope.header)?;
        if head.len() < header.length.min(peek_length(envelope.compressor, TRIAGED)) {
            return Ok(Class::More);
        }
        match peek(head, Depth::Checked(TRIAGED)) {
            Ok(inner) => {
                let triage = self.rules.triage(&inner, &self.session.listener_kind);
                self.act(triage, &envelope.header, &inner, Some(envelope.compressor))
            }
            Err(_) => Ok(Class::Whole(Request::Evaluate)),
        }
    }

    /// `header` and `head` are those of the message as it is without compression.
    fn act(
        &mut self,
        triage: Triage,
        header: &Header,
        head: &[u8],
        came: Option<Compressor>,
    ) -> Result<Class<Request>, ClientFault> {
        // The server refuses the transactions of a client that must still log in: a drain waits for none of them.
        if !self.session.must_log_in {
            self.transactions.note(head);
        }
        self.pending.command = self.meter.command(header, head);
        self.pending.span = self.meter.open_forwarded(head);
        if let Triage::Authenticate { .. } = triage {
            self.session.forget_users();
        }
        match triage {
            Triage::Forward { expects_reply } | Triage::Authenticate { expects_reply } => {
                let goes = self.negotiation.for_upstream(came).map(|method| method.compressor);
                if goes != came && (came.is_some() || may_be_packed(header, head)) {
                    return Ok(Class::Whole(Request::Convert));
                }
                if expects_reply {
                    let logs_in = self.session.must_log_in && matches!(triage, Triage::Authenticate { .. });
                    self.pending
                        .push(header.request_id, if logs_in { ReplyAction::Login } else { ReplyAction::Forward });
                }
                Ok(Class::Stream)
            }
            Triage::Hello if header.length > MAX_HELLO_LENGTH => Err(ClientFault::HelloTooLong(header.length)),
            Triage::Hello => Ok(Class::Whole(Request::Hello)),
            Triage::Evaluate | Triage::More => Ok(Class::Whole(Request::Evaluate)),
        }
    }
}

/// A ClientHello: as a message it would have a length of 33 MB and an opcode that does not exist.
fn is_tls(head: &[u8]) -> bool {
    const HANDSHAKE_OF_TLS_1: [u8; 2] = [0x16, 3];
    head.starts_with(&HANDSHAKE_OF_TLS_1)
        && Header::parse(head)
            .is_ok_and(|header| header.is_none_or(|header| matches!(header.op_code, OpCode::Unknown(_))))
}

/// Whether a plain message is compressed on its way.
pub(super) fn may_be_packed(header: &Header, head: &[u8]) -> bool {
    let first = head.get(FIRST_FIELD_AT..).and_then(|body| document::peek(body).next());
    header.op_code == OpCode::Msg
        && header.length <= MAX_PACKED_LENGTH
        && !first.is_some_and(|first| is_never_compressed(first.key))
}

/// Sorts the upstream's reply, of which `head` is here.
///
/// # Errors
/// [`UpstreamFault`]: the connection is at its end.
pub(super) fn sort_reply(
    pending: &mut PendingReplies,
    header: &Header,
    head: &[u8],
) -> Result<Class<Reply>, UpstreamFault> {
    let compressed = header.op_code == OpCode::Compressed;
    let came = match compressed.then(|| Envelope::parse(head)).transpose()? {
        None => None,
        Some(Some(envelope)) => Some(envelope),
        Some(None) => return Ok(Class::More),
    };
    let enough = came.map_or(HEADER_LENGTH + FLAGS_LENGTH, |came| peek_length(came.compressor, FLAGS_LENGTH));
    if head.len() < enough.min(header.length) {
        return Ok(Class::More);
    }
    let another_follows = match came {
        None => more_to_come(header, head),
        Some(came) => more_to_come(&came.header, &peek(head, Depth::UpTo(FLAGS_LENGTH))?),
    };
    let came = came.map(|came| came.compressor);
    Ok(match pending.answer(header, another_follows)? {
        ReplyAction::Hello(_) if header.length > MAX_HELLO_LENGTH => {
            return Err(UpstreamFault::HelloTooLong(header.length));
        }
        ReplyAction::Hello(goes) => Class::Whole(Reply::Hello(goes)),
        ReplyAction::Login if header.length <= MAX_HELLO_LENGTH => Class::Whole(Reply::Login),
        ReplyAction::Convert(goes) if goes != came && (came.is_some() || header.length <= MAX_PACKED_LENGTH) => {
            Class::Whole(Reply::Convert(goes))
        }
        ReplyAction::Convert(_) | ReplyAction::Login | ReplyAction::Forward => Class::Stream,
    })
}
