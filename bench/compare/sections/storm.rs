//! Connection storms: thousands of clients that connect and log in at once, as after a deployment, a failover, or a
//! restart of docward.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bson::{Document, doc};
use support::frame::{Frame, Message};
use support::login::{Scram, log_in};
use support::mongod::{Kind, Mongod};
use support::process::free_port;
use support::proxy::Docward;
use support::raw::Client;
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::contenders::thousand_rules;
use crate::exchange::{BUFFER, connect, exchange};
use crate::report::Report;
use crate::rounds::Spread;

const CLIENTS: usize = 4_000;
const ROUNDS: usize = 5;
/// Server connections of the pool.
const SIZE: &str = "50";
/// Pause of a client before it tries again.
const PAUSE: Duration = Duration::from_millis(100);
/// When the clients have failed.
const LIMIT: Duration = Duration::from_mins(3);

/// How clients reach the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    Direct,
    Docward,
    Pool,
}

impl Path {
    const ALL: [Self; 3] = [Self::Direct, Self::Docward, Self::Pool];

    fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Docward => "docward",
            Self::Pool => "docward, pool",
        }
    }

    fn start(self, mongod: &Mongod, listen: &str) -> Option<Docward> {
        let docward = Docward::before(&format!("mongodb://{}/", mongod.address())).rules(&thousand_rules());
        let service = format!("mongodb://app:secret@{}/?authSource=admin", mongod.address());
        let docward = docward.listen(listen).argument("--service").argument(&service);
        match self {
            Self::Direct => None,
            Self::Docward => Some(docward.start()),
            Self::Pool => Some(docward.argument("--pool-size").argument(SIZE).start()),
        }
    }
}

/// What one path reached, one value for each round.
#[derive(Default)]
struct Reached {
    logins: Vec<f64>,
    restarts: Vec<f64>,
    /// Attempts beyond the first of each client.
    again: usize,
}

pub(super) fn storm() -> Result<Option<Report>> {
    if std::env::var_os("MONGOD").is_none() {
        eprintln!("skipped: set MONGOD to the path of a mongod, or run `make bench-compare`");
        return Ok(None);
    }
    let mongod = Mongod::start_with(Kind::Standalone, &["--auth"]);
    mongod.command("admin", doc! { "createUser": "app", "pwd": "secret", "roles": ["root"] });
    let mut app = Client::connect(&mongod.address());
    log_in(&mut app, "app", "secret");
    let inserted = app.command("bench", doc! { "insert": "devices", "documents": [{ "_id": 1_i64 }] });
    ensure!(inserted.get_f64("ok").is_ok_and(|ok| ok == 1.0), "the document could not be inserted: {inserted}");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let user = Arc::new(Scram::new("app", "secret"));
    let mut reached = Path::ALL.map(|_| Reached::default());
    for round in 0..ROUNDS {
        for offset in 0..Path::ALL.len() {
            let at = (round + offset) % Path::ALL.len();
            let (path, reached) = (Path::ALL[at], &mut reached[at]);
            let listen = format!("127.0.0.1:{}", free_port());
            let docward = path.start(&mongod, &listen);
            let address = docward.as_ref().map_or_else(|| mongod.address(), Docward::address);
            let begun = Instant::now();
            let (connections, again) = runtime.block_on(all(&address, &user))?;
            reached.logins.push(begun.elapsed().as_secs_f64());
            reached.again += again;
            if let Some(mut docward) = docward {
                let begun = Instant::now();
                docward.kill();
                drop(connections);
                let started = path.start(&mongod, &listen);
                let (_, again) = runtime.block_on(all(&address, &user))?;
                reached.restarts.push(begun.elapsed().as_secs_f64());
                reached.again += again;
                drop(started);
            }
        }
        eprintln!("round {} of {ROUNDS}", round + 1);
    }
    let mut report = Report::new("storm");
    let mut table =
        "| | seconds until all clients have a reply | after a restart of docward | attempts again |\n".to_owned();
    table += "|---|---|---|---|\n";
    for (path, Reached { logins, restarts, again }) in Path::ALL.iter().zip(reached) {
        let restarts = if restarts.is_empty() { String::new() } else { Spread::of(restarts).to_string() };
        table += &format!("| {} | {} | {restarts} | {again} |\n", path.name(), Spread::of(logins));
    }
    report.text(&table);
    Ok(Some(report))
}

/// Connects all clients at once, until each has logged in and has found a document. Returns their connections, and how
/// often they had to try again.
async fn all(address: &str, user: &Arc<Scram>) -> Result<(Vec<TcpStream>, usize)> {
    let again = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (address, user, again) = (address.to_owned(), user.clone(), again.clone());
            tokio::spawn(async move {
                loop {
                    match once(&address, &user).await {
                        Ok(connection) => return connection,
                        Err(_) => _ = again.fetch_add(1, Ordering::Relaxed),
                    }
                    sleep(PAUSE).await;
                }
            })
        })
        .collect();
    let joined = async {
        let mut connections = Vec::with_capacity(CLIENTS);
        for client in clients {
            connections.push(client.await?);
        }
        anyhow::Ok(connections)
    };
    let connections = tokio::time::timeout(LIMIT, joined).await.context("not all clients got a reply")??;
    Ok((connections, again.load(Ordering::Relaxed)))
}

/// Connects, logs in as drivers do, and finds a document.
async fn once(address: &str, user: &Scram) -> Result<TcpStream> {
    let mut stream = connect(address).await?;
    let mut speculative = user.start(true);
    speculative.insert("db", "admin");
    let hello = doc! { "hello": 1, "helloOk": true, "speculativeAuthenticate": speculative, "$db": "admin" };
    let reply = ask(&mut stream, hello).await?;
    let mut proof = user.proof(reply.get_document("speculativeAuthenticate")?);
    proof.insert("$db", "admin");
    let done = ask(&mut stream, proof).await?;
    ensure!(done.get_bool("done").is_ok_and(|done| done), "{done}");
    let found = ask(&mut stream, doc! { "find": "devices", "filter": { "_id": 1_i64 }, "$db": "bench" }).await?;
    ensure!(found.get_document("cursor")?.get_array("firstBatch")?.len() == 1, "{found}");
    Ok(stream)
}

async fn ask(stream: &mut TcpStream, command: Document) -> Result<Document> {
    let mut buffer = vec![0; BUFFER];
    let request = Message::new(command).to_frame(1, 0).to_bytes();
    let length = exchange(stream, &request, &mut buffer).await?;
    let frame = Frame::read(&mut &buffer[..length])?.context("no reply")?;
    Ok(Message::parse(&frame).body().clone())
}
