//! Memory use with many connections and over a long time.

use std::time::{Duration, Instant};

use bson::doc;
use mongodb::Client;

use crate::pymongo::Pymongo;
use crate::recovery_time;
use crate::setting;
use crate::workload::{self, Workload};
use support::mongod::{Kind, Mongod};
use support::process::{Resident, local_ports};
use support::proxy::Docward;
use support::raw;

/// Resident memory of a process in KiB.
fn resident(pid: u32) -> u64 {
    Resident::of(pid).now as u64 / 1024
}

#[test]
#[ignore = "10,000 threads of mongod and 40,000 sockets: make chaos"]
fn ten_thousand_idle_connections_are_held() {
    // Each connection needs two files in docward and in mongod, plus some for the rest.
    let (_, files) = rlimit::Resource::NOFILE.get().unwrap();
    let count = usize::min(10_000, (files as usize - 200) / 2);
    if count < 10_000 {
        println!("a process may have {files} files open here: {count} connections must do (ulimit -n)");
    }
    let mongod = Mongod::start_with(Kind::ReplicaSet, &["--maxConns", "20000"]);
    let docward = Docward::start(&mongod, "");
    let before = resident(docward.pid());
    let mut clients = Vec::with_capacity(count);
    let started = Instant::now();
    for _ in 0..count {
        let mut client = raw::Client::connect(&docward.address());
        let reply = client.try_command("admin", doc! { "hello": 1 }, Duration::from_secs(20));
        assert!(
            reply.is_some(),
            "no answer after {} connections; mongod reports: {}",
            clients.len(),
            last_warnings(&mongod.whole_log())
        );
        clients.push(client);
    }
    let opened = started.elapsed();
    let with_all = resident(docward.pid());
    let sockets = local_ports(docward.pid()).len();
    assert!(sockets >= 2 * count, "{sockets} sockets for {count} connections");
    // Each of the connections still works.
    for client in &mut clients {
        assert_eq!(client.command("admin", doc! { "ping": 1 }).get_f64("ok").unwrap(), 1.0);
    }
    let used = resident(docward.pid());
    let each = (used - before) as f64 / count as f64;
    println!(
        "{count} connections opened in {opened:.1?}; {sockets} sockets; docward has {before} KiB before, {with_all} with them, {used} after a ping each: {each:.1} KiB for each"
    );
    assert!(each < 32.0, "{each} KiB for an idle connection");
}

/// The last warnings of a log.
fn last_warnings(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.contains("\"s\":\"I\"")).collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// Runs the workload of `workload` with opening and closing connections for `minutes`. Memory in the last quarter
/// must not exceed that in the quarter before it.
#[test]
#[ignore = "a quarter of an hour: make soak"]
fn memory_is_flat_after_a_quarter_of_an_hour() {
    let duration = Duration::from_secs(setting("DOCWARD_SOAK_SECONDS", 900));
    let mongod = Mongod::start(Kind::ReplicaSet);
    let docward = Docward::before(&mongod.uri()).rules(&workload::rules(5)).environment("RUST_LOG", "error").start();
    let uri = format!("mongodb://{}/?replicaSet=rs0&w=majority", docward.address());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = Client::with_uri_str(&uri).await.unwrap();
        workload::prepare(&client.database("chaos")).await.unwrap();
    });
    let pause = Duration::from_millis(10);
    let (workload, mut pymongo) = (Workload::start(&uri, pause), Pymongo::start(&uri, pause));
    let journals = [&workload.journal.clone(), &pymongo.journal.clone()];
    recovery_time(journals);
    let started = Instant::now();
    let mut samples = Vec::new();
    while started.elapsed() < duration {
        for _ in 0..20 {
            let mut client = raw::Client::connect(&docward.address());
            let text = "x".repeat(100_000);
            let reply = client.command("chaos", doc! { "insert": "large", "documents": [{ "text": text }] });
            assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}");
            client.command("chaos", doc! { "find": "large", "limit": 20, "batchSize": 20 });
        }
        mongod.command("chaos", doc! { "delete": "large", "deletes": [{ "q": {}, "limit": 0 }] });
        samples.push(resident(docward.pid()));
        if samples.len() % 15 == 1 {
            let done = journals.map(|journal| journal.acknowledged());
            println!("{:4.0?}: {} KiB, {done:?} operations", started.elapsed(), samples[samples.len() - 1]);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    workload.end();
    pymongo.end();
    journals.iter().for_each(|journal| journal.print_summary());
    let quarter = samples.len() / 4;
    let mean = |part: &[u64]| part.iter().sum::<u64>() / part.len() as u64;
    let [.., third, last] = std::array::from_fn::<u64, 4, _>(|i| mean(&samples[i * quarter..(i + 1) * quarter]));
    println!("mean of the third quarter {third} KiB, of the last {last} KiB");
    assert!(last < third + third / 20, "memory grows: {samples:?}");
}
