//! `tree`: maintains materialized paths, such as `,Books,Programming,`.
//!
//! Applications store the path of ancestors beside the parent, so that one indexed query finds a whole subtree. A move
//! must then change every document below at once, and concurrent moves can create cycles and invalid paths. With this
//! pattern, the application sets the parent and docward maintains the paths.
//!
//! before: `insertOne({_id: "MongoDB", parent: "Programming"})`
//!
//! after, in one transaction with a query for the parent and a touch of it:
//! `insertOne({_id: "MongoDB", parent: "Programming", path: ",Books,Programming,"})`
//!
//! `intent.rs` reads a node's position from a statement, `placement.rs` and `removal.rs` execute it, `anchor.rs` evaluates
//! reads, and `layout.rs` and `id.rs` define the form of nodes.

mod anchor;
mod id;
mod intent;
mod layout;
mod placement;
mod removal;
mod stored;

use super::field_path::ChangingField;
use super::plain;
use super::stored_data::DataCheck;
use super::{
    Applicability, CommandVerdict, Context, IndexPurpose, NeededIndex, Pattern, Prerequisite, Procedures, Properties,
    Rejection, Requirement, StateCondition, Verdict, WeakerSetting, WholeCommand, applicability_for_content,
};
use crate::command::{CommandClass, Modification, Namespace, Operation, Statement, StatementKind, Update};
use crate::config::keys::{
    Declaration, DeclaredScalar, DescribeSchema, Keys, Keywords, ReadText, Setting, TextSchema, ValueSchema,
};
use crate::config::{Code, Located, MapReader, Node, ReadContext};
use crate::document::{Document, PathLookup};
use crate::effect::equality;
use anchor::Unanchored;
use id::NodeId;
use intent::{Intent, RequestedPosition};
use layout::{TreeFields, unusable_id};
use placement::PlacementProcedure;
use removal::{OnNodeDelete, RemovalProcedure};

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Tree {
    layout: TreeFields,
    on_delete: OnNodeDelete,
    unanchored: Unanchored,
}

const PATH: Setting<ChangingField> = Setting::with_default(
    "path",
    ChangingField,
    DeclaredScalar::Text("path"),
    "The ancestors' _ids, root first; null for a root.",
);
const PARENT: Setting<ChangingField> = Setting::with_default(
    "parent",
    ChangingField,
    DeclaredScalar::Text("parent"),
    "The parent's _id; null or missing for a root.",
);
const SEPARATOR: Setting<Separator> = Setting::with_default(
    "separator",
    Separator,
    DeclaredScalar::Text(","),
    "One ASCII punctuation character, around every _id of the path.",
);
const ON_DELETE: Setting<Keywords<OnNodeDelete>> = Setting::with_default(
    "on_delete",
    Keywords(&[
        ("reject", OnNodeDelete::Reject, "It is rejected."),
        ("cascade", OnNodeDelete::Cascade, "The children are deleted too."),
    ]),
    DeclaredScalar::Text("reject"),
    "The action for a delete of a node that has children.",
);
const UNANCHORED: Setting<Keywords<Unanchored>> = Setting::with_default(
    "unanchored",
    Keywords(&[
        ("warn", Unanchored::Warn, "docward logs a warning."),
        ("reject", Unanchored::Reject, "It is rejected."),
        ("rewrite", Unanchored::Rewrite, "It is anchored if the result is the same."),
    ]),
    DeclaredScalar::Text("warn"),
    "The action for a read with a regular expression on the path that does not start with ^ and so cannot use the index.",
);
const KEYS: Keys = Keys::new(
    "A tree with materialized paths that docward maintains.",
    &[&PATH, &PARENT, &SEPARATOR, &ON_DELETE, &UNANCHORED],
);

/// One ASCII punctuation character.
#[derive(Clone, Copy, Debug)]
struct Separator;

impl DescribeSchema for Separator {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Text(TextSchema::matching(r"^[!-/:-@\[-`{-~]$"))
    }
}

impl ReadText for Separator {
    type Value = char;

    fn read_text(&self, context: &mut ReadContext<'_>, _: &str, text: Located<String>) -> Option<char> {
        let separator = text.value.parse().ok().filter(char::is_ascii_punctuation);
        if separator.is_none() {
            let message = "`separator` must be one ASCII punctuation character, such as `,` or `/`";
            context.error(Code::InvalidValue, text.span, message);
        }
        separator
    }
}

impl Pattern for Tree {
    fn declaration() -> Declaration {
        Declaration::mapping(&KEYS).example("{ path: path }")
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        context.mapping(settings, &KEYS, Self::read_keys)
    }

