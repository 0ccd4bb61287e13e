//! Random commands, valid and nearly valid: statements in every command that carries them, all indirect writes of
//! `table`, and broken copies of both. The same seed makes the same sequence.

use bson::{Bson, DateTime, Decimal128, Document, doc};

use super::table::{Sent, Target, fresh_uuid};
use support::frame::{MORE_TO_COME, Message};
use support::random::Random;

/// Protected collections whose stored documents show whether the rules held.
pub(super) const COLLECTIONS: [&str; 9] =
    ["blind", "bounded", "pairs", "invoices", "timestamped", "jobs", "buckets", "nodes", "readonly"];

/// Collections whose verdict depends only on the message, so that broken bytes cannot turn a forbidden write into an
/// allowed one.
const BREAKABLE: [&str; 4] = ["bounded", "buckets", "nodes", "readonly"];

/// One message; the next one may follow without waiting for its reply.
pub(super) struct Command {
    pub(super) collection: &'static str,
    /// Description for the report of a failure.
    pub(super) name: String,
    pub(super) frames: Vec<Vec<u8>>,
}

/// Initial documents, for which the invariants hold.
pub(super) fn seeds(collection: &str) -> Vec<Document> {
    let ids = 1..4;
    match collection {
        "blind" | "readonly" => ids.map(|id| doc! { "_id": id, "keep": id, "a": 1 }).collect(),
        "bounded" => ids.map(|id| doc! { "_id": id, "n": 5 }).collect(),
        "invoices" => ids.map(|id| doc! { "_id": id, "a": 1 }).collect(),
        "pairs" => ids.map(|id| doc! { "_id": id, "a": 1, "b": 1 }).collect(),
        "timestamped" => ids
            .map(|id| doc! { "_id": id, "a": 0, "at": time(0), "last_modified": { "a": time(0), "at": time(0) } })
            .collect(),
        "jobs" => ids.map(|id| doc! { "_id": id, "locked": false, "since": time(0), "try": 0, "done_by": 0 }).collect(),
        "buckets" => ids.map(|id| doc! { "_id": id, "list": [1], "n": 1 }).collect(),
        _ => vec![
            doc! { "_id": "a", "path": Bson::Null },
            doc! { "_id": "b", "parent": "a", "path": ",a," },
            doc! { "_id": "c", "parent": "b", "path": ",a,b," },
        ],
    }
}

pub(super) fn time(n: i64) -> Bson {
    Bson::DateTime(DateTime::from_millis(1_000_000_000_000 + n))
}

#[derive(Clone, Debug)]
enum Statement {
    Insert(Document),
    Update { q: Document, u: Bson, upsert: bool, multi: bool },
    Delete(Document),
}

/// Makes commands.
pub(super) struct Generator {
    random: Random,
    database: String,
    next_id: i32,
}

impl Generator {
    pub(super) fn new(seed: u64, database: &str) -> Generator {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.next_number();
        Generator { random, database: database.to_owned(), next_id: 100 }
    }

    /// `uuid_of` returns a collection's UUID.
    pub(super) fn next(&mut self, uuid_of: impl FnOnce(&str) -> Bson) -> Command {
        let collection = *self.random.pick(&COLLECTIONS);
        let (name, messages) = match self.random.below(10) {
            0..7 => self.written(collection),
            _ => self.indirect_write(collection, uuid_of),
        };
        // An open transaction would hold its locks for a minute.
        let breaks = BREAKABLE.contains(&collection) && messages.len() == 1 && self.random.below(4) == 0;
        let frames = messages.into_iter().map(|mut frame| {
            // Broken bytes could end up in a name, which the tests could not read as text.
            if breaks && frame.is_ascii() {
                self.break_up(&mut frame);
            }
            frame
        });
        Command {
            collection,
            frames: frames.collect(),
            name: format!("{}{name}", if breaks { "broken: " } else { "" }),
        }
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        self.random.pick(from).clone()
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.random.below(one_in) == 0
    }

    /// An indirect write of the table with a generated update.
    fn indirect_write(
        &mut self,
        collection: &'static str,
        uuid_of: impl FnOnce(&str) -> Bson,
    ) -> (String, Vec<Vec<u8>>) {
        let update = match self.update(collection) {
            // Without an attempt number no worker may complete a job.
            _ if collection == "jobs" => doc! { "$set": { "done_by": 99 } },
            Bson::Document(update) => update,
            _ => doc! {},
        };
        let target = Target { database: self.database.clone(), collection, update, uuid: uuid_of(collection) };
        let mut indirect_writes = match self.random.below(8) {
            0..3 => target.statements(),
            3..5 => target.outputs(),
            5..7 => target.administration(),
            _ => target.legacy(),
        };
        let indirect_write = indirect_writes.swap_remove(self.random.below(indirect_writes.len()));
        let frames = indirect_write.steps.iter().map(|sent| match sent {
            Sent::Message(message) => message.to_frame(1, 0).to_bytes(),
            Sent::Frame(frame) => frame.to_bytes(),
        });
        (indirect_write.name.to_owned(), frames.collect())
    }

