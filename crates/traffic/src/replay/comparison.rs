//! How the replies of two targets, and the documents that they store, differ.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::Action;
use crate::audit::ReplySummary;
use crate::command::Reply;
use crate::document::edit::without;
use crate::document::{Document, Path, Value};
use crate::rules::{Mode, RuleSet};

/// Different kinds of differences that are counted apart; further ones are only counted.
const MAX_KINDS: usize = 200;

/// What a target answered to one action.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetReply {
    /// `None`: no reply.
    pub reply: Option<ReplySummary>,
    /// Of the documents in the reply, whatever their order.
    pub documents: u64,
}

impl TargetReply {
    /// Reads a reply. Documents are compared without these fields.
    #[must_use]
    pub fn of_reply(frame: &[u8], without: &[Path]) -> Self {
        let Ok(reply) = Reply::parse(frame) else { return Self::default() };
        let documents = reply.batch().unwrap_or(Document::EMPTY).values().chain(reply.body.get("value"));
        let hash = |value: Value<'_>| {
            value.as_document().map_or_else(|| value_hash(value), |document| document_hash(document, without))
        };
        let documents = documents.map(hash).fold(0, u64::wrapping_add);
        Self { reply: Some(ReplySummary::from(&reply)), documents }
    }
}

/// A kind of difference, and how often it occurred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub count: u64,
    /// The first command with this difference.
    pub example: String,
}

/// The differences between two targets.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    pub compared: u64,
    pub equal: u64,
    /// By command, collection, and what differs.
    pub differences: BTreeMap<(&'static str, Box<str>, String), Difference>,
    /// Differences of kinds that are not in `differences`.
    pub more: u64,
    pub stored: Vec<StoredDifference>,
}

/// How the documents of one collection differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredDifference {
    pub namespace: String,
    /// Documents on each side.
    pub counts: [u64; 2],
    /// Documents that only one side has.
    pub only: [u64; 2],
    pub different: u64,
    /// Fields that differ, with the number of documents, among those that were looked at.
    pub fields: BTreeMap<String, u64>,
    /// `_id`s of different documents and of those that only one side has.
    pub examples: Vec<String>,
    /// Why only the counts were compared.
    pub note: Option<String>,
}

impl StoredDifference {
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.counts[0] == self.counts[1] && self.only == [0, 0] && self.different == 0
    }
}

impl Comparison {
    /// Compares the replies to one action. `example` shows the command.
    pub fn add(
        &mut self,
        action: &Action,
        first: &TargetReply,
        second: &TargetReply,
        example: impl FnOnce() -> String,
    ) {
        self.compared += 1;
        let Some(what) = difference(first, second) else {
            self.equal += 1;
            return;
        };
        let key = (action.name.as_str(), action.namespace.clone(), what);
        if let Some(known) = self.differences.get_mut(&key) {
            known.count += 1;
        } else if self.differences.len() < MAX_KINDS {
            self.differences.insert(key, Difference { count: 1, example: example() });
        } else {
            self.more += 1;
        }
    }
}

/// What differs, as a clause; `None`: nothing.
fn difference(first: &TargetReply, second: &TargetReply) -> Option<String> {
    let (one, other) = match (&first.reply, &second.reply) {
        (Some(one), Some(other)) => (one, other),
        (None, None) => return None,
        (None, Some(_)) => return Some("only the second target answered".to_owned()),
        (Some(_), None) => return Some("only the first target answered".to_owned()),
    };
    let rule = |reply: &ReplySummary| reply.rules.keys().cloned().collect::<Vec<_>>().join(", ");
    match (one.rules.is_empty(), other.rules.is_empty()) {
        (true, false) => return Some(format!("rule '{}' rejected it only at the second target", rule(other))),
        (false, true) => return Some(format!("rule '{}' rejected it only at the first target", rule(one))),
        _ => {}
    }
    if (one.code, &one.write_errors) != (other.code, &other.write_errors) {
        return Some(format!("{} instead of {}", result(other), result(one)));
    }
    let counts = [
        ("n", one.n, other.n),
        ("nModified", one.modified, other.modified),
        ("documents", one.returned, other.returned),
    ];
    for (name, one, other) in counts {
        if one != other {
            let shown = |count: Option<i64>| count.map_or_else(|| "none".to_owned(), |count| count.to_string());
            return Some(format!("{name}: {} instead of {}", shown(other), shown(one)));
        }
    }
    if (one.cursor == 0) != (other.cursor == 0) {
        return Some("the cursor has more documents only at one target".to_owned());
    }
    (first.documents != second.documents).then(|| "other documents".to_owned())
}

fn result(reply: &ReplySummary) -> String {
    let mut codes: Vec<i32> = reply.code.iter().chain(&reply.write_errors).copied().collect();
    codes.sort_unstable();
    codes.dedup();
    match codes.as_slice() {
        [] => "success".to_owned(),
        codes => format!("error {}", codes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// The fields that docward writes for rules. A comparison does not look at them.
#[derive(Debug, Clone, Default)]
pub struct RuleFields(Arc<RuleSet>);

impl RuleFields {
    #[must_use]
    pub fn new(rules: Arc<RuleSet>) -> Self {
        Self(rules)
    }

    /// Returns those of a collection, given as `database.collection`.
    #[must_use]
    pub fn of_namespace(&self, namespace: &str) -> Vec<Path> {
        let (database, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
        let rules = self.0.rules_for(database, collection);
        let enforced = rules.iter().flat_map(|rules| rules.iter()).filter(|rule| rule.mode == Mode::Enforce);
        enforced.flat_map(|rule| rule.properties.own_fields.iter().cloned()).collect()
    }
}

/// Returns a hash of a document without these fields that is the same on both sides.
#[must_use]
pub fn document_hash(document: Document<'_>, without: &[Path]) -> u64 {
    if without.is_empty() {
        return value_hash(Value::document(document));
    }
    let rest = without_fields(document.as_bytes().to_vec(), without);
    Document::parse(&rest).map_or(0, |rest| value_hash(Value::document(rest)))
}

/// Returns a document without these fields.
#[must_use]
pub fn without_fields(document: Vec<u8>, fields: &[Path]) -> Vec<u8> {
    fields.iter().fold(document, |rest, field| {
        let shorter = Document::parse(&rest).ok().map(|rest| without(rest, field.as_str()));
        shorter.unwrap_or(rest)
    })
}

/// Returns a hash of a value that is the same on both sides.
#[must_use]
pub fn value_hash(value: Value<'_>) -> u64 {
    let mut hasher = FixedState::with_seed(7).build_hasher();
    hasher.write_u8(value.kind as u8);
    hasher.write(value.bytes);
    hasher.finish()
}
