//! The namespaces that a rule applies to: `shop.orders`, `shop.*`, `*.orders`, `*.*`.
//!
//! The first dot separates the database from the collection. Only a collection name may contain dots.
//! `*` matches any run of characters within its part, so `shop.*` also matches `shop.a.b`.
//! `index.rs` looks up the rules of a namespace.

use std::cmp::Ordering;
use std::fmt;

use super::glob::Glob;
use super::names::{NameDoubt, NameKind, doubt};

/// Databases that belong to the server. A glob for the database never matches them: a rule for
/// `*.*` is meant for application data, and a rejected write to `config` would break sessions or sharding.
const SERVER_DATABASES: [&str; 3] = ["admin", "config", "local"];
/// The prefix of collections that belong to the server, in every database.
const SERVER_COLLECTIONS: &str = "system.";
/// The longest name of a database, in bytes.
/// <https://www.mongodb.com/docs/manual/reference/limits/#naming-restrictions>
const MAX_DATABASE_BYTES: usize = 63;
/// The longest `database.collection`, in bytes (same page, unsharded).
const MAX_NAMESPACE_BYTES: usize = 255;

/// A namespace, or globs for its database and collection that match several.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamespaceGlob {
    database: Glob,
    collection: Glob,
}

/// Why a text is not a valid namespace of a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// `orders`
    #[error("the namespace `{0}` has no database")]
    NoDot(String),
    /// `.orders`
    #[error("the database before the first dot is empty")]
    EmptyDatabase,
    /// `shop.`
    #[error("the collection after the first dot is empty")]
    EmptyCollection,
    /// `my shop.orders`
    #[error("a database name cannot contain {0:?}")]
    CharacterInDatabase(char),
    /// `shop.$cmd`
    #[error("a collection name cannot contain {0:?}")]
    CharacterInCollection(char),
    /// `shop.orders, shop.carts`
    #[error("{}", .0.message)]
    Doubtful(NameDoubt),
    /// `shop..orders`
    #[error("a collection name cannot begin with a dot")]
    DotBeforeCollection,
    /// More bytes than MongoDB allows.
    #[error("{what} has at most {limit} bytes; this one has {bytes}")]
    TooLong {
        /// Which name.
        what: &'static str,
        /// How long it may be.
        limit: usize,
        /// How long it is.
        bytes: usize,
    },
    /// `shop.system.views`, `config.*`
    #[error("`{0}` belongs to the server; rules cannot apply to it")]
    Server(String),
}

impl NamespaceError {
    /// What to write instead.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Doubtful(NameDoubt { help, .. }) => Some(help.clone()),
            Self::CharacterInDatabase(_) => Some("write DATABASE.COLLECTION; `*` is the only wildcard".to_owned()),
            Self::NoDot(text) if text.contains(['/', ':']) => {
                Some(format!("did you mean \"{}\"?", text.replacen(['/', ':'], ".", 1)))
            }
            Self::NoDot(text) if text == "*" => Some("write \"*.*\" for every collection of every database".to_owned()),
            Self::NoDot(text) => Some(format!(
                "write \"DATABASE.{text}\", \"*.{text}\" for this collection in every database, \
                 or \"{text}.*\" for every collection of this database"
            )),
            Self::EmptyDatabase | Self::EmptyCollection => {
                Some("`*` matches every name: \"shop.*\", \"*.orders\"".to_owned())
            }
            _ => None,
        }
    }
}

impl NamespaceGlob {
    /// Reads `database.collection`, with `*` allowed in both.
    ///
    /// # Errors
    /// Names that are not valid in MongoDB, names of the server's own collections, and texts that are probably not a name.
    pub fn parse(text: &str) -> Result<Self, NamespaceError> {
        if let Some(doubt) = doubt(text, NameKind::Namespace) {
            return Err(NamespaceError::Doubtful(doubt));
        }
        let Some((database, collection)) = text.split_once('.') else {
            return Err(NamespaceError::NoDot(text.to_owned()));
        };
        check_database(database)?;
        check_collection(collection)?;
        check_length("a namespace", MAX_NAMESPACE_BYTES, text)?;
        // A rule may apply to `admin` by its exact name: it can hold an application's data.
        if ["config", "local"].contains(&database) || collection.starts_with(SERVER_COLLECTIONS) {
            return Err(NamespaceError::Server(text.to_owned()));
        }
        Ok(Self { database: Glob::new(database), collection: Glob::new(collection) })
    }

