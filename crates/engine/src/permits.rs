//! The permits that a message needs before it is sent, by rules with the pattern `throttle`.
//!
//! The engine determines which rules limit a message, and under which key. The caller grants permits, keeps them until the
//! last reply, and lets messages wait. Open cursors (getMore, killCursors) and transactions
//! after their first statement continue without permits.

use std::time::Duration;

use super::ClientState;
use super::applicable_rules::{ApplicableRules, Enforcement, applicable_rules, asks_for_users};
use super::explain::explained;
use super::message_plan::{Incoming, learn_users, reject_command};
use super::outcome::OutcomeKind;
use super::port::{Flow, Port, close};
use super::rejection_text::RejectedBy;
use super::step::{PermitRefusal, PermitRequest, Step};
use crate::command::own::users_question;
use crate::command::{
    Command, CommandClass, Namespace, WriteBatch, WriteForm, code, indirect_write_targets, input_collections,
};
use crate::document::{Document, Value};
use crate::patterns::Rejection;
use crate::patterns::throttle::{LimitedClient, ThrottleLimits};
use crate::rules::Rule;
use crate::text::plural;

/// A rule that limits a message, and a namespace to which it applies.
struct LimitedBy<'r> {
    rule: &'r Rule,
    enforcement: Enforcement,
    database: String,
    collection: String,
}

impl<'f> Incoming<'f> {
    /// Whether rules must be searched for limits on this message. False for nearly all rule sets.
    pub(super) fn needs_permits(&self) -> bool {
        self.rules.needs_permits() && !self.has_permits
    }

    /// Takes the permits, or ends the message with an error.
    pub(super) async fn take_permits(&mut self, port: &Port) -> Flow {
        self.has_permits = true;
        // The plan reports an error in the message.
        let Ok(command) = Command::parse(self.frame) else { return Flow::Continue(()) };
        let mut limited_by = match port.client_state(|client_state, _| self.limited_by(&command, client_state)).await {
            Some(limited_by) => limited_by,
            None => {
                learn_users(self.frame, users_question(command.message.header.request_id), port).await?;
                let limited_by = port.client_state(|client_state, _| self.limited_by(&command, client_state)).await;
                limited_by.unwrap_or_default()
            }
        };
        if limited_by.is_empty() {
            return Flow::Continue(());
        }
        // Those that can delay the message come first; of several that do, the first by name is reported.
        let order = |one: &LimitedBy<'f>| (one.enforcement == Enforcement::Shadow, one.rule.name.value.clone());
        limited_by.sort_by_cached_key(order);
        let requests = port.client_state(|client_state, _| requests(&limited_by, &command, client_state)).await;
        match port.permits(requests.clone()).await {
            Ok(()) => Flow::Continue(()),
            Err(PermitRefusal { at, room_in }) => match limited_by.get(at).zip(requests.get(at)) {
                Some((limited_by, request)) => Flow::Break(overloaded(&command, limited_by, request, room_in, port)),
                // No caller does this: it refuses one of the requests that it got.
                None => close("internal error: a permit was refused that was not requested"),
            },
        }
    }

