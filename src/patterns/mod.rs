//! The patterns: one file each, from what the user writes to the judgement.
//!
//! A pattern looks at one [`Statement`] and gives a [`Verdict`]; it does no I/O, reads no clock and knows
//! neither batches nor replies. A new pattern is a copy of a neighbour, plus its lines in [`Pattern`].
//! What becomes of verdicts: `crate::engine`.

mod bounds;
mod bucket;
pub mod copies;
mod defaults;
mod deny;
pub(crate) mod filter;
mod literal;
mod number;
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

use crate::command::{Class, Namespace, Operation, Statement, StatementKind, code, shorten};
use crate::document::{Document, OwnedValue, Path, Value};
use crate::rules::{
    self, Claim, Code, Diagnostic, Located, MapReader, NamespacePattern, Node, ReadContext, WeakerSetting,
};
use bounds::Bounds;
use bucket::Bucket;
use copies::Copies;
use defaults::Defaults;
use deny::Deny;
use procedure::Procedure;
use queue::Queue;
use reads::Reads;
use replacement::Replacement;
use sequence::Sequence;
use timestamps::Timestamps;
use together::Together;
use tree::Tree;

/// JSON Schema (draft 2020-12) of rule files: what editors complete and explain. It says the same as the
/// readers here as far as a schema can; `tests/schema.rs` holds the two together.
pub const SCHEMA: &str = include_str!("schema.json");

/// The rules docward runs by.
pub type RuleSet = rules::RuleSet<Pattern>;
/// One of them.
pub type Rule = rules::Rule<Pattern>;

/// One pattern with its settings.
#[derive(Debug, Clone)]
pub enum Pattern {
    Bounds(Bounds),
    Bucket(Bucket),
    Copies(Copies),
    Defaults(Defaults),
    Deny(Deny),
    Queue(Queue),
    Reads(Reads),
    Replacement(Replacement),
    Sequence(Sequence),
    Timestamps(Timestamps),
    Together(Together),
    Tree(Tree),
}

/// What a pattern says of a statement.
#[derive(Debug, Clone)]
pub enum Verdict<'a> {
    /// It may pass as it is.
    Forward,
    /// This takes its place.
    Rewrite(Rewrite<'a>),
    /// This takes its place, which increments a field. Whether what is stored there can be incremented is not known
    /// before; [`Evaluate::counting`] gives the statement for each case.
    Counted(Operation<'a>),
    /// It may only insert: rejected if the client's filter matches a document, else this takes its place.
    OnlyNew(Operation<'a>, Rejection),
    /// It needs a number of this rule's sequence; [`Sequence::assign`] puts it in.
    Allocate,
    /// It may pass, as it is or so, and brings numbers that this rule's sequence must not issue any more.
    Brings(Option<Operation<'a>>),
    /// It needs more than itself: looks and further statements, in one transaction with it.
    Procedure(Arc<dyn Procedure>),
    Reject(Rejection),
    /// It cannot be analysed: rejected, unless the rule says `unsupported: allow`.
    Unsupported(Rejection),
}

/// What a document holds in a field that is to be incremented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// A number, or nothing.
    Number,
    /// Something else.
    Other,
    /// A field on the way is no document: the server can put nothing there.
    Unreachable,
}

impl Stored {
    /// Every document is of one of these kinds.
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
    /// Whether matching nothing may be an error: then [`Evaluate::unmatched`] decides.
    pub checks_match: bool,
}

/// What it means that a statement with a rule's conditions matched nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unmatched {
    /// The client gets the server's n: 0.
    Nothing,
    Reject(Rejection),
}

/// Why a statement is refused, for the application's developer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// A server error code.
    pub code: i32,
    /// What is wrong, as half a sentence: "it replaces the whole document".
    pub reason: String,
    /// What to do instead, as a sentence.
    pub hint: String,
}

/// Bytes of a reason, and of a hint: they may have names and values of a client's in them, which can be as long as a
/// message.
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

    fn unsupported(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Unsupported(Rejection::new(reason, hint))
    }

    fn rewrite(operation: Operation<'a>) -> Self {
        Self::Rewrite(Rewrite { operation, checks_match: false })
    }

    /// A pipeline update that the client wrote; no pattern looks into those.
    fn client_pipeline() -> Self {
        Self::unsupported(
            "it is an aggregation pipeline, which can change any field",
            "Use update operators such as $set.",
        )
    }
}