    /// The part before the first dot.
    #[must_use]
    pub fn database(&self) -> &Glob {
        &self.database
    }

    /// The part after the first dot.
    #[must_use]
    pub fn collection(&self) -> &Glob {
        &self.collection
    }

    /// Database and collection, if neither contains `*`.
    #[must_use]
    pub fn exact(&self) -> Option<(&str, &str)> {
        let exact = self.database.is_literal() && self.collection.is_literal();
        exact.then(|| (self.database.as_str(), self.collection.as_str()))
    }

    /// A database and a collection that it matches: of an exact name this one.
    #[must_use]
    pub fn example(&self) -> (String, String) {
        let example = |glob: &Glob| glob.as_str().replace('*', "x");
        (example(&self.database), example(&self.collection))
    }

    /// Whether it matches this namespace.
    #[must_use]
    pub fn matches(&self, database: &[u8], collection: &[u8]) -> bool {
        !is_server_collection(collection) && self.matches_database(database) && self.collection.matches(collection)
    }

    /// Whether it can match namespaces of this database.
    #[must_use]
    pub fn matches_database(&self, database: &[u8]) -> bool {
        (self.database.is_literal() || !is_server_database(database)) && self.database.matches(database)
    }

    /// Whether some namespace matches both.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.database.intersects(&other.database) && self.collection.intersects(&other.collection)
    }

    /// Whether it matches every namespace that `other` matches.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.database.contains(&other.database) && self.collection.contains(&other.collection)
    }

    /// Compares how specific two globs are, for namespaces that both match. An exact name is more
    /// specific than a glob; then the longer literal prefix (of `database.collection`) decides; then a
    /// subset is more specific (`*.orders` than `*.*`). `None`: neither is more specific.
    #[must_use]
    pub fn compare_specificity(&self, other: &Self) -> Option<Ordering> {
        let by_prefix = self.rank().prefix().cmp(&other.rank().prefix());
        if by_prefix != Ordering::Equal {
            return Some(by_prefix);
        }
        match (self.contains(other), other.contains(self)) {
            (true, false) => Some(Ordering::Less),
            (false, true) => Some(Ordering::Greater),
            _ => None,
        }
    }

    /// A number that is larger the more specific the glob is.
    pub(crate) fn rank(&self) -> Rank {
        let prefix = if self.database.is_literal() {
            self.database.as_str().len() + 1 + self.collection.literal_prefix().len()
        } else {
            self.database.literal_prefix().len()
        };
        let stars = self.database.stars() + self.collection.stars();
        let bytes = self.database.as_str().len() + self.collection.as_str().len();
        // Each is at most MAX_NAMESPACE_BYTES, so each fits its 16 bits.
        let [prefix, literals, stars] = [prefix, bytes - stars, stars].map(|n| n as u64);
        let exact = u64::from(stars == 0);
        Rank(exact << 48 | prefix << 32 | literals << 16 | (0xFFFF - stars))
    }
}

impl fmt::Display for NamespaceGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.database, self.collection)
    }
}

/// An order of globs in which a more specific one is always larger than a less specific one
/// (see [`NamespaceGlob::compare_specificity`]): exact, prefix, then literal bytes, then fewer
/// stars. A glob that is a subset of another has all its literals; if it has no further ones, it has fewer stars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank(u64);

impl Rank {
    /// The part that decides on its own when it differs.
    pub(crate) fn prefix(self) -> u64 {
        self.0 >> 32
    }
}

/// Whether globs for the database never match it.
pub(crate) fn is_server_database(database: &[u8]) -> bool {
    SERVER_DATABASES.iter().any(|name| name.as_bytes() == database)
}

/// Where the server keeps the documents of a time-series collection.
const BUCKETS: &str = "system.buckets.";

/// The time-series collection whose buckets `collection` stores; `None` for any other collection.
#[must_use]
pub fn bucketed_collection(collection: &[u8]) -> Option<&[u8]> {
    collection.strip_prefix(BUCKETS.as_bytes())
}

/// Whether no rule applies to it.
pub(crate) fn is_server_collection(collection: &[u8]) -> bool {
    collection.starts_with(SERVER_COLLECTIONS.as_bytes())
}

fn check_database(database: &str) -> Result<(), NamespaceError> {
    if database.is_empty() {
        return Err(NamespaceError::EmptyDatabase);
    }
    let forbidden = |c: char| "/\\ \"$".contains(c) || c.is_control();
    if let Some(character) = database.chars().find(|c| forbidden(*c)) {
        return Err(NamespaceError::CharacterInDatabase(character));
    }
    check_length("a database name", MAX_DATABASE_BYTES, database)
}

