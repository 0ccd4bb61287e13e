//! Replacements, pipelines, and operators of every kind.

use bson::{Bson, Document, doc};

use super::super::values::{any, id, related, small_number};
use super::{Generator, TAGS};

/// Adds the fields that are missing.
fn extend(document: &mut Document, more: Document) {
    for (key, value) in more {
        if !document.contains_key(&key) {
            document.insert(key, value);
        }
    }
}

impl Generator<'_> {
    /// A filter, and the change of the documents that it matches.
    pub(super) fn change(&mut self, upsert: bool) -> (Document, Bson) {
        let rule = self.dice.pick(&self.rules.iter().collect::<Vec<_>>());
        let idiom = if self.dice.percent(25) { rule.idiom(self.dice) } else { None };
        let (filter, mut modification) = match idiom {
            Some(idiom) => {
                let (filter, update) = if self.dice.percent(30) { self.with_another(idiom) } else { idiom };
                let filter = if self.dice.percent(30) { self.with_pin(filter) } else { filter };
                (filter, update.into())
            }
            None if self.dice.percent(12) => self.around(upsert),
            None if self.with_tags && self.dice.percent(40) => self.selecting(upsert),
            None => {
                let modification = self.modification(upsert);
                (self.filter(upsert), modification)
            }
        };
        if upsert && self.dice.percent(30) {
            self.collide(&mut modification);
        }
        (filter, modification)
    }

    /// A statement that is usual for one rule, with what is usual for another, if both are of one kind.
    fn with_another(&mut self, (mut filter, mut update): (Document, Document)) -> (Document, Document) {
        let rule = self.dice.pick(&self.rules.iter().collect::<Vec<_>>());
        let Some((also, change)) = rule.idiom(self.dice) else { return (filter, update) };
        let replaces = |update: &Document| !update.keys().any(|key| key.starts_with('$'));
        if replaces(&update) != replaces(&change) {
            return (filter, update);
        }
        extend(&mut filter, also);
        for (key, value) in change {
            match (update.get_document_mut(&key), value) {
                (Ok(fields), Bson::Document(more)) => extend(fields, more),
                (_, value) => extend(&mut update, doc! { key: value }),
            }
        }
        (filter, update)
    }

    /// The filter with one more condition that a field equals a value: a statement that is usual for one rule, about a
    /// field of another.
    fn with_pin(&mut self, filter: Document) -> Document {
        let path = self.path();
        let equality = self.known_equality(&path);
        self.joined(filter, equality)
    }

    /// A filter with an equality on a field, and operators that write around it or inside it, sometimes beside others.
    fn around(&mut self, upsert: bool) -> (Document, Bson) {
        let inner: Vec<String> = self.paths.iter().filter(|path| path.contains('.')).cloned().collect();
        let path = if inner.is_empty() { self.path() } else { self.dice.pick(&inner) };
        let outer = path.rsplit_once('.').map_or(path.as_str(), |(outer, _)| outer).to_owned();
        let filter = self.filter(upsert);
        if upsert && path.contains('.') && self.dice.percent(30) {
            return self.in_given_array(filter, &path);
        }
        let equality = self.known_equality(&path);
        let on_insert = if upsert { 3 } else { 0 };
        let (operator, field, value): (_, _, Bson) = match self.dice.below(9 + on_insert) {
            9 => ("$setOnInsert", outer, doc! { "x": 1 }.into()),
            10 | 11 => {
                let value = self.value(&outer);
                ("$setOnInsert", outer, value)
            }
            0 => ("$set", outer, doc! {}.into()),
            1 => ("$set", outer, doc! { "x": 1 }.into()),
            2 => ("$set", outer, vec![doc! { "x": 1 }].into()),
            3 => ("$unset", outer, "".into()),
            4 => ("$rename", outer, "other".into()),
            5 => ("$rename", path, self.path().into()),
            6 => ("$set", format!("{path}.x"), 1.into()),
            7 => ("$unset", path, "".into()),
            _ => {
                let value = self.value(&outer);
                ("$set", outer, value)
            }
        };
        let mut update = doc! { operator: { field: value } };
        if self.dice.percent(40) {
            let other = self.target();
            let (operator, value) = self.operation(&other, upsert);
            if let Bson::Document(fields) = update.entry(operator.to_owned()).or_insert(doc! {}.into()) {
                fields.insert(other, value);
            }
        }
        (self.joined(filter, equality), update.into())
    }

    /// A filter that gives an upsert an array around a field, and operators that write into an element of it.
    fn in_given_array(&mut self, filter: Document, path: &str) -> (Document, Bson) {
        let (outer, inner) = path.rsplit_once('.').unwrap_or((path, "x"));
        let mut element = doc! {};
        if self.dice.percent(50) {
            element.insert(inner, self.value(path));
        }
        if self.dice.percent(50) {
            element.insert(self.dice.pick(&["n", "m", "x", "id", "z"]), small_number(self.dice));
        }
        let array = Bson::Array((0..self.dice.below(3)).map(|_| element.clone().into()).collect());
        let equality = self.equality(outer, array);
        let position = self.dice.pick(&["0", "0", "1", "$[]"]);
        let written = self.dice.pick(&[inner, inner, "z", "m"]);
        let value = self.value(path);
        let mut update = match self.dice.below(6) {
            0 => doc! { "$push": { outer: { written: value } } },
            1 => doc! { self.dice.pick(&["$min", "$max"]): { outer: [{ written: value }] } },
            2 | 3 => doc! { "$setOnInsert": { format!("{outer}.{position}.{written}"): value } },
            _ => doc! { "$set": { format!("{outer}.{position}.{written}"): value } },
        };
        if self.dice.percent(40) && !update.contains_key("$set") {
            update.insert("$set", doc! { "note": 1 });
        }
        (self.joined(filter, equality), update.into())
    }

    /// A filter that selects a tag, and operators that write it by `$`, beside others.
    fn selecting(&mut self, upsert: bool) -> (Document, Bson) {
        let rule = self.dice.pick(&self.rules.iter().collect::<Vec<_>>());
        let idiom = if self.dice.percent(30) { rule.idiom(self.dice) } else { None };
        let is_operators = |update: &Document| update.keys().any(|key| key.starts_with('$'));
        let (filter, mut update) = match idiom.filter(|(_, update)| is_operators(update)) {
            Some(idiom) => idiom,
            None => (self.filter(upsert), self.operators(upsert)),
        };
        let tag = self.dice.pick(&["a", "b", "c"]).into();
        let equality = self.equality(TAGS, tag);
        if let Bson::Document(set) = update.entry("$set".to_owned()).or_insert(doc! {}.into()) {
            set.insert(format!("{TAGS}.$"), "z");
        }
        (self.joined(filter, equality), update.into())
    }

    /// Writes the value of another document to the field with the unique index.
    fn collide(&mut self, modification: &mut Bson) {
        let known: Vec<Document> = self.known.clone();
        let (Some(field), Bson::Document(update)) = (self.unique, modification) else { return };
        let values: Vec<&Bson> = known.iter().filter_map(|document| document.get(field)).collect();
        if values.is_empty()
            || update.values().any(|fields| fields.as_document().is_some_and(|f| f.contains_key(field)))
        {
            return;
        }
        let value = self.dice.pick(&values).clone();
        if !update.keys().any(|key| key.starts_with('$')) {
            update.insert(field, value);
        } else if let Bson::Document(set) = update.entry("$set".to_owned()).or_insert(doc! {}.into()) {
            set.insert(field, value);
        }
    }

    fn modification(&mut self, upsert: bool) -> Bson {
        match self.dice.below(10) {
            0 | 1 => {
                let mut document = self.written_document();
                if self.dice.percent(15) {
                    document.insert("_id", id(self.dice));
                }
                document.into()
            }
            2 => self.pipeline(),
            _ => self.operators(upsert).into(),
        }
    }

    /// Stages that set constants, as ORMs send them, and some that compute.
    fn pipeline(&mut self) -> Bson {
        let mut stages = Vec::new();
        for _ in 0..=self.dice.below(2) {
            let path = self.path();
            let value = self.value(&path);
            let stage = match self.dice.below(8) {
                0 => doc! { "$unset": path },
                1 => doc! { "$addFields": { path: { "$literal": value } } },
                2 => doc! { "$set": { path.clone(): { "$add": [format!("${path}"), 1] } } },
                3 => {
                    let mut document = self.written_document();
                    document.remove("_id");
                    doc! { "$replaceWith": { "$literal": document } }
                }
                4 => doc! { "$set": { path: value } },
                _ => {
                    let other = self.path();
                    let more = self.value(&other);
                    doc! { "$set": { path: { "$literal": value }, other: { "$literal": more } } }
                }
            };
            stages.push(stage);
        }
        stages.into()
    }

    fn operators(&mut self, upsert: bool) -> Document {
        let mut update = doc! {};
        let mut used: Vec<String> = Vec::new();
        let together = self.rules.iter().find(|rule| rule.name() == "together").map(|rule| rule.fields());
        let wanted = match together {
            Some(fields) if self.dice.percent(60) => fields,
            _ => (0..self.dice.pick(&[1, 1, 2, 3])).map(|_| self.target()).collect(),
        };
        for path in wanted {
            let clashes = used.iter().any(|other| related(other, &path));
            if clashes && !self.dice.percent(5) {
                continue;
            }
            let (operator, value) = self.operation(&path, upsert);
            if !update.contains_key(operator) {
                update.insert(operator, doc! {});
            }
            update.get_document_mut(operator).unwrap().insert(path.clone(), value);
            used.push(path);
        }
        if update.is_empty() {
            doc! { "$set": { "note": 1 } }
        } else {
            update
        }
    }

    fn operation(&mut self, path: &str, upsert: bool) -> (&'static str, Bson) {
        let number = if self.dice.percent(80) { small_number(self.dice) } else { any(self.dice, 0) };
        let value = self.value(path);
        let is_list = path.ends_with("messages") || self.dice.percent(4);
        if is_list {
            return self.list_operation(value);
        }
        match self.dice.below(if upsert { 30 } else { 27 }) {
            0..8 => ("$set", value),
            8..10 => ("$unset", "".into()),
            10..16 => ("$inc", number),
            16 => ("$mul", number),
            17 => ("$min", value),
            18 => ("$max", value),
            19 => ("$rename", self.path().into()),
            20 => ("$rename", "other".into()),
            21 => ("$currentDate", self.dice.pick(&[Bson::Boolean(true), doc! { "$type": "timestamp" }.into()])),
            22 => ("$bit", doc! { self.dice.pick(&["and", "or", "xor"]): self.dice.below(8) as i32 }.into()),
            23 => self.list_operation(value),
            24 => ("$setOnInsert", value),
            25 => ("$inc", self.dice.pick(&[1, -1]).into()),
            26 => ("$set", value),
            _ => ("$setOnInsert", value),
        }
    }

    fn list_operation(&mut self, value: Bson) -> (&'static str, Bson) {
        let items = || Bson::Array(vec![1.into(), 2.into()]);
        match self.dice.below(14) {
            0..4 => ("$push", self.dice.pick(&[value, 1.into()])),
            4..6 => ("$push", doc! { "$each": vec![1; self.dice.below(5)] }.into()),
            6 => {
                let mut push = doc! { "$each": items() };
                if self.dice.percent(50) {
                    push.insert("$slice", self.dice.below(5) as i32 - 2);
                }
                if self.dice.percent(40) {
                    push.insert("$position", self.dice.below(3) as i32);
                }
                if self.dice.percent(40) {
                    push.insert("$sort", self.dice.pick(&[1, -1]));
                }
                ("$push", push.into())
            }
            7 => ("$pull", self.dice.pick(&[value, 1.into(), doc! { "$gte": 2 }.into()])),
            8 => ("$pullAll", items()),
            9 => ("$pop", self.dice.pick(&[1, -1]).into()),
            10 => ("$addToSet", value),
            11 => ("$addToSet", doc! { "$each": items() }.into()),
            _ => ("$set", value),
        }
    }
}
