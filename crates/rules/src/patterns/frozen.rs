//! `frozen`: fields that are written once and never changed.
//!
//! An order belongs to a customer. A form that saves what it read an hour ago, or a script with a wrong filter, moves the
//! order to another one, and its invoice with it.
//!
//! A document gets each field once: when it is inserted, or later if the field is missing; `null` is a value. Whether a
//! statement changes the field depends on what is stored. So a statement that leaves the fields out is forwarded, and one that
//! names them is checked: the values before and after it are the same.

use super::field_path::{ChangingField, overlap};
use super::plain::{self, PlainWrite};
use super::promise::{BeforeAndAfter, Broken, Facts, held, shown};
use super::stored_data::{DataCheck, is_missing};
use super::{AnyPattern, Applicability, Context, Pattern, Procedures, Properties, Rejection, RuleView, Verdict};
use crate::command::{Namespace, Operation, Statement, StatementKind};
use crate::config::keys::{Declaration, DescribeSchema, ReadValue, TextOrList};
use crate::config::{Code, Node, ReadContext};
use crate::document::Path;

/// Settings of the pattern: at least one field.
#[derive(Debug, Clone)]
pub struct Frozen {
    fields: Vec<Path>,
}

impl Pattern for Frozen {
    fn declaration() -> Declaration {
        Declaration {
            meaning: "Fields that are written once and never changed.",
            schema: TextOrList(ChangingField).schema(),
            example: "[a, b]",
        }
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        let fields = TextOrList(ChangingField).read(context, "frozen", settings)?;
        if let Some((field, other)) = overlap(&fields) {
            let message =
                format!("`{}` overlaps `{}`: the outer field includes the inner one", field.value, other.value);
            context.error(Code::ConflictingSettings, field.span, message);
            return None;
        }
        Some(Self { fields: fields.into_iter().map(|field| field.value).collect() })
    }

    fn applicability(&self, kind: StatementKind, _: Namespace<'_>) -> Applicability {
        match kind {
            // Neither changes a document.
            StatementKind::Insert | StatementKind::Delete => Applicability::None,
            _ => Applicability::Each,
        }
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, _: &Context<'_>) -> Verdict<'a> {
        self.plain(&statement.operation).map_or_else(Verdict::Check, |()| Verdict::Forward)
    }

    fn properties(&self) -> Properties {
        let fields = self.fields.iter().map(|field| (field.clone(), &[][..]));
        Properties { procedures: Procedures::NotPlain(fields.collect()), ..Properties::default() }
    }

    fn promise(&self, (before, after): BeforeAndAfter<'_>, _: &Facts<'_, '_>) -> Result<(), Broken> {
        let (Some(before), Some(after)) = (before, after) else { return Ok(()) };
        for field in &self.fields {
            let path = field.as_str().as_bytes();
            let (old, new) = (held(before, path), held(after, path));
            if !old.is_empty() && old != new {
                let reason = format!("'{field}' is written once, and would go from {} to {}", shown(&old), shown(&new));
                let hint = format!("Leave '{field}' out of the statement, or send the value and type that are stored.");
                return Err(Rejection::new(reason, hint).into());
            }
        }
        Ok(())
    }

    fn check_final(&self, statement: &Statement<'_>) -> Result<(), Rejection> {
        self.plain(&statement.operation)
    }

    fn data_checks(&self, _: Namespace<'_>) -> Vec<DataCheck> {
        let without = |field: &Path| {
            DataCheck::each(format!("without `{field}`"), "a statement may set it once", is_missing(field))
        };
        self.fields.iter().map(without).collect()
    }

    fn conflict_with(&self, other: RuleView<'_>, _: Namespace<'_>) -> Option<&'static str> {
        if let AnyPattern::Timestamps(timestamps) = other.pattern
            && timestamps.source_field().is_some_and(|source| self.fields.contains(source))
        {
            return Some("each write has its own time in one of the frozen fields");
        }
        let other = other.properties;
        let is_own = |field: &Path| other.own_fields.iter().any(|own| field.overlaps(own.as_str().as_bytes()));
        // A stored number of a sequence stays.
        let is_changed = other.numbered_field.is_none() && self.fields.iter().any(is_own);
        is_changed.then_some("it changes one of the frozen fields in stored documents")
    }
}

impl Frozen {
    /// Checks that the statement leaves the fields of stored documents as they are, whatever these contain.
    ///
    /// # Errors
    /// The part for which it is not plain.
    fn plain(&self, operation: &Operation<'_>) -> Result<(), Rejection> {
        let Operation::Update(update) = operation else { return Ok(()) };
        for field in &self.fields {
            match plain::stored(update, field) {
                Ok(PlainWrite::Untouched) => {}
                Ok(_) => return Err(reason_to_check(format!("it writes '{field}', which may have a value already"))),
                Err(odd) => return Err(reason_to_check(odd)),
            }
        }
        Ok(())
    }
}

fn reason_to_check(part: String) -> Rejection {
    let hint =
        "Nothing, unless the transaction costs too much. Operators on other fields and `$setOnInsert` need none.";
    Rejection::new(part, hint)
}
