//! Indirect writes to protected collections, which no rule can analyse: commands that write other than by statements,
//! statements on the buckets of a time series, and commands whose collection is unknown.
//!
//! Rejected if a rule applies to the target, unless all such rules have `unsupported: allow`. The catalogue lists
//! these commands (`CommandClass::indirect_write`); `command::indirect_write_targets` returns their targets.

use super::ClientState;
use super::applicable_rules::{ApplicableRules, Enforcement, applicable_rules, enforcement};
use super::definitions::evaluates_in;
use super::message_error::MessageError;
use super::message_plan::{Incoming, Unplanned, reject_command, require_users};
use super::outcome::{OutcomeKind, RuleOutcomes};
use super::rejection_text::RejectedBy;
use super::step::Step;
use crate::command::own::users_question;
use crate::command::{Command, CommandClass, Namespace, OutputTarget, WriteForm, code, indirect_write_targets};
use crate::config::bucketed_collection;
use crate::patterns::{CommandVerdict, Rejection, WholeCommand};
use crate::rules::{Mode, Rule, Unsupported};

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
            return self.unknown_collection(command, what, |_| true, client_state);
        }
        self.unanalysed(command, indirect_write_targets(command, class), what, client_state, outcomes)
    }

    /// Plans writes that no rule can analyse: rejected if a rule applies to the target, unless all such rules
    /// allow it.
    pub(super) fn unanalysed(
        &mut self,
        command: &Command<'f>,
        targets: Vec<OutputTarget>,
        what: &str,
        client_state: &ClientState,
        outcomes: &mut RuleOutcomes,
    ) -> Result<Step, Unplanned> {
        for target in targets {
            let Ok((database, collection)) = target else {
                let step = self.unknown_collection(command, what, |_| true, client_state)?;
                if matches!(step, Step::ForwardOriginal { .. }) {
                    continue;
                }
                return Ok(step);
            };
            let namespace = Namespace { database: &database, collection: &collection };
            let applicable_rules = applicable_rules(self.rules, namespace, client_state);
            require_users(&applicable_rules, client_state, command)?;
            for (rule, enforcement) in applicable_rules.into_iter().filter(|(rule, _)| rule.pattern.analyses_writes()) {
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
                let rejection = Rejection::new(
                    format!("no rule can analyse what it writes ({what} the protected collection)"),
                    "Write by insert, update or delete. (For the DBA: `unsupported: allow` lets it pass.)",
                );
                let kind = on_indirect_write(rule, enforcement);
                outcomes.add(rule, namespace, kind, Some(&rejection));
                if kind == OutcomeKind::Reject {
                    let noun = what.rsplit_once(' ').map_or(what, |(noun, _)| noun);
                    return Ok(reject_command(command, &RejectedBy::new(rule, rejection), noun, namespace));
                }
            }
        }
        Ok(Step::ForwardOriginal { expects_reply: !command.message.more_to_come() })
    }

    /// Plans a command whose collection is unknown: it is rejected if any rule that may apply rejects what it
    /// cannot analyse.
    pub(super) fn unknown_collection(
        &mut self,
        command: &Command<'f>,
        what: &str,
        applies: impl Fn(&Rule) -> bool,
        client_state: &ClientState,
    ) -> Result<Step, Unplanned> {
        let rules = || {
            self.rules
                .rules()
                .iter()
                .filter(|rule| rule.mode != Mode::Disabled && rule.pattern.evaluates() && applies(rule))
        };
        if client_state.users.is_none() && rules().any(|rule| !rule.except.users.is_empty()) {
            return Err(Unplanned::Users(users_question(command.message.header.request_id)));
        }
        match rules().find(|rule| on_indirect_write(rule, enforcement(rule, client_state)) == OutcomeKind::Reject) {
            Some(rule) => Err(Unplanned::Error(MessageError {
                code: code::DOCUMENT_VALIDATION_FAILURE,
                text: format!(
                    "{what} a collection that docward cannot determine; rule '{}' may apply to it. Name the \
                     collection by a string in the command's body",
                    rule.name.value
                ),
            })),
            None => Ok(Step::ForwardOriginal { expects_reply: !command.message.more_to_come() }),
        }
    }

    /// Plans a read of a collection named by its UUID, which may be one whose reads a rule evaluates.
    pub(super) fn plan_unnamed_read(
        &mut self,
        command: &Command<'f>,
        class: CommandClass,
        client_state: &ClientState,
    ) -> Result<Step, Unplanned> {
        let evaluates = |rule: &Rule| evaluates_in(rule, class, command.database);
        self.unknown_collection(command, &format!("{} on", command.name), evaluates, client_state)
    }

    /// Returns the rules for the statements on a namespace. The buckets of a time-series collection hold many
    /// documents each, so no rule can analyse statements on them: then the first value is the target instead.
    pub(super) fn applicable_rules_of(
        &self,
        namespace: Namespace<'_>,
        client_state: &ClientState,
    ) -> (Option<OutputTarget>, ApplicableRules<'f>) {
        if bucketed_collection(namespace.collection.as_bytes()).is_none() {
            return (None, applicable_rules(self.rules, namespace, client_state));
        }
        (Some(Ok((namespace.database.to_owned(), namespace.collection.to_owned()))), ApplicableRules::new())
    }
}

/// The outcome of a rule for a write that it cannot analyse.
pub(super) fn on_indirect_write(rule: &Rule, enforcement: Enforcement) -> OutcomeKind {
    match rule.unsupported {
        Unsupported::Allow => OutcomeKind::Allow,
        Unsupported::Reject => enforcement.rejects(),
    }
}
