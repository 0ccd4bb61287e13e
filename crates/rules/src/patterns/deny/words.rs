//! Reads the words of `deny`: operations, operators, options of commands, shapes.

use crate::command::shape::{CALLS, is_shape, shape};
use crate::command::{CommandClass, operators};
use crate::config::keys::{DescribeSchema, NamedSchema, ReadText, TextSchema, ValueSchema};
use crate::config::{Code, Diagnostic, Located, ReadContext, Span};
use crate::shell;
use crate::suggest;

/// The words for operations in rule files.
const OPERATIONS: [(&str, CommandClass); 14] = [
    ("insert", CommandClass::Insert),
    ("update", CommandClass::Update),
    ("delete", CommandClass::Delete),
    ("find", CommandClass::Find),
    ("count", CommandClass::Count),
    ("distinct", CommandClass::Distinct),
    ("aggregate", CommandClass::Aggregate),
    ("create", CommandClass::Create),
    ("collMod", CommandClass::CollMod),
    ("createIndexes", CommandClass::CreateIndexes),
    ("drop", CommandClass::Drop),
    ("dropDatabase", CommandClass::DropDatabase),
    ("dropIndexes", CommandClass::DropIndexes),
    ("renameCollection", CommandClass::RenameCollection),
];

const OPERATION: NamedSchema = NamedSchema {
    name: "operation",
    meaning: "",
    schema: || ValueSchema::Words(OPERATIONS.iter().map(|(word, _)| (*word, "")).collect()),
};

/// An operation as it is written.
#[derive(Debug)]
pub(super) struct WrittenOperation {
    pub(super) class: CommandClass,
    pub(super) word: String,
    pub(super) span: Span,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OperationWord;

impl DescribeSchema for OperationWord {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Shared(&OPERATION)
    }
}

impl ReadText for OperationWord {
    type Value = WrittenOperation;

    fn read_text(&self, context: &mut ReadContext<'_>, _: &str, text: Located<String>) -> Option<WrittenOperation> {
        let class = context.word(&text, "an operation", &OPERATIONS)?;
        Some(WrittenOperation { class, word: text.value, span: text.span })
    }
}

/// The name of an operator or of an aggregation stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operator;

const OPERATOR: NamedSchema = NamedSchema {
    name: "operator",
    meaning: "",
    schema: || ValueSchema::Text(TextSchema::matching("^\\$[A-Za-z_][A-Za-z0-9_]*$")),
};

impl DescribeSchema for Operator {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Shared(&OPERATOR)
    }
}

impl ReadText for Operator {
    type Value = String;

    fn read_text(&self, context: &mut ReadContext<'_>, _: &str, text: Located<String>) -> Option<String> {
        let word = text.value.strip_prefix('$').filter(|word| is_word(word));
        if word.is_none() {
            let message = format!("`{}` is not the name of an operator", text.value);
            let mistake = Diagnostic::error(Code::InvalidValue, text.span, message);
            context.push(mistake.help("write one name that begins with `$`, or a list: [$where, $function]"));
            return None;
        }
        warn_of_unknown(context, &text, "an operator", &operators().collect::<Vec<_>>());
        Some(text.value)
    }
}

/// The name of an option of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct OptionName;

const OPTION: NamedSchema = NamedSchema {
    name: "option",
    meaning: "",
    schema: || ValueSchema::Text(TextSchema::matching("^\\$?[A-Za-z_][A-Za-z0-9_]*$")),
};

/// The options of commands that a rule can deny.
const OPTIONS: &str = "\
    $readPreference allowDiskUse allowPartialResults apiDeprecationErrors apiStrict apiVersion arrayFilters \
    autocommit awaitData batchSize bypassDocumentValidation capped cappedMax cappedSize changeStreamPreAndPostImages \
    clusteredIndex collation comment commitQuorum cursor dropTarget dryRun encryptedFields expireAfterSeconds explain \
    fields filter finalize hint index indexOptionDefaults indexes key let limit lsid map max maxTimeMS min new \
    noCursorTimeout ordered out pipeline projection query querySettings readConcern recordPreImages reduce remove \
    returnKey scope showRecordId singleBatch size skip sort startTransaction storageEngine tailable timeseries \
    txnNumber update upsert validationAction validationLevel validator viewOn writeConcern";

impl DescribeSchema for OptionName {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Shared(&OPTION)
    }
}

impl ReadText for OptionName {
    type Value = String;

    fn read_text(&self, context: &mut ReadContext<'_>, _: &str, text: Located<String>) -> Option<String> {
        if !is_word(text.value.trim_start_matches('$')) {
            let message = format!("`{}` is not the name of an option", text.value);
            let mistake = Diagnostic::error(Code::InvalidValue, text.span, message);
            context.push(mistake.help("write the name of one option of a command, such as `maxTimeMS`"));
            return None;
        }
        warn_of_unknown(context, &text, "an option of a command", &OPTIONS.split(' ').collect::<Vec<_>>());
        Some(text.value)
    }
}

/// A shape, as audit and the decision log print it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape;

const SHAPE: NamedSchema = NamedSchema { name: "shape", meaning: "", schema: || ValueSchema::Text(TextSchema::ANY) };

impl DescribeSchema for Shape {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Shared(&SHAPE)
    }
}

impl ReadText for Shape {
    type Value = String;

    fn read_text(&self, context: &mut ReadContext<'_>, _: &str, text: Located<String>) -> Option<String> {
        if !is_shape(&text) {
            let message = format!("`{}` is not written as docward writes shapes, so no statement has it", text.value);
            let warning = Diagnostic::warning(Code::DoubtfulName, text.span, message);
            context.push(
                warning.help(match shape_of_command(&text) {
                    Some(shape) => format!("write `{shape}`"),
                    None if text.contains('*') => "a shape has no wildcards; write a rule for each shape".to_owned(),
                    None => {
                        "copy the shape from `docward audit` or the decision log: `updateOne({_id}, {$set: {status}})`"
                            .to_owned()
                    }
                }),
            );
        }
        Some(text.value)
    }
}

/// Methods of drivers, and the names that shapes have for their commands.
const METHODS: [(&str, &str); 4] = [
    ("findOne", "find"),
    ("findOneAndReplace", "findAndModify"),
    ("findOneAndUpdate", "findAndModify"),
    ("insertMany", "insertOne"),
];

/// The shape that is probably meant by a text: another name, or a command in mongosh syntax.
fn shape_of_command(text: &str) -> Option<String> {
    let (name, arguments) = text.split_once('(').unwrap_or((text, ""));
    let calls = || CALLS.iter().map(|(call, _)| *call);
    if let Some((_, call)) = METHODS.iter().find(|(method, _)| *method == name) {
        return Some(format!("{call}({arguments}")).filter(|shape| is_shape(shape));
    }
    if let Some(call) = suggest::nearest(name, calls()).filter(|call| *call != name) {
        return Some(format!("{call}({arguments}")).filter(|shape| is_shape(shape));
    }
    let with_collection = format!("db.c.{text}");
    let parsed = [text, &with_collection].into_iter().find_map(|text| shell::parse(text, "test").ok())?;
    parsed.commands.first().map(|command| shape(command.as_document()))
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Warns about a word that docward does not know; a newer server may know it.
fn warn_of_unknown(context: &mut ReadContext<'_>, text: &Located<String>, what: &str, known: &[&str]) {
    if known.contains(&text.value.as_str()) {
        return;
    }
    let message = format!("docward does not know `{}` as {what}", text.value);
    let warning = Diagnostic::warning(Code::DoubtfulName, text.span, message);
    context.push(warning.did_you_mean(&text.value, known.iter().copied()));
}
