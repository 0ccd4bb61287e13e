//! Another client that inserts a document while docward executes a statement, after a command that docward sends for it. The server delays the reply to this command until the document is stored, so the order is always the same.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bson::{Bson, Document, doc};

use super::lab::{PROTECTED, server};
use super::values::as_number;
use support::driver::ok;
use support::raw::Client;

/// The failpoint delays the reply of an executed command.
const DELAY: &str = "waitAfterCommandFinishesExecution";
/// What another client does while docward executes a statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Race {
    /// The document that it inserts.
    pub(super) document: Document,
    /// After docward's first find; otherwise after its first command.
    pub(super) after_find: bool,
}

impl Race {
    /// The commands of docward that are delayed: not plain inserts, one of which is the other client's.
    fn delayed(&self) -> &'static [&'static str] {
        if self.after_find { &["find"] } else { &["find", "update", "findAndModify", "delete"] }
    }
}

/// How often it looks whether the statement has ended without a delayed command.
const WAIT_MILLISECONDS: i32 = 10;

/// The insert ends if it waits for a transaction of the delayed command.
const INSERT_MILLISECONDS: i32 = 30;

/// A failpoint has one configuration for the whole server.
fn alone() -> MutexGuard<'static, ()> {
    static USED: Mutex<()> = Mutex::new(());
    USED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Inserts the document during `statement`. Returns whether that succeeded, with the statement's result.
pub(super) fn insert_during<T>(
    store: &mut Client,
    collection: &str,
    race: &Race,
    statement: impl FnOnce() -> T,
) -> (bool, T) {
    let _alone = alone();
    let data = doc! { "ns": format!("{PROTECTED}.{collection}"), "commands": race.delayed() };
    let reply = store.command("admin", doc! { "configureFailPoint": DELAY, "mode": "alwaysOn", "data": data });
    let entered = reply.get("count").and_then(as_number).unwrap_or_else(|| panic!("{reply}"));
    let wait = doc! {
        "waitForFailPoint": DELAY, "timesEntered": entered as i64 + 1, "maxTimeMS": WAIT_MILLISECONDS,
    };
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut is_delayed = false;
            while !is_delayed && !has_ended.load(Ordering::Acquire) {
                is_delayed = ok(&store.command("admin", wait.clone()));
            }
            let insert = doc! {
                "insert": collection, "documents": [race.document.clone()], "maxTimeMS": INSERT_MILLISECONDS,
            };
            let is_inserted = is_delayed && store.command(PROTECTED, insert).get("n") == Some(&Bson::Int32(1));
            store.command("admin", doc! { "configureFailPoint": DELAY, "mode": "off" });
            is_inserted
        });
        let result = statement();
        has_ended.store(true, Ordering::Release);
        (other.join().unwrap(), result)
    })
}

/// The server that all cases share must support the failpoint; otherwise no case would have a second client.
#[test]
fn another_client_inserts_during_a_command() {
    let mut store = Client::connect(&server().address());
    store.command(PROTECTED, doc! { "create": "raced" });
    let mut client = Client::connect(&server().address());
    let race = Race { document: doc! { "_id": 1 }, after_find: false };
    let (is_inserted, reply) = insert_during(&mut store, "raced", &race, || {
        client.command(
            PROTECTED,
            doc! { "update": "raced", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "a": 1 } } }] },
        )
    });
    assert!(is_inserted && reply.get_i32("n").ok() == Some(0), "{reply}");
    assert_eq!(client.command(PROTECTED, doc! { "count": "raced" }).get_i32("n").unwrap(), 1);
}
