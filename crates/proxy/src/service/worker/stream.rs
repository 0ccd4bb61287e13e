//! Follows the changes of one collection: a change stream, and the resume token up to which its changes are processed.
//!
//! Tokens are stored after the changes before them are processed, so a change may be processed twice but is never lost.

use std::convert::Infallible;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bson::{Bson, Document as Query, RawDocumentBuf, Timestamp};
use mongodb::Client;
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ResumeToken;
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{ChangeStreamOptions, ReadConcern, ReadPreference, SelectionCriteria};
use tokio::time::{Instant, sleep};

use super::stop::Stop;
use super::task::WorkerContext;
use crate::document::{Document, Value};
use crate::patterns::Collection;
use crate::service::error_kind::is_passing;

/// Unauthorized and AuthenticationFailed, which do not depend on the position.
const DENIED: [i32; 2] = [13, 18];
/// An event is larger than the server can send.
const TOO_LARGE: i32 = 10334;
/// How often a stream is opened at a position that the server rejects with an error of unknown meaning. Giving up the
/// position cannot be undone.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// What a task does with changes.
pub(in crate::service) trait ChangeHandler {
    /// How often the token of a stream without changes is stored: it must not become older than the oplog.
    const STORE_AGAIN: Duration;

    /// Adds a change of a document.
    ///
    /// # Errors
    /// The change cannot be read.
    fn add(&mut self, change: &ChangeEvent<'_>) -> Result<(), Stop>;

    /// Whether the added changes should be processed before more are added.
    fn is_full(&self) -> bool;

    /// Processes the added changes.
    fn process(&mut self) -> impl Future<Output = Result<(), Stop>> + Send;

    /// The collection was created or its options changed; all changes before are processed. Only streams with
    /// `show_expanded_events` report it.
    fn altered(&mut self) -> impl Future<Output = Result<(), Stop>> + Send {
        async { Ok(()) }
    }

    /// The collection was dropped or renamed; all changes before are processed.
    fn end(&mut self, ended: &ChangeEvent<'_>) -> impl Future<Output = Result<(), Stop>> + Send {
        let _ = ended;
        async { Ok(()) }
    }
}

/// One change event.
pub(in crate::service) struct ChangeEvent<'c> {
    pub(in crate::service) event: Document<'c>,
    /// "insert", "update", "replace", "delete", or what ended the collection.
    pub(in crate::service) operation: &'c str,
    pub(in crate::service) time: Timestamp,
    /// Unique among all changes of a document, and larger than those of earlier changes.
    pub(in crate::service) position: Vec<u8>,
}

/// An open change stream of one collection.
pub(in crate::service) struct CollectionStream {
    /// Its number among the streams of the task.
    number: usize,
    changes: ChangeStream<RawDocumentBuf>,
}

impl CollectionStream {
    /// Opens the stream of this number at a stored position, or at the current time.
    pub(in crate::service) async fn open(
        client: &Client,
        number: usize,
        position: Option<Bson>,
        collection: &Collection,
        pipeline: Vec<Query>,
        mut options: ChangeStreamOptions,
    ) -> Result<Self, Stop> {
        let resumes = position.is_some();
        let (time, token) = match position {
            Some(Bson::Timestamp(time)) => (Some(time), None),
            token => (None, token),
        };
        let token: Option<ResumeToken> = token
            .map(bson::deserialize_from_bson)
            .transpose()
            .map_err(|error| lost(number, format!("the stored token cannot be read: {error}")))?;
        options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        options.read_concern = Some(ReadConcern::majority());
        options.start_at_operation_time = time;
        options.resume_after = token;
        let documents = client.database(&collection.database).collection::<RawDocumentBuf>(&collection.name);
        let open = |options| documents.watch().pipeline(pipeline.clone()).with_options(options);
        let mut attempts = 0;
        loop {
            let error = match open(options.clone()).await {
                Ok(changes) => return Ok(Self { number, changes: changes.with_type() }),
                Err(error) => error,
            };
            if !resumes || !may_be_the_position(&error) {
                return Err(stopped(number, error));
            }
            attempts += 1;
            if attempts == ATTEMPTS {
                options.start_at_operation_time = None;
                options.resume_after = None;
                return Err(match open(options).await {
                    Ok(_) => lost(number, error.kind.to_string()),
                    Err(other) => other.into(),
                });
            }
            sleep(PAUSE).await;
        }
    }

    /// The position at which the stream began, if known before its first change.
    pub(in crate::service) fn beginning(&self) -> Result<Option<Bson>, Stop> {
        self.changes.resume_token().as_ref().map(to_bson).transpose()
    }