    fn properties(&self) -> Properties {
        let warning =
            WeakerSetting { what: "only warns about searches that cannot use an index", setting: "unanchored" };
        let field = self.layout.path.as_str().to_owned();
        let without = "every move, delete and search below a node scans the collection";
        Properties {
            rewriting: "maintains the paths of the node and of all nodes below it",
            exclusive: true,
            weaker_settings: if self.unanchored == Unanchored::Warn { vec![warning] } else { Vec::new() },
            needed_indexes: vec![NeededIndex { collection: None, field, purpose: IndexPurpose::Range, without }],
            own_fields: vec![self.layout.path.clone(), self.layout.parent.clone()],
            procedures: Procedures::All,
            requirements: vec![Requirement::Transactions, Requirement::PipelineUpdates],
            cascades: matches!(self.on_delete, OnNodeDelete::Cascade),
            ..Properties::default()
        }
    }

    fn data_checks(&self, namespace: Namespace<'_>) -> Vec<DataCheck> {
        self.layout.data_checks(namespace.collection)
    }

    fn stored_state(&self) -> Vec<StateCondition> {
        self.layout.stored_state()
    }

    fn applicability(&self, kind: StatementKind, _: Namespace<'_>) -> Applicability {
        match kind {
            StatementKind::Delete => Applicability::Each,
            _ => applicability_for_content(kind),
        }
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, _: &Context<'_>) -> Verdict<'a> {
        let evaluated = match &statement.operation {
            Operation::Insert(insert) => self.evaluate_insert(&statement.operation, insert.document.as_document()),
            Operation::Update(update) => self.evaluate_update(&statement.operation, update),
            Operation::Delete(_) => {
                Ok(Verdict::procedure(RemovalProcedure { layout: self.layout.clone(), on_delete: self.on_delete }))
            }
        };
        match evaluated {
            Ok(Verdict::Require(Prerequisite::Procedure(_), _)) if statement.option("collation").is_some() => {
                Verdict::unsupported(
                    "it has a collation, so it could change another node than the one that docward checked",
                    "Leave the collation out.",
                )
            }
            Ok(verdict) => verdict,
            Err(rejection) => Verdict::Reject(rejection),
        }
    }

    fn evaluates_command(&self, class: CommandClass, _: Option<StatementKind>, _: Namespace<'_>) -> bool {
        class.reads()
    }

    fn evaluate_command(&self, command: &WholeCommand<'_>) -> CommandVerdict {
        anchor::evaluate(&self.layout, self.unanchored, command)
    }
}

impl Tree {
    fn read_keys(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let (path, parent) = (reader.get(&PATH), reader.get(&PARENT));
        let separator = reader.get(&SEPARATOR);
        let (on_delete, unanchored) = (reader.get_or_default(&ON_DELETE), reader.get_or_default(&UNANCHORED));
        let span = reader.span();
        let (path, parent) = (path?.value, parent?.value);
        if path.overlaps(parent.as_str().as_bytes()) {
            let message = "`path` and `parent` must be two fields, neither inside the other";
            reader.context().error(Code::ConflictingSettings, span, message);
            return None;
        }
        Some(Self {
            layout: TreeFields { path, parent, separator: separator? },
            on_delete: on_delete?.value,
            unanchored: unanchored?.value,
        })
    }

    fn evaluate_insert<'a>(&self, operation: &Operation<'a>, document: Document<'_>) -> Result<Verdict<'a>, Rejection> {
        if document.get("_id").is_some_and(|id| NodeId::from_value(id, self.layout.separator).is_none()) {
            return Err(unusable_id(&self.layout));
        }
        let wanted = RequestedPosition::of_document(document, &self.layout)?;
        if wanted.parent.is_none_or(|parent| parent.is_none()) && !matches!(wanted.path, Some(Some(_))) {
            return Ok(match self.layout.path.lookup(document) {
                PathLookup::Found(_) => Verdict::Forward,
                _ => Verdict::rewrite(self.layout.set_position(operation, None, None)),
            });
        }
        Ok(self.placement())
    }

    fn evaluate_update<'a>(&self, operation: &Operation<'a>, update: &Update<'a>) -> Result<Verdict<'a>, Rejection> {
        if matches!(update.modification, Modification::ClientPipeline(_) | Modification::Pipeline(_)) {
            return Ok(match plain::is_apart(update, [&self.layout.parent, &self.layout.path]) {
                true => Verdict::Forward,
                false => Verdict::client_pipeline(),
            });
        }
        let intent = Intent::from_operation(operation, &self.layout)?;
        let moves = intent.affects_stored(operation, &self.layout);
        if !update.upsert && !moves {
            return Ok(Verdict::Forward);
        }
        if moves && update.multi && equality(update.filter.as_document(), "_id").is_none() {
            return Err(Rejection::new(
                format!("it could move many nodes at once ('{}' or '{}')", self.layout.parent, self.layout.path),
                "Move one node per statement, selected by its _id.",
            ));
        }
        Ok(self.placement())
    }

    fn placement<'a>(&self) -> Verdict<'a> {
        Verdict::procedure(PlacementProcedure { layout: self.layout.clone() })
    }
}
