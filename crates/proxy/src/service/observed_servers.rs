//! What the monitors of docward's own connection see of each server: its hello, or why it cannot be reached. The
//! driver's own error for this is a dump of its topology.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bson::{Bson, Document};
use mongodb::error::{Error, ErrorKind};
use mongodb::event::sdam::SdamEvent;
use mongodb::options::ServerAddress;
use tokio::sync::Notify;

use super::set_name::other_set;
use crate::text::io_reason;

/// The oldest release that the driver can use: MongoDB 4.4.
const OLDEST_WIRE_VERSION: i64 = 9;

/// The last result of each monitor, by address.
#[derive(Debug, Default)]
pub(super) struct ObservedServers {
    /// `replicaSet=` of the connection string.
    replica_set: Option<String>,
    /// Describes the last server that answered, if it is a member of another replica set. The driver removes it.
    other_set: Mutex<Option<String>>,
    servers: Mutex<BTreeMap<String, Result<Capabilities, String>>>,
    changed: Notify,
}

/// What a hello reply shows of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Capabilities {
    pub(super) wire_version: i64,
    /// A member of a replica set, or a mongos.
    pub(super) is_set: bool,
}

impl ObservedServers {
    pub(super) fn new(replica_set: Option<String>) -> Self {
        Self { replica_set, ..Self::default() }
    }

    /// Takes an event of the driver's monitors.
    pub(super) fn observe(&self, event: SdamEvent) {
        match event {
            SdamEvent::ServerHeartbeatFailed(event) => {
                self.servers().insert(event.server_address.to_string(), Err(reason(&event.failure)));
                self.changed.notify_waiters();
            }
            SdamEvent::ServerHeartbeatSucceeded(event) => {
                let address = event.server_address.to_string();
                *self.other_set.lock().unwrap_or_else(PoisonError::into_inner) =
                    self.replica_set.as_deref().and_then(|wanted| other_set(wanted, &address, set_of(&event.reply)));
                self.servers().insert(address, Ok(Capabilities::from_hello(&event.reply)));
                self.changed.notify_waiters();
            }
            SdamEvent::ServerClosed(event) => _ = self.servers().remove(&event.address.to_string()),
            _ => {}
        }
    }

    /// Returns when the last check of each of the `seeds` has failed.
    pub(super) async fn are_down(&self, seeds: &[ServerAddress]) {
        loop {
            let changed = self.changed.notified();
            let is_down =
                |seed: &ServerAddress| self.servers().get(&seed.to_string()).is_some_and(|server| server.is_err());
            if seeds.iter().all(is_down) {
                return;
            }
            changed.await;
        }
    }

    /// Waits for the first server that answers: describes it if it is a member of another replica set, and returns `None` if
    /// it is not. Also returns `None` when the last check of each of the `seeds` has failed.
    pub(super) async fn first_set(&self, seeds: &[ServerAddress]) -> Option<String> {
        let answered = async {
            loop {
                let changed = self.changed.notified();
                let other = self.other_set();
                if other.is_some() || self.least().is_some() {
                    return other;
                }
                changed.await;
            }
        };
        tokio::select! {
            other = answered => other,
            () = self.are_down(seeds) => None,
        }
    }

    fn other_set(&self) -> Option<String> {
        self.other_set.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The servers that cannot be reached and why; `None` if all can be, as far as is known.
    pub(super) fn unreachable(&self) -> Option<String> {
        let servers = self.servers();
        let failed = servers.iter().filter_map(|(address, seen)| Some((address, seen.as_ref().err()?)));
        let texts: Vec<String> = failed.map(|(address, reason)| format!("{address}: {reason}")).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// The lowest capabilities of the servers that answer.
    fn least(&self) -> Option<Capabilities> {
        self.servers().values().filter_map(|seen| seen.clone().ok()).min_by_key(|seen| seen.wire_version)
    }

    /// The capabilities of a server that is too old for the driver. The driver then uses no server of the deployment,
    /// and reports that it could select none.
    pub(super) fn too_old(&self) -> Option<Capabilities> {
        self.least().filter(|seen| seen.wire_version < OLDEST_WIRE_VERSION)
    }

    /// The text of an error for an operator.
    pub(super) fn describe(&self, error: &Error) -> String {
        let ErrorKind::ServerSelection { .. } = &*error.kind else { return error.kind.to_string() };
        match self.too_old() {
            Some(Capabilities { wire_version, .. }) => format!(
                "docward's own connection needs MongoDB 4.4 or later; the server's maxWireVersion is {wire_version}"
            ),
            None => {
                let unusable = || "no server can be used; is there a primary?".to_owned();
                self.other_set().or_else(|| self.unreachable()).unwrap_or_else(unusable)
            }
        }
    }

    fn servers(&self) -> MutexGuard<'_, BTreeMap<String, Result<Capabilities, String>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Capabilities {
    pub(super) fn from_hello(hello: &Document) -> Self {
        Self {
            wire_version: hello.get("maxWireVersion").and_then(Bson::as_i32).unwrap_or(0).into(),
            is_set: hello.contains_key("setName") || hello.get_str("msg").is_ok_and(|text| text == "isdbgrid"),
        }
    }
}

/// The replica set in a reply to hello; empty for a member that has no configuration yet.
fn set_of(hello: &Document) -> Option<&str> {
    let is_without_configuration = hello.get_bool("isreplicaset").unwrap_or(false);
    if is_without_configuration { Some("") } else { hello.get_str("setName").ok() }
}

fn reason(error: &Error) -> String {
    match &*error.kind {
        ErrorKind::Io(error) => io_reason(error),
        kind => kind.to_string(),
    }
}
