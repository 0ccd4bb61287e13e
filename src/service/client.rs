//! docward's own client: opens it on first use, and describes and classifies its errors.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mongodb::Client;
use mongodb::error::{Error, ErrorKind};
use mongodb::event::EventHandler;
use mongodb::options::{ClientOptions, Tls};

use super::background::BackgroundTasks;
use super::error_kind::{denied, is_passing, is_unauthorized};
use super::observed_servers::ObservedServers;
use crate::engine::lookup::{CounterId, LookupError};

#[derive(Debug)]
pub(super) struct ServiceClient {
    options: ClientOptions,
    pub(super) observed: Arc<ObservedServers>,
    client: Mutex<SharedClient>,
    /// The counters for which it has stored numbers that clients provided before they existed.
    pub(super) provided: Mutex<HashSet<CounterId>>,
    background: BackgroundTasks,
}

/// The client of all operations but a few.
#[derive(Debug, Default)]
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

impl ServiceClient {
    /// `background`: tasks that use it.
    pub(super) fn new(options: ClientOptions, background: BackgroundTasks) -> Self {
        let observed = Arc::new(ObservedServers::new(options.repl_set_name.clone()));
        Self { options, observed, client: Mutex::default(), provided: Mutex::default(), background }
    }

    /// Returns when no server of the connection string can be reached.
    pub(super) async fn is_down(&self) {
        self.observed.are_down(&self.options.hosts).await;
    }

    /// `replicaSet=` of the connection string.
    pub(super) fn replica_set(&self) -> Option<&str> {
        self.options.repl_set_name.as_deref()
    }

    /// Describes the first server that answers if it is a member of another replica set; `None` if the driver can use
    /// it, or if no server can be reached.
    pub(super) async fn first_set(&self, observed: &ObservedServers) -> Option<String> {
        observed.first_set(&self.options.hosts).await
    }

    pub(super) fn tls(&self) -> &Option<Tls> {
        &self.options.tls
    }

    /// Opens another client for the next operation.
    pub(super) fn forget_client(&self) {
        let mut client = self.lock();
        if let SharedClient::Open(_) = *client {
            *client = SharedClient::Unused;
        }
    }

    /// # Errors
    /// The options cannot be used, or the process ends.
    pub(super) fn client(&self) -> Result<Client, LookupError> {
        let mut client = self.lock();
        match &*client {
            SharedClient::Open(client) => Ok(client.clone()),
            SharedClient::Closed => Err(LookupError::shutting_down()),
            SharedClient::Unused => {
                let opened = self.open(self.options.clone(), self.observed.clone())?;
                *client = SharedClient::Open(opened.clone());
                Ok(opened)
            }
        }
    }

    /// Ends the sessions on the server and closes the connections. Later operations get an error.
    pub(super) async fn close(&self) {
        let client = std::mem::replace(&mut *self.lock(), SharedClient::Closed);
        if let SharedClient::Open(client) = client {
            client.shutdown().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, SharedClient> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// The options cannot be used.
    pub(super) fn separate_client(&self) -> Result<SeparateClient, LookupError> {
        let mut options = self.options.clone();
        options.compressors = None;
        // A shared list would be removed when this client closes its monitors.
        let observed = Arc::new(ObservedServers::new(self.options.repl_set_name.clone()));
        let client = self.open(options, observed.clone())?;
        Ok(SeparateClient { client, observed, background: self.background.clone() })
    }

    fn open(&self, mut options: ClientOptions, observed: Arc<ObservedServers>) -> Result<Client, LookupError> {
        options.sdam_event_handler = Some(EventHandler::callback(move |event| observed.observe(event)));
        Client::with_options(options).map_err(|error| self.classify(&error, "docward's own connection"))
    }

    /// The text of an error for an operator. If docward's own user cannot log in or lacks a privilege, it names the flag.
    pub(super) fn describe(&self, error: &Error) -> String {
        let text = self.observed.describe(error);
        match &*error.kind {
            ErrorKind::Authentication { .. } => format!("docward's own user (--service) cannot log in: {text}"),
            _ if !is_unauthorized(error) => text,
            _ if self.options.credential.is_none() => "the server requires a login: give docward's own user with \
                                                       --service (service: in docward.yaml)"
                .to_owned(),
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
        let is_too_old = matches!(&*error.kind, ErrorKind::ServerSelection { .. }) && self.observed.too_old().is_some();
        let can_pass = is_passing(error) && !is_too_old;
        if can_pass { LookupError::Unavailable(text) } else { LookupError::Permanent(text) }
    }
}
