//! Checks of stored nodes: whether their paths agree with their parents.
//!
//! A node is compared with its parent only. A subtree whose top has a wrong path shows once the top is corrected.

use bson::{Bson, Document, doc};

use super::layout::TreeFields;
use crate::document::Path;
use crate::patterns::StateCondition;
use crate::patterns::stored_data::{
    ABSENT, Backfill, DataCheck, Search, all, any, has_type, is_absent, is_one_of, not, value,
};
use crate::patterns::stored_state::of_one;

/// The parent of a node, and the path that the node must have, as the stages compute them.
const PARENT: &str = "docward_parent";
const EXPECTED: &str = "docward_path";

impl TreeFields {
    /// The forms of a path and of a parent.
    pub(super) fn stored_state(&self) -> Vec<StateCondition> {
        let Self { path, parent, separator } = self;
        // Each is searched for alone: one expression for the whole form would backtrack in long paths.
        let ends = [format!("^\\{separator}"), format!("\\{separator}\\z")].map(|end| doc! {"pattern": end}).to_vec();
        let doubled = doc! {"pattern": format!("\\{separator}\\{separator}")};
        let form = doc! {"bsonType": "string", "minLength": 3, "allOf": ends, "not": doubled};
        let id = doc! {"bsonType": "string", "minLength": 1, "not": {"pattern": format!("\\{separator}")}};
        vec![
            StateCondition::schema(
                format!("`{path}` is missing, null or a list of `_id`s with `{separator}` around each"),
                &[path],
                of_one(path, doc! {"anyOf": [{"bsonType": "null"}, form]}),
            ),
            StateCondition::schema(
                format!("`{parent}` is missing, null or an `_id` that can be in a path"),
                &[parent],
                of_one(parent, doc! {"anyOf": [{"bsonType": ["null", "number", "objectId"]}, id]}),
            ),
        ]
    }

    pub(super) fn data_checks(&self, collection: &str) -> Vec<DataCheck> {
        let Self { path, parent, separator } = self;
        let stages = self.stages(collection);
        let separator = separator.to_string();
        let has_parent = || not(is_absent(parent));
        let is_found = || Bson::from(doc! {"$gt": [{"$size": format!("${PARENT}")}, 0]});
        let is_list = || is_one_of(parent, &["array"]);
        // The parent is placed if it has a path, or is a root.
        let is_placed = || {
            let above = |field: &Path| doc! {"$arrayElemAt": [format!("${PARENT}.{field}"), 0]};
            any(vec![has_type(above(path), &["string"]), has_type(above(parent), &ABSENT)])
        };
        let own = doc! {"$concat": [&separator, text("$_id"), &separator]};
        let expected = format!("${EXPECTED}");
        // The search counts bytes, and -1 means that the text does not occur.
        let is_below_itself = || {
            // An `_id` without a text cannot be in a path.
            let own = doc! {"$ifNull": [own.clone(), "\u{1}"]};
            Bson::from(doc! {"$gte": [{"$indexOfBytes": [{"$ifNull": [&expected, ""]}, own]}, 0]})
        };
        let differs = doc! {"$ne": [{"$ifNull": [value(path), Bson::Null]}, {"$ifNull": [&expected, Bson::Null]}]};
        let check = |found: String, consequence, condition| {
            let search = Search::Related { stages: stages.clone(), condition };
            DataCheck { found, consequence, search, backfill: None }
        };
        let below = |conditions: Vec<Bson>| {
            all([has_parent(), not(is_list()), is_found()].into_iter().chain(conditions).collect())
        };
        let orphan = all(vec![has_parent(), not(is_list()), not(is_found())]);
        let circle = below(vec![is_below_itself()]);
        let unplaced = below(vec![not(is_placed()), not(is_below_itself())]);
        let placed = any(vec![not(has_parent()), below(vec![is_placed(), not(is_below_itself())])]);
        let wrong = all(vec![placed, differs.into()]);
        let id_text = doc! {"$ifNull": [text("$_id"), ""]};
        let has_no_text = any(vec![
            doc! {"$eq": [&id_text, ""]}.into(),
            doc! {"$gte": [{"$indexOfBytes": [&id_text, &separator]}, 0]}.into(),
        ]);
        let unchanged = [path, parent].map(|field: &Path| field.as_str().to_owned()).to_vec();
        vec![
            DataCheck {
                backfill: Some(Backfill::Computed {
                    what: format!("`{path}` to the path of the parent"),
                    field: path.as_str().to_owned(),
                    computed: EXPECTED,
                    unchanged,
                }),
                ..check(
                    format!("whose `{path}` does not agree with `{parent}`"),
                    "searches of a subtree miss them, and docward rejects moves that meet them",
                    wrong,
                )
            },
            check(
                format!("whose parent has no `{path}`"),
                "their own follows from it; nodes that are still among them after a backfill are below themselves",
                unplaced,
            ),
            check(format!("whose `{parent}` is not stored"), "they are in no subtree", orphan),
            check(format!("whose `{parent}` is an array"), "a node has one parent", is_list()),
            check("that are below themselves".to_owned(), "they have no path; correct a parent", circle),
            check(
                "whose `_id` cannot be in a path".to_owned(),
                "docward rejects statements that place nodes below them",
                has_no_text,
            ),
        ]
    }

    /// Adds a node's parent, and the path that follows from it.
    fn stages(&self, collection: &str) -> Vec<Document> {
        let separator = self.separator.to_string();
        let above = doc! {"$arrayElemAt": [format!("${PARENT}.{}", self.path), 0]};
        // A parent whose path is not a text is found by its own check. Here it counts as a root.
        let start = doc! {"$cond": [{"$eq": [{"$type": &above}, "string"]}, &above, &separator]};
        let id = doc! {"$arrayElemAt": [format!("${PARENT}._id"), 0]};
        let expected = doc! {"$cond": [
            is_absent(&self.parent), Bson::Null,
            {"$concat": [start, text_of(id.into()), &separator]},
        ]};
        vec![
            doc! {"$lookup": {
                "from": collection, "localField": self.parent.as_str(), "foreignField": "_id", "as": PARENT,
            }},
            doc! {"$addFields": {EXPECTED: expected}},
        ]
    }
}

/// The text of an `_id` in paths; null for other types.
fn text(field: &str) -> Bson {
    text_of(field.into())
}

fn text_of(id: Bson) -> Bson {
    // The text of a double has a decimal point. One with a fraction is in no path.
    let long = doc! {"$convert": {"input": &id, "to": "long", "onError": Bson::Null}};
    let whole = doc! {"$cond": [{"$eq": [&long, &id]}, {"$convert": {"input": &long, "to": "string"}}, Bson::Null]};
    let text = doc! {"$convert": {"input": &id, "to": "string", "onError": Bson::Null, "onNull": Bson::Null}};
    let branch = |types: &[&str], then: Document| doc! {"case": has_type(id.clone(), types), "then": then};
    let branches = [branch(&["double", "decimal"], whole), branch(&["string", "int", "long", "objectId"], text)];
    doc! {"$switch": {"branches": branches.to_vec(), "default": Bson::Null}}.into()
}
