//! `together`: fields that change only together.
//!
//! A library counts available copies and keeps a record of who has one. A statement that takes a copy and
//! forgets the record, or the other way round, is rejected; so is a document that has only one of the fields.

use super::{Concern, Context, Judge, Phase, Verdict, concern_for_content, located_path};
use crate::command::{Modification, Namespace, Operation, Statement, StatementKind, Update};
use crate::document::{Document, Lookup, Path};
use crate::effect::{Touch, equality, touch, touched};
use crate::rules::{Code, Node, ReadContext, Value as Yaml};

/// Settings of the pattern: at least two fields.
#[derive(Debug, Clone)]
pub struct Together {
    fields: Vec<Path>,
}

impl Judge for Together {
    fn name(&self) -> &'static str {
        "together"
    }

    fn phase(&self) -> Phase {
        Phase::Together
    }

    fn concern(&self, kind: StatementKind, _: Namespace<'_>) -> Concern {
        concern_for_content(kind)
    }

    fn judge<'a>(&self, statement: &Statement<'a>, _: &Context<'_>) -> Verdict<'a> {
        match &statement.operation {
            Operation::Delete(_) => Verdict::Forward,
            Operation::Insert(insert) => self.judge_document(insert.document.as_document()),
            Operation::Update(update) => match &update.modification {
                Modification::Replacement(document) => self.judge_document(document.as_document()),
                Modification::Operators(operators) => self.judge_update(update, operators.as_document()),
                Modification::ClientPipeline(_) | Modification::Pipeline(_) => Verdict::client_pipeline(),
            },
        }
    }
}

impl Together {
    pub(super) fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        let texts = context.texts(settings, "`together`")?;
        let count = texts.len();
        let fields: Vec<_> = texts.into_iter().filter_map(|text| located_path(context, text)).collect();
        if fields.len() < count {
            return None;
        }
        if count < 2 || !matches!(settings.value, Yaml::List(_)) {
            let message = "`together` takes a list of at least two fields";
            context.error(Code::InvalidValue, settings.span, message);
            return None;
        }
        for (index, field) in fields.iter().enumerate() {
            let overlaps = |other: &&crate::rules::Located<Path>| other.value.overlaps(field.value.as_str().as_bytes());
            if let Some(other) = fields.iter().take(index).find(overlaps) {
                let message = format!("`{}` overlaps `{}`: they always change together", field.value, other.value);
                context.error(Code::ConflictingSettings, field.span, message);
                return None;
            }
        }
        Some(Self { fields: fields.into_iter().map(|field| field.value).collect() })
    }

    fn judge_document<'a>(&self, document: Document<'_>) -> Verdict<'a> {
        self.all_or_none("it has", |field| matches!(field.lookup(document), Lookup::Found(_)))
    }

    /// What happens to a stored document leaves `$setOnInsert` out; what an upsert inserts has it, and what
    /// the filter pins.
    fn judge_update<'a>(&self, update: &Update<'_>, operators: Document<'_>) -> Verdict<'a> {
        let writes = |field: &Path, on_insert: bool| {
            let mut writes = touched(operators).filter(|(operator, ..)| on_insert || *operator != b"$setOnInsert");
            writes.any(|(_, path, _)| touch(field, path) != Touch::Apart)
        };
        let stored = self.all_or_none("it changes", |field| writes(field, false));
        if !update.upsert || !matches!(stored, Verdict::Forward) {
            return stored;
        }
        let filter = update.filter.as_document();
        self.all_or_none("as an upsert it could insert", |field| {
            writes(field, true) || equality(filter, field.as_str()).is_some()
        })
    }

    fn all_or_none<'a>(&self, what: &str, present: impl Fn(&Path) -> bool) -> Verdict<'a> {
        let (there, missing): (Vec<_>, Vec<_>) = self.fields.iter().partition(|field| present(field));
        if there.is_empty() || missing.is_empty() {
            return Verdict::Forward;
        }
        let list = |fields: &[&Path]| fields.iter().map(|field| format!("'{field}'")).collect::<Vec<_>>().join(", ");
        Verdict::reject(
            format!("{what} {} without {}", list(&there), list(&missing)),
            "Write these fields in one statement, all or none of them.",
        )
    }
}