    /// Processes changes as they arrive.
    pub(in crate::service) async fn follow<C: ChangeHandler>(
        mut self,
        context: WorkerContext<'_>,
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
                        pending.process(self.number, context, &mut processor).await?;
                        next.await
                    }
                }
            }
            .map_err(|error| stopped(self.number, error))?;
            match found {
                Some(event) => {
                    let change = ChangeEvent::parse_event(&event)?;
                    match change.operation {
                        "insert" | "update" | "replace" | "delete" => {
                            processor.add(&change)?;
                            pending.add(&event, change.time)?;
                        }
                        "drop" | "rename" | "dropDatabase" | "invalidate" => {
                            // Earlier changes are not sent again.
                            pending.process(self.number, context, &mut processor).await?;
                            processor.end(&change).await?;
                            let Timestamp { time, increment } = change.time;
                            let next = Timestamp { time, increment: increment.saturating_add(1) };
                            let why = format!("a {} of a collection", change.operation);
                            return Err(Stop::Ended { stream: self.number, next, why });
                        }
                        _ => {
                            pending.process(self.number, context, &mut processor).await?;
                            processor.altered().await?;
                        }
                    }
                }
                None if !self.changes.is_alive() => {
                    return Err(lost(self.number, "the change stream has ended".to_owned()));
                }
                None if pending.changes == 0 => {
                    context.progress.caught_up(self.number);
                    if idle_since.is_none_or(|since: Instant| since.elapsed() > C::STORE_AGAIN) {
                        if let Some(token) = self.changes.resume_token() {
                            context.lease.store_token(self.number, to_bson(&token)?).await?;
                        }
                        idle_since = Some(Instant::now());
                    }
                }
                None => {}
            }
            if processor.is_full() {
                pending.process(self.number, context, &mut processor).await?;
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

    async fn process(
        &mut self,
        stream: usize,
        context: WorkerContext<'_>,
        processor: &mut impl ChangeHandler,
    ) -> Result<(), Stop> {
        let Self { changes, last } = std::mem::take(self);
        let Some((token, time)) = last else { return Ok(()) };
        processor.process().await?;
        context.progress.add_changes(changes);
        context.progress.processed(stream, 1000 * u64::from(time.time));
        context.lease.store_token(stream, token).await
    }
}

impl<'c> ChangeEvent<'c> {
    fn parse_event(event: &'c RawDocumentBuf) -> Result<Self, Stop> {
        let time = event.get_timestamp("clusterTime").map_err(|_| unreadable())?;
        let event = Document::parse(event.as_bytes()).map_err(|_| unreadable())?;
        let operation = event.get("operationType").and_then(Value::as_str).ok_or_else(unreadable)?;
        let token = event.get("_id").and_then(Value::as_document).and_then(|token| token.get("_data"));
        let token = token.and_then(Value::as_str).and_then(decode).ok_or_else(unreadable)?;
        let position = position(&token).unwrap_or(token);
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

/// Whether the server may have rejected the position of a stream.
fn may_be_the_position(error: &Error) -> bool {
    let ErrorKind::Command(command) = &*error.kind else { return false };
    why_lost(error).is_none() && !is_passing(error) && !DENIED.contains(&command.code)
}

fn lost(stream: usize, why: String) -> Stop {
    Stop::HistoryLost { stream, why }
}

fn stopped(stream: usize, error: Error) -> Stop {
    match why_lost(&error) {
        Some(why) => lost(stream, why),
        None => error.into(),
    }
}

/// Returns why the changes since a stream's position are not available, if that is the error.
fn why_lost(error: &Error) -> Option<String> {
    /// CappedPositionLost, InvalidResumeToken, ChangeStreamFatalError, ChangeStreamHistoryLost.
    const HISTORY_LOST: [i32; 4] = [136, 260, 280, 286];
    let ErrorKind::Command(command) = &*error.kind else { return None };
    match command.code {
        TOO_LARGE => {
            Some(format!("the server cannot report a change, because the document's _id is too large: {}", error.kind))
        }
        code => HISTORY_LOST.contains(&code).then(|| error.kind.to_string()),
    }
}

/// The part of a token's data that identifies the change of a document: the cluster time, the kind of token, and the
/// position in a transaction. Members of different releases write different versions into tokens of one change.
fn position(token: &[u8]) -> Option<Vec<u8>> {
    let (time, rest) = token.split_at_checked(9)?;
    let kind_and_number = after_number(rest)?;
    let rest = after_number(after_number(kind_and_number)?)?;
    Some([time, kind_and_number.strip_suffix(rest)?].concat())
}

/// The bytes after a whole number that is not negative (`src/mongo/db/storage/key_string.cpp` in the server).
fn after_number(data: &[u8]) -> Option<&[u8]> {
    const ZERO: u8 = 0x29;
    const LONGEST: u8 = ZERO + 9;
    let (kind, data) = data.split_first()?;
    match *kind {
        ZERO => Some(data),
        // 0x2a begins fractions; the next ones are integers of one to eight bytes.
        0x2b..=LONGEST => data.get(usize::from(*kind - 0x2a)..),
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
    fn a_change_has_the_same_position_in_tokens_of_all_versions() {
        let uuid = "5A1004B2F4D7E0A5C94C6F8F1F3C0A6D2E7B91";
        let token = |version: &str, kind: &str, number: &str, rest: &str| {
            position(&decode(&format!("826922F2E000000005{version}{kind}{number}{rest}")).unwrap()).unwrap()
        };
        let first = token("2B02", "2C0100", "29", &format!("{uuid}46645F696400290004"));
        assert_eq!(first, decode("826922F2E0000000052C010029").unwrap());
        assert_eq!(token("2B04", "2C0100", "29", &format!("6E{uuid}46645F696400290004")), first);
        assert_eq!(token("29", "2C0100", "29", "04"), first);
        let second = token("2B02", "2C0100", "2B02", "04");
        let later = token("2B02", "2C0100", "2C0200", "04");
        assert!(first < second && second < later, "{second:?}");
        assert_eq!(time_of_token(&first), Some(Timestamp { time: 0x6922_F2E0, increment: 5 }));
        for unknown in ["", "82", "826922F2E000000005", "826922F2E0000000053C", "826922F2E0000000052B"] {
            assert_eq!(position(&decode(unknown).unwrap()), None);
        }
    }

    #[test]
    fn positions_are_bytes() {
        assert_eq!(decode("82ff0A"), Some(vec![0x82, 0xff, 0x0a]));
        assert_eq!(decode("8"), None);
        assert_eq!(decode("+1"), None);
    }
}
