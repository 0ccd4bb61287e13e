//! `bucket`: the count equals the array's length, the length stays within the limit, and no item is lost.

use bson::{Bson, Document, doc};

use super::super::case::Statement;
use super::super::dice::Dice;
use super::super::rules::{Change, Promise};
use super::super::values::{as_number, at, put, small_number, take};

/// The paths of the fields.
#[derive(Clone, Copy, Debug)]
struct Names {
    array: &'static str,
    count: &'static str,
    opened: &'static str,
}

const TOP: Names = Names { array: "messages", count: "count", opened: "opened" };
const INSIDE: Names = Names { array: "log.messages", count: "log.count", opened: "log.opened" };
const APART: Names = Names { array: "messages", count: "log.count", opened: "log.opened" };

#[derive(Clone, Debug)]
pub(in super::super) struct Bucket {
    pub(in super::super) limit: usize,
    pub(in super::super) opened: bool,
    names: Names,
}

impl Bucket {
    pub(in super::super) fn random(dice: &mut Dice) -> Bucket {
        Bucket {
            limit: dice.pick(&[1, 3, 3, 5]),
            opened: dice.percent(50),
            names: dice.pick(&[TOP, TOP, TOP, INSIDE, APART]),
        }
    }

    /// The number of items; `None` if the value is not an array.
    fn length(&self, document: &Document) -> Option<usize> {
        match at(document, self.names.array) {
            None => Some(0),
            Some(Bson::Array(items)) => Some(items.len()),
            Some(_) => None,
        }
    }

    fn is_true(&self, document: &Document) -> bool {
        let count = at(document, self.names.count).map_or(Some(0.0), as_number);
        let length = self.length(document);
        length.is_some_and(|length| length <= self.limit && count == Some(length as f64))
    }

    /// The number of items that one statement pushes, if it does nothing else to the array.
    fn pushed(&self, change: &Change<'_>) -> Option<usize> {
        let [statement] = change.statements else { return None };
        if statement.upsert && statement.queries(self.names.array) {
            return None;
        }
        let writes = statement.writes();
        let [(operator, _, value)] =
            &writes.iter().filter(|(_, path, _)| path == self.names.array).collect::<Vec<_>>()[..]
        else {
            return None;
        };
        let each = value.as_document().and_then(|push| push.get_array("$each").ok());
        let sliced = value.as_document().is_some_and(|push| push.contains_key("$slice"));
        (operator == "$push" && !sliced && !statement.multi).then(|| each.map_or(1, Vec::len))
    }
}

impl Promise for Bucket {
    fn name(&self) -> &'static str {
        "bucket"
    }

    fn settings(&self) -> String {
        let Names { array, count, opened } = self.names;
        let opened = if self.opened { format!(", opened: {opened}") } else { String::new() };
        format!("bucket: {{ array: {array}, count: {count}, limit: {}{opened} }}", self.limit)
    }

    fn fields(&self) -> Vec<String> {
        [self.names.array, self.names.array, self.names.count, "sku"].map(str::to_owned).to_vec()
    }

    fn tidy(&self, dice: &mut Dice, document: &mut Document) {
        let items: Vec<Bson> = (0..dice.below(self.limit + 1)).map(|_| small_number(dice)).collect();
        put(document, self.names.count, (items.len() as i32).into());
        put(document, self.names.array, items.into());
        document.insert("sku", dice.pick(&["x", "y"]));
    }

    fn idiom(&self, dice: &mut Dice) -> Option<(Document, Document)> {
        let many = vec![1; dice.below(self.limit + 2)];
        let push = dice.pick(&[Bson::Int32(1), doc! { "$each": many }.into()]);
        Some((doc! { "sku": dice.pick(&["x", "y"]) }, doc! { "$push": { self.names.array: push } }))
    }

    fn alters(&self, statement: &Statement) -> bool {
        statement.upsert
            || [self.names.array, self.names.count, self.names.opened].iter().any(|field| statement.touches(field))
    }

    fn broken(&self, change: &Change<'_>) -> Option<String> {
        let mut changed = change.changed().filter(|(before, after)| {
            before.is_none_or(|before| {
                let touched =
                    [self.names.array, self.names.count].iter().any(|field| at(before, field) != at(after, field));
                touched && self.is_true(before)
            })
        });
        if changed.any(|(_, after)| !self.is_true(after)) {
            return Some("a count is not its array's length, or more than the limit".to_owned());
        }
        let pushed = self.pushed(change)?;
        let is_done =
            change.reply.is_some_and(|reply| matches!(reply.get_i32("n"), Ok(1)) && !reply.contains_key("writeErrors"));
        let total =
            |documents: &[Document]| documents.iter().map(|document| self.length(document).unwrap_or(0)).sum::<usize>();
        let arrived = total(change.after).saturating_sub(total(change.before));
        (is_done && arrived != pushed).then(|| "a pushed item was lost".to_owned())
    }

    fn harmless(&self, direct: &Change<'_>) -> bool {
        // A push that finds no bucket opens one.
        let pushes = direct.statements.iter().any(|statement| statement.touches(self.names.array));
        let number = |reply: &Document| reply.get("n").and_then(as_number).unwrap_or(0.0) as usize;
        let finds_all = |reply: &Document| match reply.get_document("lastErrorObject") {
            Ok(last) => last.get_bool("updatedExisting").unwrap_or_default(),
            Err(_) => number(reply) >= direct.statements.len() && !reply.contains_key("upserted"),
        };
        if pushes && !direct.reply.is_some_and(finds_all) {
            return false;
        }
        // docward finds a bucket with room by its count.
        let is_known = |before: Option<&Document>| before.is_none_or(|before| self.is_true(before));
        let counts = direct.statements.iter().any(|statement| statement.touches(self.names.count));
        // docward corrects a count that a client writes.
        let fits =
            |after| self.length(after).is_some_and(|length| length <= self.limit) && (!counts || self.is_true(after));
        // A later statement finds the time in a bucket that an earlier one has opened.
        let rewrites_time = direct.statements.iter().skip(1).any(|statement| statement.touches(self.names.opened));
        !rewrites_time && direct.changed().all(|(before, after)| fits(after) && is_known(before))
    }

    fn strip(&self, document: &mut Document) {
        take(document, self.names.count);
        take(document, self.names.opened);
        // docward's fields may have made the document.
        if document.get_document("log").is_ok_and(Document::is_empty) {
            document.remove("log");
        }
    }

    fn modifies(&self) -> bool {
        true
    }
}
