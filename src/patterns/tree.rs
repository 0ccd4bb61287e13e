//! `tree`: materialized paths, `,Books,Programming,`.
//!
//! Applications keep the path of ancestors beside the parent, so that one indexed query finds a whole
//! subtree; a move must then change every document below, at once, and two moves that meet leave circles and
//! paths that lead nowhere. Here the application names the parent and docward keeps the paths.
//!
//! before: `insertOne({_id: "MongoDB", parent: "Programming"})`
//!
//! after, together with a look at the parent and a touch of it in one transaction:
//! `insertOne({_id: "MongoDB", parent: "Programming", path: ",Books,Programming,"})`
//!
//! The files below: `placement.rs` and `removal.rs` say what a statement takes, `anchor.rs` is about reads,
//! `layout.rs` and `id.rs` about the form of nodes.

mod anchor;
mod id;
mod layout;
mod placement;
mod removal;

use std::sync::Arc;

use super::{
    CommandVerdict, Concern, Context, IndexPurpose, Judge, NeededIndex, Phase, Rejection, Verdict, WholeCommand,
    concern_for_content, read_path,
};
use crate::command::{Class, Insert, Modification, Namespace, Operation, Statement, StatementKind, Update};
use crate::document::{Document, Kind, Lookup, OwnedValue, Path, Value};
use crate::effect::{Touch, equality, touch, touched};
use crate::rules::{Code, Laxity, MapReader};
use anchor::Unanchored;
use id::Id;
use layout::{Layout, present};
use placement::{Placement, Wanted};
use removal::Removal;

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Tree {
    layout: Layout,
    on_delete: OnDelete,
    unanchored: Unanchored,
}

/// What becomes of a delete of a node that has children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnDelete {
    Reject,
    /// All nodes below go with it.
    Cascade,
}

impl Judge for Tree {
    fn name(&self) -> &'static str {
        "tree"
    }

    fn phase(&self) -> Phase {
        Phase::Tree
    }

    fn rewriting(&self) -> &'static str {
        "docward keeps the path of the node and of all below it"
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn laxities(&self) -> Vec<Laxity> {
        let warning = Laxity { what: "only warns about searches that no index serves", setting: "unanchored" };
        if self.unanchored == Unanchored::Warn { vec![warning] } else { Vec::new() }
    }

    fn needed_indexes(&self) -> Vec<NeededIndex> {
        let field = self.layout.path.as_str().to_owned();
        let without = "every move, delete and search below a node scans the collection";
        vec![NeededIndex { collection: None, field, purpose: IndexPurpose::Range, without }]
    }

    fn concern(&self, kind: StatementKind, _: Namespace<'_>) -> Concern {
        match kind {
            StatementKind::Delete => Concern::Each,
            _ => concern_for_content(kind),
        }
    }

    fn judge<'a>(&self, statement: &Statement<'a>, _: &Context<'_>) -> Verdict<'a> {
        let judged = match &statement.operation {
            Operation::Insert(insert) => self.judge_insert(insert),
            Operation::Update(update) => self.judge_update(update),
            Operation::Delete(_) => {
                Ok(Verdict::Procedure(Arc::new(Removal { layout: self.layout.clone(), on_delete: self.on_delete })))
            }
        };
        match judged {
            Ok(Verdict::Procedure(_)) if statement.option("collation").is_some() => Verdict::unguardable(
                "it has a collation, by which it may pick another node than the one that was looked at",
                "Leave the collation out.",
            ),
            Ok(verdict) => verdict,
            Err(rejection) => Verdict::Reject(rejection),
        }
    }

    fn judges_command(&self, class: Class, _: Option<StatementKind>) -> bool {
        class.reads()
    }

    fn judge_command(&self, command: &WholeCommand<'_>) -> CommandVerdict {
        anchor::judge(&self.layout, self.unanchored, command)
    }
}

