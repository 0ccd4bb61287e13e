//! A collection's validator with docward's part, and without it.
//!
//! docward's part is joined to a validator that is there already, so both hold. A collection has one level and one action:
//! where the application has a validator these stay as they are, because others would weaken it or make it stricter. A mark
//! in `$comment`, which the server keeps and ignores, has what was there before.

use std::collections::BTreeSet;

use bson::{Bson, Document, doc};

use crate::patterns::{RULE_VARIABLE, rule_in_title};
use crate::rules::RuleSet;

const COMMENT: &str = "$comment";
const MARK: &str = "docward";
/// Whether the first clause is the validator that was there before.
const JOINED: &str = "joined";
const LEVEL: &str = "validationLevel";
const ACTION: &str = "validationAction";
const WARN: &str = "warn";
/// What the server uses, and names, if a command does not.
const DEFAULTS: [(&str, &str); 2] = [(LEVEL, "strict"), (ACTION, "error")];

/// The options of a collection that are about its validator.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ValidatorOptions {
    validator: Option<Document>,
    /// `None`: the server's default.
    level: Option<String>,
    action: Option<String>,
}

impl ValidatorOptions {
    /// Reads them from the options that listCollections returns.
    pub(super) fn from_options(options: &Document) -> Self {
        let text = |key| options.get_str(key).ok().map(str::to_owned);
        let validator = options.get_document("validator").ok().filter(|validator| !validator.is_empty());
        Self { validator: validator.cloned(), level: text(LEVEL), action: text(ACTION) }
    }

    /// The fields of collMod and create that set them.
    #[must_use]
    pub fn fields(&self) -> Document {
        let [(_, level), (_, action)] = DEFAULTS;
        doc! {
            "validator": self.validator.clone().unwrap_or_default(),
            LEVEL: self.level.as_deref().unwrap_or(level),
            ACTION: self.action.as_deref().unwrap_or(action),
        }
    }

    /// Whether the server does the same with them: they have the same bytes.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        // Not `==`: NaN is not equal to itself.
        let bytes = |options: &Self| options.fields().to_vec().ok();
        bytes(self) == bytes(other)
    }

    /// Whether documents are rejected, and not only logged.
    #[must_use]
    pub fn is_enforcing(&self) -> bool {
        self.action.as_deref() != Some(WARN)
    }

    /// Whether docward's part is in it.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.mark().is_some()
    }

    /// Whether docward's part is of one of these rules, or names no rule any more.
    pub(super) fn is_of(&self, rules: &RuleSet) -> bool {
        let mut names = self.names().into_iter().flatten().peekable();
        self.is_marked() && (names.peek().is_none() || names.any(|name| has(rules, name)))
    }

    /// The rule that each clause names.
    fn names(&self) -> Vec<Option<&str>> {
        let clauses = self.validator.as_ref().and_then(|validator| validator.get_array("$and").ok());
        clauses.into_iter().flatten().map(|clause| rule_in_title(title(clause.as_document()?)?)).collect()
    }

    /// Whether docward's part, if there is one, can be replaced or removed by these rules.
    ///
    /// # Errors
    /// Why not, as half a sentence.
    pub(super) fn check_own(&self, rules: &RuleSet) -> Result<(), String> {
        let (Some(validator), Some(mark)) = (&self.validator, self.mark()) else { return Ok(()) };
        let names = self.names();
        let joined = usize::from(mark.get_bool(JOINED).unwrap_or(false));
        let (theirs, own) = names.split_at_checked(joined).unwrap_or_default();
        let is_clean = validator.len() == 2 && validator.get_document(COMMENT).is_ok_and(|comment| comment.len() == 1);
        if !is_clean || own.is_empty() || own.contains(&None) || theirs.iter().any(Option::is_some) {
            return Err(
                "it was changed by hand: docward cannot tell its part from the rest. Set the validator without \
                        that part by collMod, and run the command again"
                    .to_owned(),
            );
        }
        let others: BTreeSet<&str> = own.iter().flatten().copied().filter(|name| !has(rules, name)).collect();
        if others.is_empty() {
            return Ok(());
        }
        let others: Vec<String> = others.iter().map(|name| format!("`{name}`")).collect();
        Err(format!("it has a part of other rules ({}); load them too", others.join(", ")))
    }

    /// Whether the application has a validator of its own.
    pub(super) fn is_joined(&self) -> bool {
        self.without_own().validator.is_some()
    }

    fn mark(&self) -> Option<&Document> {
        self.validator.as_ref()?.get_document(COMMENT).ok()?.get_document(MARK).ok()
    }

    /// Returns what was there before docward's part.
    #[must_use]
    pub fn without_own(&self) -> Self {
        let Some(mark) = self.mark() else { return self.clone() };
        if mark.get_bool(JOINED).unwrap_or(false) {
            let clauses = self.validator.as_ref().and_then(|validator| validator.get_array("$and").ok());
            let first = clauses.and_then(|clauses| clauses.first()?.as_document());
            return Self { validator: first.cloned(), ..self.clone() };
        }
        Self::from_options(mark)
    }

    /// Returns them with these clauses as docward's part, instead of the one that is there.
    ///
    /// # Errors
    /// Why the application's validator and docward's part cannot both hold, as half a sentence.
    pub(super) fn with_own(&self, clauses: impl Iterator<Item = Document>, enforce: bool) -> Result<Self, String> {
        let before = self.without_own();
        let mut all: Vec<Bson> = before.validator.iter().cloned().map(Bson::from).collect();
        all.extend(clauses.map(Bson::from));
        if all.len() == before.validator.iter().count() {
            return Ok(before);
        }
        let joined = before.validator.is_some();
        let mut mark = doc! {JOINED: joined};
        if let Some(theirs) = &before.validator {
            before.accepts(theirs, enforce)?;
        } else {
            let set = [(LEVEL, &before.level), (ACTION, &before.action)];
            mark.extend(set.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?.into()))));
        }
        let (level, action) = match joined {
            true => (before.level, before.action),
            false => (Some("moderate".to_owned()), Some(if enforce { "error" } else { WARN }.to_owned())),
        };
        Ok(Self { validator: Some(doc! {COMMENT: {MARK: mark}, "$and": all}), level, action })
    }

    /// Whether docward's part can be joined to the application's validator.
    fn accepts(&self, theirs: &Document, enforce: bool) -> Result<(), String> {
        Err(match (self.level.as_deref(), self.is_enforcing(), enforce) {
            (Some("off"), ..) => "its own validator is off, and would be on with the rules' part; remove it first",
            // The driver looks for it there.
            _ if encrypts(theirs) => "its own validator defines client-side encryption, which must stay alone",
            (_, true, false) => {
                "its own validator rejects documents, and a collection has one action: the rules could not only warn. Use \
                 --enforce"
            }
            (_, false, true) => {
                "its own validator only warns, and a collection has one action: it would reject too. Set its \
                 validationAction to error first, or leave out --enforce"
            }
            _ => return Ok(()),
        }
        .to_owned())
    }
}

