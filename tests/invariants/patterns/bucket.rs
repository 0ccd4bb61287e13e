//! `bucket`: the count equals the array's length, the length stays within the limit, and no item is lost.

use bson::{Bson, Document, doc};

use super::super::case::{Kind, Statement};
use super::super::dice::Dice;
use super::super::rules::{Change, Promise};
use super::super::values::{as_number, small_number};

const ARRAY: &str = "messages";
const COUNT: &str = "count";
const OPENED: &str = "opened";

#[derive(Clone, Debug)]
pub(in super::super) struct Bucket {
    pub(in super::super) limit: usize,
    pub(in super::super) opened: bool,
}

/// The number of items; `None` if the value is not an array.
fn length(document: &Document) -> Option<usize> {
    match document.get(ARRAY) {
        None => Some(0),
        Some(Bson::Array(items)) => Some(items.len()),
        Some(_) => None,
    }
}

impl Bucket {
    pub(in super::super) fn random(dice: &mut Dice) -> Bucket {
        Bucket { limit: dice.pick(&[1, 3, 3, 5]), opened: dice.percent(50) }
    }

    fn is_true(&self, document: &Document) -> bool {
        let count = document.get(COUNT).map_or(Some(0.0), as_number);
        let length = length(document);
        length.is_some_and(|length| length <= self.limit && count == Some(length as f64))
    }

    /// The number of items that one statement pushes, if it does nothing else to the array.
    fn pushed(change: &Change<'_>) -> Option<usize> {
        let [statement] = change.statements else { return None };
        let writes = statement.writes();
        let [(operator, _, value)] = &writes.iter().filter(|(_, path, _)| path == ARRAY).collect::<Vec<_>>()[..] else {
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
        let opened = if self.opened { format!(", opened: {OPENED}") } else { String::new() };
        format!("bucket: {{ array: {ARRAY}, count: {COUNT}, limit: {}{opened} }}", self.limit)
    }

    fn fields(&self) -> Vec<String> {
        [ARRAY, ARRAY, COUNT, "sku"].map(str::to_owned).to_vec()
    }

    fn tidy(&self, dice: &mut Dice, document: &mut Document) {
        let items: Vec<Bson> = (0..dice.below(self.limit + 1)).map(|_| small_number(dice)).collect();
        document.insert(COUNT, items.len() as i32);
        document.insert(ARRAY, items);
        document.insert("sku", dice.pick(&["x", "y"]));
    }

    fn idiom(&self, dice: &mut Dice) -> Option<(Document, Document)> {
        let many = vec![1; dice.below(self.limit + 2)];
        let push = dice.pick(&[Bson::Int32(1), doc! { "$each": many }.into()]);
        Some((doc! { "sku": dice.pick(&["x", "y"]) }, doc! { "$push": { ARRAY: push } }))
    }

    fn alters(&self, statement: &Statement) -> bool {
        statement.upsert || [ARRAY, COUNT, OPENED].iter().any(|field| statement.touches(field))
    }

    fn broken(&self, change: &Change<'_>) -> Option<String> {
        let mut changed = change.changed().filter(|(before, after)| {
            before.is_none_or(|before| {
                let touched = before.get(ARRAY) != after.get(ARRAY) || before.get(COUNT) != after.get(COUNT);
                touched && self.is_true(before)
            })
        });
        if changed.any(|(_, after)| !self.is_true(after)) {
            return Some("a count is not its array's length, or more than the limit".to_owned());
        }
        let pushed = Self::pushed(change)?;
        let is_done =
            change.reply.is_some_and(|reply| matches!(reply.get_i32("n"), Ok(1)) && !reply.contains_key("writeErrors"));
        let total =
            |documents: &[Document]| documents.iter().map(|document| length(document).unwrap_or(0)).sum::<usize>();
        let arrived = total(change.after).saturating_sub(total(change.before));
        (is_done && arrived != pushed).then(|| "a pushed item was lost".to_owned())
    }

    fn harmless(&self, direct: &Change<'_>) -> bool {
        let pushes = direct
            .statements
            .iter()
            .any(|statement| statement.kind == Kind::Update && (statement.touches(ARRAY) || statement.touches(COUNT)));
        // The count of an inserted bucket is checked.
        let counted = |before: Option<&Document>, after| {
            before.is_some() || !Document::contains_key(after, COUNT) || self.is_true(after)
        };
        let fits = |after| length(after).is_some_and(|length| length <= self.limit);
        // A later statement finds the time in a bucket that an earlier one has opened.
        let rewrites_time = direct.statements.iter().skip(1).any(|statement| statement.touches(OPENED));
        !pushes && !rewrites_time && direct.changed().all(|(before, after)| fits(after) && counted(before, after))
    }

    fn strip(&self, document: &mut Document) {
        document.remove(COUNT);
        document.remove(OPENED);
    }

    fn modifies(&self) -> bool {
        true
    }
}
