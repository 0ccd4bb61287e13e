//! The client's side of a connection: its socket, what its hello reported, and what it has sent so far.

use std::net::IpAddr;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::engine::{ClientState, has_logged_in};
use crate::proxy::connection::conversion::Conversion;
use crate::proxy::connection::end::End;
use crate::proxy::connection::framing::Request;
use crate::proxy::connection::timeouts::Unauthenticated;
use crate::proxy::connection::write_buffer::{READ_LENGTH, WriteBuffer, poll_read, with_read_buffer};
use crate::proxy::process::connection_table::Registration;
use crate::proxy::telemetry::meter::{Meter, Side};
use crate::proxy::telemetry::slowest::StatementSender;
use crate::wire::splitter::Splitter;

/// The state of the handshake, from the client's hellos.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::proxy) struct HandshakeState {
    /// It is the connection of a driver's monitor: its last hello awaits a topology change, or it sends only hellos.
    pub(in crate::proxy) watched: bool,
    /// Its last hello may be answered more than once.
    pub(in crate::proxy) streams: bool,
    /// The client has sent a hello.
    hello_sent: bool,
    /// The client has sent a message other than a hello.
    pub(in crate::proxy) commands_sent: bool,
    /// Number of its hellos; wraps.
    hellos: u8,
}

impl HandshakeState {
    /// Records a hello: whether it awaits a topology change, and whether it may be answered more than once.
    pub(in crate::proxy) fn note_hello(&mut self, awaits_change: bool, streams: bool) {
        // A driver measures round trips on a separate connection, so often that it would never be idle. It counts as a
        // monitor's too.
        self.watched = awaits_change || self.hello_sent && !self.commands_sent;
        self.streams = streams;
        self.hello_sent = true;
        self.hellos = self.hellos.wrapping_add(1);
    }
}

/// The client's side of a connection.
#[derive(Debug)]
pub(in crate::proxy) struct ClientHalf<C> {
    pub(in crate::proxy) stream: C,
    /// The address the client connected to.
    pub(in crate::proxy) local: IpAddr,
    pub(in crate::proxy) state: ClientState,
    pub(in crate::proxy) handshake: HandshakeState,
    pub(in crate::proxy) requests: Splitter<Request>,
    /// `None` while there is no data.
    pub(in crate::proxy) unread: Option<Box<ReadBuffer>>,
    /// Bytes for the client that its socket has not taken yet.
    pub(in crate::proxy) out: WriteBuffer,
    /// A large reply that is collected, converted or sent.
    pub(in crate::proxy) conversion: Option<Box<Conversion>>,
    /// Its entry in the table of open connections.
    pub(in crate::proxy) registration: Option<Box<Registration>>,
}

/// Bytes that were read from the client and not yet processed.
#[derive(Debug)]
pub(in crate::proxy) struct ReadBuffer {
    pub(in crate::proxy) bytes: Vec<u8>,
    /// Bytes processed already. `0 .. bytes.len()`.
    pub(in crate::proxy) at: usize,
}

/// Whether reading ahead has found something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum ReadAhead {
    Read,
    /// The client has sent nothing; the task is registered to be woken when it does.
    Nothing,
    /// Enough is unread already.
    Full,
}

impl<C: AsyncRead + AsyncWrite + Unpin> ClientHalf<C> {
    pub(in crate::proxy) fn new(stream: C, local: IpAddr, state: ClientState) -> Self {
        Self {
            stream,
            local,
            state,
            handshake: HandshakeState::default(),
            requests: Splitter::default(),
            unread: None,
            out: WriteBuffer::default(),
            conversion: None,
            registration: None,
        }
    }

    /// Sends bytes to the client, or buffers them.
    pub(in crate::proxy) fn send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<(), End> {
        self.out.send(cx, &mut self.stream, bytes).map_err(End::ClientError)
    }