    /// The rules that limit a command; `None` if the client's users must be known first.
    fn limited_by(&self, command: &Command<'_>, client_state: &ClientState) -> Option<Vec<LimitedBy<'f>>> {
        let session = command.session();
        let mut found: Vec<LimitedBy<'f>> = Vec::new();
        // A statement of an open transaction must not wait: others may wait for its locks, with permits.
        if session.in_transaction && !session.starts_transaction {
            return Some(found);
        }
        for (database, collection) in namespaces(command) {
            let namespace = Namespace { database: &database, collection: &collection };
            let mut rules: ApplicableRules<'f> = applicable_rules(self.rules, namespace, client_state);
            rules.retain(|(rule, _)| rule.properties.permits.is_some());
            let by_user = |(rule, _): &(&Rule, _)| {
                rule.properties.permits.is_some_and(|limits| limits.per == LimitedClient::User)
            };
            if asks_for_users(&rules, client_state) || client_state.users.is_none() && rules.iter().any(by_user) {
                return None;
            }
            for (rule, enforcement) in rules {
                let is_known = found.iter().any(|one| one.rule.id == rule.id);
                if enforcement != Enforcement::Except && !is_known {
                    let (database, collection) = (database.clone(), collection.clone());
                    found.push(LimitedBy { rule, enforcement, database, collection });
                }
            }
        }
        Some(found)
    }
}

fn requests(limited_by: &[LimitedBy<'_>], command: &Command<'_>, client_state: &ClientState) -> Vec<PermitRequest> {
    let statements = statement_count(command);
    let request = |one: &LimitedBy<'_>| {
        let limits = one.rule.properties.permits?;
        Some(PermitRequest {
            rule: one.rule.name.value.to_string(),
            limits,
            key: key(limits.per, client_state),
            statements,
            is_shadow: one.enforcement == Enforcement::Shadow,
            is_retried: client_state.retries_overload && !command.message.more_to_come(),
        })
    };
    limited_by.iter().filter_map(request).collect()
}

/// What identifies the client for a limit. Clients without an application name share one key, and so do clients
/// without a user.
fn key(per: LimitedClient, client_state: &ClientState) -> String {
    match per {
        LimitedClient::App => client_state.app_name().unwrap_or_default().to_owned(),
        LimitedClient::User => {
            let users = client_state.users.iter().flatten().map(|(database, name)| format!("{name}@{database}"));
            users.collect::<Vec<_>>().join(" ")
        }
        // Without the port.
        LimitedClient::Client => {
            client_state.client.rsplit_once(':').map_or(&*client_state.client, |(host, _)| host).to_owned()
        }
    }
}

/// The namespaces that a command reads or writes, as far as it names them. Empty for commands that do neither.
fn namespaces(command: &Command<'_>) -> Vec<(String, String)> {
    let own = || command.collection().map(|own| (own.database.to_owned(), own.collection.to_owned()));
    match command.class {
        CommandClass::BulkWrite => {
            let batch = WriteBatch::parse(command, WriteForm::BulkWrite);
            let named = |one: &Namespace<'_>| (one.database.to_owned(), one.collection.to_owned());
            batch.map(|batch| batch.namespaces.iter().map(named).collect()).unwrap_or_default()
        }
        // Only one level: the server does not explain an explain.
        CommandClass::Explain => match explained(command) {
            Ok(Some(inner)) if inner.class != CommandClass::Explain => namespaces(&inner),
            _ => Vec::new(),
        },
        class if class.reads() || class.indirect_write().is_some() || WriteForm::for_class(class).is_some() => {
            let targets = indirect_write_targets(command, class).into_iter().chain(input_collections(command));
            // For other commands the first value is no collection.
            let own = own().filter(|_| class.reads() || WriteForm::for_class(class).is_some());
            own.into_iter().chain(targets.flatten()).collect()
        }
        _ => Vec::new(),
    }
}

/// The number of statements of a write command; 1 for others.
fn statement_count(command: &Command<'_>) -> u32 {
    let Some(list) = WriteForm::for_class(command.class).and_then(WriteForm::list) else { return 1 };
    let in_sequence = command.message.sequences.iter().find(|sequence| sequence.identifier == list);
    let in_body =
        || command.body.get(list).and_then(Value::as_array).map_or(1, |list: Document<'_>| list.values().count());
    let count = in_sequence.map_or_else(in_body, |sequence| sequence.count());
    u32::try_from(count).unwrap_or(u32::MAX).max(1)
}

/// The error for a message that waited too long, or would.
fn overloaded(
    command: &Command<'_>,
    limited_by: &LimitedBy<'_>,
    request: &PermitRequest,
    room_in: Option<Duration>,
    port: &Port,
) -> Step {
    let LimitedBy { rule, database, collection, .. } = limited_by;
    let namespace = Namespace { database, collection };
    let ThrottleLimits { concurrent, rate, per, .. } = request.limits;
    let concurrent = concurrent.map(|most| format!("{} at a time", plural(u64::from(most.get()), "command")));
    let rate = rate.map(|most| format!("{} per second", plural(u64::from(most.get()), "statement")));
    let limit = concurrent.into_iter().chain(rate).collect::<Vec<_>>().join(", ");
    let reason =
        format!("{} '{}' has reached its limit ({limit}); no permit became free in time", per.as_str(), request.key);
    let hint = "Retry later, and send fewer commands at a time.";
    let rejection = Rejection { code: code::INGRESS_REQUEST_RATE_LIMIT_EXCEEDED, ..Rejection::new(reason, hint) };
    port.add_outcome(rule, namespace, OutcomeKind::Reject, Some(&rejection));
    reject_command(command, &RejectedBy { room_in, ..RejectedBy::new(rule, rejection) }, command.name, namespace)
}
