//! `tree`: a node's parent exists, and its path is the parent's path plus the parent; there are no cycles.

use bson::{Bson, Document, doc};

use super::super::case::{Kind, Statement};
use super::super::dice::Dice;
use super::super::rules::{Change, Promise};
use super::super::values::{as_number, related};

const PATH: &str = "path";
const PARENT: &str = "parent";

#[derive(Clone, Debug)]
pub(in super::super) struct Tree {
    pub(in super::super) cascade: bool,
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

fn parent(node: &Document) -> Option<&Bson> {
    node.get(PARENT).filter(|parent| **parent != Bson::Null)
}

fn same_id(one: &Bson, other: &Bson) -> bool {
    one == other || as_number(one).is_some() && as_number(one) == as_number(other)
}

/// The path that the parents give; an error if a parent is missing, or there is a cycle.
fn rightful(node: &Document, all: &[Document]) -> Result<Option<String>, &'static str> {
    let (mut names, mut next) = (Vec::new(), parent(node));
    while let Some(id) = next {
        if names.len() > all.len() {
            return Err("a node is below itself");
        }
        let above = all.iter().find(|above| above.get("_id").is_some_and(|own| same_id(own, id)));
        let above = above.ok_or("a node's parent is not there")?;
        names.push(above.get("_id").and_then(text).ok_or("a parent's _id cannot be in a path")?);
        next = parent(above);
    }
    names.reverse();
    Ok((!names.is_empty()).then(|| format!(",{},", names.join(","))))
}

fn path(node: &Document) -> Result<Option<String>, &'static str> {
    match node.get(PATH) {
        None | Some(Bson::Null) => Ok(None),
        Some(Bson::String(path)) => Ok(Some(path.clone())),
        Some(_) => Err("a path is no text"),
    }
}

fn wrong(nodes: &[Document]) -> Option<&'static str> {
    nodes.iter().find_map(|node| match (rightful(node, nodes), path(node)) {
        _ if node.contains_key("_docward_touch") => Some("docward's own field stayed"),
        (Err(what), _) | (_, Err(what)) => Some(what),
        (Ok(rightful), Ok(stored)) => (rightful != stored).then_some("a path is not the parent's"),
    })
}

impl Tree {
    pub(in super::super) fn random(dice: &mut Dice) -> Tree {
        Tree { cascade: dice.percent(40) }
    }
}

impl Promise for Tree {
    fn name(&self) -> &'static str {
        "tree"
    }

    fn settings(&self) -> String {
        let delete = if self.cascade { ", on_delete: cascade" } else { "" };
        format!("tree: {{ path: {PATH}, parent: {PARENT}{delete} }}")
    }

    fn fields(&self) -> Vec<String> {
        [PARENT, PARENT, PATH, "note"].map(str::to_owned).to_vec()
    }

    fn tidy(&self, _: &mut Dice, document: &mut Document) {
        document.remove(PATH);
        document.remove(PARENT);
    }

    /// Parents come first.
    fn tidy_all(&self, dice: &mut Dice, documents: &mut [Document]) {
        for index in 1..documents.len() {
            if dice.percent(70) {
                let above = documents[dice.below(index)].get("_id").cloned().unwrap_or(Bson::Null);
                documents[index].insert(PARENT, above);
            }
        }
        let paths: Vec<_> = documents.iter().map(|node| rightful(node, documents)).collect();
        for (node, path) in documents.iter_mut().zip(paths) {
            if let Ok(path) = path {
                node.insert(PATH, path.map_or(Bson::Null, Bson::String));
            }
        }
    }

    fn idiom(&self, dice: &mut Dice) -> Option<(Document, Document)> {
        let (id, parent) = (1 + dice.below(4) as i32, 1 + dice.below(4) as i32);
        let update = dice.pick(&[
            doc! { "$set": { PARENT: parent } },
            doc! { "$set": { PARENT: parent } },
            doc! { "$unset": { PARENT: "" } },
            doc! { PARENT: parent },
            doc! { "note": 1 },
        ]);
        Some((doc! { "_id": id }, update))
    }

    fn alters(&self, statement: &Statement) -> bool {
        statement.kind == Kind::Delete
            || statement.upsert
            || [PARENT, PATH].iter().any(|field| statement.touches(field))
    }

    fn broken(&self, change: &Change<'_>) -> Option<String> {
        if wrong(change.before).is_some() {
            return None;
        }
        wrong(change.after).map(str::to_owned)
    }

    fn harmless(&self, direct: &Change<'_>) -> bool {
        let parents = direct.after.iter().all(|node| rightful(node, direct.after).is_ok());
        let usual = direct.after.iter().all(|node| node.get("_id").and_then(text).is_some());
        let own_paths = direct.changed().all(|(before, after)| {
            let untouched =
                before.is_some_and(|before| [PATH, PARENT].iter().all(|field| before.get(field) == after.get(field)));
            let replaced = direct.statements.iter().any(|statement| statement.replacement().is_some());
            // Documented: also a root's null is not removed.
            let removed =
                before.is_some_and(|before| before.contains_key(PATH)) && !after.contains_key(PATH) && !replaced;
            untouched
                || !removed && after.get(PATH).is_none()
                || !removed && path(after).is_ok() && path(after) == rightful(after, direct.after)
        });
        // docward gives a node a path that has none, so that a later statement may match it by its path, move the path
        // elsewhere, or fail on it: `$pull` of a missing field does nothing, and of null it is an error.
        let uses_path = |statement: &Statement| {
            let in_filter = super::super::show::document(&statement.filter).contains(PATH);
            let depends = |operator: &str, path: &str| path != PATH || !matches!(operator, "$set" | "$unset");
            let writes = statement.writes();
            in_filter || writes.iter().any(|(operator, path, _)| related(path, PATH) && depends(operator, path))
        };
        if direct.statements.iter().skip(1).any(uses_path) {
            return false;
        }
        wrong(direct.before).is_none() && parents && usual && own_paths
    }

    fn strip(&self, document: &mut Document) {
        document.remove(PATH);
    }

    fn modifies(&self) -> bool {
        true
    }
}
