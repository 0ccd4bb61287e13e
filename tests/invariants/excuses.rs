//! Documented differences between docward's errors and the direct ones, each for exactly the statements that it is about.

use bson::{Bson, Document};

use super::case::{Statement, Step, first};
use super::patterns::Policy;
use super::rules::Rule;
use super::values::{as_number, at};

/// Texts of server errors about invalid statements, or statements that the document does not allow.
const ARGUMENTS: [i32; 11] = [2, 9, 14, 28, 40, 52, 53, 54, 56, 66, 224];
const DUPLICATE_KEY: i32 = 11000;
const WRITE_CONFLICT: i32 = 112;
/// The document has another `_id` than the filter.
const IMMUTABLE: i32 = 66;
/// An upsert whose filter has several values for one field.
const SEVERAL_VALUES: i32 = 54;

/// Whether statements that are not plain for the rule are checked: executed in a transaction and compared.
pub(super) fn is_checked(rule: &Rule) -> bool {
    const CHECKED: [&str; 9] =
        ["together", "frozen", "bounds", "limits", "schema_version", "bucket", "replacement", "queue", "sequence"];
    CHECKED.contains(&rule.name())
}

/// Whether docward executes statements in transactions of its own.
pub(super) fn has_transactions(rule: &Rule) -> bool {
    matches!(rule.name(), "tree" | "timestamps" | "copies") || is_checked(rule)
}

/// Whether the reply to a retry may be an error, of which these are the codes and the reasons. docward does not know
/// the reply of its own transaction that was committed, if that depends on the documents. A number for a retry cannot
/// be reserved if the first command has used the last one.
pub(super) fn loses_reply(rules: &[Rule], step: &Step, codes: &[i32], reasons: &[String]) -> bool {
    const INCOMPLETE_TRANSACTION_HISTORY: i32 = 217;
    // A push that finds no bucket with room opens one.
    let opens = rules.iter().any(|rule| rule.name() == "bucket") && step.statements().iter().any(names_messages);
    let depends = step.is_find_and_modify() || step.upserts() || opens;
    let is_lost = depends && rules.iter().any(has_transactions) && codes.contains(&INCOMPLETE_TRANSACTION_HISTORY);
    let has_no_number = |reason: &String| {
        reason.contains("is at its end") || reason.contains("the largest possible number is already used")
    };
    is_lost || rules.iter().any(|rule| rule.name() == "sequence") && reasons.iter().any(has_no_number)
}

/// Whether a retry may report more documents as modified than the statement itself has modified: of a transaction of its
/// own docward knows only that it was committed.
pub(super) fn forgets_modified(rules: &[Rule], step: &Step, first: &Document, again: &Document) -> bool {
    let number = |reply: &Document, name| reply.get(name).and_then(as_number).unwrap_or(0.0);
    let modified = number(first, "nModified")..=number(first, "n");
    step.name() == "update" && rules.iter().any(has_transactions) && modified.contains(&number(again, "nModified"))
}

/// A statement has several errors, and docward's form of it has another of them first: the pattern, and the codes
/// through docward and directly.
const OTHER_FIRST: &[(&str, (i32, i32), IsAbout)] = &[
    // The condition matches no value that is not a number, and docward reports that the field cannot be incremented.
    ("bounds", (14, 2), |rule, statement| rule.fields().iter().any(|field| statement.names(field))),
    // Its filter finds no bucket with room, so it opens one, and another document has a unique value of the statement.
    ("bucket", (DUPLICATE_KEY, 2), |_, statement| {
        names_messages(statement) && statement.names(super::generate::UNIQUE)
    }),
    // The same, and the statement changes the `_id`, which another document then has.
    ("bucket", (DUPLICATE_KEY, IMMUTABLE), |_, statement| names_messages(statement) && statement.touches("_id")),
    // It would open a bucket whose count docward cannot increment, and another document has its unique value.
    ("bucket", (14, DUPLICATE_KEY), |rule, statement| {
        statement.upsert && names_messages(statement) && rule.fields().iter().any(|field| statement.queries(field))
    }),
    // docward's find reads the filter before the server reads the update or the upsert.
    ("tree", (2, 40), |_, statement| !statement.filter.is_empty()),
    // With the condition the filter matches nothing, so the invalid change is not tried: this is a version conflict.
    ("limits", (WRITE_CONFLICT, 66), |_, statement| statement.touches("_id")),
    ("replacement", (WRITE_CONFLICT, 66), |_, statement| statement.touches("_id")),
    ("replacement", (WRITE_CONFLICT, 2), |_, statement| statement.update.is_some()),
    // The increment of a version that is no number fails before another write of the statement.
    ("replacement", (14, 2), |_, statement| statement.replacement().is_none()),
    // The array in the filter is an invalid `_id` of the inserted document; docward sends a pipeline.
    ("timestamps", (SEVERAL_VALUES, 53), |_, statement| {
        statement.upsert && names_array(&Bson::Document(statement.filter.clone()), "_id")
    }),
];

