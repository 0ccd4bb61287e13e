//! `deny`: rejects operations, always or under a condition.
//!
//! Examples: a delete with an empty filter deletes every document; a query without maxTimeMS can run for hours; a drop
//! removes the collection with its indexes.

mod words;

use words::{OperationWord, Operator, OptionName, Shape};

use super::filter::has_no_condition;
use super::{
    AnyPattern, Applicability, CommandVerdict, Context, Pattern, Properties, Rejection, RuleView, Verdict,
    WholeCommand, defaults,
};
use crate::command::shape::{is_shape, shape, statement_shape};
use crate::command::{
    CommandClass, InputStage, Modification, Namespace, Operation, Statement, StatementKind, WriteForm, classify,
};
use crate::config::keys::{
    Boolean, Constraint, Declaration, DeclaredScalar, DescribeSchema, Keys, Keywords, Mapping, ReadValue as ValueKind,
    Setting, TextOrList, ValueSchema,
};
use crate::config::{Code, Diagnostic, MapReader, Node, ReadContext};
use crate::document::{Document, Kind, Value};
use crate::effect::touched;

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Deny {
    operations: Vec<CommandClass>,
    when: DenyCondition,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum DenyCondition {
    Always,
    /// The filter has no condition.
    FilterEmpty,
    /// The statement can change several documents.
    Multi,
    /// One of these operators occurs anywhere.
    Uses(Vec<String>),
    /// The command, or the statement in it, does not have this option.
    Without(String),
    /// The statement or command has this shape.
    Shape(String),
}

const DENIED: Setting<TextOrList<OperationWord>> = Setting::required(
    "operations",
    TextOrList(OperationWord),
    "The rejected operations. Updates and deletes include findAndModify; updates include replacements. dropDatabase is \
     rejected on each database with a collection of the rule, renameCollection from and to its collections.",
);
const WHEN: Setting<Mapping> =
    Setting::optional("when", Mapping(&CONDITIONS), "The condition. Without it, the operations are always rejected.");
const KEYS: Keys = Keys::new("Operations that are rejected, always or under a condition.", &[&DENIED, &WHEN]);

const FILTER: Setting<Keywords<()>> =
    Setting::optional("filter", Keywords(&[("empty", (), "")]), "The filter has no condition.");
const MULTI: Setting<OnlyTrue> = Setting::optional("multi", OnlyTrue, "The statement can change several documents.");
const USES: Setting<TextOrList<Operator>> =
    Setting::optional("uses", TextOrList(Operator), "One of these operators occurs anywhere.");
const WITHOUT: Setting<OptionName> =
    Setting::optional("without", OptionName, "The command does not have this option.").examples(&["maxTimeMS"]);
const SHAPE: Setting<Shape> = Setting::optional(
    "shape",
    Shape,
    "The statement or command has this shape, as audit and the decision log print it.",
)
.examples(&["deleteMany({})"]);
const CONDITIONS: Keys =
    Keys::new("", &[&FILTER, &MULTI, &USES, &WITHOUT, &SHAPE]).constrained(&[Constraint::ExactlyOneKey]);

/// For patterns that treat all collections alike.
const NOWHERE: Namespace<'static> = Namespace { database: "", collection: "" };

impl Pattern for Deny {
    fn declaration() -> Declaration {
        Declaration::mapping(&KEYS).example("{ operations: [delete] }")
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        context.mapping(settings, &KEYS, Self::read_keys)
    }

    fn makes_ineffective(&self, later: RuleView<'_>) -> bool {
        // Rules with work besides evaluation are still needed.
        if later.properties.only_names || !later.properties.also_evaluates.is_empty() {
            return false;
        }
        let later = later.pattern;
        if let AnyPattern::Deny(later) = later
            && self.when == later.when
        {
            return later.operations.iter().all(|operation| self.operations.contains(operation));
        }
        let denied = |operation: Option<CommandClass>| operation.is_some_and(|one| self.operations.contains(&one));
        let applies = |class: &CommandClass, kind| {
            later.applicability(kind, NOWHERE) != Applicability::None
                || later.evaluates_command(*class, Some(kind), NOWHERE)
        };
        let writes = |class: &CommandClass| {
            let carried = WriteForm::for_class(*class).into_iter().flat_map(WriteForm::kinds);
            carried.filter(|kind| applies(class, *kind)).all(|kind| denied(Some(operation_of(kind))))
        };
        let commands = |class: &CommandClass| {
            !later.evaluates_command(*class, None, NOWHERE) || denied(operation_of_command(*class, None))
        };
        self.when == DenyCondition::Always
            && CommandClass::DEFINING.iter().chain(&[CommandClass::RenameCollection]).all(commands)
            && CommandClass::REACHING.iter().all(|class| if class.reads() { commands(class) } else { writes(class) })
    }

    fn applicability(&self, kind: StatementKind, _: Namespace<'_>) -> Applicability {
        let applies = self.operations.contains(&operation_of(kind)) && !self.is_of_commands(kind);
        if applies { Applicability::Each } else { Applicability::None }
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, context: &Context<'_>) -> Verdict<'a> {
        if self.applies_to(statement, context) { Verdict::Reject(self.rejection()) } else { Verdict::Forward }
    }

    /// Writes by statements are evaluated as a command only for missing options of commands: other conditions apply to
    /// each statement.
    fn evaluates_command(&self, class: CommandClass, kind: Option<StatementKind>, _: Namespace<'_>) -> bool {
        let denied = operation_of_command(class, kind);
        denied.is_some_and(|denied| self.operations.contains(&denied))
            && kind.is_none_or(|kind| self.is_of_commands(kind))
    }

    fn properties(&self) -> Properties {
        let needs_more = matches!(self.when, DenyCondition::Multi | DenyCondition::Shape(_));
        Properties {
            evaluates_inputs: self.operations.contains(&CommandClass::Aggregate) && !needs_more,
            ..Properties::default()
        }
    }

    fn evaluate_input(&self, command: &WholeCommand<'_>, stage: &InputStage<'_>) -> Option<Rejection> {
        let name = stage.name;
        let reason = match &self.when {
            DenyCondition::Always => format!("its {name} reads this collection, and that is not allowed"),
            DenyCondition::FilterEmpty if reads_everything(stage) => {
                format!("its {name} has no filter, so it reads every document")
            }
            DenyCondition::Uses(operators) if uses_any(stage.settings, operators) => {
                format!("its {name} uses one of {}", operators.join(", "))
            }
            DenyCondition::Without(option) if lacks(command.body.get(option), option) => return Some(self.rejection()),
            _ => return None,
        };
        Some(Rejection::new(reason, self.rejection().hint))
    }

    fn evaluate_command(&self, command: &WholeCommand<'_>) -> CommandVerdict {
        let applies = match &self.when {
            DenyCondition::Without(option) => lacks(command.body.get(option), option),
            DenyCondition::Always => true,
            DenyCondition::Multi => false,
            DenyCondition::Shape(denied) => shape(command.body) == *denied,
            DenyCondition::FilterEmpty => command.class.reads() && is_filter_empty(command),
            // The map, reduce and finalize functions are JavaScript.
            DenyCondition::Uses(operators)
                if command.class == CommandClass::MapReduce && forbids_scripts(operators) =>
            {
                true
            }
            DenyCondition::Uses(operators) => {
                let mut evaluated = command.body.elements().filter(|element| EVALUATED.contains(&element.key));
                evaluated.any(|element| uses_any(element.value, operators))
            }
        };
        match (applies, &self.when, command.class) {
            (false, ..) => CommandVerdict::Forward,
            (true, DenyCondition::Always, CommandClass::DropDatabase) => CommandVerdict::Reject(Rejection::new(
                "this operation is not allowed on a database with a protected collection",
                self.rejection().hint,
            )),
            (true, ..) => CommandVerdict::Reject(self.rejection()),
        }
    }
}

/// The operation of a statement: updates and deletes also by findAndModify.
fn operation_of(kind: StatementKind) -> CommandClass {
    match kind {
        StatementKind::Insert => CommandClass::Insert,
        StatementKind::Operators | StatementKind::Replacement | StatementKind::Pipeline => CommandClass::Update,
        StatementKind::Delete => CommandClass::Delete,
    }
}

/// The operation of a command; `kind` is what a write does.
fn operation_of_command(class: CommandClass, kind: Option<StatementKind>) -> Option<CommandClass> {
    match class {
        // The server runs a mapReduce as an aggregation.
        CommandClass::MapReduce => Some(CommandClass::Aggregate),
        // Options of a bulkWrite are about all its collections.
        CommandClass::BulkWrite => None,
        class if class.reads() || changes_definitions(class) => Some(class),
        _ => kind.map(operation_of),
    }
}

/// Whether it drops, renames or redefines collections.
fn changes_definitions(class: CommandClass) -> bool {
    class.defines() || class == CommandClass::RenameCollection
}

/// Whether a statement or command of this operation can have this shape: `deleteMany({})` for a statement, `drop` for
/// another command.
fn has_shape(operation: CommandClass, shape: &str) -> bool {
    let of_command = |name: &str| operation_of_command(classify(name.as_bytes()), None) == Some(operation);
    let Some((name, _)) = shape.split_once('(') else { return of_command(shape) };
    match name {
        "insertOne" => operation == CommandClass::Insert,
        "updateOne" | "updateMany" | "replaceOne" | "findAndModify" => operation == CommandClass::Update,
        "deleteOne" | "deleteMany" | "findOneAndDelete" => operation == CommandClass::Delete,
        "find" | "count" | "distinct" | "aggregate" => of_command(name),
        _ => false,
    }
}

impl Deny {
    fn read_keys(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let (operations, when) = (reader.get(&DENIED), read_when(reader));
        let (operations, when) = (operations?, when?);
        for operation in operations.iter().filter(|operation| !Self::can_match(&when, operation.class)) {
            let message = format!("the condition under `when` never holds for `{}`", operation.word);
            let warning = Diagnostic::warning(Code::NeverActs, operation.span, message);
            reader.context().push(warning.help("remove it; to reject it always, write a rule without `when`"));
        }
        Some(Self { operations: operations.into_iter().map(|operation| operation.class).collect(), when })
    }

    /// Returns whether the condition is about the command that carries statements of this kind.
    fn is_of_commands(&self, kind: StatementKind) -> bool {
        let DenyCondition::Without(option) = &self.when else { return false };
        kind == StatementKind::Insert || !STATEMENT_OPTIONS.contains(&option.as_str())
    }

    /// Returns whether the condition can hold for this operation.
    fn can_match(when: &DenyCondition, operation: CommandClass) -> bool {
        match when {
            DenyCondition::Always | DenyCondition::Without(_) => true,
            DenyCondition::FilterEmpty | DenyCondition::Uses(_) => {
                operation != CommandClass::Insert && !changes_definitions(operation)
            }
            // A text that is no shape has its own warning.
            DenyCondition::Shape(shape) => !is_shape(shape) || has_shape(operation, shape),
            DenyCondition::Multi => matches!(operation, CommandClass::Update | CommandClass::Delete),
        }
    }

    fn applies_to(&self, statement: &Statement<'_>, context: &Context<'_>) -> bool {
        match (&self.when, &statement.operation) {
            (DenyCondition::Always, _) => true,
            // Every delete is limited to one document or not limited, in its form's own words.
            (DenyCondition::Without(option), Operation::Delete(delete)) if option == "limit" => delete.multi,
            (DenyCondition::Without(option), _) => lacks(statement.option(option), option),
            (DenyCondition::Shape(denied), _) => statement_shape(statement) == *denied,
            (DenyCondition::FilterEmpty, Operation::Update(update)) => has_no_condition(update.filter.as_document()),
            (DenyCondition::FilterEmpty, Operation::Delete(delete)) => has_no_condition(delete.filter.as_document()),
            (DenyCondition::Multi, Operation::Update(update)) => update.multi,
            (DenyCondition::Multi, Operation::Delete(delete)) => delete.multi,
            (DenyCondition::FilterEmpty | DenyCondition::Multi, Operation::Insert(_)) => false,
            (DenyCondition::Uses(operators), Operation::Update(update)) => {
                uses_any(Value::document(update.filter.as_document()), operators)
                    || modification_uses(&update.modification, operators)
                    || options_use(statement, context, operators)
            }
            (DenyCondition::Uses(operators), Operation::Delete(delete)) => {
                uses_any(Value::document(delete.filter.as_document()), operators)
                    || options_use(statement, context, operators)
            }
            (DenyCondition::Uses(_), Operation::Insert(_)) => false,
        }
    }

    fn rejection(&self) -> Rejection {
        match &self.when {
            DenyCondition::Always => Rejection::new(
                "this operation is not allowed on this collection",
                "Ask the DBA which operation to use instead.",
            ),
            DenyCondition::FilterEmpty => {
                Rejection::new("its filter is empty, so it applies to every document", "Add a condition to the filter.")
            }
            DenyCondition::Multi => Rejection::new("it can change several documents", "Change one document at a time."),
            DenyCondition::Uses(operators) => {
                Rejection::new(format!("it uses one of {}", operators.join(", ")), "Leave these operators out.")
            }
            DenyCondition::Shape(shape) => {
                Rejection::new(format!("it has the shape {shape}"), "Ask the DBA which operation to use instead.")
            }
            DenyCondition::Without(option) => Rejection::new(format!("it has no {option}"), format!("Set {option}.")),
        }
    }
}

/// Returns whether the filter is empty. An aggregation's filter is its first `$match`.
fn is_filter_empty(command: &WholeCommand<'_>) -> bool {
    let body = command.body;
    let filter = match command.class {
        CommandClass::Aggregate => first_match(body),
        CommandClass::Find => body.get("filter"),
        _ => body.get("query"),
    };
    filter.and_then(Value::as_document).is_none_or(has_no_condition)
}

/// The first `$match` of the pipeline in a command or stage, if that is its first stage.
fn first_match(settings: Document<'_>) -> Option<Value<'_>> {
    let stages = settings.get("pipeline").and_then(Value::as_array).unwrap_or(Document::EMPTY);
    stages.values().next().and_then(Value::as_document).and_then(|stage| stage.get("$match"))
}

/// Returns whether a stage reads all documents of its collection.
fn reads_everything(stage: &InputStage<'_>) -> bool {
    // `$unionWith: "collection"`
    let Some(settings) = stage.settings.as_document() else { return true };
    let joins_by_fields = ["connectToField", "foreignField"].iter().any(|field| settings.get(field).is_some());
    !joins_by_fields && first_match(settings).and_then(Value::as_document).is_none_or(has_no_condition)
}

/// Fields of a read command whose operators the server evaluates.
const EVALUATED: [&[u8]; 7] = [b"fields", b"filter", b"let", b"pipeline", b"projection", b"query", b"sort"];

/// Fields of a statement, beside its filter and its modification, whose operators the server evaluates.
/// `c` and `constants` are the variables of an update statement.
const EVALUATED_OPTIONS: [&str; 5] = ["arrayFilters", "c", "constants", "fields", "sort"];

/// Options that stand in an update or a delete, not in its command.
const STATEMENT_OPTIONS: [&str; 6] = ["arrayFilters", "collation", "hint", "limit", "sort", "upsert"];

/// Operators that run JavaScript.
const SCRIPTS: [&str; 3] = ["$accumulator", "$function", "$where"];

fn forbids_scripts(operators: &[String]) -> bool {
    operators.iter().any(|operator| SCRIPTS.contains(&operator.as_str()))
}

/// Returns whether an option is missing, or has a value with which the server ignores it. It rounds a limit of
/// documents (`BSONElement::safeNumberLong`), but not maxTimeMS.
fn lacks(value: Option<Value<'_>>, option: &str) -> bool {
    value.is_none_or(|value| match option {
        "limit" => value.kind == Kind::Null || value.kind.is_number() && defaults::rounds_to_zero(value),
        defaults::OPTION => defaults::is_no_limit(value),
        _ => value.kind == Kind::Null,
    })
}

fn modification_uses(modification: &Modification<'_>, operators: &[String]) -> bool {
    match modification {
        Modification::Operators(document) => touched(document.as_document())
            // Of the operators' values, only the condition of $pull is evaluated; the others are data.
            .any(|(operator, _, value)| {
                names(operators, operator) || (operator == b"$pull" && uses_any(value, operators))
            }),
        Modification::ClientPipeline(stages) => {
            uses_any(Value { kind: Kind::Array, bytes: stages.as_bytes() }, operators)
        }
        Modification::Replacement(_) | Modification::Pipeline(_) => false,
    }
}

fn options_use(statement: &Statement<'_>, context: &Context<'_>, operators: &[String]) -> bool {
    let options = EVALUATED_OPTIONS.iter().filter_map(|name| statement.option(name));
    options.chain(context.variables).any(|value| uses_any(value, operators))
}

fn names(operators: &[String], key: &[u8]) -> bool {
    operators.iter().any(|operator| operator.as_bytes() == key)
}

/// Returns whether one of the operators is a field name anywhere in the value. A regular expression as a value
/// (`{name: /x/}`) is a `$regex`.
fn uses_any(value: Value<'_>, operators: &[String]) -> bool {
    let denies_regex = names(operators, b"$regex");
    let mut unread = vec![value];
    while let Some(value) = unread.pop() {
        if denies_regex && value.kind == Kind::Regex {
            return true;
        }
        let Some(nested) = value.as_document_or_array() else { continue };
        for element in nested.elements() {
            if value.kind == Kind::Document && names(operators, element.key) {
                return true;
            }
            unread.push(element.value);
        }
    }
    false
}

/// Reads `when`, which has exactly one condition; without `when`, the rule always applies.
fn read_when(reader: &mut MapReader<'_, '_, '_>) -> Option<DenyCondition> {
    let Some(span) = reader.declared_node(&WHEN).map(|node| node.span) else { return Some(DenyCondition::Always) };
    let mut when = reader.nested(&WHEN)?;
    let named = CONDITIONS.settings.iter().filter(|setting| when.node(setting.name()).is_some()).count();
    let filter = when.get(&FILTER).map(|_| DenyCondition::FilterEmpty);
    let multi = when.get(&MULTI).map(|()| DenyCondition::Multi);
    let uses = when.get(&USES).map(DenyCondition::Uses);
    let without = when.get(&WITHOUT).map(DenyCondition::Without);
    let shape = when.get(&SHAPE).map(DenyCondition::Shape);
    when.finish();
    let (code, message) = match named {
        1 => return filter.or(multi).or(uses).or(without).or(shape),
        0 => (Code::MissingKey, "`when` needs a condition: filter, multi, uses, without or shape"),
        _ => (Code::ConflictingSettings, "`when` takes one condition; write one rule for each condition"),
    };
    reader.context().error(code, span, message);
    None
}

/// Only `true`.
#[derive(Clone, Copy, Debug)]
struct OnlyTrue;

impl DescribeSchema for OnlyTrue {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Constant(DeclaredScalar::Boolean(true))
    }
}

impl ValueKind for OnlyTrue {
    type Value = ();

    fn read(&self, context: &mut ReadContext<'_>, key: &'static str, node: &Node) -> Option<()> {
        let flag = Boolean.read(context, key, node)?;
        if !flag.value {
            context.error(Code::InvalidValue, flag.span, format!("`{key}` can only be `true` here"));
        }
        flag.value.then_some(())
    }
}
