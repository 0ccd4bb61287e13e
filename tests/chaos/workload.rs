//! The Rust driver's part of the workload: one worker for each kind of operation, each with its own client.
//! `tests/python/chaos_workload.py` does the same with pymongo, on the same documents.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bson::{Document, doc};
use mongodb::error::{Error, ErrorKind, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT, WriteFailure};
use mongodb::event::EventHandler;
use mongodb::event::sdam::SdamEvent;
use mongodb::options::{ClientOptions, ReadConcern, WriteConcern};
use mongodb::{Client, ClientSession, Collection, Database};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::journal::{Journal, Outcome, Record};
use support::random::Random;

/// Every kind of operation, by the name of its method in `Worker`.
pub(crate) const KINDS: [&str; 9] = ["order", "batch", "log", "stock", "article", "price", "transfer", "leaf", "move"];

/// The rules of the collections that all workers use.
pub(crate) fn rules(block: usize) -> String {
    format!(
        r#"
version: 1
rules:
  - {{ name: orders, namespace: chaos.orders, sequence: {{ field: no, counter: orders, block: {block} }} }}
  - {{ name: transfers, namespace: chaos.transfers, sequence: {{ field: no, counter: transfers }} }}
  - {{ name: stock, namespace: chaos.stock, bounds: {{ field: available, min: 0, max: 10 }} }}
  - {{ name: articles, namespace: chaos.articles, replacement: {{ policy: check_version, version: version }} }}
  - {{ name: prices, namespace: chaos.prices, timestamps: {{ source: at, type: long, fields: [price] }} }}
  - {{ name: nodes, namespace: chaos.nodes, tree: {{ path: path, parent: parent }} }}
"#
    )
}

/// Stores the documents that the workers change, through docward.
pub(crate) async fn prepare(database: &Database) -> Result<(), Error> {
    let collection = |name: &str| database.collection::<Document>(name);
    let many = |count: i32, make: fn(i32) -> Document| (0..count).map(make).collect::<Vec<_>>();
    collection("stock").insert_many(many(20, |id| doc! { "_id": id, "available": 5, "moves": [] })).await?;
    collection("articles").insert_many(many(100, |id| doc! { "_id": id, "tokens": [] })).await?;
    collection("prices").insert_many(many(20, |id| doc! { "_id": id, "price": 0_i64, "at": 0_i64 })).await?;
    collection("accounts").insert_many(many(10, |id| doc! { "_id": id, "balance": 1000 })).await?;
    collection("nodes").insert_one(doc! { "_id": "root" }).await?;
    for branch in 0..5 {
        collection("nodes").insert_one(doc! { "_id": format!("branch-{branch}"), "parent": "root" }).await?;
    }
    for twig in 0..10 {
        let twig = doc! { "_id": format!("twig-{twig}"), "parent": "branch-0", "log": [] };
        collection("nodes").insert_one(twig).await?;
    }
    // Created here, because a transaction that creates a collection conflicts with others.
    database.create_collection("transfers").await?;
    database.create_collection("orders").await
}

/// The workers; they run until `end` is called.
pub(crate) struct Workload {
    pub(crate) journal: Journal,
    /// Every server that the drivers have known: a driver monitors each, so it connects to each.
    pub(crate) addresses: Arc<Mutex<BTreeSet<String>>>,
    runtime: Runtime,
    stop: Arc<AtomicBool>,
    workers: Vec<JoinHandle<()>>,
}

impl Workload {
    /// Each worker pauses this long between two operations.
    pub(crate) fn start(uri: &str, pause: Duration) -> Workload {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let mut workload = Workload {
            journal: Journal::of("rust"),
            addresses: Arc::default(),
            runtime,
            stop: Arc::default(),
            workers: Vec::new(),
        };
        for (number, kind) in (1..).zip(KINDS) {
            let client = workload.runtime.block_on(client(uri, &workload.addresses));
            let mut worker =
                Worker { kind, database: client.database("chaos"), client, random: Random(number), count: 0 };
            let (stop, journal) = (workload.stop.clone(), workload.journal.clone());
            workload.workers.push(workload.runtime.spawn(async move {
                let base = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64 * 2 + 1;
                while !stop.load(Ordering::Relaxed) {
                    journal.add(worker.step(base).await);
                    tokio::time::sleep(pause).await;
                }
            }));
        }
        workload
    }

    /// Lets every worker finish its operation.
    pub(crate) fn end(self) -> Journal {
        self.stop.store(true, Ordering::Relaxed);
        for worker in self.workers {
            self.runtime.block_on(worker).unwrap();
        }
        self.journal
    }
}

async fn client(uri: &str, addresses: &Arc<Mutex<BTreeSet<String>>>) -> Client {
    let mut options = ClientOptions::parse(uri).await.unwrap();
    options.app_name = Some("chaos-rust".to_owned());
    options.write_concern = Some(WriteConcern::majority());
    options.read_concern = Some(ReadConcern::majority());
    let addresses = addresses.clone();
    options.sdam_event_handler = Some(EventHandler::callback(move |event| {
        if let SdamEvent::ServerOpening(event) = event {
            addresses.lock().unwrap().insert(event.address.to_string());
        }
    }));
    Client::with_options(options).unwrap()
}

/// Repeats one kind of operation.
struct Worker {
    kind: &'static str,
    client: Client,
    database: Database,
    random: Random,
    count: i64,
}

