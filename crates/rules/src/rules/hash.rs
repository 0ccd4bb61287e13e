//! The hash by which logs and the admin address identify a rule set.

use std::fmt;

use crate::config::SourceFiles;
use crate::fnv::Fnv;

/// A hash of a rule set's texts, the same in every build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleSetHash(pub u64);

impl RuleSetHash {
    pub(super) fn from_sources(sources: &SourceFiles) -> Self {
        let mut hash = Fnv::default();
        for file in sources.files() {
            let text = sources.text(file);
            // The length distinguishes two files from one file with both texts.
            hash.add(&(text.len() as u64).to_le_bytes());
            hash.add(text.as_bytes());
        }
        Self(hash.hash())
    }
}

impl fmt::Display for RuleSetHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