    fn written(&mut self, collection: &'static str) -> (String, Vec<Vec<u8>>) {
        let count = 1 + self.random.below(3);
        let first = self.statement(collection);
        let mut statements = vec![first.clone()];
        while statements.len() < count {
            let next = self.statement(collection);
            if std::mem::discriminant(&next) == std::mem::discriminant(&first) {
                statements.push(next);
            }
        }
        let messages = self.carry(collection, &statements);
        (format!("{statements:?}"), messages.iter().map(|message| message.to_frame(1, 0).to_bytes()).collect())
    }

    /// Sends the statements in one of the commands that can carry them, in one of its shapes.
    fn carry(&mut self, c: &'static str, statements: &[Statement]) -> Vec<Message> {
        let (name, list) = match &statements[0] {
            Statement::Insert(_) => ("insert", "documents"),
            Statement::Update { .. } => ("update", "updates"),
            Statement::Delete(_) => ("delete", "deletes"),
        };
        let documents: Vec<Document> = statements.iter().map(Statement::element).collect();
        let mut body = doc! { name: c };
        if self.chance(3) {
            body.insert("ordered", self.chance(2));
        }
        let find_and_modify = !matches!(statements[0], Statement::Insert(_)) && self.chance(4);
        let transaction = self.chance(6);
        if find_and_modify {
            body = statements[0].find_and_modify(self.pick(&["findAndModify", "findandmodify"]), c);
        }
        if transaction {
            let session = doc! { "lsid": { "id": fresh_uuid() }, "txnNumber": 1_i64, "autocommit": false };
            body.extend(session.clone());
            body.insert("startTransaction", true);
            let mut commit = doc! { "commitTransaction": 1 };
            commit.extend(session);
            commit.insert("$db", "admin");
            return vec![self.shape(body, list, documents, find_and_modify), Message::new(commit)];
        }
        vec![self.shape(body, list, documents, find_and_modify)]
    }

    fn shape(&mut self, mut body: Document, list: &str, documents: Vec<Document>, bare: bool) -> Message {
        let shape = self.random.below(5);
        if !bare && shape < 2 {
            body.insert(list, documents.clone());
        }
        body.insert("$db", &self.database);
        let message = Message::new(body);
        match shape {
            _ if bare => message,
            0 | 1 => message,
            2 => message.sequence_first(list, documents),
            3 if !message.body().contains_key("lsid") => message.sequence(list, documents).flags(MORE_TO_COME),
            _ => message.sequence(list, documents),
        }
    }

    fn statement(&mut self, collection: &str) -> Statement {
        match self.random.below(6) {
            0 if collection == "jobs" => self.done(),
            0 => Statement::Insert(self.document(collection)),
            1 => Statement::Delete(self.deletable(collection)),
            _ => {
                let upsert = self.chance(5);
                let q = self.filter(collection, upsert);
                // The server chooses which of several matching documents it takes.
                let several = !q.contains_key("_id");
                Statement::Update {
                    q,
                    u: self.update(collection),
                    upsert,
                    multi: !upsert && (several || self.chance(5)),
                }
            }
        }
    }

    /// A worker completes a job; not all workers name the attempt that they claimed.
    fn done(&mut self) -> Statement {
        let attempt = self.random.below(4) as i32;
        let mut q = doc! { "_id": 1 + self.random.below(3) as i32 };
        if self.chance(2) {
            q.insert("try", attempt);
        }
        Statement::Update { q, u: doc! { "$set": { "done_by": attempt } }.into(), upsert: false, multi: false }
    }

    fn fresh_id(&mut self) -> i32 {
        self.next_id += 1;
        self.next_id
    }

    fn document(&mut self, collection: &str) -> Document {
        let id = self.fresh_id();
        match collection {
            "bounded" => doc! { "_id": id, "n": self.number() },
            "pairs" if self.chance(3) => doc! { "_id": id, "a": 7 },
            "pairs" => doc! { "_id": id, "a": 7, "b": 7 },
            "timestamped" => {
                let n = self.random.below(100) as i64;
                doc! { "_id": id, "a": n, "at": time(n) }
            }
            "jobs" => doc! { "_id": id, "done_by": 0 },
            "buckets" => doc! { "_id": id, "list": vec![1; self.random.below(9)], "n": self.random.below(4) as i32 },
            "nodes" => {
                let mut node = doc! { "_id": self.node() };
                if self.chance(2) {
                    node.insert("parent", self.node());
                }
                if self.chance(4) {
                    node.insert("path", format!(",{},", self.node()));
                }
                node
            }
            _ => doc! { "_id": id, "a": 1 },
        }
    }