impl Tree {
    pub(super) fn read(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let path = or_default(reader, "path");
        let parent = or_default(reader, "parent");
        let separator = reader.text("separator");
        let on_delete = reader.choice("on_delete", &[("reject", OnDelete::Reject), ("cascade", OnDelete::Cascade)]);
        let unanchored = reader.choice(
            "unanchored",
            &[("warn", Unanchored::Warn), ("reject", Unanchored::Reject), ("rewrite", Unanchored::Rewrite)],
        );
        let place = reader.place();
        let (path, parent) = (path?, parent?);
        if path.overlaps(parent.as_str().as_bytes()) {
            let message = "`path` and `parent` must be two fields, neither inside the other";
            reader.context().error(Code::ConflictingSettings, place, message);
            return None;
        }
        let separator = match separator {
            None => ',',
            Some(text) => match text.value.parse::<char>() {
                Ok(separator) if separator.is_ascii_punctuation() => separator,
                _ => {
                    let message = "`separator` must be one punctuation character of ASCII, such as `,` or `/`";
                    reader.context().error(Code::InvalidValue, text.span, message);
                    return None;
                }
            },
        };
        Some(Self {
            layout: Layout { path, parent, separator },
            on_delete: on_delete.map_or(OnDelete::Reject, |word| word.value),
            unanchored: unanchored.map_or(Unanchored::Warn, |word| word.value),
        })
    }

