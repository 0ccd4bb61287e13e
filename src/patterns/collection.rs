//! A setting that names one collection.

use std::fmt;

use crate::command::Namespace;
use crate::config::keys::{DescribeSchema, NamedSchema, ReadValue, TEXT, TextSchema, ValueSchema};
use crate::config::{Code, Diagnostic, Located, NamespaceGlob, Node, ReadContext};

/// One collection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Collection {
    pub database: String,
    pub name: String,
    pub(super) namespace: NamespaceGlob,
}

impl Collection {
    pub(super) fn new(namespace: &NamespaceGlob) -> Option<Self> {
        let (database, name) = namespace.exact()?;
        Some(Self { database: database.to_owned(), name: name.to_owned(), namespace: namespace.clone() })
    }

    pub fn namespace(&self) -> Namespace<'_> {
        Namespace { database: &self.database, collection: &self.name }
    }

    pub(super) fn is(&self, namespace: Namespace<'_>) -> bool {
        self.namespace() == namespace
    }

    /// Reads the one collection of a rule whose pattern works on a single one; `what` are its documents.
    pub(super) fn only(context: &mut ReadContext<'_>, pattern: &str, what: &str) -> Option<Self> {
        // There are no namespaces if they are invalid themselves.
        let (first, more) = context.namespaces().split_first()?;
        if let (true, Some(collection)) = (more.is_empty(), Self::new(first)) {
            return Some(collection);
        }
        let message = format!("`{pattern}` needs one collection with {what}, without `*`");
        let mistake = Diagnostic::error(Code::ConflictingSettings, first.span, message);
        context.push(mistake.help(format!("write a rule for each collection of {}", what.trim_start_matches("the "))));
        None
    }

    /// Parses `text`, the value of `key`, which names the collection.
    pub(super) fn parse(context: &mut ReadContext<'_>, key: &str, text: &Located<String>) -> Option<Self> {
        match NamespaceGlob::parse(text) {
            Ok(namespace) => {
                let collection = Self::new(&namespace);
                if collection.is_none() {
                    let message = format!("`{key}` must be one collection; `{}` matches several", text.value);
                    context.error(Code::InvalidNamespace, text.span, message);
                }
                collection
            }
            Err(error) => {
                let mut mistake = Diagnostic::error(Code::InvalidNamespace, text.span, error.to_string());
                mistake.help = error.help();
                context.push(mistake);
                None
            }
        }
    }
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.namespace.fmt(f)
    }
}

/// `DB.COLLECTION`, without `*`.
#[derive(Clone, Copy, Debug)]
pub(super) struct OneCollection;

const COLLECTION: NamedSchema = NamedSchema {
    name: "collection",
    meaning: "",
    schema: || {
        let pattern = r#"^[^./\\ "$*]+\.[^$*]+$"#;
        ValueSchema::Text(TextSchema { longest: Some(255), ..TextSchema::matching(pattern) })
    },
};

impl DescribeSchema for OneCollection {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Shared(&COLLECTION)
    }
}

impl ReadValue for OneCollection {
    type Value = Collection;

    fn read(&self, context: &mut ReadContext<'_>, key: &'static str, node: &Node) -> Option<Collection> {
        let text = TEXT.read(context, key, node)?;
        Collection::parse(context, key, &text)
    }
}
