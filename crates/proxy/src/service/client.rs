//! docward's own client: opens it on first use, and describes and classifies its errors.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mongodb::Client;
use mongodb::error::{Error, ErrorKind};
use mongodb::event::EventHandler;
use mongodb::options::{ClientOptions, Tls};
use tokio::sync::watch;

use super::background::BackgroundTasks;
use super::error_kind::{denied, is_passing, is_unauthorized};
use super::observed_servers::ObservedServers;
use crate::engine::lookup::{CounterId, LookupError};

/// How errors call it.
const OWN_CONNECTION: &str = "docward's own connection";

#[derive(Debug)]
pub(super) struct ServiceClient {
    current: Mutex<ServiceConnection>,
    /// Notified when another connection replaces the current one.
    replaced: watch::Sender<()>,
    /// The counters for which it has stored numbers that clients provided before they existed.
    pub(super) provided: Mutex<HashSet<CounterId>>,
    background: BackgroundTasks,
}

/// How to connect, what the monitors see, and the client of all operations but a few.
#[derive(Debug, Clone)]
struct ServiceConnection {
    options: Arc<ClientOptions>,
    observed: Arc<ObservedServers>,
    client: SharedClient,
}

#[derive(Debug, Clone, Default)]
enum SharedClient {
    /// It is created on first use.
    #[default]
    Unused,
    Open(Client),
    /// The process ends.
    Closed,
}

/// A client for a few small commands, and what its monitors see. Dropping it closes its connections.
#[derive(Debug)]
pub(super) struct SeparateClient {
    pub(super) client: Client,
    pub(super) observed: Arc<ObservedServers>,
    background: BackgroundTasks,
}

impl Drop for SeparateClient {
    fn drop(&mut self) {
        let client = self.client.clone();
        self.background.spawn_to_end(async { client.shutdown().await });
    }
}

impl ServiceConnection {
    fn unused(options: Arc<ClientOptions>) -> Self {
        let observed = Arc::new(ObservedServers::new(options.repl_set_name.clone()));
        Self { options, observed, client: SharedClient::Unused }
    }
}

fn open(mut options: ClientOptions, observed: Arc<ObservedServers>) -> Result<Client, Error> {
    options.sdam_event_handler = Some(EventHandler::callback(move |event| observed.observe(event)));
    Client::with_options(options)
}

impl ServiceClient {
    /// `background`: tasks that use it.
    pub(super) fn new(options: ClientOptions, background: BackgroundTasks) -> Self {
        let current = Mutex::new(ServiceConnection::unused(Arc::new(options)));
        Self { current, replaced: watch::Sender::default(), provided: Mutex::default(), background }
    }

    /// What its monitors see.
    pub(super) fn observed(&self) -> Arc<ObservedServers> {
        self.lock().observed.clone()
    }

    /// Uses the connection of `other` for later operations. Running ones end on the one before, which then closes.
    pub(super) fn adopt(&self, other: &Self) {
        let mut taken = other.lock();
        let connection =
            ServiceConnection { client: std::mem::replace(&mut taken.client, SharedClient::Closed), ..taken.clone() };
        drop(taken);
        self.replace(connection);
    }

    /// Changes at each replacement of the connection from now on.
    pub(super) fn replacements(&self) -> watch::Receiver<()> {
        self.replaced.subscribe()
    }

    /// Returns when no server of the connection string can be reached.
    pub(super) async fn is_down(&self) {
        let ServiceConnection { options, observed, .. } = self.lock().clone();
        observed.are_down(&options.hosts).await;
    }

    /// `replicaSet=` of the connection string.
    pub(super) fn replica_set(&self) -> Option<String> {
        self.lock().options.repl_set_name.clone()
    }

    /// Describes the first server that answers if it is a member of another replica set; `None` if the driver can use
    /// it, or if no server can be reached.
    pub(super) async fn first_set(&self, observed: &ObservedServers) -> Option<String> {
        let options = self.lock().options.clone();
        observed.first_set(&options.hosts).await
    }

    pub(super) fn tls(&self) -> Option<Tls> {
        self.lock().options.tls.clone()
    }

    /// Opens another client for the next operation.
    pub(super) fn forget_client(&self) {
        let connection = ServiceConnection::unused(self.lock().options.clone());
        self.replace(connection);
    }

    fn replace(&self, connection: ServiceConnection) {
        let mut current = self.lock();
        if !matches!(current.client, SharedClient::Closed) {
            *current = connection;
        }
        drop(current);
        self.replaced.send_replace(());
    }

    /// # Errors
    /// The options cannot be used, or the process ends.
    pub(super) fn client(&self) -> Result<Client, LookupError> {
        let mut current = self.lock();
        match &current.client {
            SharedClient::Open(client) => Ok(client.clone()),
            SharedClient::Closed => Err(LookupError::shutting_down()),
            SharedClient::Unused => {
                let opened = open(ClientOptions::clone(&current.options), current.observed.clone());
                if let Ok(opened) = &opened {
                    current.client = SharedClient::Open(opened.clone());
                }
                drop(current);
                opened.map_err(|error| self.classify(&error, OWN_CONNECTION))
            }
        }
    }

    /// Ends the sessions on the server and closes the connections. Later operations get an error.
    pub(super) async fn close(&self) {
        let client = std::mem::replace(&mut self.lock().client, SharedClient::Closed);
        if let SharedClient::Open(client) = client {
            client.shutdown().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, ServiceConnection> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// The options cannot be used.
    pub(super) fn separate_client(&self) -> Result<SeparateClient, LookupError> {
        let mut options = ClientOptions::clone(&self.lock().options);
        options.compressors = None;
        // A shared list would be removed when this client closes its monitors.
        let observed = Arc::new(ObservedServers::new(options.repl_set_name.clone()));
        let client = open(options, observed.clone()).map_err(|error| self.classify(&error, OWN_CONNECTION))?;
        Ok(SeparateClient { client, observed, background: self.background.clone() })
    }

    /// The text of an error for an operator. If docward's own user cannot log in or lacks a privilege, it names the flag.
    pub(super) fn describe(&self, error: &Error) -> String {
        let text = self.observed().describe(error);
        match &*error.kind {
            ErrorKind::Authentication { .. } => format!("docward's own user (--service) cannot log in: {text}"),
            _ if !is_unauthorized(error) => text,
            _ if self.lock().options.credential.is_none() => {
                "the server requires a login: give docward's own user with \
                                                       --service (service: in docward.yaml)"
                    .to_owned()
            }
            _ => match denied(error) {
                Some(privilege) => format!(
                    "docward's own user (--service) lacks the privilege {privilege}; grant it with a role, see \
                     docs/tls.md"
                ),
                None => format!("docward's own user (--service) lacks a privilege: {text}"),
            },
        }
    }

    /// Classifies an error by whether a retry can help.
    pub(super) fn classify(&self, error: &Error, subject: &str) -> LookupError {
        let text = format!("{subject}: {}", self.describe(error));
        let is_too_old =
            matches!(&*error.kind, ErrorKind::ServerSelection { .. }) && self.observed().too_old().is_some();
        let can_pass = is_passing(error) && !is_too_old;
        if can_pass { LookupError::Unavailable(text) } else { LookupError::Permanent(text) }
    }
}
