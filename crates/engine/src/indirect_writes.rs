//! Indirect writes to protected collections, which no rule can analyse: commands that write other than by statements,
//! statements on the buckets of a time series, and commands whose collection is unknown.
//!
//! Rejected if a rule applies to the target, unless all such rules have `unsupported: allow`. The catalogue lists
//! these commands (`CommandClass::indirect_write`); `command::indirect_write_targets` returns their targets.

use super::ClientState;
use super::applicable_rules::{ApplicableRules, Enforcement, applicable_rules, on_any};
use super::message_plan::{Incoming, Unplanned, reject_command, require_users};
use super::outcome::{OutcomeKind, RuleOutcomes};
use super::rejection_text::{FOR_THE_DBA, RejectedBy};
use super::step::Step;
use crate::command::{
    Command, CommandClass, Namespace, OutputTarget, StatementKind, WriteForm, indirect_write_targets,
};
use crate::config::bucketed_collection;
use crate::patterns::{CommandVerdict, Rejection, WholeCommand};
use crate::rules::{Rule, Unsupported};

impl<'f> Incoming<'f> {
    /// Plans a command that can change a collection other than by statements.
    pub(super) fn indirect_write(
        &mut self,
        command: &Command<'f>,
        class: CommandClass,
        what: &str,
        client_state: &ClientState,
        outcomes: &mut RuleOutcomes,
    ) -> Result<Step, Unplanned> {
        // For known commands only the body is parsed; drivers send nothing else.
        if class != CommandClass::Unknown && !command.message.sequences.is_empty() {
            return self.unknown_collection(command, what, breaks_by_writes, client_state, outcomes);
        }
        let targets = indirect_write_targets(command, class);
        self.unanalysed(command, targets, &StatementKind::ALL, what, client_state, outcomes)
    }

    /// Plans writes of these kinds that no rule can analyse: rejected if they could break a rule on the target, unless
    /// all such rules allow it.
    pub(super) fn unanalysed(
        &mut self,
        command: &Command<'f>,
        targets: Vec<OutputTarget>,
        kinds: &[StatementKind],
        what: &str,
        client_state: &ClientState,
        outcomes: &mut RuleOutcomes,
    ) -> Result<Step, Unplanned> {
        for target in targets {
            let Ok((database, collection)) = target else {
                let step = self.unknown_collection(command, what, breaks_by_writes, client_state, outcomes)?;
                if matches!(step, Step::ForwardOriginal { .. }) {
                    continue;
                }
                return Ok(step);
            };
            let namespace = Namespace { database: &database, collection: &collection };
            let applicable_rules = applicable_rules(self.rules, namespace, client_state);
            require_users(&applicable_rules, client_state, command.message.header)?;
            for (rule, enforcement) in applicable_rules {
                let whole = WholeCommand { namespace, class: command.class, body: command.body };
                // Commands with statements have their own rejections.
                let denied = match WriteForm::for_class(command.class) {
                    None if !command.class.reads() => rule.pattern.command_verdict(&whole),
                    _ => CommandVerdict::Forward,
                };
                if let CommandVerdict::Reject(rejection) = denied {
                    let kind = enforcement.rejects();
                    outcomes.add(rule, namespace, kind, Some(&rejection));
                    if kind == OutcomeKind::Reject {
                        let rejected = RejectedBy::new(rule, rejection);
                        return Ok(reject_command(command, &rejected, command.name, namespace));
                    }
                    continue;
                }
                if !rule.pattern.analyses_writes(kinds, namespace) {
                    continue;
                }
                let rejection = Rejection::new(
                    format!("no rule can analyse what it writes ({what} the protected collection)"),
                    format!("Write by insert, update or delete. {FOR_THE_DBA}"),
                );
                let kind = on_indirect_write(rule, enforcement);
                outcomes.add(rule, namespace, kind, Some(&rejection));
                if kind == OutcomeKind::Reject {
                    return Ok(reject_command(command, &RejectedBy::new(rule, rejection), noun(what), namespace));
                }
            }
        }
        Ok(Step::ForwardOriginal { expects_reply: !command.message.more_to_come() })
    }

    /// Returns the rules for the statements on a namespace. The buckets of a time-series collection hold many
    /// documents each, so no rule can analyse statements on them: then the first value is the target instead.
    pub(super) fn applicable_rules_of(
        &self,
        namespace: Namespace<'_>,
        client_state: &ClientState,
    ) -> (Option<OutputTarget>, ApplicableRules<'f>) {
        let bucketed = bucketed_collection(namespace.collection.as_bytes());
        let Some(collection) = bucketed.and_then(|name| std::str::from_utf8(name).ok()) else {
            return (None, applicable_rules(self.rules, namespace, client_state));
        };
        (Some(Ok((namespace.database.to_owned(), collection.to_owned()))), ApplicableRules::new())
    }
}

/// Whether any write could break the rule on one of its namespaces.
fn breaks_by_writes(rule: &Rule) -> bool {
    on_any(rule, |pattern, namespace| pattern.analyses_writes(&StatementKind::ALL, namespace))
}

/// The noun of a text such as "renameCollection of".
pub(super) fn noun(what: &str) -> &str {
    what.rsplit_once(' ').map_or(what, |(noun, _)| noun)
}

/// The outcome of a rule for a write that it cannot analyse.
pub(super) fn on_indirect_write(rule: &Rule, enforcement: Enforcement) -> OutcomeKind {
    match rule.unsupported {
        Unsupported::Allow => OutcomeKind::Allow,
        Unsupported::Reject => enforcement.rejects(),
    }
}
