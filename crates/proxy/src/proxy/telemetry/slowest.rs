//! The statements that took longest in the last hour, for the admin address.
//!
//! A message costs one comparison; only a slow one is described. Of statements with one shape, collection and application
//! only the slowest is kept, so that one slow query does not hide the others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use crate::command::shape::shape;
use crate::command::{CommandName, WriteForm, classify};
use crate::document::{CowDocument, Document, Value, peek};
use crate::engine::{ClientState, RequestHead};
use crate::proxy::telemetry::moment::Moment;

/// The most statements.
const KEPT: usize = 20;
/// Faster statements are not kept, in nanoseconds.
const SLOW: u64 = 5_000_000;
/// How long a statement is kept, in nanoseconds.
const AGE: u64 = 3_600_000_000_000;
/// The bytes of a request that are kept until its reply.
const KEPT_COMMAND_BYTES: usize = 512;
/// Commands whose replies wait for something to happen.
const WAIT: [&str; 4] = ["hello", "isMaster", "ismaster", "getMore"];

/// A statement, and how long its client waited for the reply to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowStatement {
    /// When the reply began.
    pub at: SystemTime,
    /// From reading the request to sending the beginning of its reply, in nanoseconds.
    pub took: u64,
    /// Of it the time that docward waited for servers.
    pub upstream: u64,
    pub shape: String,
    /// `database.collection`, as far as the first bytes of the request contain it.
    pub namespace: String,
    pub app: Option<String>,
    /// `authDb.name` of every authenticated user; `None`: docward has not asked the server for them.
    pub users: Option<Vec<String>>,
    /// The client's address.
    pub client: String,
}

/// The first bytes of a connection's latest request.
#[derive(Debug, Default)]
pub(in crate::proxy) struct LatestRequest(Vec<u8>);

/// Who sent a statement, and what is remembered of it.
#[derive(Debug, Clone, Copy)]
pub(in crate::proxy) struct StatementSender<'s> {
    pub(in crate::proxy) latest: &'s LatestRequest,
    pub(in crate::proxy) client: &'s ClientState,
}

/// The slowest statements of all connections.
#[derive(Debug)]
pub(in crate::proxy) struct Slowest {
    /// A statement that took less is not among the slowest.
    least: AtomicU64,
    /// When `least` must be calculated again, because a statement becomes too old.
    until: AtomicU64,
    kept: Mutex<Vec<(u64, SlowStatement)>>,
}

impl LatestRequest {
    /// Remembers a request.
    pub(in crate::proxy) fn remember(&mut self, head: &RequestHead<'_>) {
        let body = head.body_and_rest();
        let body = body.get(..KEPT_COMMAND_BYTES).unwrap_or(body);
        self.0.clear();
        self.0.reserve_exact(body.len());
        self.0.extend_from_slice(body);
    }

    /// The shape and the namespace, as far as they are known.
    fn describe(&self, command: CommandName) -> (String, String) {
        let built = CowDocument::build(|w| {
            peek(&self.0).for_each(|element| w.element(element));
            if let Some((list, first)) = self.first_statement(command) {
                w.array(list, |a| a.value(Value::document(first)));
            }
        });
        // The bytes have not been checked before.
        let known = Document::parse(built.as_document().as_bytes()).ok().filter(|known| known.first().is_some());
        let Some(known) = known else {
            return (command.as_str().to_owned(), String::new());
        };
        let collection = known.first().and_then(|first| first.value.as_name());
        let database = known.get("$db").and_then(|name| name.as_str());
        let namespace = match (database, collection) {
            (Some(database), Some(collection)) => format!("{database}.{collection}"),
            (one, other) => one.or(other).unwrap_or_default().to_owned(),
        };
        (shape(known), namespace)
    }

    /// The first statement of a batch that follows the body, as drivers send it (OP_MSG, section kind 1).
    fn first_statement(&self, command: CommandName) -> Option<(&'static str, Document<'_>)> {
        let list = WriteForm::for_class(classify(command.as_str().as_bytes())).and_then(WriteForm::list)?;
        let length = i32::from_le_bytes(*self.0.first_chunk()?);
        let section = self.0.get(usize::try_from(length).ok()?..)?;
        let named = section.strip_prefix(&[1])?.get(4..)?;
        let first = named.strip_prefix(list.as_bytes())?.strip_prefix(&[0])?;
        let length = usize::try_from(i32::from_le_bytes(*first.first_chunk()?)).ok()?;
        Some((list, Document::parse(first.get(..length)?).ok()?))
    }
}

impl Slowest {
    pub(in crate::proxy) fn new() -> Self {
        Self { least: AtomicU64::new(SLOW), until: AtomicU64::new(u64::MAX), kept: Mutex::default() }
    }

    /// Whether a statement that took this long belongs to the slowest.
    #[inline]
    pub(in crate::proxy) fn admits(&self, took: u64, now: Moment) -> bool {
        took >= SLOW
            && (took >= self.least.load(Ordering::Relaxed) || now.nanoseconds() > self.until.load(Ordering::Relaxed))
    }