type IsAbout = fn(&Rule, &Statement) -> bool;

/// Whether a condition compares the field with an array, at any depth.
fn names_array(condition: &Bson, field: &str) -> bool {
    match condition {
        Bson::Document(fields) => fields
            .iter()
            .any(|(key, value)| key == field && matches!(value, Bson::Array(_)) || names_array(value, field)),
        Bson::Array(items) => items.iter().any(|item| names_array(item, field)),
        _ => false,
    }
}

/// Whether it writes the array of a bucket.
fn names_messages(statement: &Statement) -> bool {
    ["messages", "log.messages"].iter().any(|array| statement.names(array))
}

/// What the errors of a command may depend on.
pub(super) struct Errors<'a> {
    pub(super) rules: &'a [Rule],
    pub(super) statements: &'a [Statement],
    pub(super) before: &'a [Document],
    /// Whether a single statement changed the only stored document through docward, or inserted one.
    pub(super) has_effect: bool,
}

/// One statement's code through docward and directly.
#[derive(Clone, Copy)]
struct Codes {
    through: Option<i32>,
    direct: Option<i32>,
}

impl Errors<'_> {
    /// Whether errors through docward may differ from the direct ones; each error is an index and a code.
    pub(super) fn may_differ(&self, through: &[(i32, i32)], direct: &[(i32, i32)]) -> bool {
        self.all(through, direct, |rule, statement, codes| self.explains(rule, statement, codes))
    }

    /// The same for a lost race, as docward reports it for patterns that compare versions, and for errors that the
    /// statement has on another document.
    pub(super) fn may_follow(&self, through: &[(i32, i32)], direct: &[(i32, i32)]) -> bool {
        let is_lost = |rule: &Rule, statement: &Statement| rule.name() == "replacement" && rule.alters(statement);
        self.all(through, direct, |rule, statement, codes| {
            codes.through == Some(WRITE_CONFLICT) && is_lost(rule, statement)
                || self.fails_on_next(rule, statement, codes)
        })
    }

    /// Whether one of the rules excuses each difference.
    fn all(
        &self,
        through: &[(i32, i32)],
        direct: &[(i32, i32)],
        excuses: impl Fn(&Rule, &Statement, Codes) -> bool,
    ) -> bool {
        let code =
            |errors: &[(i32, i32)], place: i32| errors.iter().find(|(at, _)| *at == place).map(|(_, code)| *code);
        through.iter().chain(direct).all(|(place, _)| {
            let codes = Codes { through: code(through, *place), direct: code(direct, *place) };
            // An error of the whole command has the index -1.
            let statement = self.statements.get(usize::try_from(*place).unwrap_or(0));
            codes.through == codes.direct
                || statement.is_some_and(|statement| self.rules.iter().any(|rule| excuses(rule, statement, codes)))
        })
    }

    fn explains(&self, rule: &Rule, statement: &Statement, codes: Codes) -> bool {
        if !rule.alters(statement) {
            return false;
        }
        let writes = |field: &str| statement.names(field);
        match (rule, codes.through, codes.direct) {
            // Documented for `check_version`: a document with a version was read before, so no upsert inserts it.
            (Rule::Replacement(rule), None, Some(direct)) if statement.upsert => {
                const OF_INSERTS: [i32; 3] = [DUPLICATE_KEY, IMMUTABLE, SEVERAL_VALUES];
                let is_versioned =
                    |document: &Document| rule.version.is_some_and(|version| at(document, version).is_some());
                let is_checked = rule.policy == Policy::Check && statement.replacement().is_some_and(is_versioned);
                is_checked && OF_INSERTS.contains(&direct)
            }
            (_, None, Some(direct)) => self.does_not_fail(rule, statement, direct),
            // Limits of `timestamps`: a pipeline has another error than the operator.
            (Rule::Timestamps(_), Some(241), Some(direct)) => {
                statement.replacement().is_none() && ARGUMENTS.contains(&direct)
            }
            // Inside a transaction docward cannot try another number if an array contains this one.
            (Rule::Sequence(rule), Some(DUPLICATE_KEY), None) => {
                let is_array = |stored: &Document| matches!(at(stored, rule.field), Some(Bson::Array(_)));
                rule.optimistic && self.before.iter().any(is_array)
            }
            // Documented for `merge`: a document whose `_id` equals the stored number but has another type.
            (Rule::Replacement(rule), Some(66), None) => {
                let has_other_type = |id: &Bson| {
                    let is_equal = |stored: &&Bson| as_number(stored).is_some() && as_number(stored) == as_number(id);
                    self.before
                        .iter()
                        .filter_map(|stored| stored.get("_id"))
                        .filter(is_equal)
                        .any(|stored| stored != id)
                };
                let id = statement.replacement().and_then(|document| document.get("_id"));
                rule.policy == Policy::Merge && id.is_some_and(has_other_type)
            }
            // Documented for `merge`: a document around the version is merged field by field.
            (Rule::Replacement(rule), Some(28), None) => {
                let around = rule.version.filter(|version| version.contains('.')).map(first);
                let is_other = |stored: &Document| around.is_some_and(|around| stored.get_document(around).is_err());
                rule.policy == Policy::Merge && statement.replacement().is_some() && self.before.iter().any(is_other)
            }
            // Documented for `bounds`: a claim cannot increment an attempt number that is no number.
            (Rule::Queue(_), Some(14), None) => {
                let is_bounded = |field: &String| {
                    self.rules.iter().any(|rule| rule.name() == "bounds" && rule.fields().contains(field))
                };
                let is_none =
                    |stored: &Document, field: &str| at(stored, field).is_some_and(|value| as_number(value).is_none());
                let mut fields = rule.fields().into_iter().filter(is_bounded);
                fields.any(|field| self.before.iter().any(|stored| is_none(stored, &field)))
            }
            // Documented for pipelines of constants, which are read as operators.
            (_, Some(IMMUTABLE), None) => statement.is_pipeline() && statement.touches("_id"),
            // Documented: a push finds no bucket with room, and the new one has a value that another document has.
            (Rule::Bucket(_), Some(DUPLICATE_KEY), None) => {
                names_messages(statement) && (writes(super::generate::UNIQUE) || writes("_id"))
            }
            // It changes the `_id`, and the document it would insert exists already: a push goes to a stored bucket first.
            (Rule::Bucket(_), Some(66), Some(DUPLICATE_KEY)) => statement.upsert && names_messages(statement),
            (_, Some(through), Some(direct)) => OTHER_FIRST.iter().any(|(name, codes, is_about)| {
                *name == rule.name() && *codes == (through, direct) && is_about(rule, statement)
            }),
            _ => false,
        }
    }

    /// Whether a statement that fails directly may succeed because of the rule.
    fn does_not_fail(&self, rule: &Rule, statement: &Statement, direct: i32) -> bool {
        // Another document has the client's number, which is replaced.
        if matches!(rule, Rule::Sequence(rule) if rule.provided == "replace") && direct == DUPLICATE_KEY {
            return true;
        }
        // A late write of one field leaves the others; a push goes to another bucket, and a claim sets its own time.
        let may_have_effect = match rule {
            Rule::Timestamps(rule) => !rule.per_document,
            Rule::Bucket(_) => names_messages(statement),
            Rule::Queue(_) => statement.touches("locked"),
            _ => return false,
        };
        // A late upsert of a stored document has no effect.
        let names_stored = || {
            let id = statement.equality("_id");
            let is_named = |stored: &Document| statement.filter.is_empty() || stored.get("_id") == id;
            matches!(rule, Rule::Timestamps(_)) && self.before.iter().any(is_named)
        };
        let is_duplicate = direct == DUPLICATE_KEY && (!statement.upsert || names_stored());
        let fails = ARGUMENTS.contains(&direct) || is_duplicate;
        fails && (may_have_effect || !self.has_effect)
    }

    /// Whether docward may have added a condition that one of several documents does not meet: then a statement has the
    /// error that it has without this document, or none.
    pub(super) fn may_exclude(&self) -> bool {
        const CONDITIONS: [&str; 6] = ["bounds", "queue", "bucket", "limits", "schema_version", "replacement"];
        let excludes = |rule: &Rule| {
            CONDITIONS.contains(&rule.name()) && self.statements.iter().any(|statement| rule.alters(statement))
        };
        !self.before.is_empty() && self.rules.iter().any(excludes)
    }

    /// The same in a batch, whose earlier statements change the documents. Limits of `bounds`: a number in an array
    /// meets the condition too.
    fn fails_on_next(&self, rule: &Rule, statement: &Statement, codes: Codes) -> bool {
        let Codes { through: Some(through), direct: None } = codes else { return false };
        let has_condition = matches!(rule.name(), "bounds" | "queue" | "bucket" | "limits" | "schema_version");
        self.statements.len() > 1
            && rule.alters(statement)
            && (rule.name() == "bounds" && [14, 28].contains(&through)
                || has_condition && self.before.len() > 1 && ARGUMENTS.contains(&through))
    }
}
