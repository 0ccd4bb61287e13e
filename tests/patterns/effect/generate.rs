//! Generated documents, filters and updates. A seed gives one case, so that a case can be repeated alone.

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Decimal128, Document, Regex, Timestamp, doc, oid::ObjectId};
use support::random::Random;

/// Top-level fields of generated documents.
const ROOTS: [&str; 3] = ["a", "b", "c"];

/// Paths that statements write, without positions of arrays.
const PLAIN: [&str; 13] = ["a", "b", "c", "a.n", "a.m", "a.n.k", "b.n", "b.n.m", "c.d", "a.k", "c.d.n", "a.0", "b.0"];

/// Paths with a position in an array, or what may be one.
const POSITIONS: [&str; 24] = [
    "a.$",
    "b.$",
    "a.$.n",
    "b.$.n",
    "a.n.$",
    "a.n.$.k",
    "a.$[]",
    "b.$[]",
    "b.$[].n",
    "a.$[].n.k",
    "a.n.$[]",
    "b.$[].$[]",
    "a.$[e]",
    "b.$[e]",
    "b.$[e].n",
    "a.n.$[e]",
    "b.$[e].n.$[]",
    "b.1",
    "b.1.n",
    "a.0.n",
    "a.n.0",
    "b.03",
    "b.0.n.2",
    "a.9",
];

const NAMES: [&str; 4] = ["n", "m", "k", "d"];

/// One update.
#[derive(Debug, Clone)]
pub(super) struct Statement {
    pub(super) filter: Document,
    /// A document or a pipeline.
    pub(super) update: Bson,
    pub(super) array_filters: Vec<Document>,
    pub(super) upsert: bool,
    pub(super) collation: Option<Document>,
}

impl Statement {
    /// The command that returns the document after the update.
    pub(super) fn command(&self) -> Document {
        let mut command = doc! {
            "findAndModify": "c",
            "query": self.filter.clone(),
            "update": self.update.clone(),
            "new": true,
            "upsert": self.upsert,
        };
        if !self.array_filters.is_empty() {
            command.insert("arrayFilters", self.array_filters.clone());
        }
        if let Some(collation) = &self.collation {
            command.insert("collation", collation.clone());
        }
        command
    }
}

fn is_number(value: &Bson) -> bool {
    matches!(value, Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_))
}

/// An equal value with numbers of another type.
fn equal(value: &Bson) -> Bson {
    match value {
        Bson::Int32(number) => Bson::Double(f64::from(*number)),
        Bson::Array(elements) => Bson::Array(elements.iter().map(equal).collect()),
        Bson::Document(fields) => {
            Bson::Document(fields.iter().map(|(name, value)| (name.clone(), equal(value))).collect())
        }
        other => other.clone(),
    }
}

/// Adds a path to an operator of an update.
fn add(update: &mut Document, operator: &str, path: &str, argument: Bson) {
    let entry = update.entry(operator.to_owned()).or_insert_with(|| Bson::Document(Document::new()));
    entry.as_document_mut().unwrap().insert(path, argument);
}

pub(super) struct Generator(Random);

impl Generator {
    pub(super) fn new(seed: u64) -> Generator {
        let mut random = Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        // The first numbers of neighbouring seeds are similar.
        for _ in 0..8 {
            random.next_number();
        }
        Generator(random)
    }

    fn below(&mut self, limit: usize) -> usize {
        // The low bits of xorshift are its weakest.
        ((self.0.next_number() >> 16) % limit as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    fn scalar(&mut self) -> Bson {
        let decimal = |text: &str| Bson::Decimal128(text.parse::<Decimal128>().unwrap());
        if self.chance(60) {
            return self.pick(&[1.into(), 2.into(), (-3).into(), 1.0.into(), "x".into(), true.into(), Bson::Null]);
        }
        self.pick(&[
            Bson::Int64(1),
            Bson::Int32(i32::MAX),
            Bson::Int32(i32::MIN),
            Bson::Int64(i64::MAX),
            Bson::Int64(i64::MIN),
            Bson::Double(-0.0),
            Bson::Double(0.5),
            Bson::Double(f64::NAN),
            Bson::Double(f64::INFINITY),
            Bson::Double(f64::MAX),
            decimal("1E+3"),
            decimal("1.0"),
            decimal("0E-8"),
            decimal("-0"),
            decimal("NaN"),
            decimal("-Infinity"),
            Bson::Boolean(false),
            Bson::String("X".to_owned()),
            Bson::String("$a".to_owned()),
            Bson::String(String::new()),
            Bson::String("longer than a number".to_owned()),
            Bson::DateTime(bson::DateTime::from_millis(5)),
            Bson::Timestamp(Timestamp { time: 0, increment: 0 }),
            Bson::Timestamp(Timestamp { time: 7, increment: 1 }),
            Bson::ObjectId(ObjectId::from_bytes([7; 12])),
            Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![1, 2] }),
            Bson::RegularExpression(Regex { pattern: "x".try_into().unwrap(), options: "".try_into().unwrap() }),
            Bson::Symbol("x".to_owned()),
            Bson::MinKey,
            Bson::MaxKey,
        ])
    }

