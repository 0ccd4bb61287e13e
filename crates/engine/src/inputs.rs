//! What aggregations read besides their own collection, by `$lookup`, `$graphLookup` and `$unionWith`.

use super::ClientState;
use super::applicable_rules::{ApplicableRules, Enforcement, applicable_rules};
use super::message_plan::{Incoming, Unplanned, reject_command, require_users};
use super::outcome::RuleOutcomes;
use super::rejection_text::RejectedBy;
use super::step::Step;
use crate::command::{Command, CommandClass, InputStage, Namespace, input_stages};
use crate::patterns::{CommandVerdict, WholeCommand};
use crate::rules::RuleId;

/// A stage with the rules that evaluate what it reads.
struct EvaluatedInput<'f, 'c> {
    stage: InputStage<'c>,
    database: String,
    collection: String,
    rules: ApplicableRules<'f>,
}

impl<'f> Incoming<'f> {
    /// Evaluates the stages that read a protected collection; returns the rejection. Each rule counts the command once.
    pub(super) fn evaluate_inputs(
        &mut self,
        command: &Command<'f>,
        client_state: &ClientState,
        outcomes: &mut RuleOutcomes,
    ) -> Result<Option<Step>, Unplanned> {
        if command.class != CommandClass::Aggregate || !self.rules.evaluates_inputs() {
            return Ok(None);
        }
        let mut inputs: Vec<EvaluatedInput<'f, 'f>> = Vec::new();
        for stage in input_stages(command) {
            let Ok((database, collection)) = stage.collection.clone() else {
                let what = format!("{} from", stage.name);
                match self.unknown_collection(
                    command,
                    &what,
                    |rule| rule.properties.evaluates_inputs,
                    client_state,
                    outcomes,
                )? {
                    Step::ForwardOriginal { .. } => continue,
                    step => return Ok(Some(step)),
                }
            };
            let namespace = Namespace { database: &database, collection: &collection };
            let mut rules: ApplicableRules<'f> = applicable_rules(self.rules, namespace, client_state);
            rules.retain(|(rule, _)| rule.properties.evaluates_inputs);
            // Before anything is noted: the command is evaluated again when the users are known.
            require_users(&rules, client_state, command.message.header)?;
            inputs.push(EvaluatedInput { stage, database, collection, rules });
        }
        let mut noted: Vec<RuleId> = Vec::new();
        for EvaluatedInput { stage, database, collection, rules } in &inputs {
            let namespace = Namespace { database, collection };
            let whole = WholeCommand { namespace, class: command.class, body: command.body };
            let is_own = command.collection() == Some(namespace);
            for (rule, enforcement) in rules {
                // What is rejected on the aggregation's own collection is noted there.
                let is_noted = noted.contains(&rule.id)
                    || is_own && !matches!(rule.pattern.command_verdict(&whole), CommandVerdict::Forward);
                let Some(rejection) = rule.pattern.evaluate_input(&whole, stage).filter(|_| !is_noted) else {
                    continue;
                };
                outcomes.add(rule, namespace, enforcement.rejects(), Some(&rejection));
                if *enforcement == Enforcement::Enforce {
                    let rejected = RejectedBy::new(rule, rejection);
                    return Ok(Some(reject_command(command, &rejected, command.name, namespace)));
                }
                noted.push(rule.id);
            }
        }
        Ok(None)
    }
}
