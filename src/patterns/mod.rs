//! The patterns: one file each, with the settings and the evaluation of statements.
//!
//! A pattern evaluates one [`Statement`] and returns a [`Verdict`]. It does no I/O, reads no clock and does not know
//! batches or replies. To add a pattern, write its file with an implementation of [`Pattern`], and add its line to the
//! table of [`AnyPattern`]. `crate::engine` applies the verdicts.

mod bounds;
mod bucket;
pub mod copies;
mod defaults;
mod deny;
pub(crate) mod filter;
mod literal;
mod number;
pub mod numbering;
pub mod procedure;
mod queue;
pub mod reads;
mod replacement;
pub mod sequence;
#[cfg(test)]
mod tests;
pub mod timestamps;
mod together;
mod tree;

use std::sync::Arc;

use crate::command::{CommandClass, Namespace, Operation, Statement, StatementKind, code, shorten};
use crate::config::{Code, Diagnostic, Located, MapReader, NamespacePattern, Node, ReadContext};
use crate::document::{Document, OwnedValue, Path, Value};
use numbering::Numbering;
use procedure::Procedure;

/// JSON Schema (draft 2020-12) of rule files, for editors. It accepts the same files as the readers here, as far as a
/// schema can; `tests/command_line/schema.rs` compares the two.
pub const SCHEMA: &str = include_str!("schema.json");

/// Makes one type of all patterns: each by the name of its module, which is its key in rule files, and of its type.
macro_rules! patterns {
    ($($key:ident: $Type:ident),* $(,)?) => {
        /// One pattern with its settings.
        #[derive(Debug, Clone)]
        pub enum AnyPattern {
            $($Type($key::$Type),)*
        }

        impl AnyPattern {
            /// The pattern keys that a rule may have.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($key)),*];

            /// Reads the settings under the key `name`, one of [`Self::NAMES`].
            pub(crate) fn read(name: &str, settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
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

            /// Returns its position in the table: smaller is evaluated earlier.
            pub fn phase(&self) -> u8 {
                Phase::of(self) as u8
            }

            /// Returns the key in rule files.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$Type(_) => stringify!($key),)*
                }
            }
        }

        #[derive(Clone, Copy)]
        enum Phase {
            $($Type,)*
        }

        impl Phase {
            fn of(pattern: &AnyPattern) -> Self {
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
    deny: Deny,
    replacement: Replacement,
    together: Together,
    copies: Copies,
    bounds: Bounds,
    queue: Queue,
    bucket: Bucket,
    tree: Tree,
    timestamps: Timestamps,
    sequence: Sequence,
    defaults: Defaults,
    reads: Reads,
}

/// Whether a rule is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It rewrites and rejects.
    #[default]
    Enforce,
    /// It only counts and logs its decisions.
    Shadow,
    /// It is checked at load time and otherwise ignored.
    Disabled,
}

impl Mode {
    /// The word for it in rule files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Disabled => "disabled",
        }
    }
}

/// A pattern and where it applies, for patterns that compare the rules of a set.
#[derive(Debug, Clone, Copy)]
pub struct RuleView<'r> {
    /// The index of the rule.
    pub index: usize,
    pub name: &'r Located<String>,
    pub namespaces: &'r [Located<NamespacePattern>],
    pub mode: Mode,
    pub pattern: &'r AnyPattern,
}

/// A field that only one rule may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Only claims of the same kind exclude each other. Usually the pattern's name.
    pub kind: &'static str,
    /// The field's path. It also claims all fields below it.
    pub field: Located<String>,
}

/// A setting that makes a rule weaker than it could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeakerSetting {
    /// What it does, unlike a stricter rule: `allows …`.
    pub what: &'static str,
    /// The key of the setting.
    pub setting: &'static str,
}