fn has(rules: &RuleSet, name: &str) -> bool {
    rules.rules().iter().any(|rule| *rule.name.value == *name)
}

/// The title of a clause, which has its rule.
fn title(clause: &Document) -> Option<&str> {
    if clause.len() != 1 {
        return None;
    }
    if let Ok(schema) = clause.get_document("$jsonSchema") {
        return schema.get_str("title").ok();
    }
    let bound = clause.get_document("$expr").ok()?.get_document("$let").ok()?;
    bound.get_document("vars").ok()?.get_str(RULE_VARIABLE).ok()
}

/// Whether a JSON Schema in the validator defines encrypted fields.
fn encrypts(validator: &Document) -> bool {
    let is_inside = |value: &Bson| match value {
        Bson::Document(document) => encrypts(document),
        Bson::Array(values) => values.iter().filter_map(Bson::as_document).any(encrypts),
        _ => false,
    };
    validator.iter().any(|(key, value)| matches!(key.as_str(), "encrypt" | "encryptMetadata") || is_inside(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(options: Document) -> ValidatorOptions {
        ValidatorOptions::from_options(&options)
    }

    fn clause(number: i32) -> impl Iterator<Item = Document> {
        std::iter::once(doc! {"$jsonSchema": {"properties": {"a": {"enum": [f64::NAN, number]}}}})
    }

    #[test]
    fn what_was_there_comes_back_byte_for_byte() {
        let schema = doc! {"$jsonSchema": {"required": ["a"]}, "b": {"$gt": f64::NAN}};
        for (before, enforce) in [
            (doc! {}, false),
            (doc! {}, true),
            (doc! {"validationAction": "warn"}, true),
            (doc! {"validationLevel": "off", "validationAction": "error"}, false),
            (doc! {"validator": {}, "validationLevel": "strict"}, true),
            (doc! {"validator": schema.clone()}, true),
            (doc! {"validator": schema.clone(), "validationLevel": "moderate"}, true),
            (doc! {"validator": schema.clone(), "validationAction": "warn"}, false),
            (doc! {"validator": {"$comment": "theirs", "a": 1}}, true),
        ] {
            let before = options(before);
            let with = before.with_own(clause(1), enforce).unwrap();
            assert!(with.is_marked() && !before.is_marked(), "{with:?}");
            assert_eq!(with.is_enforcing(), enforce, "{with:?}");
            assert!(with.without_own().is_same(&before), "{before:?} became {:?}", with.without_own());
            let again = with.with_own(clause(1), enforce).unwrap();
            assert!(again.is_same(&with), "{again:?}");
            let other = with.with_own(clause(2), enforce).unwrap();
            assert!(!other.is_same(&with) && other.without_own().is_same(&before), "{other:?}");
            assert!(with.with_own(std::iter::empty(), enforce).unwrap().is_same(&before));
        }
    }

    #[test]
    fn the_applications_validator_keeps_its_level_and_action() {
        let theirs = doc! {"a": {"$gt": 0}};
        for (level, action, enforce, refused) in [
            ("strict", "error", true, None),
            ("moderate", "error", true, None),
            ("strict", "warn", false, None),
            ("strict", "error", false, Some("only warn")),
            ("strict", "warn", true, Some("only warns")),
            ("off", "error", true, Some("is off")),
        ] {
            let own = options(doc! {"validator": theirs.clone(), LEVEL: level, ACTION: action});
            match (own.with_own(clause(1), enforce), refused) {
                (Ok(with), None) => assert_eq!((with.level, with.action), (own.level, own.action)),
                (Err(why), Some(part)) => assert!(why.contains(part), "{why}"),
                (got, _) => panic!("{level} {action} {enforce}: {got:?}"),
            }
        }
        let encrypted = doc! {"$jsonSchema": {"properties": {"a": {"encrypt": {}}}}};
        assert!(options(doc! {"validator": encrypted}).with_own(clause(1), true).unwrap_err().contains("encryption"));
    }
}
