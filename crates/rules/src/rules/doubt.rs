//! Where a retryable write may have been sent in another way a moment ago, or by another docward.
//!
//! A statement that needs a procedure runs in docward's own transaction, any other is sent in the client's session, and
//! neither recognises a retry of the other. If the rules differ between the two sends, docward must ask the server.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use super::index::{Index, IndexedRule};
use super::rule::{Rule, RuleId};
use crate::command::{Namespace, Operation};
use crate::config::NamespaceGlob;
use crate::patterns::{PlainField, Procedures, may_have_checked};

/// Statements that some rule carries out in docward's own transactions, whatever its mode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcedureScope {
    namespace: String,
    statements: ScopedStatements,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ScopedStatements {
    All,
    Updates,
    /// Updates that are not plain for these fields: each a path, and the operators that are plain for it.
    NotPlain(Vec<Vec<String>>),
}

/// The marks of a scope with updates only, after its namespace.
const ONLY_UPDATES: &str = " updates";
const NOT_PLAIN: &str = " not plain: ";

impl ProcedureScope {
    /// `all_updates`: other rules may make updates that are not plain from those that are.
    pub(super) fn of_rule(rule: &Rule, all_updates: bool) -> impl Iterator<Item = Self> {
        let statements = match &rule.properties.procedures {
            Procedures::None => None,
            Procedures::All => Some(ScopedStatements::All),
            Procedures::NotPlain(fields) if !all_updates => {
                let texts = |(path, operators): &PlainField| {
                    std::iter::once(path.to_string()).chain(operators.iter().map(ToString::to_string)).collect()
                };
                Some(ScopedStatements::NotPlain(fields.iter().map(texts).collect()))
            }
            Procedures::Updates | Procedures::NotPlain(_) => Some(ScopedStatements::Updates),
        };
        let own = rule.namespaces.iter().map(|namespace| namespace.value.to_string());
        let further = rule.properties.also_evaluates.iter().map(|namespace| namespace.to_string());
        let namespaces = own.chain(further);
        statements.into_iter().flat_map(move |statements| {
            let scoped = move |namespace| Self { namespace, statements: statements.clone() };
            namespaces.clone().map(scoped).collect::<Vec<_>>()
        })
    }

    /// Reads what `Display` writes.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if let Some((namespace, fields)) = text.split_once(NOT_PLAIN) {
            let fields = serde_json::from_str(fields).map_or(ScopedStatements::Updates, ScopedStatements::NotPlain);
            return Self { namespace: namespace.to_owned(), statements: fields };
        }
        let namespace = text.strip_suffix(ONLY_UPDATES);
        let statements = if namespace.is_some() { ScopedStatements::Updates } else { ScopedStatements::All };
        Self { namespace: namespace.unwrap_or(text).to_owned(), statements }
    }

    fn covers(&self, operation: &Operation<'_>, folds: bool) -> bool {
        match (&self.statements, operation) {
            (ScopedStatements::All, _) => true,
            (_, Operation::Insert(_) | Operation::Delete(_)) => false,
            (ScopedStatements::Updates, Operation::Update(_)) => true,
            (ScopedStatements::NotPlain(fields), operation) => may_have_checked(fields, operation, folds),
        }
    }
}

impl fmt::Display for ProcedureScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.namespace)?;
        match &self.statements {
            ScopedStatements::All => Ok(()),
            ScopedStatements::Updates => f.write_str(ONLY_UPDATES),
            ScopedStatements::NotPlain(fields) => write!(f, "{NOT_PLAIN}{}", serde_json::json!(fields)),
        }
    }
}

/// The scopes of all rules that may have applied to an earlier send of a write.
#[derive(Clone, Debug)]
pub struct Doubt {
    scopes: BTreeSet<ProcedureScope>,
    /// The number of a rule is the position of a scope.
    index: Index,
}

impl Doubt {
    /// Omits scopes that this version cannot read.
    #[must_use]
    pub fn new(scopes: BTreeSet<ProcedureScope>) -> Self {
        let indexed = |(position, scope): (usize, &ProcedureScope)| {
            let namespace = NamespaceGlob::parse(&scope.namespace).ok()?;
            Some((RuleId(u32::try_from(position).ok()?), Cow::Owned(namespace)))
        };
        let rules = vec![IndexedRule { evaluation_order: 0, exclusive: None }; scopes.len()];
        let index = Index::new(rules, scopes.iter().enumerate().filter_map(indexed));
        Self { scopes, index }
    }

    #[must_use]
    pub fn scopes(&self) -> &BTreeSet<ProcedureScope> {
        &self.scopes
    }

    /// Whether statements on a namespace may have been carried out in a transaction.
    #[must_use]
    pub fn covers(&self, database: impl AsRef<[u8]>, collection: impl AsRef<[u8]>) -> bool {
        self.index.find(database.as_ref(), collection.as_ref()).is_some()
    }

    /// Whether a client's statement on a namespace may have been. `folds`: whether it has a collation.
    #[must_use]
    pub fn covers_statement(&self, namespace: Namespace<'_>, operation: &Operation<'_>, folds: bool) -> bool {
        let Some(found) = self.index.find(namespace.database.as_bytes(), namespace.collection.as_bytes()) else {
            return false;
        };
        let mut scopes = found.ids().iter().filter_map(|id| self.scopes.iter().nth(id.index()));
        scopes.any(|scope| scope.covers(operation, folds))
    }
}
