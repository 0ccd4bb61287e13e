//! Traffic of every kind, sent through a docward that counts what it executes, so that the compiler learns which paths are
//! hot. `scripts/release.sh` builds that one, and with its counts the one that is released.
//!
//! `training DOCWARD`; the counts are written when docward ends. How often something is sent decides what is hot, so
//! what is rare in production is rare here. What is not sent at all is built for size.

#[path = "../compare/canned.rs"]
mod canned;
#[path = "../../tests/support/certificates.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "the tests' own, who need more of them")]
mod certificates;
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
use certificates::Authority;
use client::send;
use docward::wire::compressed::Compressor;
use frames::Session;
use process::Docward;
use tokio::net::TcpListener;

/// Of each message whose beginning is looked at.
const OFTEN: usize = 20_000;
/// Of each message that a rule concerns.
const GUARDED: usize = 5_000;
/// Of what is long.
const SELDOM: usize = 200;
/// What is compressed or encrypted is sent so much more seldom.
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
    // A thousand rules that concern nothing, and one for each protected collection.
    std::fs::write(rules.join("unrelated.yaml"), frames::unrelated_rules(1_000))?;
    std::fs::write(rules.join("guards.yaml"), frames::guards())?;
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

    // Through TLS on both sides: one docward is the other's client.
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

/// Makes a client's message.
type Message = fn(Session) -> Vec<u8>;

/// What drivers send, and how often. To replica sets they send retryable writes, each client in its own session.
const MESSAGES: [(Message, usize); 18] = [
    (|_| frames::find("devices", 1), OFTEN),
    (|_| frames::insert("devices", 1024), OFTEN),
    (|session| frames::insert_in(session, "devices", 1024), OFTEN),
    (|_| frames::update("devices", 1, 1, &frames::state()), OFTEN),
    (|_| frames::delete("devices", 1), OFTEN / 4),
    (|session| frames::next_number(session, "orders"), OFTEN / 4),
    (|_| frames::update("timestamped", 1, 1, &frames::state()), GUARDED),
    (|_| frames::update("newest", 1, 1, &frames::state()), GUARDED),
    (|_| frames::update("bounded", 1, 1, &frames::taken()), GUARDED),
    (|_| frames::update("versioned", 1, 1, &frames::versioned()), GUARDED),
    (|_| frames::insert("numbered", 1024), GUARDED),
    (|session| frames::insert_in(session, "numbered", 1024), GUARDED),
    (|_| frames::find("timestamped", 1), GUARDED),
    (|_| frames::update("timestamped", 1, 100, &frames::state()), SELDOM),
    (|_| frames::update("versioned", 1, 100, &frames::versioned()), SELDOM),
    (|_| frames::insert("devices", MEBIBYTE), SELDOM),
    (|_| frames::insert("numbered", MEBIBYTE), SELDOM),
    (|_| frames::find_much(MEBIBYTE), SELDOM),
];

/// A server that answers at once, until the end; gives its address.
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
