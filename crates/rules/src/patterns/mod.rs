//! The patterns: one file each, with the settings and the evaluation of statements.
//!
//! A pattern evaluates one [`Statement`] and returns a [`Verdict`]. It does no I/O, reads no clock and does not know
//! batches or replies. To add a pattern, write its file with an implementation of [`Pattern`], and add its line to the
//! table of [`AnyPattern`]. `crate::engine` applies the verdicts.

mod around;
mod bounds;
mod bucket;
pub mod collation;
mod collection;
pub mod copies;
mod declared;
mod defaults;
mod deny;
mod field_path;
pub mod filter;
mod frozen;
pub mod history;
mod incrementing;
mod input;
mod limits;
mod literal;
mod mode;
mod number;
pub mod numbering;
mod on_insert;
mod plain;
pub mod procedure;
mod promise;
mod queue;
mod reads;
mod rejection;
mod replacement;
mod requirement;
mod schema_version;
mod selection;
pub mod sequence;
mod stored_data;
mod stored_state;
#[cfg(test)]
mod tests;
pub mod throttle;
pub mod timestamps;
mod together;
mod tree;
mod verdict;

use std::sync::Arc;

use crate::command::{CommandClass, InputStage, Namespace, Statement, StatementKind, WriteForm};
use crate::config::keys::{Declaration, ValueSchema};
use crate::config::{Diagnostic, Located, NamespaceGlob, Node, ReadContext};
use crate::document::{CowDocument, Document, Path};
pub use collection::Collection;
pub use declared::{
    Applicability, CountedArray, ExclusiveField, ExpectedVersion, FieldContent, IndexPurpose, Measured, NeededIndex,
    NoEffectCause, Privilege, Properties, WeakerSetting,
};
pub use incrementing::Incrementing;
pub use input::{ALL_COLLECTIONS, Context, WholeCommand};
pub use mode::Mode;
use numbering::Numbering;
pub use plain::may_have_checked;
pub use procedure::{PlainField, Procedures};
pub use promise::{BeforeAndAfter, Broken, Facts, Settled, SettledValue, may_omit_id, stage_targets};
pub use rejection::{MAX_REASON_LENGTH, NoEffect, NoEffectKind, Rejection};
pub use requirement::Requirement;
pub use stored_data::{Backfill, DataCheck, Search};
pub use stored_state::{MEANING_VARIABLE, RULE_VARIABLE, StateCondition, StateTest, TITLE, rule_in_title};
pub use verdict::{CollectionQuery, CommandVerdict, Prerequisite, Rewrite, StoredKind, Unmatched, Verdict};

/// JSON Schema (draft 2020-12) of rule files, for editors. `tests/source/documentation/schema.rs` writes it from the
/// declared keys. It accepts the same files as the readers, as far as a schema can; `tests/command_line/schema.rs`
/// compares the two.
pub const SCHEMA: &str = include_str!("schema.json");

