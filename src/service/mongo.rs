//! The service's own connection through the official driver. It is created for the first lookup, so that rules without
//! lookups do not need docward's own user.
//!
//! Counters are documents `{_id: counter, seq: last number reserved}`; an application may also `$inc` them. Errors are
//! classified by whether a retry can help.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, RawDocumentBuf, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{
    ClientOptions, ReadConcern, ReadPreference, ReturnDocument, SelectionCriteria, Tls, WriteConcern,
};
use tokio::task::JoinHandle;

use super::allocator::{Allocation, Allocator, CounterStore};
use super::background::BackgroundTasks;
use super::client::ServiceClient;
use super::connection::{self, ConnectionError, ConnectionString, TlsFiles};
use super::worker::{WorkerStatus, WorkersShown};
use super::{LookupReply, ReservationCounts, Service, listing};
use crate::document::{Document, Kind, Path, PathLookup};
use crate::engine::lookup::{
    CounterId, Lookup, LookupError, LookupResult, Maximum, NumberRequest, Origin, SequenceStart,
};

/// How long the driver searches for a primary; only a failed election takes longer.
const SERVER_SELECTION: Duration = Duration::from_secs(5);
/// Bound on a lookup with all retries of the driver, because the client waits meanwhile.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the servers may take to answer; later, the error of the first operation names the set.
const OTHER_SET_TIMEOUT: Duration = Duration::from_secs(2);
/// Bound on the end of its tasks, sessions and connections: `drain_timeout` is kept to within half a second.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(400);
/// Maximum pool size. Each `copies` rule holds a connection while it waits for changes; with the driver's default of
/// ten, reservations would have to wait too.
const CONNECTIONS: u32 = 200;
/// Doubles represent all integers up to here; `seq` must have room for an increment by one.
const LAST_EXACT_DOUBLE: i64 = (1 << 53) - 1;

/// Performs lookups with the official driver.
#[derive(Debug)]
pub struct MongoService {
    server: Arc<ServiceClient>,
    background: BackgroundTasks,
    allocator: Allocator<ServiceClient>,
    workers: Arc<WorkersShown>,
}

impl MongoService {
    /// Parses the connection string of docward's own user. `resolver`: see [`connection::options`].
    ///
    /// # Errors
    /// [`ConnectionError`]: the connection string cannot be used.
    pub async fn parse(uri: &ConnectionString, resolver: Option<SocketAddr>) -> Result<Self, ConnectionError> {
        connection::options(uri, resolver).await.map(Self::new)
    }

    /// Uses the upstream's connection string without its credentials.
    ///
    /// # Errors
    /// [`ConnectionError`]: the connection string cannot be used.
    pub async fn parse_without_credentials(
        uri: &ConnectionString,
        resolver: Option<SocketAddr>,
    ) -> Result<Self, ConnectionError> {
        let mut options = connection::options(uri, resolver).await?;
        options.credential = None;
        Ok(Self::new(options))
    }

    fn new(mut options: ClientOptions) -> Self {
        options.server_selection_timeout.get_or_insert(SERVER_SELECTION);
        options.connect_timeout.get_or_insert(SERVER_SELECTION);
        options.max_pool_size.get_or_insert(CONNECTIONS);
        options.app_name.get_or_insert_with(|| "docward".to_owned());
        // Options for applications may be in the connection string. docward's own operations state what they need.
        // `retryReads` and `retryWrites` stay: some servers need them off.
        options.read_concern = Some(ReadConcern::local());
        options.write_concern = Some(WriteConcern::majority());
        options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        let background = BackgroundTasks::new();
        let server = Arc::new(ServiceClient::new(options, background.clone()));
        let allocator = Allocator::new(server.clone(), background.clone());
        Self { allocator, server, background, workers: Arc::default() }
    }

    /// Returns the files of its TLS options; `None` without TLS.
    pub fn tls_files(&self) -> Option<TlsFiles> {
        match self.server.tls() {
            Some(Tls::Enabled(options)) => Some(options.into()),
            _ => None,
        }
    }

    /// Opens a new connection for the next lookup, because the driver reads its certificates only once. Pending
    /// lookups continue.
    pub fn reconnect(&self) {
        self.server.forget_client();
    }

    /// Waits until no server of the connection string can be reached; returns why.
    pub async fn is_down(&self) -> String {
        self.server.is_down().await;
        self.server.observed.unreachable().unwrap_or_default()
    }