    fn number(&mut self) -> Bson {
        loop {
            let number = self.scalar();
            if is_number(&number) {
                return number;
            }
        }
    }

    fn value(&mut self, depth: usize) -> Bson {
        match self.below(if depth > 2 { 6 } else { 12 }) {
            6 | 7 => Bson::Array(self.elements(depth)),
            8 | 9 => Bson::Document(self.fields(&NAMES, depth + 1)),
            10 => Bson::Array(vec![Bson::Document(self.fields(&NAMES, depth + 1))]),
            11 => self.pick(&[
                doc! {}.into(),
                Bson::Array(Vec::new()),
                doc! { "0": 1, "n": 2 }.into(),
                doc! { "n.k": 1 }.into(),
            ]),
            _ => self.scalar(),
        }
    }

    fn elements(&mut self, depth: usize) -> Vec<Bson> {
        let count = self.below(4);
        // Mostly of one shape, because a path must fit all of them.
        let one = self.value(depth + 1);
        (0..count).map(|_| if self.chance(30) { self.value(depth + 1) } else { one.clone() }).collect()
    }

    fn fields(&mut self, names: &[&str], depth: usize) -> Document {
        let mut document = Document::new();
        for name in names {
            if self.chance(60) {
                document.insert(*name, self.value(depth));
            }
        }
        document
    }

    /// A stored document.
    pub(super) fn document(&mut self, id: i32) -> Document {
        let mut document = if self.chance(10) {
            doc! { "_id": { "x": id } }
        } else {
            doc! { "_id": id }
        };
        for name in ROOTS {
            if self.chance(75) {
                let value = match self.below(10) {
                    0..4 => Bson::Array(self.elements(0)),
                    4 | 5 => self.number(),
                    _ => self.value(0),
                };
                document.insert(name, value);
            }
        }
        if self.chance(5) {
            document.insert("0", self.value(1));
        }
        document
    }

    /// A filter that matches the stored document, mostly with a condition that `$` needs.
    pub(super) fn matching(&mut self, stored: &Document) -> Document {
        let id = stored.get("_id").unwrap().clone();
        let mut filter = match self.below(4) {
            0 => doc! { "_id": { "$in": [id] } },
            1 => doc! { "$and": [{ "_id": id }] },
            _ => doc! { "_id": id },
        };
        for name in ROOTS {
            match stored.get(name) {
                Some(Bson::Array(elements)) if !elements.is_empty() && self.chance(50) => {
                    let element = self.pick(elements);
                    match element {
                        Bson::Document(fields) if self.chance(50) => {
                            if let Some((field, value)) = fields.iter().next().filter(|(name, _)| !name.contains('.')) {
                                filter.insert(format!("{name}.{field}"), doc! { "$eq": value });
                            }
                        }
                        element => drop(filter.insert(name, doc! { "$eq": element })),
                    }
                }
                Some(Bson::Document(fields)) if self.chance(30) => {
                    if let Some(Bson::Array(elements)) = fields.get("n")
                        && !elements.is_empty()
                    {
                        let element = self.pick(elements);
                        filter.insert(format!("{name}.n"), doc! { "$eq": element });
                    }
                }
                Some(_) if self.chance(15) => {
                    let other = self.pick(&[doc! { "$exists": true }, doc! { "$ne": "unknown" }]);
                    filter.insert(name, other);
                }
                _ => {}
            }
        }
        filter
    }

    fn condition(&mut self) -> Bson {
        let value = self.value(1);
        match self.below(18) {
            0 => doc! { "$eq": value }.into(),
            1 => doc! { "$in": [value] }.into(),
            2 => doc! { "$in": [value.clone(), value] }.into(),
            3 => doc! { "$in": [value, self.scalar()] }.into(),
            4 => doc! { "$in": [1, 1.0] }.into(),
            5 => doc! { "$all": [value] }.into(),
            6 => doc! { "$all": [value, self.scalar()] }.into(),
            7 => doc! { "$gte": value }.into(),
            8 => doc! { "$exists": self.chance(50) }.into(),
            9 => doc! { "$not": { "$eq": value } }.into(),
            10 => doc! { "$not": { "$not": { "$eq": value } } }.into(),
            11 => doc! { "$elemMatch": { "$eq": 1 } }.into(),
            12 => doc! { "$gte": self.scalar(), "$eq": value }.into(),
            _ => value,
        }
    }

