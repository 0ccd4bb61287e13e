//! Failures under a pool: server connections cut at any byte, also in the middle of a login; elections and killed
//! members while the pool is full; users whose roles or password change.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bson::{Document, doc};
use futures_util::TryStreamExt;
use support::driver::code;
use support::mongod::{Kind, Mongod};
use support::process::{TIMEOUT, poll};
use support::random::Random;
use support::replica_set::ReplicaSet;

use super::pool::{USERS, assert_markers, connect, create, live_all, pooled};

/// A relay to `server` that cuts most connections after a random number of bytes in either direction.
pub(super) struct CuttingRelay {
    pub(super) address: String,
    pub(super) cuts: Arc<AtomicUsize>,
    ends: Arc<AtomicBool>,
}

impl CuttingRelay {
    pub(super) fn start(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (cuts, ends) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let relay = Self { address, cuts: cuts.clone(), ends: ends.clone() };
        std::thread::spawn(move || {
            let mut random = Random(7);
            for client in listener.incoming() {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else { continue };
                // A login takes some 1,500 bytes: some are cut in it, some after thousands of commands.
                let most = 1 << (8 + random.below(10));
                let left = Arc::new(AtomicUsize::new(100 + random.below(most)));
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (left, cuts) = (left.clone(), cuts.clone());
                    std::thread::spawn(move || copy(from, to, &left, &cuts));
                }
            }
        });
        relay
    }
}

