//! Generated updates and documents: whatever mongod stores without docward, docward prevents it if the limit is one
//! byte or one item less, and mostly allows it if there is room. `DOCWARD_TEST_SCALE` makes it run longer;
//! `DOCWARD_TEST_SEED` gives other cases.

use bson::{Bson, Document, doc};
use support::driver::scaled;
use support::mongod::Mongod;
use support::proxy::Docward;
use support::random::Random;
use support::raw::Client;

const CASES: u32 = 800;
const LENGTHS: std::ops::Range<usize> = 40..900;
const COUNTS: std::ops::Range<usize> = 1..40;

/// The array whose items are limited.
const ARRAY: &str = "l";

const NAME: &str = "a_name_that_takes_more_bytes_than_a_position";

/// A rule for each limit, with a collection of its own.
fn rules() -> String {
    let mut yaml = "version: 1\nrules:\n".to_owned();
    for most in LENGTHS {
        yaml +=
            &format!("- {{ name: length-{most}, namespace: '*.length-{most}', limits: {{ document: {most}B }} }}\n");
    }
    for most in COUNTS {
        yaml += &format!(
            "- {{ name: count-{most}, namespace: '*.count-{most}', limits: {{ items: {{ {ARRAY}: {most} }} }} }}\n"
        );
    }
    yaml
}

struct Generator(Random);

impl Generator {
    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        self.0.pick(of).clone()
    }

    fn text(&mut self) -> Bson {
        let length = self.pick(&[0, 1, 9, 40]);
        "x".repeat(length).into()
    }

    fn element(&mut self) -> Bson {
        match self.0.below(8) {
            0 => doc! { "n": 1 }.into(),
            1 => doc! { NAME: [1, 2] }.into(),
            2 => Bson::Array(vec![1.into(); self.0.below(3)]),
            3 => doc! { "n": [], "k": self.text() }.into(),
            4 => Bson::Int32(self.0.below(4) as i32),
            _ => doc! {}.into(),
        }
    }

    fn elements(&mut self) -> Vec<Bson> {
        let count = self.0.below(5);
        // Mostly of one kind, because a path must fit all of them.
        let one = self.element();
        (0..count).map(|_| if self.0.below(5) == 0 { self.element() } else { one.clone() }).collect()
    }

    fn document(&mut self) -> Document {
        let mut document = doc! { "_id": 1 };
        if self.0.below(6) > 0 {
            document.insert(ARRAY, self.elements());
        }
        match self.0.below(3) {
            0 => document.insert("d", doc! { ARRAY: self.elements(), "n": 1 }),
            1 => document.insert("d", doc! {}),
            _ => None,
        };
        if self.0.below(2) == 0 {
            let text = self.text();
            document.insert("n", self.pick(&[Bson::Int32(1), Bson::Int64(1), text]));
        }
        document
    }

    fn path(&mut self) -> String {
        let last = self.pick(&["n", "n", NAME, "k.n", "0", "7", "120"]);
        match self.0.below(16) {
            0..4 => ARRAY.to_owned(),
            4 => format!("{ARRAY}.{}", self.pick(&["0", "2", "30", "00", "02", "007"])),
            5 => format!("{ARRAY}.{}.{last}", self.pick(&["0", "1", "12"])),
            6 | 7 => format!("{ARRAY}.$[].{last}"),
            8 => format!("{ARRAY}.$[e].{last}"),
            9 => format!("{ARRAY}.$.{last}"),
            10 => format!("{ARRAY}.{}", self.pick(&["$", "$[]", "$[e]"])),
            11 => format!("d.{ARRAY}"),
            12 => format!("d.{ARRAY}.$[].{last}"),
            13 => format!("d.{last}"),
            _ => last.to_owned(),
        }
    }

    /// The argument of `$push` or `$addToSet`.
    fn appended(&mut self) -> Bson {
        let each = self.elements();
        match self.0.below(10) {
            0 => self.element(),
            1 => self.text(),
            2 => doc! { "$each": each, "$slice": self.pick(&[-3, -1, 0, 2, 9]) }.into(),
            3 => doc! { "$slice": self.pick(&[-3, 0, 2]), "$each": each }.into(),
            4 => doc! { "$position": 0, "$each": each }.into(),
            5 => doc! { "a": self.text(), "$each": each }.into(),
            6 => doc! { "$each": [], "a": self.text() }.into(),
            7 => doc! { "a": self.text(), "$each": [] }.into(),
            8 => doc! { "$each": Bson::Array(Vec::new()) }.into(),
            _ => doc! { "$each": each }.into(),
        }
    }

    fn operators(&mut self) -> Document {
        let mut update = doc! {};
        for _ in 0..self.pick(&[1, 1, 1, 2]) {
            let path = self.path();
            let number = self.pick(&[Bson::Int32(1), Bson::Int64(1 << 40), Bson::Double(0.5)]);
            let (operator, argument) = match self.0.below(18) {
                0..3 => ("$set", self.text()),
                3 => ("$set", self.elements().into()),
                4 => ("$set", self.element()),
                5 => ("$max", self.text()),
                6 => ("$min", self.elements().into()),
                7 => ("$inc", number),
                8 => ("$mul", number),
                9 => ("$currentDate", Bson::Boolean(true)),
                10 => ("$rename", self.pick(&[ARRAY, "d.l", "a_new_name", "n", "d.new.name"]).into()),
                11 => ("$bit", doc! { "or": 1i64 << 40 }.into()),
                12 => (self.pick(&["$pop", "$unset", "$pull"]), 1.into()),
                13 | 14 => ("$addToSet", self.appended()),
                _ => ("$push", self.appended()),
            };
            let entry = update.entry(operator.to_owned()).or_insert_with(|| Bson::Document(doc! {}));
            entry.as_document_mut().unwrap().insert(path, argument);
        }
        update
    }

    /// A condition that looks like the rule's own.
    fn condition(&mut self) -> Option<(String, Bson)> {
        let position = self.pick(&["0", "00", "1", "01", "3", "003", "30", "x"]);
        (self.0.below(4) == 0).then(|| (format!("{ARRAY}.{position}"), doc! { "$exists": false }.into()))
    }

    fn upsert_filter(&mut self) -> Document {
        let mut filter = doc! { "_id": 1 };
        match self.0.below(5) {
            0 => filter.insert(ARRAY, self.elements()),
            1 => filter.insert("d", doc! { ARRAY: self.elements() }),
            2 => filter.insert(format!("d.{ARRAY}"), self.elements()),
            3 => filter.insert("n", self.text()),
            _ => None,
        };
        filter
    }
}

