//! A setting that names one collection.

use std::fmt;

use crate::command::Namespace;
use crate::config::keys::{DescribeSchema, NamedSchema, ReadText, TextSchema, ValueSchema};
use crate::config::names::{NameKind, doubt};
use crate::config::{Code, Diagnostic, Located, NamespaceGlob, ReadContext};

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
        if text.value.contains('*') {
            let message = format!("`{key}` must be one collection; `{}` matches several", text.value);
            context.error(Code::InvalidNamespace, text.span, message);
            return None;
        }
        if !text.value.contains('.') && doubt(&text.value, NameKind::Namespace).is_none() {
            let database = context.namespaces().first().map_or("DATABASE", |one| one.value.database().as_str());
            let message = format!("the namespace `{}` has no database", text.value);
            let mistake = Diagnostic::error(Code::InvalidNamespace, text.span, message);
            context.push(mistake.help(format!("write `{database}.{}`", text.value)));
            return None;
        }
        Self::new(&context.namespace(text)?)
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

impl ReadText for OneCollection {
    type Value = Collection;

    fn read_text(&self, context: &mut ReadContext<'_>, key: &str, text: Located<String>) -> Option<Collection> {
        Collection::parse(context, key, &text)
    }
}

/// `COLLECTION`, in the same database, or `DB.COLLECTION`, without `*`.
#[derive(Clone, Copy, Debug)]
pub(super) struct NearCollection;

const NEAR_COLLECTION: NamedSchema = NamedSchema {
    name: "nearCollection",
    meaning: "A collection in the same database, or DB.COLLECTION.",
    schema: || {
        let pattern = r#"^[^.$*,;|?{}\[\]\^]+(\.[^.$*,;|?{}\[\]\^][^$*,;|?{}\[\]\^]*)?$"#;
        ValueSchema::Text(TextSchema { longest: Some(255), ..TextSchema::matching(pattern) })
    },
};

impl DescribeSchema for NearCollection {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Shared(&NEAR_COLLECTION)
    }
}

/// Returns the database, if the text has one, and the collection.
impl ReadText for NearCollection {
    type Value = Located<(Option<String>, String)>;

    fn read_text(&self, context: &mut ReadContext<'_>, key: &str, text: Located<String>) -> Option<Self::Value> {
        if text.value.contains('.') || text.value.contains('*') || doubt(&text.value, NameKind::Namespace).is_some() {
            let found = Collection::parse(context, key, &text)?;
            return Some(text.map(|_| (Some(found.database), found.name)));
        }
        // Only to check the name.
        let in_some_database = text.clone().map(|name| format!("DATABASE.{name}"));
        let found = Collection::parse(context, key, &in_some_database)?;
        Some(text.map(|_| (None, found.name)))
    }
}
