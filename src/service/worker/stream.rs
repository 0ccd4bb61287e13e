//! Follows the changes of one collection: a change stream, and the resume token up to which its changes are processed.
//!
//! Tokens are stored after the changes before them are processed, so a change may be processed twice but is never lost.

use std::convert::Infallible;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use bson::{Bson, Document as Query, RawDocumentBuf, Timestamp};
use mongodb::Client;
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ResumeToken;
use mongodb::error::ErrorKind;
use mongodb::options::{ChangeStreamOptions, ReadPreference, SelectionCriteria};
use tokio::time::Instant;

use super::{Stop, Turn, is_passing};
use crate::document::{Document, Value};
use crate::patterns::Collection;

/// Unauthorized and AuthenticationFailed, which do not depend on the token.
const DENIED: [i32; 2] = [13, 18];

/// What a task does with changes.
pub(in crate::service) trait Changes {
    /// How often the token of a stream without changes is stored: it must not become older than the oplog.
    const STORE_AGAIN: Duration;

    /// Adds a change of a document.
    ///
    /// # Errors
    /// The change cannot be read.
    fn add(&mut self, change: &Change<'_>) -> Result<(), Stop>;

    /// Whether the added changes should be processed before more are added.
    fn is_full(&self) -> bool;

    /// Processes the added changes.
    fn process(&mut self) -> impl Future<Output = Result<(), Stop>> + Send;

    /// The collection was dropped or renamed; all changes before are processed.
    fn end(&mut self, ended: &Change<'_>) -> impl Future<Output = Result<(), Stop>> + Send {
        let _ = ended;
        async { Ok(()) }
    }
}

/// One change event.
pub(in crate::service) struct Change<'c> {
    pub(in crate::service) event: Document<'c>,
    /// "insert", "update", "replace", "delete", or what ended the collection.
    pub(in crate::service) operation: &'c str,
    pub(in crate::service) time: Timestamp,
    /// Unique among all changes of a collection, and larger than those of earlier changes.
    pub(in crate::service) position: Vec<u8>,
}

/// An open change stream of one collection.
pub(in crate::service) struct Stream {
    /// Its number among the streams of the task.
    number: usize,
    changes: ChangeStream<RawDocumentBuf>,
}

impl Stream {
    /// Opens the stream at the stored position, or at the current time.
    pub(in crate::service) async fn open(
        turn: Turn<'_>,
        number: usize,
        collection: &Collection,
        pipeline: Vec<Query>,
        mut options: ChangeStreamOptions,
    ) -> Result<Self, Stop> {
        let stored = turn.lease.token(number);
        let resumes = stored.is_some();
        let (time, token) = match stored {
            Some(Bson::Timestamp(time)) => (Some(time), None),
            token => (None, token),
        };
        let token: Option<ResumeToken> = token
            .map(bson::deserialize_from_bson)
            .transpose()
            .map_err(|error| Stop::HistoryLost(format!("the stored token cannot be read: {error}")))?;
        options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        options.start_at_operation_time = time;
        options.resume_after = token;
        let documents =
            Client::database(turn.client, &collection.database).collection::<RawDocumentBuf>(&collection.name);
        let changes = documents.watch().pipeline(pipeline).with_options(options).await.map_err(|error| {
            match &*error.kind {
                // Other errors of the token show when a stream is opened without it.
                ErrorKind::Command(command) if resumes && !is_passing(&error) && !DENIED.contains(&command.code) => {
                    Stop::HistoryLost(error.kind.to_string())
                }
                _ => error.into(),
            }
        })?;
        Ok(Self { number, changes: changes.with_type() })
    }

    /// The position at which the stream began, if known before its first change.
    pub(in crate::service) fn beginning(&self) -> Result<Option<Bson>, Stop> {
        self.changes.resume_token().as_ref().map(to_bson).transpose()
    }

