//! `make chaos`: hundreds of clients of three users share few server connections, while connections of both sides are cut,
//! the member steps down, a password changes, a user is dropped and created again, and one loses its role for a while.
//! Each user may write in its own database only. Every reply must contain the number of its request.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use bson::{Document, doc};
use futures_util::TryStreamExt;
use support::frame::Message;
use support::login::{Scram, try_log_in};
use support::mongod::{Kind, Mongod};
use support::process::TIMEOUT;
use support::random::Random;
use support::raw::Client;

use super::pool::{USERS, connect, create, pooled};
use super::pool_failures::CuttingRelay;

/// Overload, and a member that steps down or is no primary.
const EXPECTED: [i32; 7] = [462, 10_107, 13_435, 11_602, 11_600, 91, 189];
const UNAUTHORIZED: i32 = 13;
/// Of a login during which the user was dropped.
const USER_NOT_FOUND: i32 = 11;

/// What the clients know of a user.
struct User {
    scram: RwLock<Arc<Scram>>,
    /// It may write now. Set after the change on the server, cleared before the next one.
    is_locked: AtomicBool,
    /// How often the user was created.
    created: AtomicU32,
    /// The last creation after which a client has logged in: docward knows of it.
    confirmed: AtomicU32,
}

/// What one client has done as one user.
#[derive(Default)]
struct Count {
    acknowledged: i64,
    /// There was no reply: the write may be stored.
    unknown: i64,
}

struct World {
    users: Vec<User>,
    addresses: Vec<String>,
    until: Instant,
    /// By client and user.
    counts: Mutex<HashMap<String, Count>>,
    marks: Mutex<Vec<(usize, String)>>,
    operations: AtomicU64,
    rejections: Mutex<HashMap<i32, u64>>,
    nonces: AtomicU64,
}

impl World {
    /// The server's error, if it is one that the events explain.
    fn note_error(&self, reply: &Document, what: &str) {
        let of_write = || reply.get_array("writeErrors").ok()?.first()?.as_document()?.get_i32("code").ok();
        let code = reply.get_i32("code").ok().or_else(of_write).unwrap_or_else(|| panic!("{what}: {reply}"));
        assert!(EXPECTED.contains(&code) || code == UNAUTHORIZED, "{what}: {reply}");
        *self.rejections.lock().unwrap().entry(code).or_default() += 1;
    }

    fn live(&self, number: usize) {
        let mut random = Random(number as u64 * 7919 + 1);
        while Instant::now() < self.until {
            let at = random.below(self.users.len());
            let address = random.pick(&self.addresses);
            let Ok(mut client) = Client::try_connect(address) else {
                std::thread::sleep(Duration::from_millis(50));
                continue;
            };
            let (user, scram) = (&self.users[at], self.users[at].scram.read().unwrap().clone());
            if random.below(20) == 0 {
                // It leaves in the middle of a login.
                let mut start = scram.start(true);
                start.insert("$db", "admin");
                let _ = client.try_send_bytes(&Message::new(start).to_frame(1, 0).to_bytes());
                continue;
            }
            let created = user.created.load(Ordering::SeqCst);
            match try_log_in(&mut client, &scram, TIMEOUT) {
                Some(Ok(())) => _ = user.confirmed.fetch_max(created, Ordering::SeqCst),
                // The password or the user has changed meanwhile, or the member steps down.
                Some(Err(code)) => {
                    assert!([18, USER_NOT_FOUND].contains(&code) || EXPECTED.contains(&code), "login: {code}")
                }
                None => {}
            }
            // A failed login gives nothing, which the writes show.
            let generation = user.created.load(Ordering::SeqCst);
            while Instant::now() < self.until && random.below(40) != 0 {
                if self.write(&mut client, number, at, generation, &mut random).is_none() {
                    break;
                }
            }
        }
    }