/// One generated statement and the document before it; `None`: an upsert.
struct Case {
    before: Option<Document>,
    filter: Document,
    update: Document,
}

impl Case {
    fn random(generator: &mut Generator) -> Case {
        let update = generator.operators();
        if generator.0.below(4) == 0 {
            return Case { before: None, filter: generator.upsert_filter(), update };
        }
        let mut filter = doc! { "_id": 1 };
        if update.to_string().contains(".$\"") || update.to_string().contains(".$.") {
            filter.insert(ARRAY, doc! { "$elemMatch": { "$exists": true } });
            if generator.0.below(4) == 0 {
                // The position can be that of an element of this array.
                filter.insert(format!("d.{ARRAY}"), doc! { "$elemMatch": { "$exists": true } });
            }
        }
        filter.extend(generator.condition());
        Case { before: Some(generator.document()), filter, update }
    }

    /// Sends the statement to a collection with only the document before it. Returns what is stored then.
    fn send(&self, direct: &mut Client, to: Option<&mut Client>, database: &str, collection: &str) -> Option<Document> {
        direct.command(database, doc! { "delete": collection, "deletes": [{ "q": {}, "limit": 0 }] });
        if let Some(before) = &self.before {
            direct.command(database, doc! { "insert": collection, "documents": [before.clone()] });
        }
        let mut statement = doc! { "q": &self.filter, "u": &self.update, "upsert": self.before.is_none() };
        if self.update.to_string().contains("$[e]") {
            statement.insert("arrayFilters", vec![doc! { "e": { "$exists": true } }]);
        }
        let command = doc! { "update": collection, "updates": [statement] };
        match to {
            Some(through) => through.command(database, command),
            None => direct.command(database, command),
        };
        let found = direct.command(database, doc! { "find": collection, "filter": {}, "limit": 1 });
        let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        batch.first().map(|document| document.as_document().unwrap().clone())
    }
}

fn length(document: Option<&Document>) -> usize {
    document.map_or(0, |document| document.to_vec().unwrap().len())
}

fn count(document: Option<&Document>) -> usize {
    document.and_then(|document| document.get_array(ARRAY).ok()).map_or(0, Vec::len)
}

#[test]
fn no_generated_statement_exceeds_a_limit() {
    let docward = Docward::start(Mongod::shared(), &rules());
    let database = Mongod::shared().fresh_database();
    let (mut direct, mut through) = (Client::connect(&Mongod::shared().address()), Client::connect(&docward.address()));
    let seed = std::env::var("DOCWARD_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_122);
    let mut generator = Generator(Random(seed));
    let (mut longer, mut allowed_longer, mut more, mut allowed_more) = (0, 0, 0, 0);
    let mut found = Vec::new();
    for number in 0..scaled(CASES) {
        let case = Case::random(&mut generator);
        let before = case.before.as_ref();
        let after = case.send(&mut direct, None, &database, "free");
        let after = after.as_ref();
        let context = || {
            let Case { before, filter, update } = &case;
            format!("seed {seed}, case {number}: {before:?} by ({filter}, {update}) -> {after:?}")
        };
        // The limit that the statement exceeds, and one with much room.
        let mut compare = |kind: &str, too_small: usize, large: usize| {
            let stored = case.send(&mut direct, Some(&mut through), &database, &format!("{kind}-{too_small}"));
            if stored.as_ref() != before {
                found.push(format!("{kind} {too_small} is exceeded: {}", context()));
            }
            case.send(&mut direct, Some(&mut through), &database, &format!("{kind}-{large}")).as_ref() == after
        };
        if length(after) > length(before) && LENGTHS.contains(&(length(after) - 1)) {
            longer += 1;
            allowed_longer += u32::from(compare("length", length(after) - 1, LENGTHS.end - 1));
        }
        if count(after) > count(before) && COUNTS.contains(&(count(after) - 1)) {
            more += 1;
            allowed_more += u32::from(compare("count", count(after) - 1, COUNTS.end - 1));
        }
    }
    println!("{allowed_longer} of {longer} longer documents are allowed, {allowed_more} of {more} longer arrays");
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
    assert!(longer > scaled(CASES) / 4 && more > scaled(CASES) / 20, "{longer} {more}");
    // A rule that rejects everything keeps its limits, too.
    assert!(allowed_longer * 5 > longer * 4 && allowed_more * 5 > more * 4);
}
