//! Omits statements that another command shows: the writes of an aggregation with `$merge`, and the lines of statements
//! whose command is in another file, because the log was rotated between them for example.

use std::collections::{HashMap, VecDeque};

use super::recorded::{RecordedCommand, RecordedContent, statement};
use super::target::target;
use crate::command::{CommandClass, Statement, WriteForm, output_targets};
use crate::document::{CowDocument, Document, Path, PathLookup};

/// The most commands held: an aggregation comes after its writes.
const MAX_HELD: usize = 10_000;

/// How much later than its end a command is logged, in milliseconds.
const MAX_DELAY: i64 = 100;

/// Takes commands in the order of their times.
#[derive(Debug, Default)]
pub struct RepeatedStatements {
    /// `None`: omitted.
    held: VecDeque<Option<RecordedCommand>>,
    /// The number of commands before them.
    given: usize,
    /// By connection: the numbers of the commands that are single statements.
    statements: HashMap<u64, VecDeque<usize>>,
    /// The other commands of the last millisecond; their statements can come after them.
    latest: Vec<usize>,
    milliseconds: Option<i64>,
}

impl RepeatedStatements {
    /// Adds a command, and calls `out` with those that are due.
    pub fn add(&mut self, command: RecordedCommand, out: &mut impl FnMut(RecordedCommand)) {
        if self.milliseconds != command.milliseconds {
            self.milliseconds = command.milliseconds;
            self.omit();
        }
        let number = self.given + self.held.len();
        if command.partial {
            self.statements.entry(command.client.connection).or_default().push_back(number);
        } else {
            self.latest.push(number);
        }
        self.held.push_back(Some(command));
        if self.held.len() > MAX_HELD {
            self.give(out);
        }
    }

    /// Calls `out` with all commands that are still held.
    pub fn finish(&mut self, out: &mut impl FnMut(RecordedCommand)) {
        self.omit();
        while !self.held.is_empty() {
            self.give(out);
        }
    }

    fn give(&mut self, out: &mut impl FnMut(RecordedCommand)) {
        let Some(first) = self.held.pop_front() else { return };
        self.given += 1;
        let Some(command) = first else { return };
        if let Some(numbers) = self.statements.get_mut(&command.client.connection).filter(|_| command.partial) {
            numbers.pop_front_if(|number| *number < self.given);
            if numbers.is_empty() {
                self.statements.remove(&command.client.connection);
            }
        }
        out(command);
    }

    /// Omits what the latest commands repeat.
    fn omit(&mut self) {
        for number in std::mem::take(&mut self.latest) {
            let held = |number: usize| self.held.get(number.checked_sub(self.given)?)?.as_ref();
            let Some(command) = held(number) else { continue };
            let Some(numbers) = self.statements.get(&command.client.connection) else { continue };
            let Some(mut contained) = ContainedStatements::from_command(command) else { continue };
            let took = i64::try_from(command.took.unwrap_or_default()).unwrap_or_default();
            let start = command.milliseconds.map(|end| end - took - MAX_DELAY);
            let recent = numbers.iter().rev().map(|number| (*number, held(*number)));
            let recent = recent.take_while(|(_, one)| one.is_none_or(|one| one.milliseconds >= start));
            let found = recent.filter(|(_, one)| one.is_some_and(|one| contained.take(one)));
            let mut repeated: Vec<usize> = found.map(|(number, _)| number).collect();
            if let Some(numbers) = self.statements.get_mut(&command.client.connection) {
                numbers.retain(|number| !repeated.contains(number));
            }
            // The statements show more than a command without them.
            if matches!(contained, ContainedStatements::Unknown(..)) && !repeated.is_empty() {
                repeated = vec![number];
            }
            for number in repeated {
                self.held.get_mut(number - self.given).into_iter().for_each(|one| *one = None);
            }
        }
    }
}

/// The statements that a command contains.
enum ContainedStatements {
    /// Those of a collection, of an update or delete.
    Unknown(String, CommandClass),
    Known(String, Vec<CowDocument<'static>>),
    /// Those of an aggregation, in these collections.
    OfMerge(Vec<String>),
}

impl ContainedStatements {
    fn from_command(command: &RecordedCommand) -> Option<Self> {
        let command = match &command.content {
            RecordedContent::UnknownStatements(unknown) => {
                let name = format!("{}.{}", unknown.database, unknown.collection);
                return Some(Self::Unknown(name, unknown.class));
            }
            RecordedContent::Command(command) => command.as_document(),
        };
        let (namespace, class, _) = target(command)?;
        let form = match (class, WriteForm::for_class(class)) {
            (CommandClass::Aggregate, _) => {
                let targets = output_targets(command, namespace.database).into_iter().flatten();
                let names: Vec<String> =
                    targets.map(|(database, collection)| format!("{database}.{collection}")).collect();
                return (!names.is_empty()).then_some(Self::OfMerge(names));
            }
            (_, Some(form @ (WriteForm::Update | WriteForm::Delete))) => form,
            _ => return None,
        };
        let statements = form.statements(command).map(|one| statement(form, one));
        Some(Self::Known(namespace.to_string(), statements.collect()))
    }

    /// Takes a statement out of them; returns false if they do not contain it.
    fn take(&mut self, recorded: &RecordedCommand) -> bool {
        let RecordedContent::Command(command) = &recorded.content else { return false };
        let command = command.as_document();
        let Some((namespace, class, _)) = target(command) else { return false };
        let name = namespace.to_string();
        let form = WriteForm::for_class(class);
        let Some(statement) = form.and_then(|form| form.statements(command).next()) else { return false };
        match self {
            Self::Unknown(of, of_class) => *of == name && *of_class == class,
            Self::OfMerge(targets) => targets.contains(&name) && can_be_of_merge(command),
            Self::Known(of, statements) => {
                let same = |one: &CowDocument<'static>| one.as_document().as_bytes() == statement.as_bytes();
                let found = statements.iter().position(same).filter(|_| *of == name);
                found.map(|at| statements.swap_remove(at)).is_some()
            }
        }
    }
}

/// Whether a `$merge` can have made a statement: what it writes contains the values by which it finds its document.
fn can_be_of_merge(command: Document<'_>) -> bool {
    let Some(write) = Statement::first_of(command).filter(|write| !write.filter().is_empty()) else { return false };
    let set = || write.operators()?.get("$set")?.as_document();
    let new = || write.constants()?.get("new")?.as_document();
    let Some(written) = write.stored().or_else(set).or_else(new) else { return false };
    write.filter().elements().all(|element| {
        let path = std::str::from_utf8(element.key).ok().and_then(Path::parse);
        path.is_some_and(|path| matches!(path.lookup(written), PathLookup::Found(value) if value == element.value))
    })
}
