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
//! The files below: `intent.rs` says what a statement wants, `placement.rs` and `removal.rs` what it takes, `anchor.rs`
//! is about reads, `layout.rs` and `id.rs` about the form of nodes.

mod anchor;
mod id;
mod intent;
mod layout;
mod placement;
mod removal;

use std::sync::Arc;

use super::{
    CommandVerdict, Concern, Context, Evaluate, IndexPurpose, NeededIndex, Phase, Rejection, Verdict, WholeCommand,
    concern_for_content, read_path,
};
use crate::command::{Class, Modification, Namespace, Operation, Statement, StatementKind, Update};
use crate::document::{Document, Lookup, Path};
use crate::effect::equality;
use crate::rules::{Code, MapReader, WeakerSetting};
use anchor::Unanchored;
use id::Id;
use intent::{Intent, Wanted};
use layout::Layout;
use placement::Placement;
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

impl Evaluate for Tree {
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

    fn weaker_settings(&self) -> Vec<WeakerSetting> {
        let warning = WeakerSetting { what: "only warns about searches that no index serves", setting: "unanchored" };
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

    fn evaluate<'a>(&self, statement: &Statement<'a>, _: &Context<'_>) -> Verdict<'a> {
        let evaluated = match &statement.operation {
            Operation::Insert(insert) => self.evaluate_insert(&statement.operation, insert.document.as_document()),
            Operation::Update(update) => self.evaluate_update(&statement.operation, update),
            Operation::Delete(_) => {
                Ok(Verdict::Procedure(Arc::new(Removal { layout: self.layout.clone(), on_delete: self.on_delete })))
            }
        };
        match evaluated {
            Ok(Verdict::Procedure(_)) if statement.option("collation").is_some() => Verdict::unsupported(
                "it has a collation, by which it may pick another node than the one that was looked at",
                "Leave the collation out.",
            ),
            Ok(verdict) => verdict,
            Err(rejection) => Verdict::Reject(rejection),
        }
    }

    fn evaluates_command(&self, class: Class, _: Option<StatementKind>) -> bool {
        class.reads()
    }

    fn evaluate_command(&self, command: &WholeCommand<'_>) -> CommandVerdict {
        anchor::evaluate(&self.layout, self.unanchored, command)
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

    fn evaluate_insert<'a>(&self, operation: &Operation<'a>, document: Document<'_>) -> Result<Verdict<'a>, Rejection> {
        if document.get("_id").is_some_and(|id| Id::read(id, self.layout.separator).is_none()) {
            return Err(unusable_id(&self.layout));
        }
        let wanted = Wanted::of_document(document, &self.layout)?;
        if wanted.parent.is_none() && !matches!(wanted.path, Some(Some(_))) {
            return Ok(match self.layout.path.lookup(document) {
                Lookup::Found(_) => Verdict::Forward,
                _ => Verdict::rewrite(self.layout.place(operation, None, None)),
            });
        }
        Ok(self.placement())
    }

    fn evaluate_update<'a>(&self, operation: &Operation<'a>, update: &Update<'a>) -> Result<Verdict<'a>, Rejection> {
        if matches!(update.modification, Modification::ClientPipeline(_) | Modification::Pipeline(_)) {
            return Ok(Verdict::client_pipeline());
        }
        let intent = Intent::of(operation, &self.layout)?;
        if !update.upsert && !intent.concerns_stored(operation, &self.layout) {
            return Ok(Verdict::Forward);
        }
        if update.multi && equality(update.filter.as_document(), "_id").is_none() {
            return Err(Rejection::new(
                format!("it could move many nodes at once ('{}' or '{}')", self.layout.parent, self.layout.path),
                "Move one node with each statement, picked by its _id.",
            ));
        }
        Ok(self.placement())
    }

    fn placement<'a>(&self) -> Verdict<'a> {
        Verdict::Procedure(Arc::new(Placement { layout: self.layout.clone() }))
    }
}

const ID_FORM: &str = "Use strings without the separator, whole numbers, or ObjectIds.";

/// A node whose `_id` cannot stand in its children's paths.
fn unusable_id(layout: &Layout) -> Rejection {
    let reason = format!("its _id cannot stand in paths between '{}'", layout.separator);
    Rejection::new(reason, ID_FORM)
}

/// A parent that no node can be.
fn unusable_parent(layout: &Layout) -> Rejection {
    Rejection::new(format!("its '{}' is nothing that a node can have as _id", layout.parent), ID_FORM)
}

/// The field path under `key`, which is also its default.
fn or_default(reader: &mut MapReader<'_, '_, '_>, key: &'static str) -> Option<Path> {
    match reader.entry(key) {
        Some(_) => read_path(reader, key).map(|path| path.value),
        None => Path::parse(key),
    }
}