    /// Starts a task for which [`Self::close`] waits.
    pub fn spawn_to_end<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.background.spawn_to_end(task)
    }

    /// Ends its tasks and sessions, and closes its connections, within half a second. Must be called before a runtime with
    /// several threads ends. Later lookups fail.
    pub async fn close(&self) {
        let closed = async {
            self.background.end().await;
            self.server.close().await;
        };
        // Without a server that answers, nothing remains to be ended there.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closed).await;
    }

    /// Describes a server of the connection string that is not a member of the replica set that it names; `None` if
    /// another server can be used, or none answers.
    pub async fn other_set(&self) -> Option<String> {
        let server = self.server();
        server.replica_set()?;
        // Its own client, which is closed afterwards: a rule that needs no connection of docward's keeps none open.
        let separate = server.separate_client().ok()?;
        tokio::time::timeout(OTHER_SET_TIMEOUT, server.first_set(&separate.observed)).await.ok().flatten()
    }

    /// The tasks that use its connection.
    pub(super) fn background(&self) -> &BackgroundTasks {
        &self.background
    }

    /// Where background workers show their state.
    pub(super) fn progress(&self) -> &Arc<WorkersShown> {
        &self.workers
    }

    /// The connection for long-running operations.
    pub(super) fn server(&self) -> Arc<ServiceClient> {
        self.server.clone()
    }
}

impl Service for MongoService {
    fn find(&self, lookup: Lookup) -> LookupReply {
        match lookup {
            Lookup::Numbers(request) => match self.allocator.numbers(*request) {
                Allocation::Ready(numbers) => LookupReply::Ready(Ok(LookupResult::Numbers(numbers))),
                Allocation::Pending(numbers) => {
                    LookupReply::Pending(Box::pin(async { numbers.wait().await.map(LookupResult::Numbers) }))
                }
            },
            Lookup::Maximum(maximum) => {
                let server = self.server.clone();
                let asking = self.background.spawn(async move { with_timeout(server.maximum(&maximum)).await });
                LookupReply::Pending(Box::pin(async {
                    let maximum = asking.await.ok().flatten().unwrap_or_else(|| Err(LookupError::shutting_down()));
                    maximum.map(LookupResult::Maximum)
                }))
            }
        }
    }

    fn reservations(&self) -> ReservationCounts {
        self.allocator.reservations()
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        self.workers.status()
    }
}

/// The change of a counter.
#[derive(Debug, Clone, Copy)]
enum CounterChange {
    /// Increment by this.
    By(i64),
    /// Raise to at least this.
    To(i64),
}

impl CounterStore for ServiceClient {
    async fn advance(&self, request: &NumberRequest, count: i64) -> Result<i64, LookupError> {
        self.apply(request, CounterChange::By(count)).await
    }

    async fn raise(&self, request: &NumberRequest, number: i64) -> Result<i64, LookupError> {
        self.apply(request, CounterChange::To(number)).await
    }
}

impl ServiceClient {
    /// Changes the counter and returns its new value; creates it if it is missing.
    async fn apply(&self, request: &NumberRequest, by: CounterChange) -> Result<i64, LookupError> {
        with_timeout(async {
            let continues = |origin: &Origin| origin.start == SequenceStart::AfterMax;
            let first = if request.beginning.origins(&request.counter.database).any(continues) {
                // The protected collections are only searched if the counter does not exist yet.
                match self.change(request, by, None).await? {
                    Some(last) => return Ok(last),
                    None => self.first_number(request).await?,
                }
            } else {
                request.beginning.least(&request.counter.database)
            };
            let last = self.change(request, by, Some(first)).await?;
            last.ok_or_else(|| LookupError::Unavailable(format!("{} was removed concurrently", name(request))))
        })
        .await
    }

    /// The first number of a new counter: greater than those of all documents it numbers.
    async fn first_number(&self, request: &NumberRequest) -> Result<i64, LookupError> {
        let mut largest = None;
        for origin in request.beginning.origins(&request.counter.database) {
            for (database, collection) in self.numbered(request, origin).await? {
                let maximum = Maximum { database, collection, field: origin.field.clone() };
                largest = largest.max(self.maximum(&maximum).await?);
            }
        }
        match largest {
            None => Ok(request.beginning.least(&request.counter.database)),
            Some(largest) => {
                request.beginning.behind(&request.counter.database, largest).ok_or_else(|| at_its_end(request))
            }
        }
    }

    /// The collections that a rule numbers by this counter; for globs, those that docward's own user may access.
    async fn numbered(
        &self,
        request: &NumberRequest,
        origin: &Origin,
    ) -> Result<BTreeSet<listing::CollectionName>, LookupError> {
        let mut found = BTreeSet::new();
        for namespace in &origin.namespaces {
            match namespace.exact() {
                Some((database, collection)) => {
                    found.insert((database.to_owned(), collection.to_owned()));
                }
                None => {
                    let listed =
                        listing::visible(&self.client()?, namespace, origin.only_database(&request.counter.database))
                            .await;
                    found.extend(listed.map_err(|error| self.classify(&error, &name(request)))?);
                }
            }
        }
        found.retain(|(database, collection)| origin.covers(&request.counter.database, database, collection));
        Ok(found)
    }

