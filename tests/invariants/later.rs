//! What later versions of the server would insert: they simplify filters further, so an upsert takes more equalities
//! from its filter than with the mongod of the tests. A statement must keep every promise there too.

use bson::{Bson, Document};

use super::case::{Kind, Statement, never_matches};
use super::rules::Change;
use super::values::{at, put, related};

/// The documents after an upsert by operators, with the equalities that all branches of an `$or` share; `None` if it is
/// another statement, or has none that the inserted document lacks.
pub(super) fn stored_later(change: &Change<'_>) -> Option<Vec<Document>> {
    let [statement] = change.statements else { return None };
    let has_operators = statement.replacement().is_none() && !statement.is_pipeline();
    if statement.kind != Kind::Update || !has_operators || never_matches(&statement.filter) {
        return None;
    }
    let is_new = |document: &Document| change.earlier(document).is_none();
    let mut after = change.after.to_vec();
    let inserted = after.iter_mut().find(|document| is_new(document))?;
    let mut shared = Vec::new();
    equalities(&statement.filter, false, &mut shared);
    shared.retain(|(path, _)| !is_taken(inserted, path) && !writes(statement, path));
    for (path, value) in &shared {
        put(inserted, path, value.clone());
    }
    (!shared.is_empty()).then_some(after)
}

/// Whether the document has a value on the path.
fn is_taken(document: &Document, path: &str) -> bool {
    let ends = path.match_indices('.').map(|(end, _)| end).chain([path.len()]);
    ends.filter_map(|end| Some((end, at(document, &path[..end])?)))
        .any(|(end, value)| end == path.len() || value.as_document().is_none())
}

fn writes(statement: &Statement, path: &str) -> bool {
    let Some(Bson::Document(update)) = &statement.update else { return true };
    let paths = update.values().filter_map(Bson::as_document).flat_map(Document::keys);
    paths.into_iter().any(|written| related(written, path))
}

/// The equalities of a filter, only those of `$or` unless `direct`.
fn equalities(filter: &Document, direct: bool, found: &mut Vec<(String, Bson)>) {
    for (key, condition) in filter {
        let branches = || condition.as_array().into_iter().flatten().filter_map(Bson::as_document);
        match (key.as_str(), condition) {
            ("$and", _) => branches().for_each(|branch| equalities(branch, direct, found)),
            ("$or", _) => found.extend(shared(branches())),
            (name, _) if name.starts_with('$') || !direct => {}
            (path, Bson::Document(operators)) if operators.keys().any(|name| name.starts_with('$')) => {
                found.extend(operators.get("$eq").map(|value| (path.to_owned(), value.clone())));
            }
            (_, Bson::RegularExpression(_)) => {}
            (path, value) => found.push((path.to_owned(), value.clone())),
        }
    }
}

fn shared<'a>(branches: impl Iterator<Item = &'a Document>) -> Vec<(String, Bson)> {
    let mut each = branches.map(|branch| {
        let mut found = Vec::new();
        equalities(branch, true, &mut found);
        found
    });
    let first = each.next().unwrap_or_default();
    each.fold(first, |mut shared, other| {
        shared.retain(|equality| other.contains(equality));
        shared
    })
}
