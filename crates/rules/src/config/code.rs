//! The kinds of mistakes in rule files, each with a code that never changes.
//!
//! Every diagnostic prints its code (`error[R0007]`), so that users can search for it. Documentation anchors
//! use the codes too. Never reuse a number. Diagnostics: `diagnostic.rs`.

macro_rules! codes {
    ($($(#[doc = $sentence:literal])+ $name:ident = $number:literal,)+) => {
        /// The kind of a mistake; [`Code::sentence`] explains each one.
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

            /// One sentence that describes all mistakes of this kind.
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
    /// A path does not exist or cannot be read.
    Unreadable = "R0002",
    /// The file is not valid UTF-8.
    NotUtf8 = "R0003",
    /// A folder has no rule file.
    EmptyFolder = "R0004",
    /// The file is too large or nested too deeply, or too many namespaces may overlap.
    TooLarge = "R0005",
    /// The file uses YAML that docward does not support: anchors, aliases, merge keys, custom tags, several documents.
    UnsupportedYaml = "R0006",
    /// Two rules have the same name.
    DuplicateName = "R0007",
    /// A mapping has the same key twice.
    DuplicateKey = "R0008",
    /// A key is unknown or not allowed here.
    UnknownKey = "R0009",
    /// A required key is missing.
    MissingKey = "R0010",
    /// A value has the wrong type for its key.
    WrongType = "R0011",
    /// A word is not one of those that the key allows.
    UnknownWord = "R0012",
    /// A value has the right type but is not valid for its key.
    InvalidValue = "R0013",
    /// This docward does not support the version of the rule language.
    UnsupportedVersion = "R0014",
    /// A rule file has no rules.
    NoRules = "R0015",
    /// A rule name is not kebab-case.
    InvalidName = "R0016",
    /// A namespace is not valid in MongoDB, or rules cannot apply to it.
    InvalidNamespace = "R0017",
    /// A rule has no pattern.
    NoPattern = "R0018",
    /// A rule has more than one pattern.
    SeveralPatterns = "R0019",
    /// A rule has an unknown pattern.
    UnknownPattern = "R0020",
    /// Two equally specific rules of one pattern apply to the same namespace.
    Contradiction = "R0021",
    /// Two rules claim the same field in the same namespace.
    FieldClaimedTwice = "R0022",
    /// An entry of `except` or `only` cannot match any application or user.
    InvalidException = "R0023",
    /// A rule test is not valid.
    InvalidTest = "R0024",
    /// Settings of one pattern cannot be used together.
    ConflictingSettings = "R0025",
    /// A command is neither mongosh syntax nor Extended JSON.
    InvalidCommand = "R0026",
    /// A rule, or a part of it, has no effect.
    NeverActs = "R0027",
    /// A rule has no effect because another one rejects everything that it would reject or change.
    NoEffect = "R0028",
    /// A rule applies instead of a less specific one and is weaker.
    Weaker = "R0029",
    /// A namespace matches no collection of the deployment.
    NoCollection = "R0030",
    /// A field whose values a rule keeps unique has no unique index.
    MissingUniqueIndex = "R0031",
    /// A field that a rule queries has no index.
    MissingIndex = "R0032",
    /// Two rules are incompatible: the statements that one of them produces break the guarantee of the other.
    Incompatible = "R0033",
    /// A unique index prevents documents that a rule creates.
    UnwantedUniqueIndex = "R0034",
    /// Stored documents do not have the version that a rule calls current.
    OtherVersions = "R0035",
    /// Stored documents lack what a rule needs, or break the rule.
    StoredDocuments = "R0036",
    /// The deployment lacks something that a rule needs.
    LackingServer = "R0037",
    /// The deployment cannot keep the history that a rule asks for.
    NoHistory = "R0038",
    /// A text is a valid name, but probably not the intended one.
    DoubtfulName = "R0039",
    /// A validator that docward has set is not what the rules require.
    DriftedValidator = "R0040",
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
