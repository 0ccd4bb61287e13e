//! Versions in other statements than replacements: updates by operators and pipelines increment them and cannot
//! decrease them.

use std::cmp::Ordering;

use super::{NONE, OTHER_VERSION, OnConflict, Replacement, ReplacementPolicy, next_version, version_of};
use crate::command::{Modification, Operation, Statement, Update, code};
use crate::document::{CowDocument, Document, Kind, OwnedValue, Path, Value, compare_numbers, edit};
use crate::effect::{Change, change, equality, is_equal};
use crate::patterns::number::sign;
use crate::patterns::{Rejection, Verdict};
use crate::shell::value_text;

impl Replacement {
    /// Evaluates an update by operators. An application that writes all fields in each save (TypeORM, Beanie) also sets
    /// the version, to the number that it read.
    pub(super) fn operators<'a>(
        &self,
        statement: &Statement<'a>,
        update: &Update<'a>,
        operators: Document<'_>,
        version_field: &Path,
    ) -> Result<Verdict<'a>, Rejection> {
        let named = equality(update.filter.as_document(), version_field.as_str());
        match change(&statement.operation, version_field) {
            Change::Untouched => Ok(Verdict::Forward),
            // The application increments the version itself.
            Change::Incremented(amount) if amount.as_whole().is_some_and(|amount| amount > 0) => Ok(Verdict::Forward),
            // Saves cannot increment the version any more.
            Change::Incremented(amount) if amount.kind.is_number() && sign(amount).is_none_or(Ordering::is_gt) => {
                Err(no_whole_amount(version_field))
            }
            Change::Set(version) => self.set(statement, update, operators, version_field, version, named),
            Change::Removed | Change::Incremented(_) => Err(set_back(version_field)),
            Change::Either(_) | Change::Now | Change::Inside(_) | Change::Unclear(_) => {
                let part = format!("it changes '{version_field}' with an operator other than $set and $inc");
                Ok(Verdict::not_plain(part))
            }
        }
    }

    fn set<'a>(
        &self,
        statement: &Statement<'a>,
        update: &Update<'a>,
        operators: Document<'_>,
        version_field: &Path,
        version: Value<'_>,
        named: Option<Value<'_>>,
    ) -> Result<Verdict<'a>, Rejection> {
        let Some(next) = next_version(version) else {
            // An application that stores a new revision with each save has the old one in its filter.
            return match named {
                Some(named) if named.kind == Kind::Null || next_version(named).is_none() => Ok(Verdict::Forward),
                // It is the number that was read, and is only compared.
                None if self.policy == ReplacementPolicy::CheckVersion && version.kind.is_number() => {
                    Ok(self.conditional(statement, update.clone(), version_field, version))
                }
                _ => Err(cannot_be_incremented(version_field)),
            };
        };
        match named {
            Some(named) if next_version(named).is_none() || is_above(version, named) => Ok(Verdict::Forward),
            Some(named) if !is_equal(version, named) => Err(set_back(version_field)),
            Some(_) => Ok(Verdict::rewrite(Operation::Update(with_version(update, operators, version_field, &next)))),
            // Null means that the document was read without a version.
            None if self.policy == ReplacementPolicy::CheckVersion || version.kind == Kind::Null => {
                let update = with_version(update, operators, version_field, &next);
                Ok(self.conditional(statement, update, version_field, version))
            }
            None => {
                let mut update = update.clone();
                update.conditions.push(CowDocument::build(|w| {
                    w.nested(version_field.as_str(), |w| w.nested("$not", |w| w.value("$gte", version)));
                }));
                let checks_match = self.on_conflict == OnConflict::Error;
                Ok(Verdict::conditional(Operation::Update(update), checks_match, OTHER_VERSION))
            }
        }
    }
}

/// Returns the update with another version in its `$set`.
fn with_version<'a>(
    update: &Update<'a>,
    operators: Document<'_>,
    version_field: &Path,
    version: &OwnedValue,
) -> Update<'a> {
    let operators = CowDocument::build(|w| {
        for operator in operators.elements() {
            match operator.value.as_document().filter(|_| operator.key == b"$set") {
                Some(fields) => w.nested("$set", |w| {
                    for field in fields.elements() {
                        match (field.value.as_document(), version_field.below(field.key)) {
                            _ if field.key == version_field.as_str().as_bytes() => {
                                w.value(field.key, version.as_value())
                            }
                            (Some(around), Some(rest)) => {
                                let changed = CowDocument::from_writer(edit::set(around, &rest, version.as_value()));
                                w.value(field.key, Value::document(changed.as_document()));
                            }
                            _ => w.element(field),
                        }
                    }
                }),
                None => w.element(operator),
            }
        }
    });
    Update { modification: Modification::Operators(operators), ..update.clone() }
}

/// Returns whether a version comes after the other: null comes before all numbers.
pub(super) fn is_above(version: Value<'_>, other: Value<'_>) -> bool {
    match (version.kind, other.kind) {
        (Kind::Null, _) => false,
        (_, Kind::Null) => true,
        _ => compare_numbers(version, other) == Some(Ordering::Greater),
    }
}

pub(super) fn cannot_be_incremented(version_field: &Path) -> Rejection {
    Rejection::new(
        format!("it sets the version '{version_field}' to a value that cannot be incremented"),
        format!("Leave '{version_field}' out, or add the one that you read to the filter."),
    )
}

fn no_whole_amount(version_field: &Path) -> Rejection {
    Rejection::new(
        format!("it increments the version '{version_field}' by a number that is not a whole number of 64 bits"),
        format!("Leave '{version_field}' out; docward increments it."),
    )
}