/// The result of evaluating a statement.
#[derive(Debug, Clone)]
pub enum Verdict<'a> {
    /// Sends the statement unchanged.
    Forward,
    /// Sends this operation instead.
    Rewrite(Rewrite<'a>),
    /// Sends this operation instead, which increments a field. Whether the stored value can be incremented is not known
    /// yet; [`Pattern::counting`] returns the statement for each case.
    Counted(Operation<'a>),
    /// The statement may only insert: rejects if the client's filter matches a document, otherwise sends this
    /// operation.
    OnlyNew(Operation<'a>, Rejection),
    /// Sends the statement, unchanged or as this operation, once it has a number; [`Pattern::numbering`] describes the
    /// rule's numbers.
    Number(Option<Operation<'a>>),
    /// The statement needs these queries and further statements, in one transaction with it.
    Needs(Arc<dyn Procedure>),
    /// Sends the statement, unchanged or as this operation. It contains numbers that the sequence must not issue again.
    Provides(Option<Operation<'a>>),
    Reject(Rejection),
    /// The pattern cannot analyse the statement: rejected, unless the rule has `unsupported: allow`.
    Unsupported(Rejection),
}

/// The stored value of a field that is to be incremented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// A number that can be incremented, or nothing.
    Number,
    /// Something else, or the largest long.
    Other,
    /// A field on the path is not a document, so the server cannot set the field.
    Unreachable,
}

impl Stored {
    /// Returns the next kind, in a fixed order. Every document is of exactly one kind.
    pub fn next(self) -> Option<Self> {
        match self {
            Self::Number => Some(Self::Other),
            Self::Other => Some(Self::Unreachable),
            Self::Unreachable => None,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Rewrite<'a> {
    pub operation: Operation<'a>,
    /// Whether matching nothing can be an error: then [`Pattern::unmatched`] decides.
    pub checks_match: bool,
}

/// The result for a statement with a rule's conditions that matched nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unmatched {
    /// Forwards the server's n: 0 to the client.
    Nothing,
    Reject(Rejection),
}

/// Why a statement is rejected, for the application's developer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// A server error code.
    pub code: i32,
    /// The problem, as half a sentence: "it replaces the whole document".
    pub reason: String,
    /// The remedy, as a sentence.
    pub hint: String,
}

/// Maximum bytes of a reason, and of a hint. They may contain names and values from a client, which can be as long as
/// a message.
pub const MAX_REASON_LENGTH: usize = 1000;

impl Rejection {
    pub fn new(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        let (mut reason, mut hint) = (reason.into(), hint.into());
        shorten(&mut reason, MAX_REASON_LENGTH);
        shorten(&mut hint, MAX_REASON_LENGTH);
        Self { code: code::DOCUMENT_VALIDATION_FAILURE, reason, hint }
    }
}

impl<'a> Verdict<'a> {
    fn reject(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Reject(Rejection::new(reason, hint))
    }

    fn procedure(procedure: impl Procedure + 'static) -> Self {
        Self::Needs(Arc::new(procedure))
    }

    fn unsupported(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Unsupported(Rejection::new(reason, hint))
    }

    fn rewrite(operation: Operation<'a>) -> Self {
        Self::Rewrite(Rewrite { operation, checks_match: false })
    }

    /// The verdict for a client's pipeline update; patterns do not analyse pipelines.
    fn client_pipeline() -> Self {
        Self::unsupported(
            "it is an aggregation pipeline, which can change any field",
            "Use update operators such as $set.",
        )
    }
}

/// The input of an evaluation besides the statement.
#[derive(Debug, Clone, Copy)]
pub struct Context<'c> {
    /// Wall clock of the proxy when the message arrived, in milliseconds since 1970 UTC.
    pub now: i64,
    /// The command's `comment`.
    pub comment: Option<Value<'c>>,
    /// The command's `let`.
    pub variables: Option<Value<'c>>,
    /// The namespace that the statement writes to; a rule may evaluate several.
    pub namespace: Namespace<'c>,
    /// The [`version`](Pattern::version) fields of the rules for that namespace.
    pub versions: &'c [&'c Path],
}

/// A command on a protected collection, for rules on reads and options.
#[derive(Debug, Clone, Copy)]
pub struct WholeCommand<'c> {
    pub class: CommandClass,
    pub body: Document<'c>,
}

impl WholeCommand<'_> {
    /// Returns what a write does, as far as the command shows: an update may be of any kind.
    fn kind(&self) -> Option<StatementKind> {
        match self.class {
            CommandClass::Insert => Some(StatementKind::Insert),
            CommandClass::Update => Some(StatementKind::Operators),
            CommandClass::Delete => Some(StatementKind::Delete),
            CommandClass::FindAndModify if self.body.get("remove").and_then(Value::as_flag) == Some(true) => {
                Some(StatementKind::Delete)
            }
            CommandClass::FindAndModify => Some(StatementKind::Operators),
            _ => None,
        }
    }
}

/// The result of evaluating a whole command.
#[derive(Debug, Clone)]
pub enum CommandVerdict {
    Forward,
    /// Sets this field of the body, or replaces it.
    Set(&'static str, OwnedValue),
    /// Forwards the command and logs a warning.
    Warn(Rejection),
    /// The verdict depends on documents that must be read first.
    Needs(Arc<dyn CollectionQuery>),
    Reject(Rejection),
}

/// The documents that a pattern needs before it can evaluate a command.
pub trait CollectionQuery: std::fmt::Debug + Send + Sync {
    /// Returns the filter for these documents, as BSON.
    fn filter(&self) -> Vec<u8>;