impl Drop for CuttingRelay {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(&self.address);
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, left: &AtomicUsize, cuts: &AtomicUsize) {
    let mut buffer = [0; 512];
    while let Ok(read) = from.read(&mut buffer).map(|read| read.min(left.load(Ordering::Relaxed))) {
        if read == 0 || to.write_all(&buffer[..read]).is_err() {
            break;
        }
        if left.fetch_sub(read, Ordering::Relaxed) <= read {
            cuts.fetch_add(1, Ordering::Relaxed);
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[tokio::test(flavor = "multi_thread")]
async fn server_connections_cut_at_any_byte_mix_up_no_users_and_lose_no_writes() {
    let mongod = Mongod::start_with_access_control(Kind::Standalone);
    let root = connect("root", "secret", &mongod.address()).await;
    for user in USERS {
        create(&root, user).await;
    }
    let relay = CuttingRelay::start(mongod.address());
    let docward =
        pooled(&format!("mongodb://{}/", relay.address), "3").argument("--pool-max-wait").argument("60s").start();
    let until = Instant::now() + Duration::from_secs(8);
    let acknowledged = live_all(&docward.address(), 100..116, until).await;
    let cuts = relay.cuts.load(Ordering::Relaxed);
    assert!(cuts > 20, "only {cuts} connections were cut");
    assert_markers(&root, acknowledged).await;
}

/// What one client did, as far as it knows.
#[derive(Default)]
struct Done {
    acknowledged: i64,
    /// Errors: the increment may be stored.
    unknown: i64,
    /// The `_id`s of acknowledged inserts.
    inserted: Vec<String>,
}

/// What all clients share: when to end, and how many increments were acknowledged.
#[derive(Default)]
struct Progress {
    ends: AtomicBool,
    acknowledged: AtomicI64,
}

/// Increments a document of its own and inserts others, with retryable writes.
async fn write(client: mongodb::Client, number: usize, progress: Arc<Progress>) -> Done {
    let database = client.database("elections");
    let (counts, marks) = (database.collection::<Document>("counts"), database.collection::<Document>("marks"));
    let mut done = Done::default();
    for turn in 0.. {
        if progress.ends.load(Ordering::Relaxed) {
            break;
        }
        let increment = counts.update_one(doc! {"_id": number as i64}, doc! {"$inc": {"n": 1_i64}}).upsert(true);
        match increment.await {
            Ok(_) => {
                done.acknowledged += 1;
                progress.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => done.unknown += 1,
        }
        let id = format!("{number}-{turn}");
        if marks.insert_one(doc! {"_id": &id, "by": number as i64}).await.is_ok() {
            done.inserted.push(id.clone());
            let found = marks.find_one(doc! {"_id": &id}).await;
            // A read may fail, but never has another client's reply.
            if let Ok(Some(found)) = found {
                assert_eq!((found.get_str("_id").unwrap(), found.get_i64("by").unwrap()), (id.as_str(), number as i64));
            }
        }
    }
    done
}

#[tokio::test(flavor = "multi_thread")]
async fn elections_and_killed_members_lose_and_double_no_write_of_a_full_pool() {
    const CLIENTS: usize = 40;
    let mut set = tokio::task::block_in_place(|| ReplicaSet::start(3));
    let docward = pooled(&set.uri(), "3").argument("--pool-reserve").argument("1").listeners(3).start();
    let uri = format!(
        "mongodb://{}/?replicaSet=rs0&serverSelectionTimeoutMS=10000&w=majority",
        docward.addresses().join(",")
    );
    let progress = Arc::<Progress>::default();
    let mut writers = Vec::new();
    for number in 0..CLIENTS {
        let client = mongodb::Client::with_uri_str(&uri).await.unwrap();
        writers.push(tokio::spawn(write(client, number, progress.clone())));
    }
    let shared = progress.clone();
    let failures = tokio::task::spawn_blocking(move || {
        std::thread::sleep(Duration::from_secs(2));
        set.step_down();
        std::thread::sleep(Duration::from_secs(2));
        let primary = set.await_primary();
        set.kill(primary);
        set.await_primary();
        set.restart(primary);
        let before = shared.acknowledged.load(Ordering::Relaxed);
        let enough = || (shared.acknowledged.load(Ordering::Relaxed) > before + 200).then_some(());
        poll(TIMEOUT, enough).expect("the clients write again after the failures");
        shared.ends.store(true, Ordering::Relaxed);
        set
    });
    let set = failures.await.unwrap();
    let mut all = Vec::new();
    for writer in writers {
        all.push(tokio::time::timeout(TIMEOUT, writer).await.expect("a client waits for ever").unwrap());
    }
    let direct = set.client().await;
    let database = direct.database("elections");
    let counts: Vec<Document> = database.collection("counts").find(doc! {}).await.unwrap().try_collect().await.unwrap();
    let marks: Vec<Document> = database.collection("marks").find(doc! {}).await.unwrap().try_collect().await.unwrap();
    for (number, done) in all.iter().enumerate() {
        let of_client = |count: &&Document| count.get_i64("_id").unwrap() == number as i64;
        let stored = counts.iter().find(of_client).map_or(0, |count| count.get_i64("n").unwrap());
        let expected = done.acknowledged..=done.acknowledged + done.unknown;
        assert!(expected.contains(&stored), "client {number}: {stored} increments, acknowledged {expected:?}");
        for id in &done.inserted {
            assert!(marks.iter().any(|mark| mark.get_str("_id").unwrap() == id), "the acknowledged {id} is lost");
        }
    }
}

/// Like direct connections: roles apply at once, and a changed password only to new logins.
#[tokio::test(flavor = "multi_thread")]
async fn changes_of_roles_and_passwords_apply_as_without_docward() {
    let mongod = Mongod::start_with_access_control(Kind::Standalone);
    let root = connect("root", "secret", &mongod.address()).await;
    create(&root, "ann").await;
    let docward = pooled(&format!("mongodb://{}/", mongod.address()), "2").start();
    let admin = root.database("admin");
    let through = connect("ann", "ann", &docward.address()).await;
    let direct = connect("ann", "ann", &mongod.address()).await;
    let write = async |client: &mongodb::Client| {
        let marks = client.database("ann").collection::<Document>("marks");
        marks.insert_one(doc! {}).await.map(drop).map_err(|error| code(&error))
    };
    assert_eq!((write(&through).await, write(&direct).await), (Ok(()), Ok(())));
    let roles = vec![doc! {"role": "readWrite", "db": "ann"}];
    for _ in 0..3 {
        admin.run_command(doc! {"revokeRolesFromUser": "ann", "roles": &roles}).await.unwrap();
        assert_eq!((write(&through).await, write(&direct).await), (Err(13), Err(13)));
        admin.run_command(doc! {"grantRolesToUser": "ann", "roles": &roles}).await.unwrap();
        assert_eq!((write(&through).await, write(&direct).await), (Ok(()), Ok(())));
    }
    admin.run_command(doc! {"updateUser": "ann", "pwd": "new"}).await.unwrap();
    assert_eq!((write(&through).await, write(&direct).await), (Ok(()), Ok(())));
    for address in [docward.address(), mongod.address()] {
        let former = connect("ann", "ann", &address).await;
        let written = former.database("ann").collection("marks").insert_one(doc! {}).await;
        assert!(written.is_err(), "the former password still works at {address}");
        let renewed = connect("ann", "new", &address).await;
        assert_eq!(write(&renewed).await, Ok(()), "{address}");
    }
}
