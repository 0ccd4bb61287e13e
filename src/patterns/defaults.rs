//! `defaults`: options that commands get where they have none.

use super::{CommandVerdict, Judge, Phase, WholeCommand};
use crate::command::Class;
use crate::document::OwnedValue;
use crate::rules::MapReader;

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Defaults {
    /// Milliseconds after which the server gives up.
    max_time: i32,
}

const OPTION: &str = "maxTimeMS";

impl Judge for Defaults {
    fn name(&self) -> &'static str {
        "defaults"
    }

    fn phase(&self) -> Phase {
        Phase::Defaults
    }

    fn rewriting(&self) -> &'static str {
        "it has no such option, and gets the rule's"
    }

    /// getMore takes the option of the command that opened its cursor.
    fn judge_command(&self, command: &WholeCommand<'_>) -> CommandVerdict {
        let takes_it = matches!(
            command.class,
            Class::Find
                | Class::Count
                | Class::Distinct
                | Class::Aggregate
                | Class::Insert
                | Class::Update
                | Class::Delete
                | Class::FindAndModify
        );
        if takes_it && command.body.get(OPTION).is_none() {
            return CommandVerdict::Set(OPTION, OwnedValue::int32(self.max_time));
        }
        CommandVerdict::Forward
    }
}

impl Defaults {
    pub(super) fn read(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let max_time = reader.required(OPTION, |reader, key| reader.integer_in(key, 1..=i64::from(i32::MAX)))?;
        Some(Self { max_time: max_time.value as i32 })
    }
}