    pub(super) fn filter(&mut self, depth: usize) -> Document {
        let mut filter = Document::new();
        for _ in 0..self.below(3) {
            match self.below(if depth > 2 { 5 } else { 10 }) {
                4 => filter.insert("_id", self.id()),
                5 => filter.insert("$and", vec![self.filter(depth + 1), doc! { "z": { "$exists": false } }]),
                6 => filter.insert("$or", vec![self.filter(depth + 1)]),
                7 => {
                    let branch = self.filter(depth + 1);
                    let other = if self.chance(50) { branch.clone() } else { self.filter(depth + 1) };
                    filter.insert("$or", vec![branch, other])
                }
                8 => filter.insert("$nor", vec![doc! { "a": self.scalar() }]),
                9 => filter.insert("$nor", vec![doc! { "$nor": [self.filter(depth + 1)] }]),
                _ => {
                    let path = self.pick(&PLAIN);
                    filter.insert(path, self.condition())
                }
            };
        }
        // The server rejects an empty list of branches, but accepts an empty branch.
        filter
    }

    fn id(&mut self) -> Bson {
        let value = self.scalar();
        match self.below(6) {
            0 => doc! { "x": value }.into(),
            1 => doc! { "$in": [value] }.into(),
            2 => doc! { "$gt": value }.into(),
            3 => doc! { "$eq": value }.into(),
            _ => value,
        }
    }

    /// An upsert, for an empty collection.
    pub(super) fn upsert(&mut self) -> Statement {
        if self.chance(25) {
            return self.upsert_inside();
        }
        let mut filter = self.filter(0);
        match self.below(60) {
            0 => _ = filter.insert("zq", doc! { "$all": [] }),
            1 => _ = filter.insert("$alwaysFalse", 1),
            2 => _ = filter.insert("$and", vec![doc! { "zq": { "$all": [] } }]),
            3 => _ = filter.insert("zq", doc! { "$in": [] }),
            _ => {}
        }
        let collation = self.chance(5).then(|| doc! { "locale": "en", "strength": 2 });
        Statement { collation, upsert: true, ..self.statement(filter) }
    }

    /// An upsert that changes what its filter gives to the field `a`, certainly or perhaps.
    fn upsert_inside(&mut self) -> Statement {
        let value = match self.below(3) {
            0 => Bson::Document(self.fields(&NAMES, 1)),
            1 => Bson::Array(vec![Bson::Document(self.fields(&NAMES, 1)); 3]),
            _ => Bson::Array(self.elements(1)),
        };
        let filter = match self.below(8) {
            0 => doc! { "$or": [{ "a": value.clone(), "z": 1 }, { "a": value }] },
            1 => doc! { "$nor": [{ "$nor": [{ "a": value }] }] },
            2 => doc! { "a": { "$in": [value.clone(), value] } },
            3 => doc! { "$and": [{ "a": { "$eq": value } }] },
            4 | 5 => doc! { "a": { "$in": [value.clone(), equal(&value)] } },
            _ => doc! { "a": value },
        };
        let paths = [
            "a", "a.n", "a.n.k", "a.m", "a.0", "a.2.n", "a.4", "a.3.m", "a.$[]", "a.$[].n", "a.$[e]", "a.$[e].d",
            "a.n.$[]",
        ];
        let mut update = Document::new();
        for _ in 0..1 + self.below(2) {
            let path = self.pick(&paths);
            let (operator, argument) = match self.below(5) {
                0 => ("$rename", self.pick(&["c", "c.d", "b", "b.n.m"]).into()),
                1 => ("$setOnInsert", self.value(1)),
                _ => self.operator(),
            };
            add(&mut update, operator, path, argument);
        }
        Statement { upsert: true, ..self.with_array_filters(filter, Bson::Document(update)) }
    }

    /// An update of this document, sometimes as an upsert.
    pub(super) fn update(&mut self, stored: &Document) -> Statement {
        let filter = self.matching(stored);
        let upsert = self.chance(20);
        let numbers = stored.iter().filter(|(name, value)| *name != "_id" && is_number(value));
        let statement = match numbers.last() {
            Some((name, _)) if self.chance(15) => {
                let operator = self.pick(&["$inc", "$inc", "$mul", "$min", "$max"]);
                let update = doc! { operator: { name: self.number() } };
                self.with_array_filters(filter, Bson::Document(update))
            }
            _ => self.statement(filter),
        };
        Statement { upsert, ..statement }
    }