    /// Sends what is buffered.
    pub(in crate::proxy) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        self.out.poll_flush(cx, &mut self.stream).map_err(End::ClientError)
    }

    /// Whether the client's socket has taken every reply that came.
    pub(in crate::proxy) fn has_sent_all(&self) -> bool {
        self.out.is_empty() && !self.is_converting()
    }

    /// Whether a large reply is converted.
    pub(in crate::proxy) fn is_converting(&self) -> bool {
        self.conversion.as_ref().is_some_and(|conversion| conversion.is_under_way())
    }

    /// The state of a client that must still log in; `None`: no login is required.
    pub(in crate::proxy) fn unauthenticated_slot(&self) -> Option<Unauthenticated> {
        self.state.must_log_in.then(|| Unauthenticated {
            commands_sent: self.handshake.commands_sent,
            within_message: !self.requests.between_frames(),
            hellos: self.handshake.hellos,
        })
    }

    /// Keeps bytes until the messages before them are done.
    pub(in crate::proxy) fn keep_unread(&mut self, bytes: &[u8]) {
        match &mut self.unread {
            _ if bytes.is_empty() => {}
            Some(unread) => {
                unread.bytes.drain(..std::mem::take(&mut unread.at));
                unread.bytes.extend_from_slice(bytes);
            }
            none => *none = Some(Box::new(ReadBuffer { bytes: bytes.to_vec(), at: 0 })),
        }
    }

    /// Reads the client while its messages must wait, only to notice when it closes. It is bounded: the close of a
    /// client that keeps sending is noticed later, when its messages are processed.
    pub(in crate::proxy) fn read_ahead(&mut self, cx: &mut Context<'_>, meter: &Meter) -> Result<ReadAhead, End> {
        if self.unread.as_ref().is_some_and(|unread| unread.bytes.len() - unread.at >= READ_LENGTH) {
            return Ok(ReadAhead::Full);
        }
        with_read_buffer(|buffer| match poll_read(cx, &mut self.stream, buffer) {
            Poll::Pending => Ok(ReadAhead::Nothing),
            Poll::Ready(Err(error)) => Err(End::ClientError(error)),
            Poll::Ready(Ok([])) => Err(End::ClientClosed),
            Poll::Ready(Ok(read)) => {
                meter.count_read(Side::Client, read.len());
                self.count_read(Side::Client, read.len());
                self.keep_unread(read);
                Ok(ReadAhead::Read)
            }
        })
    }

    /// Counts bytes that were read from this side.
    pub(in crate::proxy) fn count_read(&self, side: Side, bytes: usize) {
        if let Some(registration) = &self.registration {
            registration.count_read(side, bytes);
        }
    }

    /// Updates its entry in the table of open connections, after its application or users have become known.
    pub(in crate::proxy) fn note_identity(&self) {
        if let Some(registration) = &self.registration {
            registration.note_client(&self.state);
        }
    }

    /// Whether an operator has seen it in the list of connections.
    pub(in crate::proxy) fn is_listed(&self) -> bool {
        self.registration.as_ref().is_some_and(|registration| registration.is_listed())
    }

    /// Who sent the latest request, if statements are measured.
    pub(in crate::proxy) fn sender(&self) -> Option<StatementSender<'_>> {
        Some(StatementSender { latest: &self.registration.as_ref()?.latest, client: &self.state })
    }

    /// Ready when an operator closes the connection.
    pub(in crate::proxy) fn poll_closing(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.registration.as_ref().map_or(Poll::Pending, |registration| registration.poll_closing(cx))
    }

    /// Whether an operator closes the connection.
    pub(in crate::proxy) fn is_closing(&self) -> bool {
        self.registration.as_ref().is_some_and(|registration| registration.is_closing())
    }

    /// Records whether the reply completes the login.
    pub(in crate::proxy) fn note_login(&mut self, reply: &[u8]) {
        if self.state.must_log_in && has_logged_in(reply) {
            self.state.must_log_in = false;
        }
    }
}
