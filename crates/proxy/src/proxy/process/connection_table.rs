//! The open client connections, for the admin address: who they are, what they do, and a way to close one.
//!
//! A connection writes its own entry, without locks except when its server, application or users change. Readers see values
//! that may be some nanoseconds old. Without an admin address there are no entries.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::SystemTime;

use futures_util::task::AtomicWaker;

use crate::command::{CommandName, command_names};
use crate::engine::ClientState;
use crate::proxy::telemetry::meter::{Meter, Side};
use crate::proxy::telemetry::moment::Moment;
use crate::proxy::telemetry::slowest::LatestRequest;

/// Parts of the table, so that worker threads seldom wait for each other.
const PARTS: usize = 16;

/// All entries, by the connection's number.
#[derive(Debug, Default)]
pub(in crate::proxy) struct ConnectionTable([Mutex<HashMap<u64, Arc<ConnectionEntry>>>; PARTS]);

#[derive(Debug)]
struct ConnectionEntry {
    number: u64,
    /// The client's address.
    client: Box<str>,
    /// The server that its requests go to.
    server: Mutex<Box<str>>,
    since: SystemTime,
    identity: Mutex<ClientIdentity>,
    from_client: AtomicU64,
    from_upstream: AtomicU64,
    /// The command whose reply is pending, plus one; 0: none.
    command: AtomicU64,
    /// When it arrived.
    began: AtomicU64,
    closing: AtomicBool,
    /// Somebody has looked at the list.
    listed: AtomicBool,
    task: AtomicWaker,
}

#[derive(Debug, Clone, Default)]
struct ClientIdentity {
    app: Option<String>,
    users: Option<Vec<String>>,
}

/// An open client connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenConnection {
    /// Its number in this process.
    pub number: u64,
    pub client: String,
    /// The server that its requests go to; before its first message, the one to be dialled first.
    pub member: String,
    pub since: SystemTime,
    pub app: Option<String>,
    /// "authDb.name" of every authenticated user; `None`: docward has not asked the server for them.
    pub users: Option<Vec<String>>,
    /// Bytes received from the client.
    pub from_client: u64,
    /// Bytes received from the server for it.
    pub from_upstream: u64,
    /// The command that it waits for, and since how many nanoseconds.
    pub command: Option<(&'static str, u64)>,
}

/// The entry of one connection, until this is dropped.
#[derive(Debug)]
pub(in crate::proxy) struct Registration {
    table: Arc<ConnectionTable>,
    entry: Arc<ConnectionEntry>,
    pub(in crate::proxy) latest: LatestRequest,
}

impl ConnectionTable {
    /// Adds a connection.
    pub(in crate::proxy) fn register(self: &Arc<Self>, client_state: &ClientState, server: &str) -> Box<Registration> {
        let entry = Arc::new(ConnectionEntry {
            number: client_state.connection,
            client: client_state.client.clone(),
            server: Mutex::new(server.into()),
            since: SystemTime::now(),
            identity: Mutex::default(),
            from_client: AtomicU64::new(0),
            from_upstream: AtomicU64::new(0),
            command: AtomicU64::new(0),
            began: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            task: AtomicWaker::new(),
        });
        self.part(entry.number).insert(entry.number, entry.clone());
        Box::new(Registration { table: self.clone(), entry, latest: LatestRequest::default() })
    }

    /// Returns all connections. Those whose users are not known ask for them with their next message that a rule
    /// evaluates.
    pub(in crate::proxy) fn list(&self, meter: &Meter) -> Vec<OpenConnection> {
        let now = meter.now();
        let names: Vec<&'static str> = command_names().collect();
        let mut all = Vec::new();
        for part in &self.0 {
            let entries: Vec<Arc<ConnectionEntry>> = lock(part).values().cloned().collect();
            entries.iter().for_each(|entry| entry.listed.store(true, Ordering::Relaxed));
            all.extend(entries.iter().map(|entry| entry.describe(now, &names)));
        }
        all
    }

    /// Closes a connection; returns it as it was, or `None` if there is no such connection.
    pub(in crate::proxy) fn close(&self, number: u64, meter: &Meter) -> Option<OpenConnection> {
        let entry = self.part(number).get(&number)?.clone();
        let names: Vec<&'static str> = command_names().collect();
        let was = entry.describe(meter.now(), &names);
        entry.closing.store(true, Ordering::Release);
        entry.task.wake();
        Some(was)
    }