/// Makes one type of all patterns: each by the name of its module, which is its key in rule files, and of its type; then
/// what no longer holds while no rule of it is enforced, as one sentence; and of that, what no single document shows, as
/// half a sentence.
macro_rules! patterns {
    ($($key:ident: $Type:ident = $when_off:literal, $not_in_documents:literal;)*) => {
        /// One pattern with its settings.
        #[derive(Debug, Clone)]
        pub enum AnyPattern {
            $($Type($key::$Type),)*
        }

        impl AnyPattern {
            /// The pattern keys that a rule may have.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($key)),*];

            /// Returns the name and the settings of each pattern.
            pub fn declarations() -> Vec<(&'static str, Declaration)> {
                vec![$((stringify!($key), $key::$Type::declaration())),*]
            }

            /// The keys of the settings of the pattern of this name, if these are a mapping.
            pub(crate) fn keys(name: &str) -> impl Iterator<Item = &'static str> {
                let declared = Self::declarations().into_iter().filter(move |(pattern, _)| *pattern == name);
                let keys = declared.filter_map(|(_, one)| match one.schema {
                    ValueSchema::Mapping(keys) => Some(keys),
                    _ => None,
                });
                keys.flat_map(|keys| keys.settings.iter().map(|setting| setting.name()))
            }

            /// Correct settings for the pattern of this name, one of [`Self::NAMES`].
            pub(crate) fn example(name: &str) -> &'static str {
                $(if name == stringify!($key) {
                    return $key::$Type::declaration().example;
                })*
                "{}"
            }

            /// Reads the settings under the key `name`, one of [`Self::NAMES`].
            pub(crate) fn read_settings(name: &str, settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
                $(if name == stringify!($key) {
                    return $key::$Type::read(settings, context).map(Self::$Type);
                })*
                None
            }

            /// Returns the contradictions between rules that [`Pattern::contradictions`] of each pattern finds.
            pub(crate) fn contradictions(rules: &[RuleView<'_>]) -> Vec<Diagnostic> {
                let mut found = Vec::new();
                $(found.extend($key::$Type::contradictions(rules));)*
                found
            }

            /// Returns the settings that change because of other rules, each with the index of its rule.
            pub(crate) fn linked(rules: &[RuleView<'_>]) -> Vec<(usize, Self)> {
                let mut linked = Vec::new();
                $(linked.extend($key::$Type::linked(rules).into_iter().map(|(at, one)| (at, Self::$Type(one))));)*
                linked
            }

            /// Returns what no longer holds while the rule is not enforced, as one sentence.
            pub fn when_off(&self) -> &'static str {
                match self {
                    $(Self::$Type(_) => $when_off,)*
                }
            }

            /// Returns what the pattern promises and no stored document shows alone, as half a sentence.
            pub fn not_in_documents(&self) -> &'static str {
                match self {
                    $(Self::$Type(_) => $not_in_documents,)*
                }
            }

            /// Returns the name of each pattern with its sentence, as [`Self::when_off`].
            pub fn all_when_off() -> &'static [(&'static str, &'static str)] {
                &[$((stringify!($key), $when_off)),*]
            }

            /// Returns its position in the table: smaller is evaluated earlier.
            pub fn evaluation_order(&self) -> u8 {
                EvaluationOrder::of_pattern(self) as u8
            }

            /// Returns the key in rule files.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$Type(_) => stringify!($key),)*
                }
            }
        }

        #[derive(Clone, Copy)]
        enum EvaluationOrder {
            $($Type,)*
        }

        impl EvaluationOrder {
            fn of_pattern(pattern: &AnyPattern) -> Self {
                match pattern {
                    $(AnyPattern::$Type(_) => Self::$Type,)*
                }
            }
        }

        impl std::ops::Deref for AnyPattern {
            type Target = dyn Pattern;

            fn deref(&self) -> &Self::Target {
                match self {
                    $(Self::$Type(pattern) => pattern,)*
                }
            }
        }
    };
}

// In the order in which they evaluate a statement; the order in the rule files does not matter. Each pattern gets the
// statement as the one before rewrote it.
patterns! {
    deny: Deny = "Denied operations are executed.", "which operation wrote it";
    history: History =
        "No states are recorded; afterwards the worker continues where it stopped, if the oplog still has the changes.",
        "its earlier states";
    replacement: Replacement =
        "Saves of whole documents overwrite what others changed, and nothing increments versions.",
        "whether a save knew the stored version";
    together: Together = "Fields that belong together can change alone.", "whether the fields changed together";
    frozen: Frozen = "Frozen fields can change.", "what was inserted";
    bounds: Bounds = "Numbers can leave their range.", "whether an increment had room: past docward it fails";
    schema_version: SchemaVersion = "Old processes can write over documents of a newer version.",
        "its version before";
    queue: Queue =
        "Claims get no lease and count no attempt: two workers can finish one job, and jobs of crashed workers stay locked.",
        "who has claimed it, and whether the lease was over";
    bucket: Bucket =
        "Buckets can exceed their limit, and nothing counts pushes: correct the counts before the rule is enforced again.",
        "whether another bucket has room";
    copies: Copies =
        "Copies become stale; afterwards the worker continues where it stopped, and `docward repair` finds the rest.",
        "its original";
    tree: Tree = "Nothing maintains paths: build them again before the rule is enforced again.", "its ancestors";
    timestamps: Timestamps = "Late writes overwrite newer values, and no write gets a timestamp.",
        "whether a write was late";
    sequence: Sequence = "Inserted documents get no number.", "which numbers are assigned";
    limits: Limits = "Documents and arrays can exceed their limits.", "how much a statement added";
    defaults: Defaults = "Commands get no default time limit.", "the options of commands";
    throttle: Throttle = "Nothing limits clients.", "how much clients do at a time";
    reads: Reads = "The query listener rejects reads of the collections.", "where it is read";
}

/// A pattern and where it applies, for patterns that compare the rules of a set.
#[derive(Debug, Clone, Copy)]
pub struct RuleView<'r> {
    /// The index of the rule.
    pub index: usize,
    pub name: &'r Located<Arc<str>>,
    pub namespaces: &'r [Located<NamespaceGlob>],
    pub mode: Mode,
    pub pattern: &'r AnyPattern,
    pub properties: &'r Properties,
}

