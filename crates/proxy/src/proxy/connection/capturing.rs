//! Records commands and their replies while a capture runs. A command is recorded as the client sent it, before any
//! rule. Its reply is collected before the client gets it, because the id of a cursor is at its end.

use std::sync::Arc;
use std::time::Instant;

use crate::audit::ReplySummary;
use crate::audit::capture::{CapturedClient, outline, record, reply_record};
use crate::command::{CommandClass, classify};
use crate::document::Document;
use crate::engine::{ClientState, Step, command_of_frame};
use crate::proxy::connection::end::End;
use crate::proxy::connection::in_progress::MessageInProgress;
use crate::proxy::connection::packing::cursor_id;
use crate::proxy::connection::planner::{now, offload};
use crate::proxy::interceptor::Interceptor;
use crate::proxy::recording::Sink;
use crate::proxy::transport::socket::{ClientSocket, ServerSocket};
use crate::wire::Header;
use crate::wire::op_msg::{EXHAUST_ALLOWED, Message};

/// Bytes of the fields around a command in its record.
const FIELDS: usize = 1024;

/// A command that was recorded, and whose reply is to be.
pub(super) struct PendingRecord {
    sink: Arc<Sink>,
    connection: i64,
    /// Milliseconds since 1970 UTC.
    arrived: i64,
    began: Instant,
}

/// The sender of a command; owned, because another thread may make the record.
struct Sender {
    connection: i64,
    client: Box<str>,
    app: Option<String>,
    users: Option<Vec<(String, String)>>,
}

impl<C, U, P> MessageInProgress<'_, C, U, P>
where
    C: ClientSocket,
    U: ServerSocket,
    P: Interceptor,
{
    /// Records a message if a capture runs that selects it. Returns the message too.
    pub(super) async fn record(&mut self, frame: Vec<u8>) -> Result<(Option<PendingRecord>, Vec<u8>), End> {
        let Some(sink) = self.relay.listener_context.process.traffic.captures.sink() else { return Ok((None, frame)) };
        if !name_of(&frame).is_some_and(|name| sink.selects(name, self.relay.client.state.app_name())) {
            return Ok((None, frame));
        }
        if self.relay.client.state.users.is_none() {
            let request_id = Header::of_frame(&frame).map_or(0, |header| header.request_id);
            self.ask_users(request_id).await?;
        }
        let sender = Sender::from_state(&self.relay.client.state);
        let arrived = now().milliseconds;
        let recorded =
            PendingRecord { sink: sink.clone(), connection: sender.connection, arrived, began: Instant::now() };
        let length = frame.len();
        let recording = move || (sink.offer(true, length + FIELDS, || sender.record(&frame, arrived)), frame);
        let (is_recorded, frame) = offload(length, recording).await?;
        Ok((is_recorded.then_some(recorded), frame))
    }

    /// Records the reply to a recorded command. If the plan's last step forwards the command, sends it and waits for the
    /// reply, which is then the last step.
    pub(super) async fn record_reply(
        &mut self,
        recorded: Option<PendingRecord>,
        last: Step,
        frame: &[u8],
    ) -> Result<Step, End> {
        let Some(recorded) = recorded else { return Ok(last) };
        let reply = match last {
            Step::ForwardOriginal { expects_reply: true } if has_one_reply(frame) => {
                self.exchange(frame.to_vec()).await?
            }
            Step::Forward { message, expects_reply: true } if has_one_reply(&message) => self.exchange(message).await?,
            Step::Reply(reply) => {
                recorded.reply(&reply);
                return Ok(Step::Reply(reply));
            }
            other => return Ok(other),
        };
        if let Some(pooling) = &mut self.relay.pooling
            && let Some(why) = pooling.takes_cursor()
            && let Some(cursor) = cursor_id(&reply)
        {
            pooling.note_cursor(cursor, why);
        }
        recorded.reply(&reply);
        Ok(Step::Reply(reply))
    }
}

impl PendingRecord {
    fn reply(&self, reply: &[u8]) {
        let took = self.began.elapsed();
        let summarized = || {
            let arrived = self.arrived.saturating_add(i64::try_from(took.as_millis()).unwrap_or(i64::MAX));
            let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            Some(reply_record(self.connection, arrived, microseconds, &ReplySummary::of_reply(reply)?))
        };
        self.sink.offer(false, FIELDS, summarized);
    }
}

impl Sender {
    fn from_state(state: &ClientState) -> Self {
        // A random number for each connection.
        let [a, b, c, d, e, f, g, h, ..] = state.own.id;
        let connection = i64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let app = state.app_name().map(str::to_owned);
        Self { connection, client: state.client.clone(), app, users: state.users.clone() }
    }

    fn record(&self, frame: &[u8], milliseconds: i64) -> Option<Vec<u8>> {
        let command = command_of_frame(frame)?;
        let command = match classify(command.as_document().first()?.key) {
            CommandClass::Unknown => outline(command.as_document()),
            _ => command,
        };
        let Self { connection, client, app, users } = self;
        let sender = CapturedClient {
            connection: *connection,
            client,
            app: app.as_deref(),
            users: users.as_deref(),
            milliseconds,
        };
        Some(record(&sender, command.as_document()))
    }
}

/// The name of the command in a message.
fn name_of(frame: &[u8]) -> Option<&[u8]> {
    Document::parse(Message::parse(frame).ok()?.body).ok()?.first().map(|first| first.key)
}

/// Whether a request has a single reply: an exhaust cursor answers one request with many.
fn has_one_reply(frame: &[u8]) -> bool {
    Message::parse(frame).is_ok_and(|message| message.flags & EXHAUST_ALLOWED == 0)
}