    /// Returns the projection, as BSON.
    fn fields(&self) -> Vec<u8>;

    /// Returns the verdict, which is not `Needs`. `found` is also empty if the documents could not be read.
    fn conclude(&self, command: &WholeCommand<'_>, found: &[Document<'_>]) -> CommandVerdict;
}

/// How a pattern treats all statements of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concern {
    /// It does not evaluate them.
    Nothing,
    /// It evaluates each of them.
    Each,
    /// It cannot analyse any of them.
    Unsupported,
}

/// An index that a pattern needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededIndex {
    /// The collection of the index; `None`: each of the rule's own collections.
    pub collection: Option<NamespacePattern>,
    pub field: String,
    pub purpose: IndexPurpose,
    /// The consequence without it, as half a sentence: "every move scans the collection".
    pub without: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexPurpose {
    /// Documents must not share a value: needs a unique index with the field in its key.
    Unique,
    /// Queries use ranges of the field: needs an ordered index with the field first in its key.
    Range,
    /// Queries use single values of the field: needs an index as for `Range`, or a hashed one.
    Equality,
    /// Many documents share all other fields: a unique index must have the field in its key.
    NotUnique,
}

/// The interface of every pattern.
pub trait Pattern {
    /// Reads the settings under its key. Reports every mistake to `context` before it returns `None`.
    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self>
    where
        Self: Sized;

    /// Returns the contradictions between rules of this pattern, other than claims on one namespace. `rules` are all
    /// rules that are not disabled.
    fn contradictions(rules: &[RuleView<'_>]) -> Vec<Diagnostic>
    where
        Self: Sized,
    {
        let _ = rules;
        Vec::new()
    }

    /// Returns the settings that change because of other rules, each with the index of its rule. `rules` are all rules.
    fn linked(rules: &[RuleView<'_>]) -> Vec<(usize, Self)>
    where
        Self: Sized,
    {
        let _ = rules;
        Vec::new()
    }

    /// Describes its rewriting as half a sentence, for people; empty if it never rewrites.
    fn rewriting(&self) -> &'static str {
        ""
    }

    /// Returns whether only the most specific rule of this pattern applies to a namespace.
    fn exclusive(&self) -> bool {
        false
    }

    /// Returns the settings that are less strict than others of the same pattern.
    fn weaker_settings(&self) -> Vec<WeakerSetting> {
        Vec::new()
    }

    /// Returns whether it makes a rule with the pattern `later` ineffective that is evaluated after it for the same
    /// clients. A pattern that can make any other ineffective must return true for itself.
    fn makes_ineffective(&self, later: &AnyPattern) -> bool {
        let _ = later;
        false
    }

    /// Returns whether it evaluates statements on its namespaces, rather than only naming them.
    fn evaluates(&self) -> bool {
        true
    }

    /// Returns the indexes it needs. Without them it is slow or its guarantee does not hold.
    fn needed_indexes(&self) -> Vec<NeededIndex> {
        Vec::new()
    }

    /// Returns the fields that no other rule of this pattern may claim on the same namespace.
    fn claims(&self) -> Vec<Claim> {
        Vec::new()
    }

    /// Returns the namespaces, besides the rule's own, whose statements it evaluates too.
    fn also_evaluates(&self) -> Vec<NamespacePattern> {
        Vec::new()
    }

    /// Returns how it treats statements of a kind that write to `namespace`.
    fn concern(&self, kind: StatementKind, namespace: Namespace<'_>) -> Concern;

    /// Evaluates a statement of a kind with [`Concern::Each`].
    fn evaluate<'a>(&self, statement: &Statement<'a>, context: &Context<'_>) -> Verdict<'a> {
        let _ = (statement, context);
        Verdict::Forward
    }

    /// Completes a statement after all rules have changed it; patterns are called in the order of phases.
    fn finish<'a>(&self, statement: &Statement<'a>) -> Verdict<'a> {
        let _ = statement;
        Verdict::Forward
    }

    /// Returns the statement of [`Verdict::Counted`] for documents whose field is of this kind only; `None` if there
    /// are no such documents.
    fn counting<'a>(&self, statement: &Statement<'a>, stored: Stored) -> Option<Operation<'a>> {
        let _ = (statement, stored);
        None
    }

