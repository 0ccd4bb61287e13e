//! `defaults`: options that commands get where they have none.

use super::number::sign;
use super::{CommandVerdict, Concern, Evaluate, Phase, WholeCommand};
use crate::command::{Class, Namespace, StatementKind};
use crate::document::{Kind, OwnedValue, Value};
use crate::rules::MapReader;

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Defaults {
    /// Milliseconds after which the server gives up.
    max_time: i32,
}

pub(super) const OPTION: &str = "maxTimeMS";

impl Evaluate for Defaults {
    fn name(&self) -> &'static str {
        "defaults"
    }

    fn phase(&self) -> Phase {
        Phase::Defaults
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn concern(&self, _: StatementKind, _: Namespace<'_>) -> Concern {
        Concern::Nothing
    }

    fn rewriting(&self) -> &'static str {
        "it has no such option, and gets the rule's"
    }

    /// getMore takes the option of the command that opened its cursor.
    fn evaluates_command(&self, class: Class, _: Option<StatementKind>) -> bool {
        class.reads() || matches!(class, Class::Insert | Class::Update | Class::Delete | Class::FindAndModify)
    }

    fn evaluate_command(&self, command: &WholeCommand<'_>) -> CommandVerdict {
        if command.body.get(OPTION).is_none_or(is_no_limit) {
            return CommandVerdict::Set(OPTION, OwnedValue::int32(self.max_time));
        }
        CommandVerdict::Forward
    }
}

/// The server takes 0 and null as no limit.
pub(super) fn is_no_limit(max_time: Value<'_>) -> bool {
    max_time.kind == Kind::Null || sign(max_time) == Some(std::cmp::Ordering::Equal)
}

impl Defaults {
    pub(super) fn read(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let max_time = reader.required(OPTION, |reader, key| reader.integer_in(key, 1..=i64::from(i32::MAX)))?;
        Some(Self { max_time: max_time.value as i32 })
    }
}
