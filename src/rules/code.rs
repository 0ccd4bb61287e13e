//! The kinds of mistakes a rule file can hold, each with a code that never changes.
//!
//! The one list of them. A code is printed with every diagnostic (`error[R0007]`), so it can be
//! searched for, and documentation anchors are made from it. Never reuse a number. What a
//! diagnostic is: `diagnostic.rs`.

macro_rules! codes {
    ($($(#[doc = $sentence:literal])+ $name:ident = $number:literal,)+) => {
        /// The kind of a mistake; see [`Code::sentence`] for what each one means.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[doc = $sentence])+ $name,)+
        }

        impl Code {
            /// Every code, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The stable name, `R0007`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $number,)+ }
            }

            /// One sentence that says what went wrong in all cases of this kind.
            #[must_use]
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$name => concat!($($sentence),+).trim_ascii(),)+ }
            }
        }
    };
}

codes! {
    /// The file is not YAML.
    Syntax = "R0001",
    /// A path cannot be read, or does not exist.
    Unreadable = "R0002",
    /// The file is not UTF-8 text.
    NotUtf8 = "R0003",
    /// A folder holds no rule file.
    EmptyFolder = "R0004",
    /// The file is larger or nested deeper than any rule file needs, or too many namespaces may overlap.
    TooLarge = "R0005",
    /// YAML that the rule language leaves out: anchors, aliases, merge keys, tags, several documents.
    UnsupportedYaml = "R0006",
    /// Two rules have one name.
    DuplicateName = "R0007",
    /// A mapping holds one key twice.
    DuplicateKey = "R0008",
    /// A key that means nothing at this place.
    UnknownKey = "R0009",
    /// A key that must be there is not.
    MissingKey = "R0010",
    /// A value of another type than its key takes.
    WrongType = "R0011",
    /// A word that is none of those the key takes.
    UnknownWord = "R0012",
    /// A value of the right type that makes no sense for its key.
    InvalidValue = "R0013",
    /// A version of the rule language that this docward does not know.
    UnsupportedVersion = "R0014",
    /// A rule file without rules.
    NoRules = "R0015",
    /// A rule name that is not kebab-case.
    InvalidName = "R0016",
    /// A namespace that MongoDB cannot have, or that no rule may guard.
    InvalidNamespace = "R0017",
    /// A rule without a pattern.
    NoPattern = "R0018",
    /// A rule with more than one pattern.
    SeveralPatterns = "R0019",
    /// A rule whose pattern does not exist.
    UnknownPattern = "R0020",
    /// Two equally specific rules want to speak for one namespace.
    Contradiction = "R0021",
    /// Two rules claim one field of one namespace.
    FieldClaimedTwice = "R0022",
    /// An `except` entry that can match no application or user.
    InvalidException = "R0023",
    /// A rule's test that is not a test.
    InvalidTest = "R0024",
    /// Settings of one pattern that cannot be used together.
    ConflictingSettings = "R0025",
    /// A command that is neither mongosh syntax nor Extended JSON.
    InvalidCommand = "R0026",
    /// A rule, or a part of it, that can never act.
    NeverActs = "R0027",
    /// A rule that another, which evaluates before it, leaves nothing to do.
    Silenced = "R0028",
    /// A rule that applies instead of a broader one, and guards less than that would.
    Weaker = "R0029",
    /// A namespace that no collection of the deployment has.
    NoCollection = "R0030",
    /// A field whose values a rule keeps apart has no unique index.
    MissingUniqueIndex = "R0031",
    /// A field that a rule searches by has no index.
    MissingIndex = "R0032",
    /// Two rules that do not go together: what one of them makes of a statement breaks the promise of the other.
    Incompatible = "R0033",
    /// A unique index keeps documents apart that a rule makes many of.
    UnwantedUniqueIndex = "R0034",
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn codes_are_numbered_without_gaps_and_explained() {
        for (index, code) in Code::ALL.iter().enumerate() {
            assert_eq!(code.as_str(), format!("R{:04}", index + 1));
            assert!(code.sentence().ends_with('.'), "{code:?}");
            assert!(!code.sentence().starts_with(' '), "{code:?}");
        }
    }
}
