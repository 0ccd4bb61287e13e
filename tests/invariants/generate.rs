//! Random cases: stored documents, filters that pin values in every form, updates of every kind, in every command
//! that carries them.

use bson::{Bson, Document, Regex, doc};

use super::case::{Case, End, Session, Step, first};
use super::dice::Dice;
use super::rules::{Rule, load};
use super::values::{PATHS, any, at, fitting, id, put, small_number, take};

/// One to three rules that docward loads together.
pub(super) fn rules(dice: &mut Dice) -> Vec<Rule> {
    loop {
        let count = dice.pick(&[1, 1, 1, 2, 2, 3]);
        let rules: Vec<Rule> = (0..count).map(|_| Rule::random(dice)).collect();
        if load(&rules) {
            return rules;
        }
    }
}

pub(super) fn case(dice: &mut Dice, rules: &[Rule]) -> Case {
    let mut generator = Generator::new(dice, rules);
    let stored: Vec<Document> = generator.stored();
    generator.known.clone_from(&stored);
    let count = generator.dice.pick(&[1, 1, 1, 1, 2, 3]);
    let mut steps: Vec<Step> = Vec::new();
    for _ in 0..count {
        // Several workers claim in turn, and devices send every write twice.
        let again = steps.last().filter(|_| generator.dice.percent(25)).cloned();
        let step = again.unwrap_or_else(|| generator.step());
        if step.session.in_transaction() {
            steps.extend(generator.transaction(step));
        } else {
            steps.push(step);
        }
    }
    Case { rules: rules.to_vec(), stored, steps }
}

struct Generator<'a> {
    dice: &'a mut Dice,
    rules: &'a [Rule],
    /// Paths to write and to query, mostly those of the rules.
    paths: Vec<String>,
    known: Vec<Document>,
    with_let: bool,
    identifiers: Vec<String>,
}