    /// Changes the counter and returns its new value; without `first`, only if it exists.
    async fn change(
        &self,
        request: &NumberRequest,
        by: CounterChange,
        first: Option<i64>,
    ) -> Result<Option<i64>, LookupError> {
        let filter = match first {
            Some(_) => doc! {"_id": &*request.counter.id},
            None => doc! {"_id": &*request.counter.id, "seq": {"$ne": Bson::Null}},
        };
        let seq = match first {
            Some(first) => doc! {"$ifNull": ["$seq", narrow(first.saturating_sub(1))]},
            None => doc! {"$ifNull": ["$seq", 0]},
        };
        let seq = match by {
            // Beyond 64 bits the sum is a double, and the conversion fails.
            CounterChange::By(count) => doc! {"$let": {
                "vars": {"sum": {"$add": [seq, narrow(count)]}},
                "in": {"$cond": [{"$gte": ["$$sum", BEYOND]}, {"$toLong": "$$sum"}, "$$sum"]},
            }},
            CounterChange::To(number) => doc! {"$max": [seq, narrow(number)]},
        };
        let update = vec![doc! {"$set": {"seq": seq}}];
        let CounterId { database, collection, .. } = &request.counter;
        let counters = self.client()?.database(database).collection::<RawDocumentBuf>(collection);
        let stored = counters
            .find_one_and_update(filter, update)
            .upsert(first.is_some())
            .return_document(ReturnDocument::After)
            .await
            .map_err(|error| match code_of(&error) {
                Some(TYPE_MISMATCH | ADD_NEEDS_NUMBERS) => not_whole(request),
                Some(CONVERSION_FAILURE) => at_its_end(request),
                _ => self.classify(&error, &name(request)),
            })?;
        stored.map(|counter| last_number(&counter).ok_or_else(|| not_whole(request))).transpose()
    }

    /// The largest number in a field, rounded down. It is read like all else with local read concern: a number that
    /// may still be rolled back must not be reserved again either.
    async fn maximum(&self, maximum: &Maximum) -> Result<Option<i64>, LookupError> {
        let Maximum { database, collection, field } = maximum;
        let subject = format!("the largest {field} of {database}.{collection}");
        let filter = bson::Document::from_reader(maximum.filter().as_slice())
            .map_err(|error| LookupError::Permanent(format!("{subject}: {error}")))?;
        let documents = self.client()?.database(database).collection::<RawDocumentBuf>(collection);
        let found = documents
            .find_one(filter)
            .sort(doc! {field: -1})
            .projection(doc! {field: 1, "_id": i32::from(field == "_id")})
            .max_time(TIMEOUT)
            .await
            .map_err(|error| self.classify(&error, &subject))?;
        Ok(found.and_then(|found| floor(&found, field)))
    }
}

async fn with_timeout<T>(lookup: impl Future<Output = Result<T, LookupError>>) -> Result<T, LookupError> {
    let reply = tokio::time::timeout(TIMEOUT, lookup).await;
    reply.unwrap_or_else(|_| {
        Err(LookupError::Unavailable(format!("the server did not answer docward within {} s", TIMEOUT.as_secs())))
    })
}

/// The type that `$inc` in mongosh would produce.
fn narrow(number: i64) -> Bson {
    i32::try_from(number).map_or(Bson::Int64(number), Bson::Int32)
}

fn last_number(counter: &RawDocumentBuf) -> Option<i64> {
    let seq = Document::parse(counter.as_bytes()).ok()?.get("seq")?;
    let last = seq.as_integer()?;
    (seq.kind != Kind::Double || last <= LAST_EXACT_DOUBLE).then_some(last)
}

fn floor(document: &RawDocumentBuf, field: &str) -> Option<i64> {
    match Path::parse(field)?.lookup(Document::parse(document.as_bytes()).ok()?) {
        PathLookup::Found(value) => value.floor(),
        PathLookup::Missing | PathLookup::Blocked(_) => None,
    }
}

fn name(request: &NumberRequest) -> String {
    let CounterId { database, collection, id } = &request.counter;
    format!("the counter {id:?} in {database}.{collection}")
}

fn not_whole(request: &NumberRequest) -> LookupError {
    LookupError::Permanent(format!(
        "{} has a seq that is not a whole number; set it to the last number reserved, for example \
         db.{}.updateOne({{_id: {:?}}}, {{$set: {{seq: NumberLong(1000)}}}})",
        name(request),
        request.counter.collection,
        request.counter.id
    ))
}

fn at_its_end(request: &NumberRequest) -> LookupError {
    LookupError::Permanent(format!("{} is at its end: too few whole numbers of 64 bits follow", name(request)))
}

/// The smallest double beyond the 64-bit integers.
const BEYOND: f64 = 9_223_372_036_854_775_808.0;

/// Error codes of `$add` with a value that is not a number.
const TYPE_MISMATCH: i32 = 14;
const ADD_NEEDS_NUMBERS: i32 = 16554;
const CONVERSION_FAILURE: i32 = 241;

fn code_of(error: &Error) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(command) => Some(command.code),
        _ => None,
    }
}
