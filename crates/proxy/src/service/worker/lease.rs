//! The lease of a rule's worker and its stored progress: one document in `docward.leases`.
//!
//! `{_id: LABEL, holder, until, fence, repaired, tokens: {"0": ..., "1": ...}, lost}`. Each token is a change stream's
//! resume token, or the time (a BSON timestamp) at which a stream begins; `lost` are the last tokens that became invalid. Time is the server's (`$$NOW`). Every write
//! has majority concern and must match the fencing token of the election. So a worker that wakes up after its lease
//! has expired cannot change the document.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, Timestamp, doc};
use mongodb::error::Error;
use mongodb::options::{ReturnDocument, WriteConcern};
use mongodb::{Client, Collection};
use tokio::time::{Instant, sleep, timeout_at};

use super::stop::Stop;
use crate::command::own::DATABASE;
use crate::service::ServerTime;
use crate::service::pipeline::checked;

/// Length of a lease: how long other processes wait after a worker has ended. With a shorter one, a slow election of
/// the replica set would move the work between processes.
const LEASE: Duration = Duration::from_secs(5);
/// The renewal interval; a lease allows several attempts.
const RENEW: Duration = Duration::from_millis(1500);
const COLLECTION: &str = "leases";

/// A process that competes for the lease.
pub(super) struct WorkerCandidate {
    label: String,
    holder: ObjectId,
}

/// An acquired lease.
pub(in crate::service) struct WorkerLease {
    leases: Collection<Document>,
    label: String,
    fence: i64,
    /// The document when the lease began.
    before: Document,
    /// By the local clock, and never later than on the server.
    valid_until: Instant,
    /// The server's clock.
    server_time: ServerTime,
}

fn leases(client: &Client) -> Collection<Document> {
    let options = mongodb::options::CollectionOptions::builder().write_concern(WriteConcern::majority()).build();
    client.database(DATABASE).collection_with_options(COLLECTION, options)
}

fn from_now() -> Document {
    doc! {"$add": ["$$NOW", LEASE.as_millis() as i64]}
}

impl WorkerCandidate {
    pub(super) fn new(label: String) -> Self {
        Self { label, holder: ObjectId::new() }
    }

    /// Acquires the lease.
    ///
    /// # Errors
    /// [`Stop::Lost`] if another process holds the lease.
    pub(super) async fn acquire(&self, client: &Client) -> Result<WorkerLease, Stop> {
        let leases = leases(client);
        let asked = Instant::now();
        let mut taken = self.take(&leases).await?;
        if taken.is_none() && self.create(&leases).await? {
            taken = self.take(&leases).await?;
        }
        let before = taken.ok_or(Stop::Lost)?;
        let fence = before.get_i64("fence").map_err(|error| Stop::Failed(format!("docward.leases: {error}")))?;
        let until = before.get_datetime("until").map_err(|error| Stop::Failed(format!("docward.leases: {error}")))?;
        let now = until.timestamp_millis().saturating_sub(LEASE.as_millis() as i64);
        let server_time = ServerTime::reported(DateTime::from_millis(now));
        let (label, valid_until) = (self.label.clone(), asked + LEASE);
        Ok(WorkerLease { leases, label, fence, before, valid_until, server_time })
    }

    async fn take(&self, leases: &Collection<Document>) -> Result<Option<Document>, Error> {
        let free = doc! {"$or": [{"$lt": ["$until", "$$NOW"]}, {"$eq": ["$holder", self.holder]}]};
        let next = doc! {"$add": [{"$toLong": {"$ifNull": ["$fence", 0]}}, 1i64]};
        let take = doc! {"$set": {"holder": self.holder, "until": from_now(), "fence": next}};
        leases
            .find_one_and_update(doc! {"_id": &self.label, "$expr": free}, checked(vec![take])?)
            .return_document(ReturnDocument::After)
            .await
    }

