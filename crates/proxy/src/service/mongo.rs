//! The service's own connection through the official driver. It is created for the first lookup, so that rules without
//! lookups do not need docward's own user.
//!
//! Errors are classified by whether a retry can help.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bson::{RawDocumentBuf, doc};
use mongodb::options::{ClientOptions, ReadConcern, ReadPreference, SelectionCriteria, Tls, WriteConcern};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::allocator::{Allocation, Allocator};
use super::background::BackgroundTasks;
use super::client::ServiceClient;
use super::connection::{self, ConnectionError, ConnectionString, TlsFiles};
use super::worker::{WorkerStatus, WorkersShown};
use super::{LookupReply, ReservationCounts, Service};
use crate::command::own;
use crate::document::{Document, Path, PathLookup};
use crate::engine::lookup::{Lookup, LookupError, LookupResult, Maximum};

/// How long the driver searches for a primary; only a failed election takes longer.
const SERVER_SELECTION: Duration = Duration::from_secs(5);
/// How long a lookup is repeated while it may succeed later: as long as a router's requests wait for a primary.
const TIMEOUT: Duration = Duration::from_secs(20);
/// First and longest pause before it is repeated.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];
/// How long the servers may take to answer; later, the error of the first operation names the set.
const OTHER_SET_TIMEOUT: Duration = Duration::from_secs(2);
/// Bound on the end of its tasks, sessions and connections: `drain_timeout` is kept to within half a second.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(400);
/// Maximum pool size. Each `copies` rule holds a connection while it waits for changes; with the driver's default of
/// ten, reservations would have to wait too.
const CONNECTIONS: u32 = 200;

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
        options.app_name.get_or_insert_with(|| own::APP.to_owned());
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
            Some(Tls::Enabled(options)) => Some((&options).into()),
            _ => None,
        }
    }

    /// Opens a new connection for the next lookup, because the driver reads its certificates only once. Pending
    /// lookups continue.
    pub fn reconnect(&self) {
        self.server.forget_client();
    }

    /// Uses the connection of `other` for later operations. Pending lookups continue; workers begin again on it.
    pub fn adopt(&self, other: &Self) {
        self.server.adopt(&other.server);
    }

    /// Waits until no server of the connection string can be reached; returns why.
    pub async fn is_down(&self) -> String {
        self.server.is_down().await;
        self.server.observed().unreachable().unwrap_or_default()
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
                let asking =
                    self.background.spawn(async move { repeated_until_deadline(|| server.maximum(&maximum)).await });
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

impl ServiceClient {
    /// The largest number in a field, rounded down. It is read like all else with local read concern: a number that
    /// may still be rolled back must not be reserved again either.
    pub(super) async fn maximum(&self, maximum: &Maximum) -> Result<Option<i64>, LookupError> {
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

fn floor(document: &RawDocumentBuf, field: &str) -> Option<i64> {
    match Path::parse(field)?.lookup(Document::parse(document.as_bytes()).ok()?) {
        PathLookup::Found(value) => value.floor(),
        PathLookup::Missing | PathLookup::Blocked(_) => None,
    }
}

/// Carries out a lookup, and repeats it while it may succeed later, for [`TIMEOUT`] at most.
pub(super) async fn repeated_until_deadline<T, F>(lookup: impl Fn() -> F) -> Result<T, LookupError>
where
    F: Future<Output = Result<T, LookupError>>,
{
    let deadline = Instant::now() + TIMEOUT;
    let mut last = format!("the server did not answer docward within {} s", TIMEOUT.as_secs());
    let [mut pause, longest] = PAUSES;
    while let Ok(reply) = timeout_at(deadline, lookup()).await {
        match reply {
            Err(LookupError::Unavailable(text)) => last = text,
            reply => return reply,
        }
        sleep(pause).await;
        pause = longest.min(2 * pause);
    }
    Err(LookupError::Unavailable(last))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn a_lookup_is_repeated_while_it_may_succeed_later() {
        let attempts = Cell::new(0);
        let lookup = |error: LookupError| {
            attempts.set(attempts.get() + 1);
            let reply = if attempts.get() < 3 { Err(error) } else { Ok(attempts.get()) };
            async { reply }
        };
        assert_eq!(repeated_until_deadline(|| lookup(LookupError::Unavailable("no primary".to_owned()))).await, Ok(3));
        attempts.set(0);
        let permanent = LookupError::Permanent("seq is a string".to_owned());
        assert_eq!(repeated_until_deadline(|| lookup(permanent.clone())).await, Err(permanent));
    }
}