    /// `None`: the connection has ended.
    fn write(&self, client: &mut Client, number: usize, at: usize, generation: u32, random: &mut Random) -> Option<()> {
        let (user, name) = (&self.users[at], USERS[at]);
        let nonce = self.nonces.fetch_add(1, Ordering::Relaxed).to_string();
        let (was_locked, confirmed) = (user.is_locked.load(Ordering::SeqCst), user.confirmed.load(Ordering::SeqCst));
        self.operations.fetch_add(1, Ordering::Relaxed);
        match random.below(4) {
            0 => {
                let key = format!("{number}-{name}");
                let increment =
                    doc! {"q": {"_id": &key}, "u": {"$inc": {"n": 1_i64}, "$set": {"by": name}}, "upsert": true};
                let mut update = doc! {"update": "counts", "updates": [increment]};
                if random.below(30) == 0 {
                    // It leaves without waiting for the reply.
                    update.insert("$db", name);
                    self.counts.lock().unwrap().entry(key).or_default().unknown += 1;
                    let _ = client.try_send_bytes(&Message::new(update).to_frame(1, 0).to_bytes());
                    return None;
                }
                let reply = client.try_command(name, update, TIMEOUT);
                let is_done = reply.as_ref().is_some_and(is_written);
                {
                    let mut counts = self.counts.lock().unwrap();
                    let count = counts.entry(key).or_default();
                    count.acknowledged += i64::from(is_done);
                    count.unknown += i64::from(reply.is_none());
                }
                let reply = reply?;
                if is_done {
                    let is_locked = was_locked && user.is_locked.load(Ordering::SeqCst);
                    assert!(!is_locked, "{name} wrote without the right to");
                    assert!(confirmed <= generation, "a client of the former {name} wrote as the new one");
                } else {
                    self.note_error(&reply, "update");
                }
            }
            1 => {
                let id = format!("{number}-{nonce}");
                let insert = doc! {"insert": "marks", "documents": [{"_id": &id, "by": name}]};
                let reply = client.try_command(name, insert, TIMEOUT)?;
                if is_written(&reply) {
                    self.marks.lock().unwrap().push((at, id.clone()));
                    let filter = doc! {"find": "marks", "filter": {"_id": &id}, "projection": {"by": 1, "nonce": {"$literal": &nonce}}};
                    let found = client.try_command(name, filter, TIMEOUT)?;
                    match found.get_document("cursor") {
                        Ok(cursor) => {
                            let expected = doc! {"_id": id, "by": name, "nonce": nonce};
                            assert_eq!(cursor.get_array("firstBatch").unwrap().as_slice(), [expected.into()]);
                        }
                        Err(_) => self.note_error(&found, "find"),
                    }
                } else {
                    self.note_error(&reply, "insert");
                }
            }
            2 => {
                let find = doc! {"find": "fixed", "projection": {"nonce": {"$literal": &nonce}}};
                let found = client.try_command(name, find, TIMEOUT)?;
                match found.get_document("cursor") {
                    Ok(cursor) => {
                        let expected = doc! {"_id": name, "nonce": nonce};
                        assert_eq!(cursor.get_array("firstBatch").unwrap().as_slice(), [expected.into()]);
                    }
                    Err(_) => self.note_error(&found, "find"),
                }
            }
            _ => {
                let other = USERS[(at + 1) % USERS.len()];
                let wrong = doc! {"insert": "marks", "documents": [{"_id": &nonce, "by": name}]};
                let reply = client.try_command(other, wrong, TIMEOUT)?;
                assert!(reply.get_f64("ok").is_ok_and(|ok| ok == 0.0), "{name} wrote as {other}: {reply}");
                self.note_error(&reply, "insert");
            }
        }
        Some(())
    }
}

/// Whether the reply shows that the one document is written.
fn is_written(reply: &Document) -> bool {
    reply.get_f64("ok").is_ok_and(|ok| ok == 1.0) && !reply.contains_key("writeErrors")
}

