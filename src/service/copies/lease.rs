//! Which process works for a rule, and how far it came: one document in `docward.leases`.
//!
//! `{_id: LABEL, holder, until, fence, repaired, tokens: {"0": ..., "1": ...}}`, each token a change stream's resume token or
//! the time (a BSON timestamp) from which a stream begins. Time is the server's (`$$NOW`);
//! every write has majority concern; who wants to remember something must show the fence it was elected with,
//! so that a worker that slept through the end of its lease changes nothing here.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, Timestamp, doc};
use mongodb::error::Error;
use mongodb::options::{ReturnDocument, WriteConcern};
use mongodb::{Client, Collection};
use tokio::time::{Instant, sleep, timeout_at};

use super::Stop;

/// How long a worker that is gone keeps the others waiting. Shorter, and a slow election of the replica set
/// would pass the work around.
const LEASE: Duration = Duration::from_secs(5);
/// Several tries fit into a lease.
const RENEW: Duration = Duration::from_millis(1500);
const DATABASE: &str = "docward";
const COLLECTION: &str = "leases";

/// A process that would do the work.
pub(super) struct Candidate {
    label: String,
    holder: ObjectId,
}

/// The right to work, until it runs out.
pub(super) struct Lease {
    leases: Collection<Document>,
    label: String,
    fence: i64,
    /// The document as it was when the lease began.
    before: Document,
    /// By our own clock, and never later than by the server's.
    valid_until: Instant,
}

fn leases(client: &Client) -> Collection<Document> {
    let options = mongodb::options::CollectionOptions::builder().write_concern(WriteConcern::majority()).build();
    client.database(DATABASE).collection_with_options(COLLECTION, options)
}

fn from_now() -> Document {
    doc! {"$add": ["$$NOW", LEASE.as_millis() as i64]}
}

impl Candidate {
    pub(super) fn new(label: String) -> Self {
        Self { label, holder: ObjectId::new() }
    }

    /// # Errors
    /// [`Stop::Lost`] when another process has the lease.
    pub(super) async fn acquire(&self, client: &Client) -> Result<Lease, Stop> {
        let leases = leases(client);
        let asked = Instant::now();
        let mut taken = self.take(&leases).await?;
        if taken.is_none() && self.create(&leases).await? {
            taken = self.take(&leases).await?;
        }
        let before = taken.ok_or(Stop::Lost)?;
        let fence = before.get_i64("fence").map_err(|error| Stop::Failed(format!("docward.leases: {error}")))?;
        Ok(Lease { leases, label: self.label.clone(), fence, before, valid_until: asked + LEASE })
    }

    async fn take(&self, leases: &Collection<Document>) -> Result<Option<Document>, Error> {
        let free = doc! {"$or": [{"$lt": ["$until", "$$NOW"]}, {"$eq": ["$holder", self.holder]}]};
        let next = doc! {"$add": [{"$toLong": {"$ifNull": ["$fence", 0]}}, 1i64]};
        let take = doc! {"$set": {"holder": self.holder, "until": from_now(), "fence": next}};
        leases
            .find_one_and_update(doc! {"_id": &self.label, "$expr": free}, vec![take])
            .return_document(ReturnDocument::After)
            .await
    }

    /// Whether the document was not there. ($expr cannot be used with upsert.)
    async fn create(&self, leases: &Collection<Document>) -> Result<bool, Error> {
        let fresh = doc! {"$setOnInsert": {"until": DateTime::from_millis(0), "fence": 0i64}};
        let created = leases.update_one(doc! {"_id": &self.label}, fresh).upsert(true).await?;
        Ok(created.upserted_id.is_some())
    }

    /// Lets the next process begin at once. When this fails the lease runs out by itself.
    pub(super) async fn release(&self, client: &Client) {
        let ours = doc! {"_id": &self.label, "holder": self.holder};
        let _ = leases(client).update_one(ours, doc! {"$set": {"until": DateTime::from_millis(0)}}).await;
    }
}

impl Lease {
    pub(super) fn fence(&self) -> i64 {
        self.fence
    }

    /// Renews it until it is lost.
    pub(super) async fn keep(&self) -> Stop {
        let mut valid_until = self.valid_until;
        loop {
            sleep(RENEW).await;
            let asked = Instant::now();
            match timeout_at(valid_until, self.change(vec![doc! {"$set": {"until": from_now()}}])).await {
                Ok(Ok(())) => valid_until = asked + LEASE,
                // There is time for another try.
                Ok(Err(Stop::Failed(_))) => {}
                Ok(Err(stop)) => return stop,
                Err(_) => return Stop::Failed("the lease could not be renewed in time".to_owned()),
            }
        }
    }

    /// Whether all copies were true at some time after the streams began.
    pub(super) fn is_repaired(&self) -> bool {
        self.before.get_bool("repaired").unwrap_or(false)
    }

    /// Where to go on in a stream; `None`: now.
    pub(super) fn token(&self, stream: usize) -> Option<Bson> {
        self.before.get_document("tokens").ok()?.get(stream.to_string()).cloned()
    }

    /// All changes of a stream up to `token` have been dealt with.
    pub(super) async fn store_token(&self, stream: usize, token: Bson) -> Result<(), Stop> {
        // A pipeline's $literal keeps the token as it is.
        self.change(vec![doc! {"$set": {format!("tokens.{stream}"): {"$literal": token}}}]).await
    }

    /// All copies must be checked, and the stream begins anew at this time.
    pub(super) async fn begin_again(&self, stream: usize, time: Timestamp) -> Result<(), Stop> {
        let begin = doc! {"$set": {format!("tokens.{stream}"): time, "repaired": false}};
        self.change(vec![begin]).await
    }

    /// All copies were true at some time after the streams began.
    pub(super) async fn mark_repaired(&self) -> Result<(), Stop> {
        self.change(vec![doc! {"$set": {"repaired": true}}]).await
    }

    /// The tokens lead nowhere any more.
    pub(super) async fn forget(&self) -> Result<(), Stop> {
        self.change(vec![doc! {"$unset": ["tokens", "repaired"]}]).await
    }

    async fn change(&self, update: Vec<Document>) -> Result<(), Stop> {
        let ours = doc! {"_id": &self.label, "fence": self.fence};
        let changed = self.leases.update_one(ours, update).await.map_err(Stop::from)?;
        if changed.matched_count == 0 { Err(Stop::Lost) } else { Ok(()) }
    }
}
