//! `defaults`: adds options to commands that do not set them.

use super::number::sign;
use super::{Applicability, CommandVerdict, Pattern, WholeCommand};
use crate::command::{CommandClass, Namespace, StatementKind};
use crate::config::keys::{Declaration, Keys, Setting, WholeNumber};
use crate::config::{MapReader, Node, ReadContext};
use crate::document::{Kind, OwnedValue, Value};

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Defaults {
    /// Milliseconds after which the server stops a command.
    max_time: i32,
}

pub(super) const OPTION: &str = "maxTimeMS";

const MAX_TIME: Setting<WholeNumber> = Setting::required(
    OPTION,
    WholeNumber(1..=i32::MAX as i64),
    "Milliseconds after which the server stops a find, count, distinct, aggregate, insert, update, delete or findAndModify.",
);
const KEYS: Keys = Keys::new("Options that are added to commands that do not set them.", &[&MAX_TIME]);

impl Pattern for Defaults {
    fn declaration() -> Declaration {
        Declaration::mapping(&KEYS)
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        context.mapping(settings, &KEYS, Self::read_keys)
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn applicability(&self, _: StatementKind, _: Namespace<'_>) -> Applicability {
        Applicability::None
    }

    fn rewriting(&self) -> &'static str {
        "adds maxTimeMS from the rule"
    }

    /// getMore uses the option of the command that opened its cursor.
    fn evaluates_command(&self, class: CommandClass, _: Option<StatementKind>, _: Namespace<'_>) -> bool {
        class.reads()
            || matches!(
                class,
                CommandClass::Insert | CommandClass::Update | CommandClass::Delete | CommandClass::FindAndModify
            )
    }

    fn evaluate_command(&self, command: &WholeCommand<'_>) -> CommandVerdict {
        if command.body.get(OPTION).is_none_or(is_no_limit) {
            return CommandVerdict::Set(OPTION, OwnedValue::int32(self.max_time));
        }
        CommandVerdict::Forward
    }
}

/// Returns whether the server treats the value as no limit: 0 and null.
pub(super) fn is_no_limit(max_time: Value<'_>) -> bool {
    max_time.kind == Kind::Null || sign(max_time) == Some(std::cmp::Ordering::Equal)
}

impl Defaults {
    fn read_keys(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let max_time = reader.get(&MAX_TIME)?;
        Some(Self { max_time: max_time.value as i32 })
    }
}
