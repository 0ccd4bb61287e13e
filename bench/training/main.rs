//! Sends traffic of every kind through an instrumented docward, so that the compiler learns which paths are hot.
//! `scripts/release.sh` builds the instrumented binary, and uses its counts to build the release.
//!
//! `training DOCWARD`; docward writes the counts when it ends. The frequency of a message decides how hot its path
//! is, so what is rare in production is rare here. The compiler optimises paths that are never executed for size.

#[path = "../compare/canned.rs"]
mod canned;
mod client;
#[path = "../compare/cycle.rs"]
#[allow(dead_code, reason = "the benchmark's own, which replays captures too")]
mod cycle;
#[path = "../compare/exchange.rs"]
mod exchange;
#[path = "../frames.rs"]
mod frames;
mod process;

use std::path::Path;

use anyhow::{Context, Result};
use client::send;
use docward_protocol::wire::compressed::Compressor;
use frames::Session;
use process::Docward;
use support::certificates::Authority;
use tokio::net::TcpListener;

/// Repetitions of each message of which docward reads only the start.
const OFTEN: usize = 20_000;
/// Repetitions of each message that a rule matches.
const MATCHED: usize = 5_000;
/// Repetitions of each long message.
const SELDOM: usize = 200;
/// Divisor of the repetitions of compressed or encrypted messages.
const LESS: usize = 10;
const MEBIBYTE: usize = 1 << 20;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let program = std::env::args().nth(1).context("usage: training DOCWARD")?;
    let folder = tempfile::tempdir()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    process::evaluate(&program, &root)?;
    let upstream = format!("mongodb://{}/", serve_canned().await?);
    let rules = folder.path().join("rules");
    std::fs::create_dir(&rules)?;
    // A thousand rules that match no message, and one rule for each protected collection.
    std::fs::write(rules.join("unrelated.yaml"), frames::unrelated_rules(1_000))?;
    std::fs::write(rules.join("rewriting.yaml"), frames::rewriting_rules())?;
    let rules = rules.to_string_lossy();

    let plain = Docward::start(&program, &upstream, &["--rules", &rules])?;
    for (message, count) in MESSAGES {
        send(plain.address(), None, message, count).await?;
    }
    for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        for (message, count) in MESSAGES {
            send(plain.address(), Some(compressor), message, count / LESS).await?;
        }
    }
    plain.end()?;

    // TLS on both sides: one docward is the client of the other.
    let authority = Authority::new(folder.path(), "authority");
    let certificate = authority.sign("server", &["localhost", "127.0.0.1"]);
    let arguments = ["--rules", &rules, "--tls-certificate", &certificate, "--admin", "127.0.0.1:0"];
    let secure = Docward::start(&program, &upstream, &arguments)?;
    let through = format!("mongodb://{}/?tls=true&tlsCAFile={}", secure.address(), authority.file());
    let client = Docward::start(&program, &through, &[])?;
    for (message, count) in MESSAGES {
        send(client.address(), None, message, count / LESS).await?;
    }
    client.end()?;
    secure.end()
}

/// Makes the message of a client.
type Message = fn(Session) -> Vec<u8>;

/// The messages of drivers, and how often each is sent. Drivers send retryable writes to replica sets, each client in
/// its own session.
const MESSAGES: [(Message, usize); 18] = [
    (|_| frames::find("devices", 1), OFTEN),
    (|_| frames::insert("devices", 1024), OFTEN),
    (|session| frames::insert_in(session, "devices", 1024), OFTEN),
    (|_| frames::update("devices", 1, 1, &frames::state()), OFTEN),
    (|_| frames::delete("devices", 1), OFTEN / 4),
    (|session| frames::next_number(session, "orders"), OFTEN / 4),
    (|_| frames::update("timestamped", 1, 1, &frames::state()), MATCHED),
    (|_| frames::update("newest", 1, 1, &frames::state()), MATCHED),
    (|_| frames::update("bounded", 1, 1, &frames::taken()), MATCHED),
    (|_| frames::update("versioned", 1, 1, &frames::versioned()), MATCHED),
    (|_| frames::insert("numbered", 1024), MATCHED),
    (|session| frames::insert_in(session, "numbered", 1024), MATCHED),
    (|_| frames::find("timestamped", 1), MATCHED),
    (|_| frames::update("timestamped", 1, 100, &frames::state()), SELDOM),
    (|_| frames::update("versioned", 1, 100, &frames::versioned()), SELDOM),
    (|_| frames::insert("devices", MEBIBYTE), SELDOM),
    (|_| frames::insert("numbered", MEBIBYTE), SELDOM),
    (|_| frames::find_much(MEBIBYTE), SELDOM),
];

/// Starts a server that answers at once until the process ends; returns its address.
async fn serve_canned() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(canned::answer(client));
        }
    });
    Ok(address.to_string())
}