    /// Processes changes as they arrive.
    pub(in crate::service) async fn follow<C: Changes>(
        mut self,
        turn: Turn<'_>,
        mut processor: C,
    ) -> Result<Infallible, Stop> {
        let mut pending = Pending::default();
        let mut idle_since = None;
        loop {
            let found = {
                let mut next = pin!(self.changes.next_if_any());
                // Processes together what the server sent together, while the next batch is requested.
                match futures_util::poll!(&mut next) {
                    Poll::Ready(found) => found,
                    Poll::Pending => {
                        pending.process(self.number, turn, &mut processor).await?;
                        next.await
                    }
                }
            }?;
            match found {
                Some(event) => {
                    let change = Change::read(&event)?;
                    if !["insert", "update", "replace", "delete"].contains(&change.operation) {
                        // Earlier changes are not sent again.
                        pending.process(self.number, turn, &mut processor).await?;
                        processor.end(&change).await?;
                        let Timestamp { time, increment } = change.time;
                        let next = Timestamp { time, increment: increment.saturating_add(1) };
                        let why = format!("a {} of a collection", change.operation);
                        return Err(Stop::Ended { stream: self.number, next, why });
                    }
                    processor.add(&change)?;
                    pending.add(&event, change.time)?;
                }
                None if !self.changes.is_alive() => {
                    return Err(Stop::HistoryLost("the change stream has ended".to_owned()));
                }
                None if pending.changes == 0 => {
                    turn.progress.processed(self.number, SystemTime::now());
                    if idle_since.is_none_or(|since: Instant| since.elapsed() > C::STORE_AGAIN) {
                        if let Some(token) = self.changes.resume_token() {
                            turn.lease.store_token(self.number, to_bson(&token)?).await?;
                        }
                        idle_since = Some(Instant::now());
                    }
                }
                None => {}
            }
            if processor.is_full() {
                pending.process(self.number, turn, &mut processor).await?;
            }
        }
    }
}

/// The changes that were added and are not processed yet.
#[derive(Default)]
struct Pending {
    changes: usize,
    /// The token and the time of the last one.
    last: Option<(Bson, Timestamp)>,
}

impl Pending {
    fn add(&mut self, event: &RawDocumentBuf, time: Timestamp) -> Result<(), Stop> {
        let token = event.get("_id").ok().flatten().ok_or_else(unreadable)?;
        self.last = Some((Bson::try_from(token).map_err(|_| unreadable())?, time));
        self.changes += 1;
        Ok(())
    }

    async fn process(&mut self, stream: usize, turn: Turn<'_>, processor: &mut impl Changes) -> Result<(), Stop> {
        let Self { changes, last } = std::mem::take(self);
        let Some((token, time)) = last else { return Ok(()) };
        processor.process().await?;
        turn.progress.add_changes(changes);
        turn.progress.processed(stream, SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(time.time)));
        turn.lease.store_token(stream, token).await
    }
}

impl<'c> Change<'c> {
    fn read(event: &'c RawDocumentBuf) -> Result<Self, Stop> {
        let time = event.get_timestamp("clusterTime").map_err(|_| unreadable())?;
        let event = Document::parse(event.as_bytes()).map_err(|_| unreadable())?;
        let operation = event.get("operationType").and_then(Value::as_str).ok_or_else(unreadable)?;
        let token = event.get("_id").and_then(Value::as_document).and_then(|token| token.get("_data"));
        let position = token.and_then(Value::as_str).and_then(decode).ok_or_else(unreadable)?;
        Ok(Self { event, operation, time, position })
    }
}

pub(in crate::service) fn unreadable() -> Stop {
    Stop::Failed("a change cannot be read".to_owned())
}

fn to_bson(token: &ResumeToken) -> Result<Bson, Stop> {
    bson::serialize_to_bson(token).map_err(|error| Stop::Failed(format!("a resume token cannot be stored: {error}")))
}

/// Decodes hexadecimal digits.
fn decode(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    let pairs = digits.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

/// The cluster time of a stored position: a time, or a resume token.
pub(in crate::service) fn time_of(position: &Bson) -> Option<Timestamp> {
    match position {
        Bson::Timestamp(time) => Some(*time),
        Bson::Document(token) => time_of_token(&decode(token.get_str("_data").ok()?)?),
        _ => None,
    }
}

/// The cluster time of a token's data, which begins with it: as a type and eight bytes, so that tokens sort by time
/// (`src/mongo/db/pipeline/resume_token.h` in the server).
pub(in crate::service) fn time_of_token(data: &[u8]) -> Option<Timestamp> {
    const TIMESTAMP: u8 = 0x82;
    let (kind, data) = data.split_first()?;
    let number = |at: usize| Some(u32::from_be_bytes(*data.get(at..)?.first_chunk()?));
    (*kind == TIMESTAMP).then_some(())?;
    Some(Timestamp { time: number(0)?, increment: number(4)? })
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn the_time_of_a_token_is_its_beginning() {
        let token = doc! {"_data": "826922F2E0000000052B0229296E04"};
        let time = Timestamp { time: 0x6922_F2E0, increment: 5 };
        assert_eq!(time_of(&token.into()), Some(time));
        assert_eq!(time_of(&Bson::Timestamp(time)), Some(time));
        for other in [doc! {"_data": "82"}, doc! {"_data": "8"}, doc! {"_data": "xx"}, doc! {}] {
            assert_eq!(time_of(&other.into()), None);
        }
    }

    #[test]
    fn positions_are_bytes() {
        assert_eq!(decode("82ff0A"), Some(vec![0x82, 0xff, 0x0a]));
        assert_eq!(decode("8"), None);
        assert_eq!(decode("+1"), None);
    }
}