/// What a judgement may know besides the statement.
#[derive(Debug, Clone, Copy)]
pub struct Context<'c> {
    /// Wall clock of the proxy when the message arrived, in milliseconds since 1970 UTC.
    pub now: i64,
    /// The command's `comment`.
    pub comment: Option<Value<'c>>,
    /// The command's `let`.
    pub variables: Option<Value<'c>>,
    /// Where the statement writes; a rule may evaluate several namespaces.
    pub namespace: Namespace<'c>,
    /// The [`version`](Evaluate::version) of each rule of that namespace that has one.
    pub versions: &'c [&'c Path],
}

/// A command on a protected collection, for rules about reads and about options.
#[derive(Debug, Clone, Copy)]
pub struct WholeCommand<'c> {
    pub class: Class,
    pub body: Document<'c>,
}

impl WholeCommand<'_> {
    /// What a write does, as far as the command as a whole tells: an update may be of any kind.
    fn kind(&self) -> Option<StatementKind> {
        match self.class {
            Class::Insert => Some(StatementKind::Insert),
            Class::Update => Some(StatementKind::Operators),
            Class::Delete => Some(StatementKind::Delete),
            Class::FindAndModify if self.body.get("remove").and_then(Value::as_flag) == Some(true) => {
                Some(StatementKind::Delete)
            }
            Class::FindAndModify => Some(StatementKind::Operators),
            _ => None,
        }
    }
}

/// What a pattern says of a whole command.
#[derive(Debug, Clone)]
pub enum CommandVerdict {
    Forward,
    /// The body gets this field, in the place of one it may have.
    Set(&'static str, OwnedValue),
    /// It passes, and the DBA is told.
    Warn(Rejection),
    /// Documents must be looked at first.
    Ask(Arc<dyn CollectionQuery>),
    Reject(Rejection),
}

/// What a pattern must know of the collection before it can speak of a command.
pub trait CollectionQuery: std::fmt::Debug + Send + Sync {
    /// Which documents are to be looked at, as BSON.
    fn filter(&self) -> Vec<u8>;

    /// The projection, as BSON.
    fn fields(&self) -> Vec<u8>;

    /// The verdict in view of them; not another question. `found` is empty too where they could not be read.
    fn conclude(&self, command: &WholeCommand<'_>, found: &[Document<'_>]) -> CommandVerdict;
}

/// The order in which patterns see a statement, whatever the order in the files; each sees what the one
/// before made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Deny,
    Replacement,
    Together,
    Copies,
    Bounds,
    Queue,
    Bucket,
    Tree,
    Timestamps,
    Sequence,
    Defaults,
    /// Never comes: `reads` evaluates nothing.
    Reads,
}

/// What a pattern does about all statements of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concern {
    /// They pass, unseen.
    Nothing,
    /// It evaluates each.
    Each,
    /// None can be analysed.
    Unsupported,
}

/// An index that a pattern relies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededIndex {
    /// On which collection; `None`: on each of the rule's own.
    pub collection: Option<NamespacePattern>,
    pub field: String,
    pub purpose: IndexPurpose,
    /// What goes wrong without it, as half a sentence: "every move scans the collection".
    pub without: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexPurpose {
    /// No two documents have one value: a unique index that has the field in its key.
    Unique,
    /// The field is searched by ranges of its values: the first of an ordered index's key.
    Range,
    /// The field is searched by single values: as `Range`, or hashed.
    Equality,
    /// No index is unique, but for one that has the field in its key: documents that share all other fields are many.
    NotUnique,
}

/// What every pattern is.
pub trait Evaluate {
    /// The key in rule files.
    fn name(&self) -> &'static str;

    fn phase(&self) -> Phase;