    fn statement(&mut self, filter: Document) -> Statement {
        let update = match self.below(20) {
            0 | 1 => Bson::Document(self.replacement(&filter)),
            2 => Bson::Array(self.pipeline()),
            _ => Bson::Document(self.operators()),
        };
        self.with_array_filters(filter, update)
    }

    fn with_array_filters(&mut self, filter: Document, update: Bson) -> Statement {
        // Each of the array filters must be used.
        let array_filters = match update.to_string().contains("$[e]") {
            true => vec![self.array_filter()],
            false => Vec::new(),
        };
        Statement { filter, update, array_filters, upsert: false, collation: None }
    }

    fn array_filter(&mut self) -> Document {
        match self.below(4) {
            0 => doc! { "e": { "$gte": self.scalar() } },
            1 => doc! { "e.n": { "$exists": true } },
            2 => doc! { "e": { "$ne": self.scalar() } },
            _ => doc! { "e": { "$exists": true } },
        }
    }

    fn replacement(&mut self, filter: &Document) -> Document {
        let mut document = Document::new();
        match (self.below(3), filter.get("_id")) {
            (0, Some(id)) => drop(document.insert("_id", id.clone())),
            (1, None) => drop(document.insert("_id", self.scalar())),
            _ => {}
        }
        document.extend(self.fields(&ROOTS, 0));
        if self.chance(10) {
            document.insert("a.n", self.scalar());
        }
        document
    }

    /// A pipeline that only sets, and sometimes one that does more.
    fn pipeline(&mut self) -> Vec<Bson> {
        (0..1 + self.below(3))
            .map(|_| {
                let name = if self.chance(90) { self.pick(&ROOTS) } else { self.pick(&PLAIN) };
                let value = self.value(1);
                match self.below(8) {
                    0 => doc! { "$unset": name },
                    1 => doc! { "$unset": [name, "zz"] },
                    2 => doc! { "$set": { name: value } },
                    3 => doc! { "$set": { name: "$$REMOVE" } },
                    4 => doc! { "$addFields": { name: { "$literal": value }, "zz": 1 } },
                    _ => doc! { "$set": { name: { "$literal": value } } },
                }
            })
            .map(Bson::Document)
            .collect()
    }

    fn operators(&mut self) -> Document {
        let mut update = Document::new();
        for _ in 0..1 + self.below(3) {
            let path = match self.below(100) {
                0..35 => self.pick(&POSITIONS),
                35..38 => self.pick(&["_id", "_id.x", "0", "0.n"]),
                _ => self.pick(&PLAIN),
            };
            let (operator, argument) = self.operator();
            add(&mut update, operator, path, argument);
        }
        update
    }

    fn operator(&mut self) -> (&'static str, Bson) {
        let value = self.value(1);
        match self.below(28) {
            0..6 => ("$set", value),
            6 | 7 => ("$unset", 1.into()),
            8 | 9 => ("$inc", self.number()),
            10 => ("$mul", self.number()),
            11 => ("$min", value),
            12 => ("$max", value),
            13..15 => ("$setOnInsert", value),
            15 => ("$currentDate", self.pick(&[true.into(), doc! { "$type": "timestamp" }.into()])),
            16..19 => ("$push", self.pushed()),
            19..21 => ("$addToSet", self.added()),
            21 => ("$pull", self.pick(&[value, doc! { "n": 1 }.into(), doc! { "$gte": 1 }.into()])),
            22 => ("$pullAll", Bson::Array(self.elements(1))),
            23 => ("$pop", self.pick(&[1.into(), (-1).into()])),
            24 => {
                ("$bit", self.pick(&[doc! { "or": 5 }.into(), doc! { "and": 3_i64 }.into(), doc! { "xor": 1 }.into()]))
            }
            _ => ("$rename", self.pick(&PLAIN).into()),
        }
    }

    fn pushed(&mut self) -> Bson {
        let each = self.elements(1);
        match self.below(8) {
            0 => doc! { "$each": each, "$slice": self.pick(&[-3, -1, 0, 2, 9]) }.into(),
            1 => doc! { "$slice": self.pick(&[-2, 0, 1]), "$each": each }.into(),
            2 => doc! { "$each": each, "$position": self.pick(&[0, 1, -1]) }.into(),
            3 => doc! { "$each": each, "$sort": self.pick(&[1, -1]) }.into(),
            4 => doc! { "$each": each }.into(),
            5 => Bson::Array(each),
            _ => self.value(1),
        }
    }

    fn added(&mut self) -> Bson {
        let each = self.elements(1);
        match self.below(5) {
            0 | 1 => doc! { "$each": each }.into(),
            2 => doc! { "x": 1, "$each": each }.into(),
            3 => Bson::Array(each),
            _ => self.value(1),
        }
    }
}