    fn node(&mut self) -> &'static str {
        self.pick(&["a", "b", "c", "d", "e", "f"])
    }

    /// Documents that a statement may delete without breaking the invariants.
    fn deletable(&mut self, collection: &str) -> Document {
        match collection {
            "blind" | "timestamped" | "pairs" => doc! { "_id": { "$gte": 100 } },
            "jobs" => doc! { "_id": { "$gte": 100 }, "try": self.random.below(3) as i32 },
            "nodes" => doc! { "_id": self.node() },
            _ if self.chance(3) => doc! {},
            _ => doc! { "_id": 1 + self.random.below(3) as i32 },
        }
    }

    fn filter(&mut self, collection: &str, upsert: bool) -> Document {
        if collection == "nodes" {
            return doc! { "_id": self.node() };
        }
        let known = 1 + self.random.below(4) as i32;
        let id = if upsert { self.fresh_id() } else { known };
        match (collection, self.random.below(6)) {
            ("jobs", 0..3) => doc! { "_id": id, "try": self.random.below(3) as i32 },
            ("jobs", 3) => doc! { "_id": id, "locked": false },
            ("bounded", 0) => doc! { "_id": id, "n": { "$gte": self.random.below(6) as i32 } },
            ("buckets", 0 | 1) => doc! { "owner": id },
            (_, 1) if !upsert => doc! {},
            (_, 2) if !upsert => doc! { "$or": [{ "_id": id }, { "_id": { "$gte": 100 } }] },
            _ => doc! { "_id": id },
        }
    }

    fn number(&mut self) -> Bson {
        let small = self.random.below(20) as i32 - 5;
        match self.random.below(12) {
            0 => Bson::Double(f64::NAN),
            1 => Bson::Double(f64::from(small) + 0.5),
            2 => Bson::Int64(i64::from(small)),
            3 => Bson::Int64(i64::MAX),
            4 => Bson::Decimal128("-0.5".parse::<Decimal128>().unwrap()),
            5 => Bson::String("7".to_owned()),
            6 => Bson::Array(vec![Bson::Int32(-1)]),
            7 => Bson::Null,
            _ => Bson::Int32(small),
        }
    }

    /// An update that a rule may or may not accept; if accepted, the invariants hold as long as the rule works.
    fn update(&mut self, collection: &str) -> Bson {
        let update = match collection {
            "bounded" => self.bounded_update(),
            "pairs" => self.pick(&[
                doc! { "$set": { "a": 3, "b": 3 } },
                doc! { "$inc": { "a": 1, "b": 1 } },
                doc! { "$unset": { "a": 1, "b": 1 } },
                doc! { "$set": { "a": 4 } },
                doc! { "$inc": { "b": 1 } },
                doc! { "$unset": { "b": 1 } },
                doc! { "$rename": { "a": "c" } },
                doc! { "$set": { "c": 1 } },
                doc! { "c": 1 },
                doc! { "a": 5, "b": 5 },
                doc! { "b": 5 },
            ]),
            "timestamped" => self.timestamped_update(),
            "jobs" => self.job_update(),
            "buckets" => self.bucket_update(),
            "nodes" => self.node_update(),
            _ => self.pick(&[
                doc! { "$set": { "a": 2 } },
                doc! { "z": 1 },
                doc! {},
                doc! { "$inc": { "a": 1 } },
                doc! { "keep": 9 },
            ]),
        };
        // A forbidden change as a pipeline that computes, because constants would be read as operators.
        if self.chance(8) {
            let lawless = doc! { "$set": { "n": { "$add": [-3, 0] }, "a": -3, "at": time(0), "path": ",x," } };
            let stages = [
                lawless,
                doc! { "$replaceWith": { "_id": "$_id", "n": 99, "b": 1, "done_by": 99, "path": 5, "at": 1 } },
            ];
            return Bson::Array(vec![self.pick(&stages).into()]);
        }
        Bson::Document(update)
    }

    fn bounded_update(&mut self) -> Document {
        let (number, other) = (self.number(), self.number());
        self.pick(&[
            doc! { "$inc": { "n": number.clone() } },
            doc! { "$inc": { "n": -2 } },
            doc! { "$inc": { "n": 3 } },
            doc! { "$set": { "n": number.clone() } },
            doc! { "$set": { "n.x": 1 } },
            doc! { "$min": { "n": number.clone() } },
            doc! { "$max": { "n": number.clone() } },
            doc! { "$mul": { "n": -1 } },
            doc! { "$bit": { "n": { "xor": 63 } } },
            doc! { "$rename": { "m": "n" } },
            doc! { "$set": { "m": -8 } },
            doc! { "$setOnInsert": { "n": other.clone() } },
            doc! { "$push": { "n": 1 } },
            doc! { "$currentDate": { "n": true } },
            doc! { "n": other },
        ])
    }

    fn timestamped_update(&mut self) -> Document {
        let n = self.random.below(100) as i64;
        self.pick(&[
            doc! { "$set": { "a": n, "at": time(n) } },
            doc! { "$set": { "a": n, "at": time(n) } },
            doc! { "$set": { "a": -1 } },
            doc! { "$inc": { "a": 1 } },
            doc! { "$set": { "a": n, "at": time(n), "last_modified.a": time(n) } },
            doc! { "$set": { "a": n, "last_modified.a": time(n) } },
            doc! { "$set": { "last_modified.a": time(0) } },
            doc! { "$set": { "last_modified": {} } },
            doc! { "$rename": { "a": "x" } },
            doc! { "a": n, "at": time(n) },
        ])
    }

    fn job_update(&mut self) -> Document {
        let token = self.random.below(4) as i32;
        self.pick(&[
            doc! { "$set": { "locked": true } },
            doc! { "$set": { "locked": true } },
            doc! { "$set": { "note": 1 } },
            doc! { "$set": { "locked": false } },
            doc! { "$set": { "try": token - 2 } },
            doc! { "$inc": { "try": -1 } },
            doc! { "$unset": { "try": 1 } },
            doc! { "locked": false, "try": 0 },
            doc! { "note": 2 },
        ])
    }

    fn bucket_update(&mut self) -> Document {
        let many = vec![1; self.random.below(9)];
        self.pick(&[
            doc! { "$push": { "list": 1 } },
            doc! { "$push": { "list": { "$each": many.clone() } } },
            doc! { "$push": { "list": { "$each": many.clone(), "$slice": -9 } } },
            doc! { "$addToSet": { "list": 9 } },
            doc! { "$pop": { "list": 1 } },
            doc! { "$set": { "list": many.clone() } },
            doc! { "$set": { "list.7": 1 } },
            doc! { "$inc": { "n": -1 } },
            doc! { "$unset": { "n": 1 } },
            doc! { "$set": { "note": 1 } },
            doc! { "list": many.clone(), "n": 0 },
            doc! { "list": "x" },
        ])
    }

    fn node_update(&mut self) -> Document {
        let (node, other) = (self.node(), self.node());
        self.pick(&[
            doc! { "$set": { "parent": node } },
            doc! { "$set": { "parent": node } },
            doc! { "$set": { "parent": node, "path": format!(",{other},") } },
            doc! { "$set": { "path": format!(",{node},") } },
            doc! { "$set": { "path": 5 } },
            doc! { "$unset": { "parent": 1 } },
            doc! { "$unset": { "path": 1 } },
            doc! { "$rename": { "parent": "x" } },
            doc! { "$set": { "note": 1 } },
            doc! { "parent": node },
            doc! { "note": 1 },
        ])
    }

    /// Changes, removes or adds a few bytes after the header; the length field stays correct.
    fn break_up(&mut self, frame: &mut Vec<u8>) {
        for _ in 0..=self.random.below(2) {
            let at = 20 + self.random.below(frame.len() - 20);
            match self.random.below(4) {
                0 => frame[at] ^= 1 << self.random.below(7),
                1 => frame[at] = self.random.next_number() as u8 & 0x7f,
                2 => drop(frame.splice(at..at, [0; 3])),
                _ => drop(frame.drain(at..(at + 1 + self.random.below(4)).min(frame.len()))),
            }
        }
        let length = i32::try_from(frame.len()).unwrap();
        frame[..4].copy_from_slice(&length.to_le_bytes());
    }
}

impl Statement {
    /// Converts it to an element of its command's list.
    fn element(&self) -> Document {
        match self {
            Self::Insert(document) => document.clone(),
            Self::Delete(q) => doc! { "q": q.clone(), "limit": 0 },
            Self::Update { q, u, upsert, multi } => {
                doc! { "q": q.clone(), "u": u.clone(), "upsert": *upsert, "multi": *multi }
            }
        }
    }

    fn find_and_modify(&self, name: &str, collection: &str) -> Document {
        match self {
            Self::Update { q, u, upsert, .. } => {
                doc! { name: collection, "query": q.clone(), "sort": { "_id": 1 }, "update": u.clone(), "upsert": *upsert }
            }
            Self::Delete(q) => doc! { name: collection, "query": q.clone(), "sort": { "_id": 1 }, "remove": true },
            Self::Insert(_) => doc! { name: collection, "query": {}, "update": { "$set": { "a": 2 } } },
        }
    }
}