    /// What its rewriting does, as half a sentence for people; empty where it never rewrites.
    fn rewriting(&self) -> &'static str {
        ""
    }

    /// One rule of this pattern applies for a namespace, the most specific.
    fn exclusive(&self) -> bool {
        false
    }

    /// What it sees to less strictly than other settings of the same pattern would.
    fn weaker_settings(&self) -> Vec<WeakerSetting> {
        Vec::new()
    }

    /// Whether it evaluates what is sent to its namespaces, rather than only naming them.
    fn evaluates(&self) -> bool {
        true
    }

    /// The indexes it relies on. Without them it is slow, or what it promises is not kept.
    fn needed_indexes(&self) -> Vec<NeededIndex> {
        Vec::new()
    }

    /// Fields that no other rule of this pattern may claim on the same namespace.
    fn claims(&self) -> Vec<Claim> {
        Vec::new()
    }

    /// Namespaces besides the rule's own whose statements it evaluates too.
    fn also_evaluates(&self) -> Vec<NamespacePattern> {
        Vec::new()
    }

    /// What it does about the statements of a kind that write to `namespace`.
    fn concern(&self, kind: StatementKind, namespace: Namespace<'_>) -> Concern;

    /// What becomes of a statement whose kind is a concern.
    fn evaluate<'a>(&self, statement: &Statement<'a>, context: &Context<'_>) -> Verdict<'a> {
        let _ = (statement, context);
        Verdict::Forward
    }

    /// Adds to a statement what must be added after all rules have changed it; it comes in the order of phases.
    fn finish<'a>(&self, statement: &Statement<'a>) -> Verdict<'a> {
        let _ = statement;
        Verdict::Forward
    }

    /// What [`Verdict::Counted`] made, for those documents alone whose field is of this kind. `None` if there can be none.
    fn counting<'a>(&self, statement: &Statement<'a>, stored: Stored) -> Option<Operation<'a>> {
        let _ = (statement, stored);
        None
    }

    /// Whether this rule's promise is kept by the statement as it will be sent, after all rules.
    ///
    /// # Errors
    /// How it would be broken.
    fn holds(&self, statement: &Statement<'_>) -> Result<(), Rejection> {
        let _ = statement;
        Ok(())
    }

    /// The fields of a stored document that [`unmatched`](Self::unmatched) looks at.
    fn checked_fields(&self) -> Vec<&str> {
        Vec::new()
    }

    /// The field by which a client's filter checks that a stored document is still as it was read. A statement with such
    /// a check is about that document, so no rule makes an upsert of it.
    fn version(&self) -> Option<&Path> {
        None
    }

    /// How a promise of this rule breaks, whatever is sent, where the other rule is enforced beside it; as half a sentence.
    fn undone_by(&self, other: &Pattern) -> Option<&'static str> {
        let _ = other;
        None
    }

    /// The statement with its conditions matched nothing, while the client's filter matches `stored`; or nothing either.
    fn unmatched(&self, statement: &Statement<'_>, stored: Option<Document<'_>>) -> Unmatched {
        let _ = (statement, stored);
        Unmatched::Nothing
    }

    /// Whether the server may fail a statement because of what this rule made of it, so that [`explain`](Self::explain)
    /// is to be asked.
    fn explains_errors(&self) -> bool {
        false
    }

    /// What a server's error comes of, where it is this rule's rewriting. `error` is a write error, or the reply of a
    /// findAndModify.
    fn explain(&self, error: Document<'_>) -> Option<Rejection> {
        let _ = error;
        None
    }

    /// Whether its judgement of a statement looks at the comment of the command.
    fn looks_at_comment(&self) -> bool {
        false
    }

    /// Whether it has anything to say of commands of this class as a whole; `kind` is what a write does.
    fn evaluates_command(&self, class: Class, kind: Option<StatementKind>) -> bool {
        let _ = (class, kind);
        false
    }

    /// What becomes of a command as a whole, whatever statements it carries.
    fn evaluate_command(&self, command: &WholeCommand<'_>) -> CommandVerdict {
        let _ = command;
        CommandVerdict::Forward
    }
}

impl Pattern {
    /// What becomes of a statement; [`Evaluate::concern`] decides whether it is looked at.
    pub fn verdict<'a>(&self, statement: &Statement<'a>, context: &Context<'_>) -> Verdict<'a> {
        match self.concern(statement.kind(), context.namespace) {
            Concern::Nothing => Verdict::Forward,
            Concern::Each => self.evaluate(statement, context),
            Concern::Unsupported => Verdict::client_pipeline(),
        }
    }

    /// What becomes of a command as a whole; [`Evaluate::evaluates_command`] decides whether it is looked at.
    pub fn command_verdict(&self, command: &WholeCommand<'_>) -> CommandVerdict {
        if self.evaluates_command(command.class, command.kind()) {
            self.evaluate_command(command)
        } else {
            CommandVerdict::Forward
        }
    }
}