    /// Returns the numbers of [`Verdict::Number`] and [`Verdict::Provides`]; `None` for patterns without such verdicts.
    fn numbering(&self) -> Option<&dyn Numbering> {
        None
    }

    /// Checks that the statement still keeps this rule after all rules have changed it.
    ///
    /// # Errors
    /// The reason why the statement would break the rule.
    fn holds(&self, statement: &Statement<'_>) -> Result<(), Rejection> {
        let _ = statement;
        Ok(())
    }

    /// The fields of a stored document that [`unmatched`](Self::unmatched) looks at.
    fn checked_fields(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Returns the field by which a client's filter checks that a stored document is unchanged since it was read. No
    /// rule makes an upsert of a statement with such a check.
    fn version(&self) -> Option<&Path> {
        None
    }

    /// Returns why this rule cannot hold if the other rule is enforced on the same namespace, as half a sentence.
    fn conflict_with(&self, other: &AnyPattern) -> Option<&'static str> {
        let _ = other;
        None
    }

    /// Handles a statement whose conditions matched nothing. `stored` is a document that the client's own filter
    /// matches.
    fn unmatched(&self, statement: &Statement<'_>, stored: Option<Document<'_>>) -> Unmatched {
        let _ = (statement, stored);
        Unmatched::Nothing
    }

    /// Returns whether the server can fail a statement because of this rule's rewriting. If so,
    /// [`explain`](Self::explain) is called.
    fn explains_errors(&self) -> bool {
        false
    }

    /// Explains a server's error that this rule's rewriting causes. `error` is a write error, or the reply of a
    /// findAndModify.
    fn explain(&self, error: Document<'_>) -> Option<Rejection> {
        let _ = error;
        None
    }

    /// Returns whether it uses the comment of the command.
    fn looks_at_comment(&self) -> bool {
        false
    }

    /// Returns whether it evaluates commands of this class as a whole; `kind` is what a write does.
    fn evaluates_command(&self, class: CommandClass, kind: Option<StatementKind>) -> bool {
        let _ = (class, kind);
        false
    }

    /// Evaluates a command as a whole, independent of its statements.
    fn evaluate_command(&self, command: &WholeCommand<'_>) -> CommandVerdict {
        let _ = command;
        CommandVerdict::Forward
    }
}

impl AnyPattern {
    /// Returns the verdict on a statement; [`Pattern::concern`] decides whether it is evaluated.
    pub fn verdict<'a>(&self, statement: &Statement<'a>, context: &Context<'_>) -> Verdict<'a> {
        match self.concern(statement.kind(), context.namespace) {
            Concern::Nothing => Verdict::Forward,
            Concern::Each => self.evaluate(statement, context),
            Concern::Unsupported => Verdict::client_pipeline(),
        }
    }

    /// Returns the verdict on a whole command; [`Pattern::evaluates_command`] decides whether it is evaluated.
    pub fn command_verdict(&self, command: &WholeCommand<'_>) -> CommandVerdict {
        if self.evaluates_command(command.class, command.kind()) {
            self.evaluate_command(command)
        } else {
            CommandVerdict::Forward
        }
    }
}

/// The concern of patterns that evaluate the content of documents: they do not evaluate deletes, and they cannot
/// analyse a client's pipeline.
fn concern_for_content(kind: StatementKind) -> Concern {
    match kind {
        StatementKind::Insert | StatementKind::Operators | StatementKind::Replacement => Concern::Each,
        StatementKind::Pipeline => Concern::Unsupported,
        StatementKind::Delete => Concern::Nothing,
    }
}

/// Reads a field path under `key`.
fn read_path(reader: &mut MapReader<'_, '_, '_>, key: &'static str) -> Option<Located<Path>> {
    let text = reader.text(key)?;
    located_path(reader.context(), text)
}

/// Reads a required field path.
fn read_required_path(reader: &mut MapReader<'_, '_, '_>, key: &'static str) -> Option<Located<Path>> {
    let text = reader.required_text(key)?;
    located_path(reader.context(), text)
}

/// Parses a field path. Reports an error if it is not one or has a numeric part.
fn located_path(context: &mut ReadContext<'_>, text: Located<String>) -> Option<Located<Path>> {
    match Path::parse(&text.value) {
        Some(path) if path.as_str().split('.').all(|part| part.parse::<u64>().is_err()) => {
            Some(Located { value: path, span: text.span })
        }
        _ => {
            let message = format!("`{}` is not a field path", text.value);
            context.error(Code::InvalidValue, text.span, message);
            None
        }
    }
}
