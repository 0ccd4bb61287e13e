//! Which servers docward's own connection cannot reach, and why. The driver's own error is a dump of its topology; this
//! is what an operator needs of it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use mongodb::error::{Error, ErrorKind};
use mongodb::event::sdam::SdamEvent;
use mongodb::options::ServerAddress;
use tokio::sync::Notify;

use crate::text::io_reason;

/// The servers whose last check by the driver failed, and why.
#[derive(Debug, Default)]
pub(super) struct Unreachable {
    servers: Mutex<BTreeMap<String, String>>,
    changed: Notify,
}

impl Unreachable {
    /// Takes an event of the driver's monitors.
    pub(super) fn observe(&self, event: SdamEvent) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            SdamEvent::ServerHeartbeatFailed(event) => {
                servers.insert(event.server_address.to_string(), reason(&event.failure));
                self.changed.notify_waiters();
            }
            SdamEvent::ServerHeartbeatSucceeded(event) => _ = servers.remove(&event.server_address.to_string()),
            SdamEvent::ServerClosed(event) => _ = servers.remove(&event.address.to_string()),
            _ => {}
        }
    }

    /// Returns when the check of each of the `seeds` has failed.
    pub(super) async fn all(&self, seeds: &[ServerAddress]) {
        loop {
            let changed = self.changed.notified();
            let all = {
                let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
                seeds.iter().all(|seed| servers.contains_key(&seed.to_string()))
            };
            if all {
                return;
            }
            changed.await;
        }
    }

    /// The servers and why they cannot be reached; `None` if all can be, as far as is known.
    pub(super) fn text(&self) -> Option<String> {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let texts: Vec<String> = servers.iter().map(|(server, reason)| format!("{server}: {reason}")).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// The text of an error for an operator.
    pub(super) fn describe(&self, error: &Error) -> String {
        match &*error.kind {
            ErrorKind::ServerSelection { .. } => {
                self.text().unwrap_or_else(|| "no server can be used; is there a primary?".to_owned())
            }
            kind => kind.to_string(),
        }
    }
}

fn reason(error: &Error) -> String {
    match &*error.kind {
        ErrorKind::Io(error) => io_reason(error),
        kind => kind.to_string(),
    }
}
