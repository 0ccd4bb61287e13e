//! Logs in on a connection with the credentials of a connection string.

use std::sync::{Mutex, PoisonError};

use mongodb::options::{AuthMechanism, ClientOptions};

use super::PlayerConnection;
use super::target_error::TargetError;
use crate::command::Reply;
use crate::document::Value;
use crate::login::scram::{ClientKey, Derivation, Mechanism, OwnLogin, first_message, with_header};
use crate::login::{Continue, Outcome, Start, User};
use crate::secret::Secret;

/// The user of a connection string.
#[derive(Debug)]
pub(super) struct Login {
    user: User,
    password: Secret,
    /// `None`: the strongest that the server has for the user.
    mechanism: Option<Mechanism>,
    /// Deriving a key takes the time of thousands of hashes, and is the same for each connection.
    derived: Mutex<Option<(Mechanism, Derivation, ClientKey)>>,
}

impl Login {
    /// Returns the login; `None` if the connection string has no credentials.
    ///
    /// # Errors
    /// [`TargetError::Mechanism`]: a mechanism that replays do not support.
    pub(super) fn from_options(options: &ClientOptions) -> Result<Option<Self>, TargetError> {
        let Some(credential) = &options.credential else { return Ok(None) };
        let mechanism = match &credential.mechanism {
            None => None,
            Some(AuthMechanism::ScramSha1) => Some(Mechanism::Sha1),
            Some(AuthMechanism::ScramSha256) => Some(Mechanism::Sha256),
            Some(_) => return Err(TargetError::Mechanism),
        };
        let (Some(name), Some(password)) = (&credential.username, &credential.password) else {
            return Err(TargetError::Mechanism);
        };
        let database = credential.source.clone().unwrap_or_else(|| "admin".to_owned());
        let user = User { database, name: name.clone() };
        Ok(Some(Self { user, password: Secret::new(password), mechanism, derived: Mutex::default() }))
    }

    /// Returns the user as `database.name`, for `saslSupportedMechs` of a hello.
    pub(super) fn full_name(&self) -> String {
        format!("{}.{}", self.user.database, self.user.name)
    }

    /// Logs in. `hello`: the reply to a hello with the user's [`Self::full_name`].
    ///
    /// # Errors
    /// I/O errors, or why the login failed.
    pub(super) async fn log_in(&self, connection: &mut PlayerConnection, hello: &Reply<'_>) -> Result<(), TargetError> {
        let offered = hello.body.get("saslSupportedMechs").and_then(Value::as_array);
        let offers = |mechanism: &Mechanism| {
            offered.is_some_and(|list| list.values().any(|name| name.as_str() == Some(mechanism.name())))
        };
        let strongest = || Mechanism::ALL.into_iter().find(offers).unwrap_or(Mechanism::Sha256);
        let mechanism = self.mechanism.unwrap_or_else(strongest);
        let nonce = [bson::Uuid::new().bytes(), bson::Uuid::new().bytes()].concat();
        let first = first_message(&self.user.name, &nonce);
        let start = Start::own(&self.user, mechanism, with_header(&first));
        let request = start.request(connection.next_id());
        let outcome = step(connection, &request).await?;
        let key = self.key(mechanism, &outcome.payload).ok_or_else(rejected)?;
        let mut login = OwnLogin::continuing(&key, first);
        let payload = login.last(&outcome.payload).ok_or_else(rejected)?;
        let next = Continue::own(&self.user, outcome.conversation, payload).request(connection.next_id());
        let outcome = step(connection, &next).await?;
        if outcome.is_done && login.is_genuine(&outcome.payload) { Ok(()) } else { Err(rejected()) }
    }

    fn key(&self, mechanism: Mechanism, server_first: &[u8]) -> Option<ClientKey> {
        let derivation = Derivation::of_server_first(server_first)?;
        let mut derived = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, same, key)) = &*derived
            && (*known, same) == (mechanism, &derivation)
        {
            return Some(key.clone());
        }
        let key = ClientKey::derive(mechanism, &self.user.name, self.password.reveal(), &derivation)?;
        *derived = Some((mechanism, derivation, key.clone()));
        Some(key)
    }
}

async fn step(connection: &mut PlayerConnection, request: &[u8]) -> Result<Outcome, TargetError> {
    let reply = connection.exchange(request).await?;
    Outcome::parse(&reply).ok_or_else(|| match Reply::parse(&reply) {
        Ok(reply) => {
            let text = reply.body.get("errmsg").and_then(Value::as_str).unwrap_or_default();
            TargetError::Login(text.to_owned())
        }
        Err(_) => rejected(),
    })
}

fn rejected() -> TargetError {
    TargetError::Login("the server's reply is not the one of the user's password".to_owned())
}
