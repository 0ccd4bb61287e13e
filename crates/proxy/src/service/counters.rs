//! The counters of sequences in MongoDB: documents `{_id: counter, seq: last number reserved}`, which an application may
//! also `$inc`.
//!
//! A counter is created when its first number is assigned, not when clients provide numbers: a restore inserts documents
//! with their numbers while it still has to create the counters' collection, and then inserts the counter itself. Until
//! the counter exists, the largest provided number is stored in a collection of docward's own.

use std::collections::{BTreeSet, HashSet};
use std::sync::{MutexGuard, PoisonError};

use bson::{Bson, RawDocumentBuf, doc};
use mongodb::Client;
use mongodb::error::{Error, ErrorKind};
use mongodb::options::ReturnDocument;

use super::allocator::CounterStore;
use super::client::ServiceClient;
use super::error_kind::is_unauthorized;
use super::listing;
use super::mongo::repeated_until_deadline;
use super::pipeline::checked;
use crate::command::repeated_name_in;
use crate::document::{Document, Kind};
use crate::engine::lookup::{CounterId, LookupError, Maximum, NumberRequest, Origin, SequenceStart};

/// Doubles represent all integers up to here; `seq` must have room for an increment by one.
const LAST_EXACT_DOUBLE: i64 = (1 << 53) - 1;

/// The change of a counter.
#[derive(Debug, Clone, Copy)]
enum CounterChange {
    /// Increment by this.
    By(i64),
    /// Raise to at least this.
    To(i64),
}

/// Leaves a counter as it is.
const UNCHANGED: CounterChange = CounterChange::To(i64::MIN);

impl CounterStore for ServiceClient {
    async fn advance(&self, request: &NumberRequest, count: i64) -> Result<i64, LookupError> {
        repeated_until_deadline(|| async {
            let has_provided = self.provided().contains(&request.counter);
            if !has_provided && let Some(last) = self.change(request, CounterChange::By(count), None).await? {
                return Ok(last);
            }
            self.create(request).await?;
            let last = self.change(request, CounterChange::By(count), None).await?;
            last.ok_or_else(|| LookupError::Unavailable(format!("{} was removed concurrently", name(request))))
        })
        .await
    }

    async fn raise(&self, request: &NumberRequest, number: i64) -> Result<i64, LookupError> {
        repeated_until_deadline(|| async {
            let raise = CounterChange::To(number);
            if let Some(last) = self.change(request, raise, None).await? {
                return Ok(last);
            }
            if !self.store_provided(request, number).await? {
                self.create(request).await?;
            }
            // Another process that created it meanwhile has not read the number.
            Ok(self.change(request, raise, None).await?.unwrap_or(number))
        })
        .await
    }
}

impl ServiceClient {
    /// Creates the counter if it is missing, and raises it to the numbers that clients provided before.
    async fn create(&self, request: &NumberRequest) -> Result<(), LookupError> {
        if self.change(request, UNCHANGED, None).await?.is_none() {
            let continues = |origin: &Origin| origin.start == SequenceStart::AfterMax;
            let first = if request.beginning.origins(&request.counter.database).any(continues) {
                // The protected collections are only searched if the counter does not exist yet.
                self.first_number(request).await?
            } else {
                request.beginning.least(&request.counter.database)
            };
            self.change(request, UNCHANGED, Some(first)).await?;
        }
        // Read after the counter exists: a number that is provided from now on raises the counter itself.
        let of_provided = request.counter.of_provided();
        let stored = match find_and_change(&self.client()?, &of_provided, UNCHANGED, None).await {
            Err(error) if is_unauthorized(&error) => None,
            stored => stored.map_err(|error| self.classify(&error, &name(request)))?,
        };
        if let Some(provided) = stored.as_ref().and_then(last_number) {
            self.change(request, CounterChange::To(provided), None).await?;
            self.remove_provided(&of_provided).await;
        }
        self.provided().remove(&request.counter);
        Ok(())
    }

    /// Stores a number that a client provides while the counter is missing. Returns false if docward's own user may not.
    async fn store_provided(&self, request: &NumberRequest, number: i64) -> Result<bool, LookupError> {
        self.provided().insert(request.counter.clone());
        let raise = CounterChange::To(number);
        match find_and_change(&self.client()?, &request.counter.of_provided(), raise, Some(number)).await {
            Err(error) if is_unauthorized(&error) => Ok(false),
            stored => stored.map(|_| true).map_err(|error| self.classify(&error, &name(request))),
        }
    }

    /// What remains only makes a later counter begin with a larger number.
    async fn remove_provided(&self, counter: &CounterId) {
        let CounterId { database, collection, id } = counter;
        let delete = doc! {"delete": &**collection, "deletes": [{"q": {"_id": &**id}, "limit": 1}]};
        if let Ok(client) = self.client() {
            let _ = client.database(database).run_command(delete).await;
        }
    }

    fn provided(&self) -> MutexGuard<'_, HashSet<CounterId>> {
        self.provided.lock().unwrap_or_else(PoisonError::into_inner)
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
        let stored = find_and_change(&self.client()?, &request.counter, by, first).await;
        let stored = stored.map_err(|error| match code_of(&error) {
            Some(TYPE_MISMATCH | ADD_NEEDS_NUMBERS) => not_whole(request),
            Some(CONVERSION_FAILURE) if is_from_check(&error) => repeated(request),
            Some(CONVERSION_FAILURE) => at_its_end(request),
            _ => self.classify(&error, &name(request)),
        })?;
        stored.map(|counter| last_number(&counter).ok_or_else(|| not_whole(request))).transpose()
    }
}

/// Changes a counter and returns it; without `first`, only if it exists.
async fn find_and_change(
    client: &Client,
    counter: &CounterId,
    by: CounterChange,
    first: Option<i64>,
) -> Result<Option<RawDocumentBuf>, Error> {
    let CounterId { database, collection, id } = counter;
    let filter = match first {
        Some(_) => doc! {"_id": &**id},
        None => doc! {"_id": &**id, "seq": {"$ne": Bson::Null}},
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
    let update = checked(vec![doc! {"$set": {"seq": seq}}])?;
    let counters = client.database(database).collection::<RawDocumentBuf>(collection);
    counters.find_one_and_update(filter, update).upsert(first.is_some()).return_document(ReturnDocument::After).await
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

fn repeated(request: &NumberRequest) -> LookupError {
    LookupError::Permanent(format!(
        "{} has a field twice, and mongod would end if it was changed; replace the document directly at mongod",
        name(request)
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

fn is_from_check(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Command(command) if repeated_name_in(&command.message).is_some())
}

fn code_of(error: &Error) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(command) => Some(command.code),
        _ => None,
    }
}