/// Steps down, and changes the users, one after the other.
async fn disturb(root: &mongodb::Client, world: &World, pause: Duration) {
    let admin = root.database("admin");
    let roles = |name: &str| vec![doc! {"role": "readWrite", "db": name}];
    // The member is elected again, and the driver retries.
    let run = async |command: Document| {
        let ended = Instant::now() + TIMEOUT;
        while let Err(error) = admin.run_command(command.clone()).await {
            assert!(Instant::now() < ended, "{command}: {error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let (ann, bob, eve) = (&world.users[0], &world.users[1], &world.users[2]);
    for turn in 0.. {
        if Instant::now() + 4 * pause > world.until {
            return;
        }
        let _ = admin.run_command(doc! {"replSetStepDown": 1, "force": true}).await;
        tokio::time::sleep(pause).await;
        let password = format!("password{turn}");
        run(doc! {"updateUser": "ann", "pwd": &password}).await;
        *ann.scram.write().unwrap() = Arc::new(Scram::new("ann", &password));
        tokio::time::sleep(pause).await;
        run(doc! {"revokeRolesFromUser": "bob", "roles": roles("bob")}).await;
        bob.is_locked.store(true, Ordering::SeqCst);
        tokio::time::sleep(pause).await;
        bob.is_locked.store(false, Ordering::SeqCst);
        run(doc! {"grantRolesToUser": "bob", "roles": roles("bob")}).await;
        run(doc! {"dropUser": "eve"}).await;
        eve.is_locked.store(true, Ordering::SeqCst);
        tokio::time::sleep(pause).await;
        eve.is_locked.store(false, Ordering::SeqCst);
        run(doc! {"createUser": "eve", "pwd": "eve", "roles": roles("eve")}).await;
        eve.created.fetch_add(1, Ordering::SeqCst);
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes half a minute and loads the machine; `make chaos` runs it"]
async fn hundreds_of_clients_are_not_mixed_up_while_connections_members_and_users_change() {
    let mongod = Mongod::start_with_access_control(Kind::ReplicaSet);
    let root = connect("root", "secret", &mongod.address()).await;
    for user in USERS {
        create(&root, user).await;
        root.database(user).collection("fixed").insert_one(doc! {"_id": user}).await.unwrap();
    }
    let server = CuttingRelay::start(mongod.address());
    let docward = pooled(&format!("mongodb://{}/?directConnection=true", server.address), "8")
        .argument("--pool-max-wait")
        .argument("20s")
        .argument("--pool-max-lifetime")
        .argument("5s")
        .start();
    let client_relay = CuttingRelay::start(docward.address());
    let seconds = Duration::from_secs(number("DOCWARD_CHAOS_SECONDS", 20));
    let user = |name: &&str| User {
        scram: RwLock::new(Arc::new(Scram::new(name, name))),
        is_locked: false.into(),
        created: 0.into(),
        confirmed: 0.into(),
    };
    let world = Arc::new(World {
        users: USERS.iter().map(user).collect(),
        addresses: vec![docward.address(), client_relay.address.clone()],
        until: Instant::now() + seconds,
        counts: Mutex::default(),
        marks: Mutex::default(),
        operations: 0.into(),
        rejections: Mutex::default(),
        nonces: 0.into(),
    });
    let clients = number("DOCWARD_CHAOS_CLIENTS", 500);
    let threads: Vec<_> = (0..clients as usize)
        .map(|number| {
            let world = world.clone();
            std::thread::spawn(move || world.live(number))
        })
        .collect();
    disturb(&root, &world, Duration::from_secs(1)).await;
    let joined = tokio::task::spawn_blocking(|| threads.into_iter().map(|thread| thread.join().is_ok()).collect());
    let joined: Vec<bool> = joined.await.unwrap();
    let failed = joined.iter().filter(|is_ok| !**is_ok).count();
    assert_eq!(failed, 0, "of {clients} clients, see above");

    let mut stored = HashMap::new();
    for name in USERS {
        let database = root.database(name);
        for collection in ["counts", "marks"] {
            let all = database.collection::<Document>(collection).find(doc! {}).await.unwrap();
            let all: Vec<Document> = all.try_collect().await.unwrap();
            for document in all {
                assert_eq!(document.get_str("by").unwrap(), name, "{document}");
                let count = document.get_i64("n").unwrap_or(1);
                stored.insert((name, collection, document.get_str("_id").unwrap().to_owned()), count);
            }
        }
    }
    for (at, id) in world.marks.lock().unwrap().iter() {
        assert!(stored.contains_key(&(USERS[*at], "marks", id.clone())), "the acknowledged mark {id} is lost");
    }
    let (mut acknowledged, mut unknown) = (0, 0);
    for (key, count) in world.counts.lock().unwrap().iter() {
        let name = USERS.into_iter().find(|name| key.ends_with(name)).unwrap();
        let found = stored.get(&(name, "counts", key.clone())).copied().unwrap_or(0);
        let expected = count.acknowledged..=count.acknowledged + count.unknown;
        assert!(expected.contains(&found), "{key}: {found} increments are stored, expected {expected:?}");
        acknowledged += count.acknowledged;
        unknown += count.unknown;
    }
    let cuts = (client_relay.cuts.load(Ordering::Relaxed), server.cuts.load(Ordering::Relaxed));
    eprintln!(
        "{clients} clients: {} operations, {acknowledged} increments, {unknown} without a reply, {} marks; {cuts:?} \
         connections of clients and to the server cut; errors by code: {:?}",
        world.operations.load(Ordering::Relaxed),
        world.marks.lock().unwrap().len(),
        world.rejections.lock().unwrap(),
    );
    assert!(acknowledged > 100 && cuts.0 > 20 && cuts.1 > 20);
    assert!(!docward.log().iter().any(|line| line.contains("panicked")));
}