/// What patterns do that evaluate whatever a document will hold: deleting is no concern of theirs, and a pipeline of
/// the client's cannot be analysed.
fn concern_for_content(kind: StatementKind) -> Concern {
    match kind {
        StatementKind::Insert | StatementKind::Operators | StatementKind::Replacement => Concern::Each,
        StatementKind::Pipeline => Concern::Unsupported,
        StatementKind::Delete => Concern::Nothing,
    }
}

impl std::ops::Deref for Pattern {
    type Target = dyn Evaluate;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Bounds(pattern) => pattern,
            Self::Bucket(pattern) => pattern,
            Self::Copies(pattern) => pattern,
            Self::Defaults(pattern) => pattern,
            Self::Deny(pattern) => pattern,
            Self::Queue(pattern) => pattern,
            Self::Reads(pattern) => pattern,
            Self::Replacement(pattern) => pattern,
            Self::Sequence(pattern) => pattern,
            Self::Timestamps(pattern) => pattern,
            Self::Together(pattern) => pattern,
            Self::Tree(pattern) => pattern,
        }
    }
}

impl rules::Pattern for Pattern {
    const NAMES: &'static [&'static str] = &[
        "replacement",
        "timestamps",
        "sequence",
        "bounds",
        "together",
        "queue",
        "bucket",
        "copies",
        "tree",
        "reads",
        "deny",
        "defaults",
    ];

    fn read(name: &'static str, settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        match name {
            "copies" => return Copies::read(settings, context).map(Self::Copies),
            "together" => return Together::read(settings, context).map(Self::Together),
            _ => {}
        }
        let mut reader = context.map(settings)?;
        let pattern = match name {
            "bounds" => Bounds::read(&mut reader).map(Self::Bounds),
            "bucket" => Bucket::read(&mut reader).map(Self::Bucket),
            "defaults" => Defaults::read(&mut reader).map(Self::Defaults),
            "deny" => Deny::read(&mut reader).map(Self::Deny),
            "queue" => Queue::read(&mut reader).map(Self::Queue),
            "reads" => Reads::read(&mut reader).map(Self::Reads),
            "replacement" => Replacement::read(&mut reader).map(Self::Replacement),
            "sequence" => Sequence::read(&mut reader).map(Self::Sequence),
            "timestamps" => Timestamps::read(&mut reader).map(Self::Timestamps),
            "tree" => Tree::read(&mut reader).map(Self::Tree),
            _ => None,
        };
        reader.finish();
        pattern
    }

    fn name(&self) -> &'static str {
        Evaluate::name(&**self)
    }

    fn phase(&self) -> u8 {
        Evaluate::phase(&**self) as u8
    }

    fn exclusive(&self) -> bool {
        Evaluate::exclusive(&**self)
    }

    fn evaluates(&self) -> bool {
        Evaluate::evaluates(&**self)
    }

    fn silences(&self, later: &Self) -> bool {
        matches!(self, Self::Deny(deny) if deny.silences(later))
    }

    fn weaker_settings(&self) -> Vec<WeakerSetting> {
        Evaluate::weaker_settings(&**self)
    }

    fn claims(&self) -> Vec<Claim> {
        Evaluate::claims(&**self)
    }

    fn also_evaluates(&self) -> Vec<NamespacePattern> {
        Evaluate::also_evaluates(&**self)
    }

    fn acquaint(rules: &mut [Rule]) {
        sequence::share_counters(rules);
    }

    fn contradictions(rules: &[&Rule]) -> Vec<Diagnostic> {
        copies::contradictions(rules)
    }
}

/// Reads a field path under `key`.
fn read_path(reader: &mut MapReader<'_, '_, '_>, key: &'static str) -> Option<Located<Path>> {
    let text = reader.text(key)?;
    located_path(reader.context(), text)
}

/// Reads a field path that must be there.
fn read_required_path(reader: &mut MapReader<'_, '_, '_>, key: &'static str) -> Option<Located<Path>> {
    let text = reader.required_text(key)?;
    located_path(reader.context(), text)
}

fn located_path(context: &mut ReadContext<'_>, text: Located<String>) -> Option<Located<Path>> {
    match Path::parse(&text.value) {
        Some(path) if path.as_str().split('.').all(|part| part.parse::<u64>().is_err()) => {
            Some(Located { value: path, span: text.span })
        }
        _ => {
            let message = format!("`{}` is no field path", text.value);
            context.error(Code::InvalidValue, text.span, message);
            None
        }
    }
}