    /// Creates the document; returns whether it was missing. ($expr cannot be combined with upsert.)
    async fn create(&self, leases: &Collection<Document>) -> Result<bool, Error> {
        let fresh = doc! {"$setOnInsert": {"until": DateTime::from_millis(0), "fence": 0i64}};
        let created = leases.update_one(doc! {"_id": &self.label}, fresh).upsert(true).await?;
        Ok(created.upserted_id.is_some())
    }

    /// Releases the lease, so that the next process can begin immediately. If this fails, the lease expires.
    pub(super) async fn release(&self, client: &Client) {
        let ours = doc! {"_id": &self.label, "holder": self.holder};
        let _ = leases(client).update_one(ours, doc! {"$set": {"until": DateTime::from_millis(0)}}).await;
    }
}

impl WorkerLease {
    pub(super) fn server_time(&self) -> ServerTime {
        self.server_time
    }

    pub(super) fn fence(&self) -> i64 {
        self.fence
    }

    /// Renews the lease until it is lost.
    pub(super) async fn keep(&self) -> Stop {
        let mut valid_until = self.valid_until;
        loop {
            sleep(RENEW).await;
            let asked = Instant::now();
            match timeout_at(valid_until, self.change(vec![doc! {"$set": {"until": from_now()}}])).await {
                Ok(Ok(())) => valid_until = asked + LEASE,
                // There is time for another attempt.
                Ok(Err(Stop::Driver(_))) => {}
                Ok(Err(stop)) => return stop,
                Err(_) => return Stop::Failed("the lease could not be renewed in time".to_owned()),
            }
        }
    }

    /// Whether all copies have been checked since the streams began.
    pub(in crate::service) fn is_repaired(&self) -> bool {
        self.before.get_bool("repaired").unwrap_or(false)
    }

    /// The stored position of a stream; `None`: begin now.
    pub(in crate::service) fn token(&self, stream: usize) -> Option<Bson> {
        self.before.get_document("tokens").ok()?.get(stream.to_string()).cloned()
    }

    /// The last token of a stream that became invalid.
    pub(in crate::service) fn lost_token(&self, stream: usize) -> Option<&Bson> {
        self.before.get_document("lost").ok()?.get(stream.to_string())
    }

    /// Records that all changes of a stream up to `token` have been processed.
    pub(in crate::service) async fn store_token(&self, stream: usize, token: Bson) -> Result<(), Stop> {
        // $literal keeps the token unchanged in a pipeline.
        self.change(vec![doc! {"$set": {format!("tokens.{stream}"): {"$literal": token}}}]).await
    }

    /// Records that the stream begins again at this time, and that all copies must be checked.
    pub(super) async fn begin_again(&self, stream: usize, time: Timestamp) -> Result<(), Stop> {
        let begin = doc! {"$set": {format!("tokens.{stream}"): time, "repaired": false}};
        self.change(vec![begin]).await
    }

    /// Records that all copies have been checked since the streams began.
    pub(in crate::service) async fn mark_repaired(&self) -> Result<(), Stop> {
        self.change(vec![doc! {"$set": {"repaired": true}}]).await
    }

    /// Removes the token of a stream, which has become invalid. The other streams continue at theirs, so that no change
    /// of another collection is missed.
    pub(super) async fn forget(&self, stream: usize) -> Result<(), Stop> {
        let (token, lost) = (format!("tokens.{stream}"), format!("lost.{stream}"));
        let keep = doc! {"$set": {&lost: {"$ifNull": [format!("${token}"), format!("${lost}")]}}};
        self.change(vec![keep, doc! {"$unset": [token.as_str(), "repaired"]}]).await
    }

    async fn change(&self, update: Vec<Document>) -> Result<(), Stop> {
        let ours = doc! {"_id": &self.label, "fence": self.fence};
        let changed = self.leases.update_one(ours, checked(update)?).await.map_err(Stop::from)?;
        if changed.matched_count == 0 { Err(Stop::Lost) } else { Ok(()) }
    }
}
