//! `defaults`: adds options to commands that do not set them.

use std::cmp::Ordering;

use super::number::{Bound, sign};
use super::{Applicability, CommandVerdict, Pattern, Properties, WholeCommand};
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

    fn properties(&self) -> Properties {
        Properties { rewriting: "adds maxTimeMS from the rule", exclusive: true, ..Properties::default() }
    }

    fn applicability(&self, _: StatementKind, _: Namespace<'_>) -> Applicability {
        Applicability::None
    }

    fn can_reject(&self, _: CommandClass, _: Namespace<'_>) -> bool {
        false
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

/// Returns whether the server treats the value as no limit: 0 and null. It rounds a Decimal128, and NaN to 0.
pub(super) fn is_no_limit(max_time: Value<'_>) -> bool {
    max_time.kind == Kind::Null
        || sign(max_time) == Some(Ordering::Equal)
        || (max_time.kind == Kind::Decimal128 && rounds_to_zero(max_time))
}

/// Returns whether the server may read a number as 0: a fraction below 1, or NaN.
pub(super) fn rounds_to_zero(number: Value<'_>) -> bool {
    let (below, above) = (Bound::Integer(-1).compare(number), Bound::Integer(1).compare(number));
    matches!(below, Some(Ordering::Greater) | None) && matches!(above, Some(Ordering::Less) | None)
}

impl Defaults {
    fn read_keys(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let max_time = reader.get(&MAX_TIME)?;
        Some(Self { max_time: max_time.value as i32 })
    }
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc, raw::RawDocumentBuf};

    use super::*;
    use crate::document::Document;

    #[test]
    fn what_the_server_rounds_to_zero_is_no_limit() {
        let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
        let check = |value: Bson| {
            let raw = RawDocumentBuf::try_from(&doc! {"v": value}).unwrap().into_bytes();
            is_no_limit(Document::parse(&raw).unwrap().get("v").unwrap())
        };
        let (zero, one) = (Bson::Int32(0), Bson::Int64(1));
        for value in
            [zero, Bson::Null, Bson::Double(-0.0), decimal("0E+3"), decimal("0.4"), decimal("-0.4"), decimal("NaN")]
        {
            assert!(check(value.clone()), "{value}");
        }
        for value in [one, decimal("1.0"), decimal("Infinity"), Bson::Double(0.4), Bson::from("0")] {
            assert!(!check(value.clone()), "{value}");
        }
    }
}
