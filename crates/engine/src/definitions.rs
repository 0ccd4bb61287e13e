//! Commands that drop collections or change their definitions. Only rules that name such a command reject it.

use std::ops::ControlFlow;

use super::ClientState;
use super::applicable_rules::{ApplicableRules, applicable_rules};
use super::message_plan::{Incoming, Unplanned, require_users};
use super::outcome::RuleOutcomes;
use super::step::Step;
use crate::command::{Command, CommandClass, Namespace};
use crate::config::bucketed_collection;
use crate::patterns::ALL_COLLECTIONS;
use crate::rules::Rule;

impl<'f> Incoming<'f> {
    pub(super) fn definition(
        &mut self,
        command: &Command<'f>,
        class: CommandClass,
        client_state: &ClientState,
        outcomes: &mut RuleOutcomes,
    ) -> Result<Step, Unplanned> {
        let database = command.database;
        let rejects = |rule: &Rule| evaluates_in(rule, class, database);
        let forward = Step::ForwardOriginal { expects_reply: !command.message.more_to_come() };
        let (namespace, rules): (_, ApplicableRules<'f>) = match (class, command.collection()) {
            (CommandClass::DropDatabase, _) => {
                (Namespace { database, collection: ALL_COLLECTIONS }, self.rules_anywhere(client_state, rejects))
            }
            (_, Some(namespace)) => {
                // The buckets of a time series are part of it.
                let collection = bucketed_collection(namespace.collection.as_bytes());
                let collection = collection.and_then(|name| std::str::from_utf8(name).ok());
                let namespace = Namespace { collection: collection.unwrap_or(namespace.collection), ..namespace };
                (namespace, applicable_rules(self.rules, namespace, client_state))
            }
            (_, None) => {
                return self.unknown_collection(
                    command,
                    &format!("{} on", command.name),
                    rejects,
                    client_state,
                    outcomes,
                );
            }
        };
        require_users(&rules, client_state, command.message.header)?;
        Ok(match self.evaluate_on(command, class, namespace, &rules, outcomes)? {
            ControlFlow::Break(step) => step,
            ControlFlow::Continue(_) => forward,
        })
    }
}

/// Returns whether a rule can reject a command of this class, as a whole, on a collection of the database.
pub(super) fn evaluates_in(rule: &Rule, class: CommandClass, database: &str) -> bool {
    let further = &rule.properties.also_evaluates;
    let all = Namespace { database, collection: ALL_COLLECTIONS };
    let mut namespaces = rule.namespaces.iter().map(|namespace| &namespace.value).chain(further);
    rule.pattern.evaluates_command(class, None, all)
        && rule.pattern.can_reject(class, all)
        && namespaces.any(|namespace| namespace.database().matches(database.as_bytes()))
}
