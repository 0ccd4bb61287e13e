//! Where a retryable write may have been sent in another way a moment ago, or by another docward.
//!
//! A statement that needs a procedure runs in docward's own transaction, any other is sent in the client's session, and
//! neither recognises a retry of the other. If the rules differ between the two sends, docward must ask the server.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use super::index::{Index, IndexedRule};
use super::rule::{Rule, RuleId};
use crate::config::NamespaceGlob;
use crate::patterns::Procedures;

/// Statements that some rule carries out in docward's own transactions, whatever its mode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcedureScope {
    namespace: String,
    only_updates: bool,
}

/// The mark of a scope with updates only, after its namespace.
const ONLY_UPDATES: &str = " updates";

impl ProcedureScope {
    pub(super) fn of_rule(rule: &Rule) -> impl Iterator<Item = Self> {
        let procedures = rule.pattern.procedures();
        let only_updates = procedures == Procedures::Updates;
        let own = rule.namespaces.iter().map(|namespace| namespace.value.to_string());
        let further = rule.pattern.also_evaluates().into_iter().map(|namespace| namespace.to_string());
        let namespaces = own.chain(further).filter(move |_| procedures != Procedures::None);
        namespaces.map(move |namespace| Self { namespace, only_updates })
    }

    /// Reads what `Display` writes.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let namespace = text.strip_suffix(ONLY_UPDATES);
        Self { namespace: namespace.unwrap_or(text).to_owned(), only_updates: namespace.is_some() }
    }
}

impl fmt::Display for ProcedureScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.namespace, if self.only_updates { ONLY_UPDATES } else { "" })
    }
}

/// The scopes of all rules that may have applied to an earlier send of a write.
#[derive(Clone, Debug)]
pub struct Doubt {
    scopes: BTreeSet<ProcedureScope>,
    /// The number of a rule shows whether the scope is of updates only.
    index: Index,
}

const EVERYTHING: RuleId = RuleId(0);
const UPDATES: RuleId = RuleId(1);

impl Doubt {
    /// Omits scopes that this version cannot read.
    #[must_use]
    pub fn new(scopes: BTreeSet<ProcedureScope>) -> Self {
        let indexed = |scope: &ProcedureScope| {
            let namespace = NamespaceGlob::parse(&scope.namespace).ok()?;
            Some((if scope.only_updates { UPDATES } else { EVERYTHING }, Cow::Owned(namespace)))
        };
        let rules = vec![IndexedRule { evaluation_order: 0, exclusive: None }; 2];
        let index = Index::new(rules, scopes.iter().filter_map(indexed));
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

    /// Whether other statements than updates may have been, too.
    #[must_use]
    pub fn covers_everything(&self, database: impl AsRef<[u8]>, collection: impl AsRef<[u8]>) -> bool {
        let found = self.index.find(database.as_ref(), collection.as_ref());
        found.is_some_and(|found| found.ids().contains(&EVERYTHING))
    }
}