    fn part(&self, number: u64) -> MutexGuard<'_, HashMap<u64, Arc<ConnectionEntry>>> {
        // The remainder is less than the number of parts.
        lock(&self.0[usize::try_from(number % PARTS as u64).unwrap_or(0)])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ConnectionEntry {
    fn describe(&self, now: Moment, names: &[&'static str]) -> OpenConnection {
        let identity = lock(&self.identity).clone();
        let command = self.command.load(Ordering::Relaxed).checked_sub(1).and_then(|number| {
            let name = names.get(usize::try_from(number).ok()?)?;
            Some((*name, now.since_nanoseconds(self.began.load(Ordering::Relaxed))))
        });
        OpenConnection {
            number: self.number,
            client: self.client.to_string(),
            member: lock(&self.server).to_string(),
            since: self.since,
            app: identity.app,
            users: identity.users,
            from_client: self.from_client.load(Ordering::Relaxed),
            from_upstream: self.from_upstream.load(Ordering::Relaxed),
            command,
        }
    }
}

impl Registration {
    /// Counts bytes that were read.
    pub(in crate::proxy) fn count_read(&self, side: Side, bytes: usize) {
        let count = match side {
            Side::Client => &self.entry.from_client,
            Side::Upstream => &self.entry.from_upstream,
        };
        // Only this connection writes it.
        count.store(count.load(Ordering::Relaxed).wrapping_add(bytes as u64), Ordering::Relaxed);
    }

    /// Records that the client waits for this command, which arrived at `began`; `None`: for none.
    pub(in crate::proxy) fn note_command(&self, command: Option<CommandName>, began: Moment) {
        if command.is_some() && self.entry.command.load(Ordering::Relaxed) == 0 {
            self.entry.began.store(began.nanoseconds(), Ordering::Relaxed);
        }
        let number = command.map_or(0, |command| command.number() as u64 + 1);
        self.entry.command.store(number, Ordering::Relaxed);
    }

    /// Records the application and the users.
    pub(in crate::proxy) fn note_client(&self, client_state: &ClientState) {
        let named = |users: &Vec<(String, String)>| users.iter().map(|(at, name)| format!("{at}.{name}")).collect();
        *lock(&self.entry.identity) = ClientIdentity {
            app: client_state.app_name().map(str::to_owned),
            users: client_state.users.as_ref().map(named),
        };
    }

    /// Records the server that its requests go to.
    pub(in crate::proxy) fn note_server(&self, server: &str) {
        *lock(&self.entry.server) = server.into();
    }

    /// Ready when the connection must close.
    pub(in crate::proxy) fn poll_closing(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.entry.task.register(cx.waker());
        if self.is_closing() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Whether it has been in a list of the connections.
    pub(in crate::proxy) fn is_listed(&self) -> bool {
        self.entry.listed.load(Ordering::Relaxed)
    }

    /// Whether the connection must close.
    pub(in crate::proxy) fn is_closing(&self) -> bool {
        self.entry.closing.load(Ordering::Acquire)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.table.part(self.entry.number).remove(&self.entry.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u64) -> ClientState {
        ClientState { connection: number, client: "127.0.0.1:1".into(), ..ClientState::default() }
    }

    #[test]
    fn a_connection_is_listed_until_it_ends_and_can_be_closed() {
        let (table, meter) = (Arc::<ConnectionTable>::default(), Meter::running(None));
        let registrations: Vec<_> = (1..=100).map(|number| table.register(&client(number), "a:1")).collect();
        let first = &registrations[0];
        first.count_read(Side::Client, 10);
        first.count_read(Side::Client, 5);
        first.note_command(Some(CommandName::from_bytes(b"find")), meter.now());
        let mut state = client(1);
        state.app_name = Some("shop".into());
        state.users = Some(vec![("admin".to_owned(), "ada".to_owned())]);
        first.note_client(&state);
        let listed = table.list(&meter);
        assert_eq!(listed.len(), 100);
        let one = listed.iter().find(|one| one.number == 1).unwrap();
        assert_eq!((one.app.as_deref(), one.from_client, one.from_upstream), (Some("shop"), 15, 0));
        assert_eq!((one.users.as_deref(), one.command.unwrap().0), (Some(&["admin.ada".to_owned()][..]), "find"));
        first.note_command(None, Moment::NEVER);
        assert_eq!(table.close(1, &meter).unwrap().command, None);
        assert!(first.is_closing() && !registrations[1].is_closing());
        drop(registrations);
        assert!(table.list(&meter).is_empty() && table.close(1, &meter).is_none());
    }
}