impl Worker {
    async fn step(&mut self, base: i64) -> Record {
        self.count += 1;
        let token = match self.kind {
            "price" => (base + 2 * self.count).to_string(),
            kind => format!("r-{kind}-{}", self.count),
        };
        let (outcome, error) = match self.operate(&token).await {
            Ok(true) => (Outcome::Acknowledged, None),
            Ok(false) => (Outcome::Rejected, None),
            Err(error) => (Outcome::Unknown, Some(short(&error))),
        };
        Record { kind: self.kind.to_owned(), token, outcome, error }
    }

    /// Returns false if a rule or a filter rejected the operation.
    async fn operate(&mut self, token: &str) -> Result<bool, Error> {
        match self.kind {
            "order" => self.collection("orders").insert_one(doc! { "token": token }).await.map(|_| true),
            "batch" => {
                let documents = (0..4).map(|number| doc! { "token": token, "batch": number });
                self.collection("orders").insert_many(documents).await.map(|_| true)
            }
            "log" => self.log(token).await,
            "stock" => self.stock(token).await,
            "article" => self.article(token).await,
            "price" => self.price(token).await,
            "transfer" => self.transfer(token).await,
            "leaf" => {
                let leaf = doc! { "_id": token, "token": token, "parent": self.branch() };
                self.collection("nodes").insert_one(leaf).await.map(|_| true)
            }
            _ => self.relocate(token).await,
        }
    }

    fn collection(&self, name: &str) -> Collection<Document> {
        self.database.collection(name)
    }

    fn branch(&mut self) -> String {
        format!("branch-{}", self.random.below(5))
    }

    async fn log(&self, token: &str) -> Result<bool, Error> {
        let change = doc! { "$inc": { "n": 1 }, "$push": { "log": token } };
        let filter = doc! { "_id": format!("r-{}", self.count / 100) };
        self.collection("logs").update_one(filter, change).upsert(true).await.map(|_| true)
    }

    async fn stock(&mut self, token: &str) -> Result<bool, Error> {
        let delta = [-3, -2, -1, 1, 2, 3][self.random.below(6)];
        let change = doc! { "$inc": { "available": delta }, "$push": { "moves": { "token": token, "delta": delta } } };
        let item = doc! { "_id": self.random.below(20) as i32 };
        Ok(self.collection("stock").update_one(item, change).await?.modified_count == 1)
    }

    /// Reads, changes and saves a whole document, as many applications do.
    async fn article(&self, token: &str) -> Result<bool, Error> {
        let articles = self.collection("articles");
        let key = doc! { "_id": (self.count / 50 % 100) as i32 };
        for _ in 0..20 {
            let mut article = articles.find_one(key.clone()).await?.unwrap();
            article.get_array_mut("tokens").unwrap().push(token.into());
            match articles.replace_one(key.clone(), article).await {
                Err(error) if server_code(&error) == Some(112) => {}
                result => return result.map(|_| true),
            }
        }
        Ok(false)
    }

    async fn price(&self, token: &str) -> Result<bool, Error> {
        let time: i64 = token.parse().unwrap();
        let key = doc! { "_id": priced_item(time) as i32 };
        let change = doc! { "$set": { "price": time, "at": time } };
        self.collection("prices").update_one(key, change).await.map(|_| true)
    }

    async fn relocate(&mut self, token: &str) -> Result<bool, Error> {
        let twig = doc! { "_id": format!("twig-{}", self.random.below(10)) };
        let change = doc! { "$set": { "parent": self.branch() }, "$push": { "log": token } };
        let updated = self.collection("nodes").update_one(twig, change).await?;
        assert_eq!(updated.matched_count, 1);
        Ok(true)
    }

    /// Retried within two minutes, as the drivers' transactions specification requires.
    async fn transfer(&mut self, token: &str) -> Result<bool, Error> {
        let from = self.random.below(10) as i32;
        let to = (from + 1 + self.random.below(9) as i32) % 10;
        let mut session = self.client.start_session().await?;
        let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
        loop {
            let result = self.attempt(&mut session, token, from, to).await;
            match result {
                Err(error) if error.contains_label(TRANSIENT_TRANSACTION_ERROR) => {
                    let _ = session.abort_transaction().await;
                    if tokio::time::Instant::now() > deadline {
                        return Err(error);
                    }
                }
                result => return result.map(|()| true),
            }
        }
    }

    async fn attempt(&self, session: &mut ClientSession, token: &str, from: i32, to: i32) -> Result<(), Error> {
        let accounts = self.collection("accounts");
        session.start_transaction().await?;
        for (account, change) in [(from, -1), (to, 1)] {
            let change = doc! { "$inc": { "balance": change } };
            accounts.update_one(doc! { "_id": account }, change).session(&mut *session).await?;
        }
        let transfer = doc! { "token": token, "from": from, "to": to };
        self.collection("transfers").insert_one(transfer).session(&mut *session).await?;
        loop {
            match session.commit_transaction().await {
                Err(error) if error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) => {}
                result => return result,
            }
        }
    }
}

/// The item that a price belongs to; pymongo's workers choose the same.
pub(crate) fn priced_item(time: i64) -> i64 {
    time / 2 % 20
}

pub(crate) fn server_code(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => Some(command.code),
        ErrorKind::Write(WriteFailure::WriteError(write)) => Some(write.code),
        _ => None,
    }
}

/// The kind of an error, and the start of its text.
pub(crate) fn short(error: &Error) -> String {
    let text: String = error.kind.to_string().chars().take(900).collect();
    format!("{:?} {text}", server_code(error))
}
