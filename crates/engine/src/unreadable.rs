//! Messages that docward cannot read, and commands whose collection it cannot determine. They are rejected if what may be
//! in them could break a rule. Otherwise the server decides.

use super::ClientState;
use super::applicable_rules::{ApplicableRules, applicable_rules, enforcement, on_any};
use super::definitions::evaluates_in;
use super::indirect_writes::{noun, on_indirect_write};
use super::message_error::MessageError;
use super::message_plan::{Incoming, MessagePlan, Unplanned, reply_rejection, require_users};
use super::outcome::{OutcomeKind, RuleOutcomes};
use super::rejection_text::{self, FOR_THE_DBA, RejectedBy};
use super::request_head::RequestHead;
use super::step::Step;
use crate::command::{Command, CommandClass, CommandError, Namespace, WriteForm};
use crate::patterns::{ALL_COLLECTIONS, Rejection};
use crate::rules::{Mode, Rule};
use crate::wire::Header;

/// A message that no rule can evaluate.
struct UnreadableMessage<'u> {
    request: Header,
    /// As in "rejects this command".
    what: &'u str,
    /// As in "rejects this command on".
    target: &'u str,
    /// For the logs.
    namespace: Namespace<'u>,
    rejection: Rejection,
}

impl<'f> Incoming<'f> {
    /// Plans a message that docward cannot read.
    pub(super) fn plan_unreadable(
        &mut self,
        error: CommandError,
        client_state: &ClientState,
        outcomes: &mut RuleOutcomes,
    ) -> Result<MessagePlan<'f>, Unplanned> {
        let head = RequestHead::new(self.frame);
        let (Ok(request), Some(class)) = (Header::of_frame(self.frame), head.class()) else {
            return Err(Unplanned::Unreadable(error));
        };
        if matches!(class, CommandClass::Hello | CommandClass::Authenticate) {
            return Err(Unplanned::Unreadable(error));
        }
        // Other commands name no collection by their first value, or not only that one.
        let is_write = !matches!(WriteForm::for_class(class), None | Some(WriteForm::BulkWrite));
        let is_named = is_write || class.defines() || class.reads() && class.indirect_write().is_none();
        let named = head.namespace().filter(|_| is_named);
        let can_reject = |rule: &Rule| match named {
            Some(namespace) => rule.pattern.can_reject(class, namespace),
            None => on_any(rule, |pattern, namespace| pattern.can_reject(class, namespace)),
        };
        let rules: ApplicableRules<'f> = match named {
            Some(namespace) => applicable_rules(self.rules, namespace, client_state),
            None => self.rules_anywhere(client_state, can_reject),
        };
        require_users(&rules, client_state, request)?;
        let namespace = named.unwrap_or(Namespace { database: ALL_COLLECTIONS, collection: ALL_COLLECTIONS });
        let MessageError { code, text } = error.into();
        let hint = format!("Correct the program or the driver that sends it. {FOR_THE_DBA}");
        let rejection = Rejection { code, ..Rejection::new(text, hint) };
        let target = namespace.full_name();
        let unreadable = UnreadableMessage { request, what: "command", target: &target, namespace, rejection };
        let rejecting = rules.iter().filter(|(rule, _)| can_reject(rule)).copied().collect();
        if let Some(step) = self.reject_unreadable(unreadable, &rejecting, outcomes) {
            return Ok(MessagePlan::last(step));
        }
        // An option that only the server knows is no reason to leave out what the other rules add.
        Ok(MessagePlan::last(match Command::parse(self.frame) {
            Ok(command) => self.plan_whole(&command, class, &rules, outcomes)?,
            Err(_) => Step::ForwardOriginal { expects_reply: self.expects_reply() },
        }))
    }

    /// Plans a command whose collection is unknown. `applies` returns whether it could break a rule.
    pub(super) fn unknown_collection(
        &self,
        command: &Command<'f>,
        what: &str,
        applies: impl Fn(&Rule) -> bool,
        client_state: &ClientState,
        outcomes: &mut RuleOutcomes,
    ) -> Result<Step, Unplanned> {
        let request = command.message.header;
        let rules = self.rules_anywhere(client_state, applies);
        require_users(&rules, client_state, request)?;
        let unreadable = UnreadableMessage {
            request,
            what: noun(what),
            target: "a collection that docward cannot determine",
            namespace: Namespace { database: command.database, collection: ALL_COLLECTIONS },
            rejection: Rejection::new(
                "the rule may apply to that collection, which the command does not name by a string in its body",
                format!(
                    "Name the collection by a string in the command's body. If a tool sends it, such as mongorestore, ask \
                     the DBA. {FOR_THE_DBA}"
                ),
            ),
        };
        let step = self.reject_unreadable(unreadable, &rules, outcomes);
        Ok(step.unwrap_or(Step::ForwardOriginal { expects_reply: !command.message.more_to_come() }))
    }

    /// Plans a read of a collection named by its UUID, which may be one whose reads a rule can reject.
    pub(super) fn plan_unnamed_read(
        &mut self,
        command: &Command<'f>,
        class: CommandClass,
        client_state: &ClientState,
        outcomes: &mut RuleOutcomes,
    ) -> Result<Step, Unplanned> {
        let what = format!("{} on", command.name);
        let applies = |rule: &Rule| evaluates_in(rule, class, command.database);
        self.unknown_collection(command, &what, applies, client_state, outcomes)
    }

    /// Notes what each rule does with the message; returns the first rejection.
    fn reject_unreadable(
        &self,
        unreadable: UnreadableMessage<'_>,
        rules: &ApplicableRules<'f>,
        outcomes: &mut RuleOutcomes,
    ) -> Option<Step> {
        let UnreadableMessage { request, what, target, namespace, rejection } = unreadable;
        for (rule, enforcement) in rules {
            let kind = on_indirect_write(rule, *enforcement);
            outcomes.add(rule, namespace, kind, Some(&rejection));
            if kind == OutcomeKind::Reject {
                let rejected = RejectedBy::new(rule, rejection);
                let text = rejection_text::message(&rejected, what, target);
                return Some(match self.expects_reply() {
                    true => reply_rejection(request, &rejected, &text),
                    false => Step::Close(text),
                });
            }
        }
        None
    }

    /// Returns the rules of all namespaces that are not disabled and for which `applies` returns true.
    pub(super) fn rules_anywhere(
        &self,
        client_state: &ClientState,
        applies: impl Fn(&Rule) -> bool,
    ) -> ApplicableRules<'f> {
        let rules = self.rules.rules().iter().filter(|rule| rule.mode != Mode::Disabled && applies(rule));
        rules.filter_map(|rule| Some((rule, enforcement(rule, client_state)?))).collect()
    }
}