    /// Adds a statement that [`Self::admits`] admitted.
    pub(in crate::proxy) fn record(
        &self,
        now: Moment,
        (took, servers): (u64, u64),
        command: CommandName,
        StatementSender { latest, client }: StatementSender<'_>,
    ) {
        if WAIT.contains(&command.as_str()) {
            return;
        }
        let (shape, namespace) = latest.describe(command);
        let users = client.users.as_ref().map(|users| users.iter().map(|(at, name)| format!("{at}.{name}")).collect());
        let statement = SlowStatement {
            at: SystemTime::now(),
            took,
            upstream: servers,
            shape,
            namespace,
            app: client.app_name().map(str::to_owned),
            users,
            client: client.client.to_string(),
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now.nanoseconds();
        kept.retain(|(at, _)| now.saturating_sub(*at) < AGE);
        let same = |one: &SlowStatement| {
            (&one.shape, &one.namespace, &one.app) == (&statement.shape, &statement.namespace, &statement.app)
        };
        match kept.iter_mut().find(|(_, one)| same(one)) {
            Some((_, one)) if one.took >= took => {}
            Some(one) => *one = (now, statement),
            None => kept.push((now, statement)),
        }
        kept.sort_by_key(|(_, one)| std::cmp::Reverse(one.took));
        kept.truncate(KEPT);
        let least = kept.get(KEPT - 1).map_or(SLOW, |(_, one)| one.took);
        self.least.store(least, Ordering::Relaxed);
        let oldest = kept.iter().map(|(at, _)| *at).min();
        self.until.store(oldest.map_or(u64::MAX, |at| at.saturating_add(AGE)), Ordering::Relaxed);
    }

    /// The slowest statements of the last hour, the slowest first.
    pub(in crate::proxy) fn list(&self, now: Moment) -> Vec<SlowStatement> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = kept.iter().filter(|(at, _)| now.nanoseconds().saturating_sub(*at) < AGE);
        recent.map(|(_, one)| one.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;
    use crate::proxy::telemetry::meter::Meter;
    use crate::wire::op_msg;

    const MILLISECOND: u64 = 1_000_000;

    fn request(command: &bson::Document, statements: &[bson::Document]) -> (CommandName, LatestRequest) {
        let bytes = bson::RawDocumentBuf::try_from(command).unwrap();
        let mut writer = op_msg::MessageWriter::new(1, 0, 0, 0);
        writer.body(|out| out.extend_from_slice(bytes.as_bytes()));
        if !statements.is_empty() {
            writer.sequence("updates", |out| {
                statements.iter().for_each(|one| {
                    out.extend_from_slice(bson::RawDocumentBuf::try_from(one).unwrap().as_bytes());
                });
            });
        }
        let frame = writer.finish();
        let mut latest = LatestRequest::default();
        latest.remember(&RequestHead::new(&frame));
        (CommandName::from_bytes(command.keys().next().unwrap().as_bytes()), latest)
    }

    #[test]
    fn statements_are_described_as_far_as_they_are_remembered() {
        let described = |command: bson::Document, statements: &[bson::Document]| {
            let (name, latest) = request(&command, statements);
            latest.describe(name)
        };
        let two = |shape: &str, namespace: &str| (shape.to_owned(), namespace.to_owned());
        let find = doc! {"find": "orders", "filter": {"status": 1}, "$db": "shop"};
        assert_eq!(described(find, &[]), two("find({status})", "shop.orders"));
        let update = doc! {"update": "orders", "ordered": true, "$db": "shop"};
        let statements = [doc! {"q": {"_id": 1}, "u": {"$set": {"a": 1}}}, doc! {"q": {}, "u": {}}];
        assert_eq!(described(update.clone(), &statements), two("updateOne({_id}, {$set: {a}})", "shop.orders"));
        let long = [doc! {"q": {"_id": "x".repeat(600)}, "u": {"$set": {"a": 1}}}];
        assert_eq!(described(update, &long), two("update", "shop.orders"));
        let cut = doc! {"aggregate": "orders", "pipeline": [{"$match": {"a": "x".repeat(600)}}], "$db": "shop"};
        assert_eq!(described(cut, &[]), two("aggregate()", "orders"));
        assert_eq!(LatestRequest(vec![9; 40]).describe(CommandName::from_bytes(b"find")), two("find", ""));
    }

    #[test]
    fn the_slowest_are_kept_for_an_hour_one_of_a_kind() {
        let (slowest, client) = (Slowest::new(), ClientState::default());
        let begin = Meter::running(None).now();
        let later = |nanoseconds: u64| begin.after(nanoseconds);
        let note = |at: Moment, collection: String, took: u64| {
            let (name, latest) = request(&doc! {"find": collection, "$db": "shop"}, &[]);
            if slowest.admits(took, at) {
                slowest.record(at, (took, took), name, StatementSender { latest: &latest, client: &client });
            }
        };
        let listed = |at: Moment| slowest.list(at).iter().map(|one| one.took / MILLISECOND).collect::<Vec<_>>();
        note(later(0), "a".into(), SLOW - 1);
        assert_eq!(listed(later(0)), [0; 0]);
        for took in [30, 10, 20] {
            note(later(0), "a".into(), took * MILLISECOND);
        }
        assert_eq!(listed(later(0)), [30]);
        (0..30).for_each(|n| note(later(1), format!("b{n}"), (100 + n) * MILLISECOND));
        assert_eq!(listed(later(1)), (110..130).rev().collect::<Vec<_>>());
        assert!(!slowest.admits(50 * MILLISECOND, later(1)), "it would not be kept");
        assert_eq!(listed(later(AGE + 1)), [0; 0]);
        note(later(AGE + 2), "c".into(), 50 * MILLISECOND);
        assert_eq!(listed(later(AGE + 2)), [50], "there is room again");
        assert!(slowest.admits(SLOW, later(AGE + 2)));
    }

    #[test]
    fn waiting_for_events_is_not_slow() {
        let (slowest, begin) = (Slowest::new(), Meter::running(None).now());
        let (name, latest) = request(&doc! {"getMore": 1_i64, "collection": "a", "$db": "shop"}, &[]);
        let client = ClientState::default();
        slowest.record(begin, (AGE, AGE), name, StatementSender { latest: &latest, client: &client });
        assert_eq!(slowest.list(begin), []);
    }
}