/// The interface of every pattern.
pub trait Pattern {
    /// Declares the settings under its key.
    fn declaration() -> Declaration
    where
        Self: Sized;

    /// Reads the settings under its key. Reports every mistake to `context` before it returns `None`.
    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self>
    where
        Self: Sized;

    /// Returns the contradictions between rules of this pattern, other than exclusive fields of one namespace. `rules` are all
    /// rules that are not disabled.
    fn contradictions(rules: &[RuleView<'_>]) -> Vec<Diagnostic>
    where
        Self: Sized,
    {
        let _ = rules;
        Vec::new()
    }

    /// Returns its constant properties.
    fn properties(&self) -> Properties {
        Properties::default()
    }

    /// Returns the settings that change because of other rules, each with the index of its rule. `rules` are all rules.
    fn linked(rules: &[RuleView<'_>]) -> Vec<(usize, Self)>
    where
        Self: Sized,
    {
        let _ = rules;
        Vec::new()
    }

    /// Returns whether it makes a rule with the pattern `later` ineffective that is evaluated after it for the same
    /// clients. A pattern that can make any other ineffective must return true for itself.
    fn makes_ineffective(&self, later: RuleView<'_>) -> bool {
        let _ = later;
        false
    }

    /// Returns whether writes of one of these kinds to the namespace could break it. If so, a command that makes them
    /// other than by statements is rejected, unless the rule has `unsupported: allow`.
    fn analyses_writes(&self, kinds: &[StatementKind], namespace: Namespace<'_>) -> bool {
        kinds.iter().any(|kind| self.applicability(*kind, namespace) != Applicability::None)
    }

    /// Returns whether it can reject a command of this class, or a statement in it. If so, a command that docward cannot
    /// read is rejected.
    fn can_reject(&self, class: CommandClass, namespace: Namespace<'_>) -> bool {
        match WriteForm::for_class(class) {
            Some(form) => form.kinds().any(|kind| {
                self.applicability(kind, namespace) != Applicability::None
                    || self.evaluates_command(class, Some(kind), namespace)
            }),
            None => {
                self.evaluates_command(class, None, namespace)
                    || class.indirect_write().is_some() && self.analyses_writes(&StatementKind::ALL, namespace)
            }
        }
    }

    /// Returns the checks of documents that are stored in this collection, to which a rule of the pattern applies.
    fn data_checks(&self, namespace: Namespace<'_>) -> Vec<DataCheck> {
        let _ = namespace;
        Vec::new()
    }

    /// Returns what holds for each document that docward lets a client store there, as far as one document shows it.
    fn stored_state(&self) -> Vec<StateCondition> {
        Vec::new()
    }

    /// Returns how it treats statements of a kind that write to `namespace`.
    fn applicability(&self, kind: StatementKind, namespace: Namespace<'_>) -> Applicability;

    /// Evaluates a statement of a kind with [`Applicability::Each`].
    fn evaluate<'a>(&self, statement: &Statement<'a>, context: &Context<'_>) -> Verdict<'a> {
        let _ = (statement, context);
        Verdict::Forward
    }

    /// Checks the rule's promise for a document that a checked statement has inserted (`before` is `None`), changed or deleted
    /// (`after` is `None`). A document that did not keep the promise before and is not made worse passes.
    ///
    /// # Errors
    /// What the statement would do to the document.
    fn promise(&self, (before, after): BeforeAndAfter<'_>, facts: &Facts<'_, '_>) -> Result<(), Broken> {
        let _ = (before, after, facts);
        Ok(())
    }

    /// Returns what the rule sets in a document that a checked statement has inserted (`before` is `None`) or changed, before
    /// its promise is checked.
    fn settle(&self, before: Option<Document<'_>>, after: Document<'_>, facts: &Facts<'_, '_>) -> Vec<Settled> {
        let _ = (before, after, facts);
        Vec::new()
    }

    /// Returns writes to another collection, as the update command takes them, that go with the documents before and after a
    /// checked statement, once their promises are checked.
    fn writes_beside(
        &self,
        written: &[BeforeAndAfter<'_>],
        facts: &Facts<'_, '_>,
    ) -> Option<(&Collection, Vec<CowDocument<'static>>)> {
        let _ = (written, facts);
        None
    }

    /// Returns how it increments a field of clients' statements, if it does.
    fn incrementing(&self) -> Option<&dyn Incrementing> {
        None
    }

    /// Returns the numbers of [`Prerequisite::Number`] and [`Prerequisite::ProvidedNumbers`]; `None` for patterns without
    /// them.
    fn numbering(&self) -> Option<&dyn Numbering> {
        None
    }

    /// Checks that the statement still keeps this rule after all rules have changed it.
    ///
    /// Patterns that rewrite or check statements do without it only if no later rule can undo that. `replacement`: later
    /// rules only add conditions, and the increment is added last. `timestamps`: only `sequence`, which adds to its
    /// pipeline, and `limits` come later. `sequence`: the number is set last, and then checked by the others. `tree`: its
    /// procedure checks the node. `copies`: later rules write no references.
    ///
    /// # Errors
    /// The reason why the statement would break the rule.
    fn check_final(&self, statement: &Statement<'_>) -> Result<(), Rejection> {
        let _ = statement;
        Ok(())
    }

    /// The values that [`unmatched`](Self::unmatched) looks at beside them. The server computes them from the stored document.
    fn measured(&self, statement: &Statement<'_>) -> Vec<Measured> {
        let _ = statement;
        Vec::new()
    }

    /// Returns why a statement as it is sent can change this field and not the others, or the others and not this one,
    /// although the client's writes all of them or none; as half a sentence.
    fn partial_change_reason(&self, field: &Path) -> Option<&'static str> {
        let _ = field;
        None
    }

    /// Returns what docward's own user must be allowed to do, for a rule on `namespaces`, as far as they name one
    /// database.
    fn privileges(&self, namespaces: &[Located<NamespaceGlob>]) -> Vec<Privilege> {
        let _ = namespaces;
        Vec::new()
    }

    /// Returns why the two rules do not both hold if they are enforced on the same namespace, as half a sentence.
    fn conflict_with(&self, other: RuleView<'_>, namespace: Namespace<'_>) -> Option<&'static str> {
        let _ = (other, namespace);
        None
    }

    /// Handles a statement whose conditions matched nothing. `stored` is a document that the client's own filter
    /// matches.
    fn unmatched(&self, statement: &Statement<'_>, stored: Option<Document<'_>>) -> Unmatched {
        let _ = (statement, stored);
        Unmatched::Nothing
    }

    /// Returns whether the server can fail a statement because of this rule's rewriting of it. If so,
    /// [`explain`](Self::explain) is called.
    fn explains_errors(&self, rewritten: &Statement<'_>) -> bool {
        let _ = rewritten;
        false
    }

    /// Explains a server's error that this rule's rewriting causes. `error` is a write error, or the reply of a
    /// findAndModify; `rewritten` is the statement that was sent.
    fn explain(&self, error: Document<'_>, rewritten: &Statement<'_>) -> Option<Rejection> {
        let _ = (error, rewritten);
        None
    }

    /// Returns whether it evaluates commands of this class on this collection as a whole; `kind` is what a write does.
    fn evaluates_command(&self, class: CommandClass, kind: Option<StatementKind>, namespace: Namespace<'_>) -> bool {
        let _ = (class, kind, namespace);
        false
    }

    /// Returns why an aggregation must not read a collection of its namespaces by this stage. `command` is the whole
    /// aggregation, whose own collection is another one or the same.
    fn evaluate_input(&self, command: &WholeCommand<'_>, stage: &InputStage<'_>) -> Option<Rejection> {
        let _ = (command, stage);
        None
    }

    /// Evaluates a command as a whole, independent of its statements.
    fn evaluate_command(&self, command: &WholeCommand<'_>) -> CommandVerdict {
        let _ = command;
        CommandVerdict::Forward
    }
}

impl AnyPattern {
    /// Returns the verdict on a statement; [`Pattern::applicability`] decides whether it is evaluated.
    pub fn verdict<'a>(&self, statement: &Statement<'a>, context: &Context<'_>) -> Verdict<'a> {
        match self.applicability(statement.kind(), context.namespace) {
            Applicability::None => Verdict::Forward,
            Applicability::Each => self.evaluate(statement, context),
        }
    }

    /// Returns the verdict on a whole command; [`Pattern::evaluates_command`] decides whether it is evaluated.
    pub fn command_verdict(&self, command: &WholeCommand<'_>) -> CommandVerdict {
        if self.evaluates_command(command.class, command.kind(), command.namespace) {
            self.evaluate_command(command)
        } else {
            CommandVerdict::Forward
        }
    }
}

/// The applicability of patterns that evaluate the content of documents: they do not evaluate deletes.
fn applicability_for_content(kind: StatementKind) -> Applicability {
    match kind {
        StatementKind::Delete => Applicability::None,
        _ => Applicability::Each,
    }
}