fn check_collection(collection: &str) -> Result<(), NamespaceError> {
    if collection.is_empty() {
        return Err(NamespaceError::EmptyCollection);
    }
    if collection.starts_with('.') {
        return Err(NamespaceError::DotBeforeCollection);
    }
    match collection.chars().find(|c| *c == '$' || *c == '\0') {
        Some(character) => Err(NamespaceError::CharacterInCollection(character)),
        None => Ok(()),
    }
}

fn check_length(what: &'static str, limit: usize, text: &str) -> Result<(), NamespaceError> {
    let bytes = text.len();
    if bytes <= limit {
        return Ok(());
    }
    Err(NamespaceError::TooLong { what, limit, bytes })
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::NamespaceGlob;

    fn glob(text: &str) -> NamespaceGlob {
        NamespaceGlob::parse(text).unwrap()
    }

    #[test]
    fn names_that_mongodb_does_not_allow_are_errors() {
        for (text, expected) in [
            ("orders", "the namespace `orders` has no database"),
            ("", "`` names no namespace"),
            ("shop..a", "a collection name cannot begin with a dot"),
            (".orders", "the database before the first dot is empty"),
            ("shop.", "the collection after the first dot is empty"),
            ("my shop.a", "a database name cannot contain ' '"),
            ("sh$op.a", "a database name cannot contain '$'"),
            ("shop.$cmd", "a collection name cannot contain '$'"),
            ("shop.system.views", "`shop.system.views` belongs to the server; rules cannot apply to it"),
            ("config.*", "`config.*` belongs to the server; rules cannot apply to it"),
        ] {
            let error = NamespaceGlob::parse(text).unwrap_err();
            assert_eq!(error.to_string(), expected, "{text}");
        }
        assert!(NamespaceGlob::parse(&format!("{}.a", "d".repeat(63))).is_ok());
        assert!(NamespaceGlob::parse(&format!("{}.a", "d".repeat(64))).is_err());
        assert!(NamespaceGlob::parse(&format!("d.{}", "c".repeat(253))).is_ok());
        assert!(NamespaceGlob::parse(&format!("d.{}", "c".repeat(254))).is_err());
    }

    #[test]
    fn a_star_matches_within_its_part_of_the_namespace() {
        for (text, database, collection, expected) in [
            ("shop.orders", "shop", "orders", true),
            ("shop.orders", "shop", "orders.2024", false),
            ("shop.*", "shop", "a.b", true),
            ("shop.*", "shopping", "a", false),
            ("sh*.a", "shop", "a", true),
            ("*.orders", "x", "orders", true),
            ("*.orders", "x", "my.orders", false),
            ("*.*.archive", "x", "orders.archive", true),
            ("*.*", "config", "transactions", false),
            ("*.*", "shop", "system.views", false),
            ("admin.*", "admin", "mine", true),
        ] {
            let matched = glob(text).matches(database.as_bytes(), collection.as_bytes());
            assert_eq!(matched, expected, "{text} {database} {collection}");
        }
    }

    #[test]
    fn globs_are_ordered_by_specificity() {
        let order = ["shop.orders", "shop.order*", "shop.*", "sh*.orders", "sh*.*", "*.orders", "*.order*", "*.*"];
        for (at, one) in order.iter().enumerate() {
            for (other_at, other) in order.iter().enumerate() {
                let expected = (at != other_at).then(|| other_at.cmp(&at));
                let found = glob(one).compare_specificity(&glob(other));
                assert_eq!(found, expected, "{one} {other}");
            }
        }
        assert_eq!(glob("*.a*").compare_specificity(&glob("*.*a")), None);
        assert_eq!(glob("sh*.a").compare_specificity(&glob("sh*.b")), None);
    }

    proptest! {
        #[test]
        fn rank_keeps_the_order_of_specificity(a in "[ab*]{1,4}\\.[ab*]{1,4}", b in "[ab*]{1,4}\\.[ab*]{1,4}") {
            let (a, b) = (glob(&a), glob(&b));
            match a.compare_specificity(&b) {
                Some(Ordering::Equal) => prop_assert!(false, "equal is None"),
                Some(order) => prop_assert_eq!(a.rank().cmp(&b.rank()), order),
                None => {}
            }
        }
    }
}
