//! Documents that workers take as jobs: an update that takes any free one, and a later one by `_id` alone.

use std::collections::BTreeMap;

use super::{Evidence, MAX_FIELDS, SeenWrite};
use crate::audit::write::{self, operator};
use crate::command::{Statement, StatementKind};
use crate::document::{Kind, OwnedValue, Value};
use crate::effect::condition_operators;

/// The claims of one collection, by the field that marks a job as taken.
#[derive(Debug, Default)]
pub(in crate::audit) struct Jobs {
    pub(in crate::audit) claims: BTreeMap<String, Claims>,
}

/// Updates that take a job.
#[derive(Debug)]
pub(in crate::audit) struct Claims {
    pub(in crate::audit) evidence: Evidence,
    /// The value of a taken job.
    taken: OwnedValue,
    /// A date that the claim sets.
    pub(in crate::audit) locked_at: Option<String>,
    /// A number that the claim increments.
    pub(in crate::audit) attempts: Option<String>,
    /// Later updates and deletes of a job, by `_id` alone.
    pub(in crate::audit) completions: Evidence,
}

impl Claims {
    /// Whether a taken job has `true` in the field, as docward's lock does.
    pub(in crate::audit) fn is_lock(&self) -> bool {
        self.taken.as_value().as_bool() == Some(true)
    }
}

impl Jobs {
    pub(super) fn write(&mut self, write: &Statement<'_>, seen: &SeenWrite<'_>) {
        let found_none = seen.recorded.reply.as_ref().is_some_and(|reply| reply.n == Some(0));
        if write.is_multi() || found_none {
            return;
        }
        match write.kind() {
            StatementKind::Operators if write.filter().get("_id").is_none() => self.claim(write, seen),
            StatementKind::Operators | StatementKind::Delete
                if write::id(write).is_some() && !write::is_conditional(write) =>
            {
                self.complete(write, seen);
            }
            _ => {}
        }
    }

    fn claim(&mut self, write: &Statement<'_>, seen: &SeenWrite<'_>) {
        for element in operator(write, "$set") {
            let Ok(field) = std::str::from_utf8(element.key) else { continue };
            let is_mark = matches!(element.value.kind, Kind::String | Kind::Boolean | Kind::Int32);
            let Some(condition) = write.filter().get(field).filter(|_| is_mark) else { continue };
            let is_free = condition_operators(condition).is_some() || condition != element.value;
            if !is_free || (self.claims.len() >= MAX_FIELDS && !self.claims.contains_key(field)) {
                continue;
            }
            let claims = self.claims.entry(field.to_owned()).or_insert_with(|| Claims {
                evidence: Evidence::default(),
                taken: element.value.into(),
                locked_at: None,
                attempts: None,
                completions: Evidence::default(),
            });
            claims.taken = element.value.into();
            let name = |key: &[u8]| std::str::from_utf8(key).ok().filter(|name| !name.contains('.')).map(str::to_owned);
            let dates = operator(write, "$set").filter(|element| element.value.kind == Kind::DateTime);
            let date = dates.chain(operator(write, "$currentDate")).find_map(|element| name(element.key));
            let counts = |value: Value<'_>| value.as_integer() == Some(1);
            let count = operator(write, "$inc").find(|element| counts(element.value));
            claims.locked_at = date.or(claims.locked_at.take());
            claims.attempts = count.and_then(|element| name(element.key)).or(claims.attempts.take());
            seen.count(&mut claims.evidence);
        }
    }

    fn complete(&mut self, write: &Statement<'_>, seen: &SeenWrite<'_>) {
        for (field, claims) in &mut self.claims {
            let set = operator(write, "$set").find(|element| element.key == field.as_bytes());
            let ends = match (write.kind(), set) {
                (StatementKind::Delete, _) => true,
                (_, Some(element)) => element.value != claims.taken.as_value(),
                (_, None) => operator(write, "$unset").any(|element| element.key == field.as_bytes()),
            };
            if ends {
                seen.count(&mut claims.completions);
            }
        }
    }
}
