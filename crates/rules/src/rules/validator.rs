//! What rules require of stored documents, as one validator of the server for each collection: it also holds for clients that
//! bypass docward.
//!
//! It must never reject what docward would let a client store. So rules that do not apply to everybody are omitted, and
//! from an enforcing validator also what is true only when docward's transaction ends.

use bson::Document;

use super::rule::{Rule, RuleId, Unsupported};
use super::set::RuleSet;
use crate::command::Namespace;
use crate::document::Path;
use crate::patterns::{Mode, StateCondition};

/// The validator of a collection.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Validator {
    /// Match expressions, each with its rule; all must match.
    pub clauses: Vec<(RuleId, Document)>,
    /// What is not in it, each with its rule and the reason.
    pub omitted: Vec<(RuleId, String)>,
}

impl RuleSet {
    /// Returns the validator of a collection. `enforcing`: it rejects documents instead of logging them.
    #[must_use]
    pub fn validator(&self, namespace: Namespace<'_>, enforcing: bool) -> Validator {
        let Some(found) = self.rules_for(namespace.database, namespace.collection) else { return Validator::default() };
        let rules: Vec<&Rule> = found.iter().collect();
        let mut validator = Validator::default();
        for rule in &rules {
            let conditions = rule.pattern.stored_state();
            if let Some(reason) = reason_to_omit(rule, &conditions) {
                validator.omitted.push((rule.id, reason));
                continue;
            }
            for condition in conditions {
                let written = || rules.iter().find(|other| other.id != rule.id && writes(other, &condition));
                let passing = match enforcing {
                    true if condition.is_settled => Some("docward makes it true".to_owned()),
                    true => written().map(|other| format!("docward writes for `{}`", other.name.value)),
                    false => None,
                };
                match passing {
                    Some(why) => {
                        let meaning = &condition.meaning;
                        let reason = format!("{meaning}: {why} after a statement, in the same transaction");
                        validator.omitted.push((rule.id, reason));
                    }
                    None => validator.clauses.push((rule.id, condition.to_match(&rule.name.value))),
                }
            }
        }
        validator
    }
}

/// Returns why nothing of a rule can be in a validator.
fn reason_to_omit(rule: &Rule, conditions: &[StateCondition]) -> Option<String> {
    Some(match rule {
        _ if conditions.is_empty() => format!("a document does not show {}", rule.pattern.not_in_documents()),
        Rule { mode: Mode::Shadow, .. } => "its mode is `shadow`".to_owned(),
        Rule { except, .. } if !except.is_empty() => "`except` exempts clients".to_owned(),
        Rule { only, .. } if !only.is_empty() => "`only` exempts the other clients".to_owned(),
        Rule { unsupported: Unsupported::Allow, .. } => {
            "`unsupported: allow` forwards statements that can break it".to_owned()
        }
        _ => return None,
    })
}

/// Whether docward itself writes for `rule` to what the condition is about, so that there are states in between.
fn writes(rule: &Rule, condition: &StateCondition) -> bool {
    rule.mode == Mode::Enforce
        && match &condition.fields[..] {
            [] => rule.properties.writes_itself(),
            // What a late statement wrote is put back.
            _ if rule.properties.may_keep_replaced => true,
            fields => fields.iter().any(|field| {
                let is_own = |own: &Path| own.overlaps(field.as_str().as_bytes());
                rule.properties.own_fields.iter().any(is_own) || rule.pattern.partial_change_reason(field).is_some()
            }),
        }
}
