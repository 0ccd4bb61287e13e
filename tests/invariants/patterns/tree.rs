//! `tree`: a node's parent exists, and its path is the parent's path plus the parent; there are no cycles.

use bson::{Bson, Document, doc};

use super::super::case::{Kind, Statement};
use super::super::dice::Dice;
use super::super::rules::{Change, Promise};
use super::super::values::{as_number, at, put, related, take};

/// The paths of the fields.
#[derive(Clone, Copy, Debug)]
struct Names {
    path: &'static str,
    parent: &'static str,
}

const TOP: Names = Names { path: "path", parent: "parent" };
const INSIDE: Names = Names { path: "node.path", parent: "node.parent" };

#[derive(Clone, Debug)]
pub(in super::super) struct Tree {
    pub(in super::super) cascade: bool,
    names: Names,
}

fn text(id: &Bson) -> Option<String> {
    match id {
        Bson::Int32(id) => Some(id.to_string()),
        Bson::Int64(id) => Some(id.to_string()),
        Bson::Double(id) if id.fract() == 0.0 && id.abs() < 1e9 => Some((*id as i64).to_string()),
        Bson::String(id) if !id.contains(',') && !id.is_empty() => Some(id.clone()),
        Bson::ObjectId(id) => Some(id.to_string()),
        _ => None,
    }
}

fn same_id(one: &Bson, other: &Bson) -> bool {
    one == other || as_number(one).is_some() && as_number(one) == as_number(other)
}

impl Names {
    fn parent_of(self, node: &Document) -> Option<&Bson> {
        at(node, self.parent).filter(|parent| **parent != Bson::Null)
    }

    /// The path that the parents give; an error if a parent is missing, or there is a cycle.
    fn rightful(self, node: &Document, all: &[Document]) -> Result<Option<String>, &'static str> {
        let (mut names, mut next) = (Vec::new(), self.parent_of(node));
        while let Some(id) = next {
            if names.len() > all.len() {
                return Err("a node is below itself");
            }
            let above = all.iter().find(|above| above.get("_id").is_some_and(|own| same_id(own, id)));
            let above = above.ok_or("a node's parent is not there")?;
            names.push(above.get("_id").and_then(text).ok_or("a parent's _id cannot be in a path")?);
            next = self.parent_of(above);
        }
        names.reverse();
        Ok((!names.is_empty()).then(|| format!(",{},", names.join(","))))
    }

    fn path_of(self, node: &Document) -> Result<Option<String>, &'static str> {
        match at(node, self.path) {
            None | Some(Bson::Null) => Ok(None),
            Some(Bson::String(path)) => Ok(Some(path.clone())),
            Some(_) => Err("a path is no text"),
        }
    }

    fn wrong(self, nodes: &[Document]) -> Option<&'static str> {
        nodes.iter().find_map(|node| match (self.rightful(node, nodes), self.path_of(node)) {
            _ if node.contains_key("_docward_touch") => Some("docward's own field stayed"),
            (Err(what), _) | (_, Err(what)) => Some(what),
            (Ok(rightful), Ok(stored)) => (rightful != stored).then_some("a path is not the parent's"),
        })
    }
}

impl Tree {
    pub(in super::super) fn random(dice: &mut Dice) -> Tree {
        Tree { cascade: dice.percent(40), names: dice.pick(&[TOP, TOP, TOP, INSIDE]) }
    }

    pub(in super::super) fn path(&self) -> &'static str {
        self.names.path
    }
}

impl Promise for Tree {
    fn name(&self) -> &'static str {
        "tree"
    }

    fn settings(&self) -> String {
        let Names { path, parent } = self.names;
        let delete = if self.cascade { ", on_delete: cascade" } else { "" };
        format!("tree: {{ path: {path}, parent: {parent}{delete} }}")
    }

    fn fields(&self) -> Vec<String> {
        [self.names.parent, self.names.parent, self.names.path, "note"].map(str::to_owned).to_vec()
    }

    fn tidy(&self, _: &mut Dice, document: &mut Document) {
        take(document, self.names.path);
        take(document, self.names.parent);
    }

    /// Parents come first.
    fn tidy_all(&self, dice: &mut Dice, documents: &mut [Document]) {
        for index in 1..documents.len() {
            if dice.percent(70) {
                let above = documents[dice.below(index)].get("_id").cloned().unwrap_or(Bson::Null);
                put(&mut documents[index], self.names.parent, above);
            }
        }
        let paths: Vec<_> = documents.iter().map(|node| self.names.rightful(node, documents)).collect();
        for (node, path) in documents.iter_mut().zip(paths) {
            if let Ok(path) = path {
                put(node, self.names.path, path.map_or(Bson::Null, Bson::String));
            }
        }
    }

    fn idiom(&self, dice: &mut Dice) -> Option<(Document, Document)> {
        let (id, parent) = (1 + dice.below(4) as i32, 1 + dice.below(4) as i32);
        let field = self.names.parent;
        let mut whole = doc! {};
        put(&mut whole, field, parent.into());
        let update = dice.pick(&[
            doc! { "$set": { field: parent } },
            doc! { "$set": { field: parent } },
            doc! { "$unset": { field: "" } },
            whole,
            doc! { "note": 1 },
        ]);
        Some((doc! { "_id": id }, update))
    }

    fn alters(&self, statement: &Statement) -> bool {
        statement.kind == Kind::Delete
            || statement.upsert
            || [self.names.parent, self.names.path].iter().any(|field| statement.touches(field))
    }

    fn broken(&self, change: &Change<'_>) -> Option<String> {
        if self.names.wrong(change.before).is_some() {
            return None;
        }
        self.names.wrong(change.after).map(str::to_owned)
    }

    fn harmless(&self, direct: &Change<'_>) -> bool {
        let Names { path, parent } = self.names;
        let path_of = |node| self.names.path_of(node);
        let rightful = |node| self.names.rightful(node, direct.after);
        let parents = direct.after.iter().all(|node| rightful(node).is_ok());
        let usual = direct.after.iter().all(|node| node.get("_id").and_then(text).is_some());
        let own_paths = direct.changed().all(|(before, after)| {
            let untouched =
                before.is_some_and(|before| [path, parent].iter().all(|field| at(before, field) == at(after, field)));
            let replaced = direct.statements.iter().any(|statement| statement.replacement().is_some());
            // Documented: also a root's null is not removed.
            let removed =
                before.is_some_and(|before| at(before, path).is_some()) && at(after, path).is_none() && !replaced;
            untouched
                || !removed && at(after, path).is_none()
                || !removed && path_of(after).is_ok() && path_of(after) == rightful(after)
        });
        // docward gives a node a path that has none, so that a later statement may match it by its path, move the path
        // elsewhere, or fail on it: `$pull` of a missing field does nothing, and of null it is an error.
        let uses_path = |statement: &Statement| {
            let in_filter = super::super::show::document(&statement.filter).contains("path");
            let depends = |operator: &str, written: &str| written != path || !matches!(operator, "$set" | "$unset");
            let writes = statement.writes();
            in_filter
                || writes.iter().any(|(operator, written, _)| related(written, path) && depends(operator, written))
        };
        if direct.statements.iter().skip(1).any(uses_path) {
            return false;
        }
        self.names.wrong(direct.before).is_none() && parents && usual && own_paths
    }

    fn strip(&self, document: &mut Document) {
        take(document, self.names.path);
        // docward's path may have made the document.
        if document.get_document("node").is_ok_and(Document::is_empty) {
            document.remove("node");
        }
    }

    fn modifies(&self) -> bool {
        true
    }
}
