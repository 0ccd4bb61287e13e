//! Helpers for the official driver: a database through docward and directly, the codes in its errors, and the size of
//! the randomized tests. Has no dependency on rules. `mongod` and `proxy` start the servers that these helpers
//! connect to.

use std::time::Instant;

use bson::{Document, doc};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongodb::{Client, Collection, Database};

use super::mongod::Mongod;
use super::process::TIMEOUT;
use super::proxy::Docward;

/// A database that no other test uses, with two clients.
pub struct Views {
    /// Through docward, as the application uses it.
    pub through: Database,
    /// Directly, for preparing and checking.
    pub direct: Database,
}

impl Views {
    pub async fn of(mongod: &Mongod, docward: &Docward) -> Views {
        let name = mongod.fresh_database();
        Views { through: docward.client().await.database(&name), direct: mongod.client().await.database(&name) }
    }

    /// A collection through docward.
    pub fn collection(&self, name: &str) -> Collection<Document> {
        self.through.collection(name)
    }

    /// Stores documents without docward.
    pub async fn store(&self, collection: &str, documents: impl IntoIterator<Item = Document>) {
        self.direct.collection(collection).insert_many(documents).await.unwrap();
    }

    /// All documents of a collection by `_id`, read without docward.
    pub async fn stored(&self, collection: &str) -> Vec<Document> {
        all(&self.direct, collection).await
    }

    /// Runs a command through docward and returns its reply without the fields about the server; a failed command as
    /// its error.
    pub async fn run(&self, command: Document) -> Result<Document, Error> {
        let mut reply = self.through.run_command(command).await?;
        for key in ["$clusterTime", "operationTime", "electionId", "opTime"] {
            reply.remove(key);
        }
        Ok(reply)
    }
}

/// All documents of a collection by `_id`.
pub async fn all(database: &Database, collection: &str) -> Vec<Document> {
    let mut cursor = database.collection::<Document>(collection).find(doc! {}).sort(doc! { "_id": 1 }).await.unwrap();
    let mut documents = Vec::new();
    while cursor.advance().await.unwrap() {
        documents.push(cursor.deserialize_current().unwrap());
    }
    documents
}

/// A new client, with connection string options such as `appName=migrator&retryWrites=false`.
pub async fn connect(address: &str, options: &str) -> Client {
    Client::with_uri_str(format!("mongodb://{address}/?{options}")).await.unwrap()
}

/// The driver's error text for a server that it cannot use, which contains these words of docward. Retried, because a
/// driver that gets no reply within its one second reports no reason.
pub async fn refusal(uri: &str, words: &str) -> String {
    let separator = if uri.ends_with('?') {
        ""
    } else if uri.contains('?') {
        "&"
    } else {
        "?"
    };
    let uri = format!("{uri}{separator}serverSelectionTimeoutMS=1000");
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let client = Client::with_uri_str(&uri).await.unwrap();
        let error = client.database("x").run_command(doc! { "ping": 1 }).await.unwrap_err().to_string();
        if error.contains(words) || Instant::now() > deadline {
            return error;
        }
    }
}

/// The server's error code for the first failed statement, or for the command; panics on errors of another kind.
pub fn code(error: &Error) -> i32 {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => command.code,
        ErrorKind::Write(WriteFailure::WriteError(write)) => write.code,
        ErrorKind::InsertMany(many) => many.write_errors.as_ref().unwrap()[0].code,
        _ => panic!("no server error: {error}"),
    }
}

/// The texts of the server's errors.
pub fn message(error: &Error) -> String {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => command.message.clone(),
        ErrorKind::Write(WriteFailure::WriteError(write)) => write.message.clone(),
        ErrorKind::InsertMany(many) => many.write_errors.as_ref().unwrap()[0].message.clone(),
        _ => panic!("no server error: {error}"),
    }
}

/// Whether a reply reports that the command as a whole succeeded.
pub fn ok(reply: &Document) -> bool {
    reply.get_f64("ok").unwrap() == 1.0
}

/// `(index, code)` of every write error in a reply.
pub fn write_errors(reply: &Document) -> Vec<(i32, i32)> {
    let Ok(errors) = reply.get_array("writeErrors") else { return Vec::new() };
    let entries = errors.iter().map(|error| error.as_document().unwrap());
    entries.map(|error| (error.get_i32("index").unwrap(), error.get_i32("code").unwrap())).collect()
}

/// `amount` times `$DOCWARD_TEST_SCALE` (a decimal number, 1 by default): the number of cases or rounds in randomized
/// and concurrent tests. The defaults suit two busy cores.
pub fn scaled(amount: u32) -> u32 {
    let scale = std::env::var("DOCWARD_TEST_SCALE").map_or(1.0, |text| text.parse::<f64>().unwrap());
    ((f64::from(amount) * scale) as u32).max(1)
}