    fn judge_insert<'a>(&self, insert: &Insert<'a>) -> Result<Verdict<'a>, Rejection> {
        let document = insert.document.as_document();
        if document.get("_id").is_some_and(|id| Id::read(id, self.layout.separator).is_none()) {
            return Err(unusable_id(&self.layout));
        }
        let wanted = self.wanted_by(document)?;
        if wanted.parent.is_none() && !matches!(wanted.path, Some(Some(_))) {
            let operation = Operation::Insert(insert.clone());
            return Ok(match self.layout.path.lookup(document) {
                Lookup::Found(_) => Verdict::Forward,
                _ => Verdict::rewrite(self.layout.place(&operation, None, None)),
            });
        }
        Ok(self.place(placement::Kind::Insert, wanted, None, None))
    }

    fn judge_update<'a>(&self, update: &Update<'a>) -> Result<Verdict<'a>, Rejection> {
        let (kind, wanted, on_insert) = match &update.modification {
            Modification::ClientPipeline(_) | Modification::Pipeline(_) => return Ok(Verdict::client_pipeline()),
            Modification::Replacement(document) => {
                let wanted = self.wanted_by(document.as_document())?;
                (placement::Kind::Replacement, wanted.clone(), wanted)
            }
            Modification::Operators(operators) => {
                let (wanted, on_insert) = self.wanted_of(operators.as_document())?;
                (placement::Kind::Change, wanted, on_insert)
            }
        };
        let concerned =
            kind == placement::Kind::Replacement || wanted.parent.is_some() || wanted.path.is_some() || update.upsert;
        if !concerned {
            return Ok(Verdict::Forward);
        }
        if update.multi {
            return Err(Rejection::new(
                format!("it could move many nodes at once ('{}' or '{}')", self.layout.parent, self.layout.path),
                "Move one node with each statement, picked by its _id.",
            ));
        }
        if !update.upsert {
            return Ok(self.place(kind, wanted, None, None));
        }
        let filter = update.filter.as_document();
        let id = equality(filter, "_id").ok_or_else(|| {
            Rejection::new("as an upsert it could insert a node that cannot be told beforehand", "Pick it by _id.")
        })?;
        Id::read(id, self.layout.separator).ok_or_else(|| unusable_id(&self.layout))?;
        let on_insert = self.wanted_on_insert(filter, on_insert)?;
        Ok(self.place(kind, wanted, Some(on_insert), Some(OwnedValue::from(id))))
    }

    fn place<'a>(
        &self,
        kind: placement::Kind,
        wanted: Wanted,
        on_insert: Option<Wanted>,
        upserted: Option<OwnedValue>,
    ) -> Verdict<'a> {
        Verdict::Procedure(Arc::new(Placement { layout: self.layout.clone(), kind, wanted, on_insert, upserted }))
    }

    /// What a whole document says: without a parent and a path it is a root.
    fn wanted_by(&self, document: Document<'_>) -> Result<Wanted, Rejection> {
        for field in [&self.layout.parent, &self.layout.path] {
            if let Lookup::Blocked(kind) = field.lookup(document) {
                return Err(Rejection::new(
                    format!("there is no room for '{field}': a field on the way is of type {}", kind.name()),
                    "Leave that field out, or make it an object.",
                ));
            }
        }
        let parent = present(self.layout.parent.lookup(document)).map(|value| self.parent(value)).transpose()?;
        let path = match self.layout.path.lookup(document) {
            Lookup::Found(value) => Some(self.path(value)?),
            _ => None,
        };
        Ok(Wanted { parent: parent.map(Some), path })
    }

    /// What update operators say of a node that is there, and of one that an upsert inserts.
    fn wanted_of(&self, operators: Document<'_>) -> Result<(Wanted, Wanted), Rejection> {
        let (mut wanted, mut on_insert) = (Wanted::default(), Wanted::default());
        for (operator, written, value) in touched(operators) {
            for (field, is_parent) in [(&self.layout.parent, true), (&self.layout.path, false)] {
                let known = match (touch(field, written), operator) {
                    (Touch::Apart, _) => continue,
                    (Touch::Exact, b"$set" | b"$setOnInsert") if is_parent => {
                        let parent = if value.kind == Kind::Null { None } else { Some(self.parent(value)?) };
                        Wanted { parent: Some(parent), path: None }
                    }
                    (Touch::Exact, b"$unset") if is_parent => Wanted { parent: Some(None), path: None },
                    (Touch::Exact, b"$set" | b"$setOnInsert") => Wanted { parent: None, path: Some(self.path(value)?) },
                    _ => {
                        return Err(Rejection::new(
                            format!("it changes '{field}' by other means than $set"),
                            format!("Set '{}' with $set; docward writes '{}'.", self.layout.parent, self.layout.path),
                        ));
                    }
                };
                let targets: &mut [&mut Wanted] = match operator {
                    b"$setOnInsert" => &mut [&mut on_insert],
                    _ => &mut [&mut wanted, &mut on_insert],
                };
                for target in targets {
                    target.parent = known.parent.clone().or(target.parent.take());
                    target.path = known.path.clone().or(target.path.take());
                }
            }
        }
        Ok((wanted, on_insert))
    }

    /// An upsert's filter speaks where its update does not.
    fn wanted_on_insert(&self, filter: Document<'_>, mut wanted: Wanted) -> Result<Wanted, Rejection> {
        if wanted.parent.is_none()
            && let Some(value) = equality(filter, self.layout.parent.as_str()).filter(|v| v.kind != Kind::Null)
        {
            wanted.parent = Some(Some(self.parent(value)?));
        }
        if wanted.path.is_none()
            && let Some(value) = equality(filter, self.layout.path.as_str())
        {
            wanted.path = Some(self.path(value)?);
        }
        Ok(wanted)
    }

    fn parent(&self, value: Value<'_>) -> Result<Id, Rejection> {
        Id::read(value, self.layout.separator).ok_or_else(|| {
            Rejection::new(format!("its '{}' is nothing that a node can have as _id", self.layout.parent), ID_FORM)
        })
    }

    fn path(&self, value: Value<'_>) -> Result<Option<String>, Rejection> {
        match value.kind {
            Kind::Null => Ok(None),
            _ => value.as_str().map(|path| Some(path.to_owned())).ok_or_else(|| {
                Rejection::new(
                    format!("its '{}' is of type {}", self.layout.path, value.kind.name()),
                    format!("Set '{}' only; docward writes '{}'.", self.layout.parent, self.layout.path),
                )
            }),
        }
    }
}

const ID_FORM: &str = "Use strings without the separator, whole numbers, or ObjectIds.";

/// A node whose `_id` cannot stand in its children's paths.
fn unusable_id(layout: &Layout) -> Rejection {
    let reason = format!("its _id cannot stand in paths between '{}'", layout.separator);
    Rejection::new(reason, ID_FORM)
}

/// The field path under `key`, which is also its default.
fn or_default(reader: &mut MapReader<'_, '_, '_>, key: &'static str) -> Option<Path> {
    match reader.entry(key) {
        Some(_) => read_path(reader, key).map(|path| path.value),
        None => Path::parse(key),
    }
}
