//! `deny`: a denied statement changes nothing. `defaults` promises nothing about documents.

use bson::Document;

use super::super::case::{Kind, Statement};
use super::super::dice::Dice;
use super::super::rules::{Change, Promise};

#[derive(Clone, Debug)]
pub(in super::super) struct Deny {
    pub(in super::super) operations: Vec<&'static str>,
    pub(in super::super) when: Option<&'static str>,
    /// `unsupported: allow`.
    allows_unsupported: bool,
}

#[derive(Clone, Debug)]
pub(in super::super) struct Defaults;

/// As the decision log prints it.
const DELETES_ALL: &str = "{ shape: 'deleteMany({})' }";
const WITHOUT_COMMENT: &str = "{ without: comment }";

impl Deny {
    pub(in super::super) fn random(dice: &mut Dice) -> Deny {
        let operations = dice.pick(&[vec!["delete"], vec!["update", "delete"], vec!["insert"], vec!["update"]]);
        let when = match dice.below(5) {
            _ if operations == ["insert"] => None,
            4 if operations.contains(&"delete") => Some(DELETES_ALL),
            0 => None,
            1 => Some("{ multi: true }"),
            2 => Some("{ uses: [$where, $function] }"),
            _ => Some("{ filter: empty }"),
        };
        Deny { operations, when, allows_unsupported: false }
    }

    /// A rule that denies some of the commands that define collections and indexes.
    pub(in super::super) fn of_definitions(dice: &mut Dice) -> Deny {
        const ALL: [&str; 6] = ["create", "collMod", "createIndexes", "drop", "dropIndexes", "renameCollection"];
        let mut operations: Vec<&'static str> = ALL.into_iter().filter(|_| dice.percent(40)).collect();
        // A rule denies it for the whole database.
        operations.extend(dice.percent(5).then_some("dropDatabase"));
        if operations.is_empty() {
            operations.push("drop");
        }
        let when = dice.percent(25).then_some(WITHOUT_COMMENT);
        Deny { operations, when, allows_unsupported: dice.percent(60) }
    }

    /// Whether it denies a command that is not a statement.
    pub(in super::super) fn denies_command(&self, operation: &str, command: &Document) -> bool {
        let applies = self.when.is_none() || self.when == Some(WITHOUT_COMMENT) && !command.contains_key("comment");
        self.operations.contains(&operation) && applies
    }

    fn denies(&self, statement: &Statement) -> bool {
        let operation = match statement.kind {
            Kind::Insert => "insert",
            Kind::Update => "update",
            Kind::Delete => "delete",
        };
        let applies = match self.when {
            None => true,
            Some("{ multi: true }") => statement.multi,
            Some("{ filter: empty }") => statement.filter.is_empty(),
            Some(DELETES_ALL) => operation == "delete" && statement.multi && statement.filter.is_empty(),
            // The generator never uses the others.
            Some(_) => false,
        };
        self.operations.contains(&operation) && applies
    }
}

impl Promise for Deny {
    fn name(&self) -> &'static str {
        "deny"
    }

    fn settings(&self) -> String {
        let when = self.when.map(|when| format!(", when: {when}")).unwrap_or_default();
        let unsupported = if self.allows_unsupported { ", unsupported: allow" } else { "" };
        format!("deny: {{ operations: [{}]{when} }}{unsupported}", self.operations.join(", "))
    }

    fn fields(&self) -> Vec<String> {
        vec!["note".to_owned()]
    }

    fn tidy(&self, _: &mut Dice, _: &mut Document) {}

    fn broken(&self, change: &Change<'_>) -> Option<String> {
        let all_denied = change.statements.iter().all(|statement| self.denies(statement));
        let changes = change.changed().next().is_some() || change.removed().next().is_some();
        (all_denied && changes).then(|| "a denied statement changed something".to_owned())
    }

    fn harmless(&self, direct: &Change<'_>) -> bool {
        !direct.statements.iter().any(|statement| self.denies(statement))
    }
}

impl Promise for Defaults {
    fn name(&self) -> &'static str {
        "defaults"
    }

    fn settings(&self) -> String {
        "defaults: { maxTimeMS: 30000 }".to_owned()
    }

    fn fields(&self) -> Vec<String> {
        vec!["note".to_owned()]
    }

    fn tidy(&self, _: &mut Dice, _: &mut Document) {}

    fn broken(&self, _: &Change<'_>) -> Option<String> {
        None
    }
}