pub(super) fn set_back(version_field: &Path) -> Rejection {
    Rejection::new(
        format!("it decreases or removes the version '{version_field}'"),
        format!("Leave '{version_field}' out; docward increments it."),
    )
}

/// Returns the rejection if the stored document does not have the version that the statement requires; `None` if the
/// statement failed for another reason.
pub(super) fn conflict(update: &Update<'_>, version_field: &Path, stored: Document<'_>) -> Option<Rejection> {
    let mut conditions = update.conditions.iter().map(CowDocument::as_document);
    let compared = conditions.find_map(|condition| Compared::from_condition(condition, version_field))?;
    let found = version_of(stored, version_field).unwrap_or(NONE);
    let reaches = |stored: Value<'_>, limit| compare_numbers(stored, limit).is_some_and(Ordering::is_ge);
    let (sent, is_kept) = match compared {
        Compared::Below(limit) => {
            let is_kept = !holds_for(found, |stored| reaches(stored, limit));
            return (!is_kept).then(|| not_increased(version_field, found, limit));
        }
        Compared::Equal(sent) => (sent, holds_for(found, |stored| is_equal(stored, sent))),
        Compared::Same(sent) => (sent, is_equal(found, sent)),
    };
    (!is_kept).then(|| other_version(version_field, found, sent))
}

fn not_increased(version_field: &Path, stored: Value<'_>, set: Value<'_>) -> Rejection {
    let (stored, set) = (described(version_field, stored), text(set));
    Rejection {
        code: code::WRITE_CONFLICT,
        reason: format!(
            "it sets '{version_field}' to {set}, but the stored document has {stored}; versions only increase"
        ),
        hint: format!(
            "Leave '{version_field}' out, or put the one you read into the filter. (For the DBA: \
             `policy: check_version` treats it as the version that was read.)"
        ),
    }
}

/// Returns the conflict of a statement that was made for another version than the stored one.
pub(super) fn other_version(version_field: &Path, stored: Value<'_>, sent: Value<'_>) -> Rejection {
    let (stored, sent) = if stored.kind == sent.kind && number_or_text(stored).is_none() {
        (format!("'{version_field}' {}", value_text(stored)), value_text(sent))
    } else {
        (described(version_field, stored), sent_version(sent))
    };
    Rejection {
        code: code::WRITE_CONFLICT,
        reason: format!("the stored document has {stored}, the one you sent has {sent}"),
        hint: "Read the document again, apply the change to it, and save it.".to_owned(),
    }
}

/// What one of docward's conditions compares the stored version with.
enum Compared<'c> {
    /// The version is less than this number.
    Below(Value<'c>),
    /// The version is this value, or an array with it.
    Equal(Value<'c>),
    /// The version is this value.
    Same(Value<'c>),
}

impl<'c> Compared<'c> {
    fn from_condition(condition: Document<'c>, version_field: &Path) -> Option<Self> {
        let branches = condition.get("$or").and_then(Value::as_array);
        let first = branches.and_then(Document::first).and_then(|branch| branch.value.as_document());
        let wanted = first.unwrap_or(condition).get(version_field.as_str())?;
        // Values that are documents or regular expressions stand behind an operator too.
        let operator = |name: &str| wanted.as_document().and_then(|condition| condition.get(name));
        let negated = operator("$not");
        Some(match (negated.and_then(|negated| negated.as_document()?.get("$gte")), operator("$eq")) {
            (Some(limit), _) => Self::Below(limit),
            (None, Some(sent)) if negated.is_some() => Self::Same(sent),
            (None, sent) => Self::Equal(sent.unwrap_or(wanted)),
        })
    }
}

fn sent_version(version: Value<'_>) -> String {
    if version.kind == Kind::Null { "none".to_owned() } else { text(version) }
}

/// Returns whether a condition holds for the stored value or for one of its elements.
fn holds_for(stored: Value<'_>, condition: impl Fn(Value<'_>) -> bool) -> bool {
    condition(stored) || stored.as_array().is_some_and(|elements| elements.values().any(condition))
}

pub(super) fn described(version_field: &Path, version: Value<'_>) -> String {
    if version.kind == Kind::Null {
        format!("no '{version_field}'")
    } else {
        match number_or_text(version) {
            Some(text) => format!("'{version_field}' {text}"),
            None => format!("a '{version_field}' of type {}", version.kind.name()),
        }
    }
}

/// Formats a version for people.
fn text(version: Value<'_>) -> String {
    number_or_text(version).unwrap_or_else(|| format!("one of type {}", version.kind.name()))
}

fn number_or_text(version: Value<'_>) -> Option<String> {
    match version.as_integer() {
        Some(number) => Some(number.to_string()),
        None => version.as_str().map(|text| format!("{text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{OwnedValue, Path, other_version};

    #[test]
    fn values_of_one_type_are_shown_and_others_by_their_type() {
        let field = Path::parse("at").unwrap();
        let reason = |stored: &OwnedValue, sent: &OwnedValue| {
            other_version(&field, stored.as_value(), sent.as_value()).reason.replace("the stored document has ", "")
        };
        let (one, other) = (OwnedValue::date(1000), OwnedValue::date(2000));
        let both = "'at' ISODate(\"1970-01-01T00:00:01Z\"), the one you sent has ISODate(\"1970-01-01T00:00:02Z\")";
        assert_eq!(reason(&one, &other), both);
        assert_eq!(reason(&one, &OwnedValue::integer(3)), "a 'at' of type date, the one you sent has 3");
    }
}