impl<'a> Generator<'a> {
    fn new(dice: &'a mut Dice, rules: &'a [Rule]) -> Generator<'a> {
        let own: Vec<String> = rules.iter().flat_map(|rule| rule.fields()).collect();
        let mut paths: Vec<String> = own.iter().flat_map(|path| vec![path.clone(); 6]).collect();
        let outer = own.iter().filter(|path| path.contains('.'));
        paths.extend(outer.map(|path| first(path).to_owned()));
        paths.extend(own.iter().map(|path| format!("{path}.x")));
        let others = own.len() * 3 + 3;
        paths.extend((0..others).map(|_| dice.pick(&PATHS).to_owned()));
        Generator { dice, rules, paths, known: Vec::new(), with_let: false, identifiers: Vec::new() }
    }

    fn path(&mut self) -> String {
        self.dice.pick(&self.paths)
    }

    /// A path to write to; some have a position or an arrayFilters identifier.
    fn target(&mut self) -> String {
        let path = self.path();
        match self.dice.below(40) {
            0 => format!("{path}.0"),
            1 => format!("{path}.$"),
            2 => format!("{path}.$[]"),
            3 => {
                self.identifiers.push("e".to_owned());
                format!("{path}.$[e]")
            }
            4 => match path.split_once('.') {
                Some((outer, rest)) => format!("{outer}.{}.{rest}", self.dice.pick(&["0", "0", "1", "$", "$[]"])),
                None => path,
            },
            _ => path,
        }
    }

    fn value(&mut self, path: &str) -> Bson {
        fitting(self.dice, path)
    }

    fn stored(&mut self) -> Vec<Document> {
        let count = self.dice.pick(&[0, 1, 1, 2, 3]);
        let mut documents: Vec<Document> = (1..=count)
            .map(|id: i32| {
                let mut document = self.document(35);
                if self.dice.percent(90) {
                    for rule in self.rules {
                        rule.tidy(self.dice, &mut document);
                    }
                }
                self.disturb(&mut document);
                document.remove("_id");
                let mut whole = doc! { "_id": id };
                whole.extend(document);
                whole
            })
            .collect();
        for rule in self.rules {
            rule.tidy_all(self.dice, &mut documents);
        }
        documents
    }

    /// Turns it into a document from before the rule, or from another application.
    fn disturb(&mut self, document: &mut Document) {
        if !self.dice.percent(20) {
            return;
        }
        let path = self.path();
        match self.dice.below(5) {
            0 => drop(take(document, &path)),
            1 => put(document, &path, Bson::Null),
            2 => put(document, first(&path), any(self.dice, 1)),
            3 => put(document, first(&path), Bson::Array(vec![Bson::Document(self.document(30))])),
            _ => put(document, &path, any(self.dice, 2)),
        }
    }

    fn document(&mut self, percent: usize) -> Document {
        let mut document = doc! {};
        let mut paths = self.paths.clone();
        paths.sort();
        paths.dedup();
        for path in paths {
            if self.dice.percent(percent) && path != "_id" && !path.ends_with(".x") {
                let value = self.value(&path);
                put(&mut document, &path, value);
            }
        }
        document
    }

    fn step(&mut self) -> Step {
        self.with_let = false;
        self.identifiers.clear();
        let mut command = match self.dice.below(10) {
            0 | 1 => self.insert(),
            2 => self.delete(),
            3 | 4 => self.find_and_modify(),
            _ => self.update(),
        };
        if self.with_let {
            command.insert("let", doc! { "x": small_number(self.dice) });
        }
        if self.dice.percent(4) {
            command.insert("comment", "generated");
        }
        if self.dice.percent(3) {
            command.insert("maxTimeMS", 60_000);
        }
        let session = match self.dice.below(24) {
            0 => Session::Retryable,
            1 | 2 => Session::Resent,
            3..6 => Session::Transaction(End::Commit),
            _ => Session::None,
        };
        let mut step = Step { command, session };
        // Drivers send no transaction number with statements on many documents.
        if session.is_retryable() && step.statements().iter().any(|statement| statement.multi) {
            step.session = Session::None;
        }
        step
    }

    /// One to three commands in one transaction.
    fn transaction(&mut self, first: Step) -> Vec<Step> {
        let others = self.dice.pick(&[0, 0, 1, 1, 2]);
        let mut steps = vec![first];
        steps.extend((0..others).map(|_| self.step()));
        steps.iter_mut().for_each(|step| step.session = Session::Transaction(End::More));
        let end = if self.dice.percent(25) { End::Abort } else { End::Commit };
        steps[others].session = Session::Transaction(end);
        steps
    }

    fn batch(&mut self, mut element: impl FnMut(&mut Self) -> Document) -> Vec<Document> {
        let count = self.dice.pick(&[1, 1, 1, 1, 1, 2, 3]);
        (0..count).map(|_| element(self)).collect()
    }

    fn with_order(&mut self, mut command: Document) -> Document {
        if self.dice.percent(20) {
            command.insert("ordered", self.dice.percent(30));
        }
        command
    }

    fn insert(&mut self) -> Document {
        let documents = self.batch(|this| {
            let mut document = if this.dice.percent(85) {
                doc! { "_id": id(this.dice) }
            } else {
                doc! {}
            };
            document.extend(this.written_document());
            document
        });
        self.with_order(doc! { "insert": "c", "documents": documents })
    }

    fn written_document(&mut self) -> Document {
        let percent = self.dice.pick(&[10, 40, 70]);
        let mut document = self.document(percent);
        if self.dice.percent(40) {
            for rule in self.rules {
                rule.tidy(self.dice, &mut document);
            }
        }
        document.remove("_id");
        document
    }

    fn delete(&mut self) -> Document {
        let deletes = self.batch(|this| {
            let mut element = doc! { "q": this.filter(false), "limit": this.dice.pick(&[0, 1, 1]) };
            this.options(&mut element);
            element
        });
        self.with_order(doc! { "delete": "c", "deletes": deletes })
    }

    fn update(&mut self) -> Document {
        let updates = self.batch(|this| {
            this.identifiers.clear();
            let upsert = this.dice.percent(35);
            let (q, u) = this.change(upsert);
            let mut element = doc! { "q": q, "u": u };
            if upsert {
                element.insert("upsert", true);
            }
            if element.get("u").is_some_and(|u| matches!(u, Bson::Document(d) if d.keys().any(|k| k.starts_with('$'))))
                && this.dice.percent(25)
            {
                element.insert("multi", true);
            }
            this.array_filters(&mut element);
            this.options(&mut element);
            element
        });
        self.with_order(doc! { "update": "c", "updates": updates })
    }

    fn find_and_modify(&mut self) -> Document {
        let upsert = self.dice.percent(35);
        let (query, update) = self.change(upsert);
        let mut command = doc! { "findAndModify": "c", "query": query };
        if self.dice.percent(40) {
            command.insert("sort", doc! { "_id": self.dice.pick(&[1, -1]) });
        }
        if self.dice.percent(15) {
            command.insert("remove", true);
        } else {
            command.insert("update", update);
            if upsert {
                command.insert("upsert", true);
            }
            if self.dice.percent(50) {
                command.insert("new", self.dice.percent(70));
            }
            self.array_filters(&mut command);
        }
        self.options(&mut command);
        command
    }

    fn array_filters(&mut self, element: &mut Document) {
        if let Some(identifier) = self.identifiers.first() {
            let filter = doc! { identifier: { "$gte": small_number(self.dice) } };
            element.insert("arrayFilters", vec![filter]);
        }
    }

    fn options(&mut self, element: &mut Document) {
        if self.dice.percent(4) {
            element.insert("hint", self.dice.pick(&[Bson::from("_id_"), doc! { "_id": 1 }.into()]));
        }
        if self.dice.percent(4) {
            element.insert("collation", doc! { "locale": "en", "strength": 2 });
        }
    }

    fn filter(&mut self, upsert: bool) -> Document {
        let mut filter = doc! {};
        match self.dice.below(10) {
            0 => {}
            1..7 => {
                let known = if upsert && self.dice.percent(60) { 4..8 } else { 1..4 };
                let id: i32 = known.start + self.dice.below(3) as i32;
                filter = self.pin("_id", id.into());
            }
            _ => {
                let id = id(self.dice);
                filter = self.pin("_id", id);
            }
        }
        let others = self.dice.pick(&[0, 0, 1, 1, 2]);
        for _ in 0..others {
            let condition = self.condition();
            filter = self.joined(filter, condition);
        }
        filter
    }

    fn joined(&mut self, mut one: Document, other: Document) -> Document {
        if one.is_empty() {
            return other;
        }
        let clash = other.keys().any(|key| one.contains_key(key));
        if clash || self.dice.percent(15) {
            return doc! { "$and": [one, other] };
        }
        one.extend(other);
        one
    }

    fn condition(&mut self) -> Document {
        let path = self.path();
        // Usually a value that a stored document has there.
        let known = if self.known.is_empty() { None } else { at(&self.dice.pick(&self.known), &path).cloned() };
        let value = match known {
            Some(value) if self.dice.percent(60) => value,
            _ => self.value(&path),
        };
        match self.dice.below(12) {
            0..7 => self.pin(&path, value),
            _ => self.comparison(&path, value),
        }
    }

    /// Every form of a condition that this field equals this value.
    fn pin(&mut self, path: &str, value: Bson) -> Document {
        let form = if path == "_id" { self.dice.pick(&[0, 0, 0, 0, 0, 0, 1, 2, 4, 6, 8]) } else { self.dice.below(13) };
        match form {
            1 => doc! { path: { "$eq": value } },
            2 => doc! { path: { "$in": [value] } },
            3 => {
                let other = self.value(path);
                doc! { path: { "$in": [value, other] } }
            }
            4 => doc! { path: { "$all": [value] } },
            5 => {
                let other = self.value(path);
                doc! { path: { "$all": [value, other] } }
            }
            6 => doc! { "$and": [{ path: value }] },
            7 => {
                let other = self.comparison_path();
                doc! { "$and": [{ path: value }, other] }
            }
            8 => doc! { "$or": [{ path: value }] },
            9 => {
                let other = self.value(path);
                doc! { "$or": [{ path: value }, { path: other }] }
            }
            10 => doc! { "$and": [{ "$or": [{ path: { "$eq": value } }] }] },
            11 if path.contains('.') => {
                let mut whole = doc! {};
                put(&mut whole, path, value);
                whole
            }
            12 => doc! { path: { "$elemMatch": { "$eq": value } } },
            _ => doc! { path: value },
        }
    }

    fn comparison_path(&mut self) -> Document {
        let path = self.path();
        let value = self.value(&path);
        self.comparison(&path, value)
    }

    fn comparison(&mut self, path: &str, value: Bson) -> Document {
        let literal = doc! { "$literal": value.clone() };
        match self.dice.below(14) {
            0 => doc! { path: { "$gt": value } },
            1 => doc! { path: { "$gte": value } },
            2 => doc! { path: { "$lt": value } },
            3 => doc! { path: { "$lte": value } },
            4 => doc! { path: { "$ne": value } },
            5 => doc! { path: { "$exists": self.dice.percent(50) } },
            6 => doc! { path: Regex { pattern: "^x".try_into().unwrap(), options: "i".try_into().unwrap() } },
            7 => doc! { path: { "$not": { "$gt": value } } },
            8 => doc! { "$nor": [{ path: value }] },
            9 => doc! { path: { "$type": "number" } },
            10 => {
                self.with_let = true;
                doc! { "$expr": { "$gte": [format!("${path}"), "$$x"] } }
            }
            11 => doc! { "$expr": { "$eq": [format!("${path}"), literal] } },
            12 => doc! { path: { "$gte": small_number(self.dice) } },
            _ => doc! { path: { "$gt": 0 } },
        }
    }

    /// A filter, and the change of the documents that it matches.
    fn change(&mut self, upsert: bool) -> (Document, Bson) {
        let rule = self.dice.pick(&self.rules.iter().collect::<Vec<_>>());
        let idiom = if self.dice.percent(25) { rule.idiom(self.dice) } else { None };
        match idiom {
            Some((filter, update)) => (filter, update.into()),
            None => {
                let modification = self.modification(upsert);
                (self.filter(upsert), modification)
            }
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
            let clashes = used.iter().any(|other| super::values::related(other, &path));
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
        let is_list = path == "messages" || self.dice.percent(4);
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
