//! The indirect writes, one per line. Each is first sent directly: if the stored documents change, the assertion
//! through docward can fail. Then it is sent through docward, on every protected collection, and nothing may change.
//! `random` sends the same indirect writes in random order.

use bson::{Binary, Bson, Document, doc, spec::BinarySubtype};

use super::{Setting, docward, errors, mongod};
use support::frame::{Frame, MORE_TO_COME, Message};
use support::process::{SOON, TIMEOUT, poll};
use support::raw::Client;

const REJECTED: i32 = 121;
const UNREADABLE: i32 = 9;

/// A rule's collection, and an update that the rule rejects.
struct ProtectedCollection {
    collection: &'static str,
    update: Document,
}

fn protected_collections() -> Vec<ProtectedCollection> {
    let protected = |collection, update| ProtectedCollection { collection, update };
    vec![
        protected("blind", doc! { "z": 1 }),
        protected("bounded", doc! { "$set": { "n": -1 } }),
        protected("small", doc! { "$set": { "list": [1, 2, 3] } }),
        protected("versioned", doc! { "$set": { "v": 1 } }),
        protected("pairs", doc! { "$set": { "a": 9 } }),
        protected("invoices", doc! { "$set": { "a": 9 } }),
        protected("timestamped", doc! { "$set": { "a": 9 } }),
        protected("jobs", doc! { "$set": { "a": 9 } }),
        protected("buckets", doc! { "$set": { "list": [1, 2, 3, 4, 5, 6] } }),
        protected("nodes", doc! { "$set": { "path": ",x," } }),
        protected("readonly", doc! { "$set": { "a": 9 } }),
    ]
}

fn stored() -> Vec<Document> {
    let claimed = 1;
    vec![
        doc! { "_id": 1, "a": 1, "b": 1, "n": 1, "path": Bson::Null, "try": claimed },
        doc! { "_id": 2, "a": 1, "b": 1, "n": 0, "try": claimed },
    ]
}

/// The handling of an indirect write by docward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handling {
    /// Rejected with this code, and a text that names docward.
    Rejected(i32),
    /// The client requests no reply.
    Silent,
    /// The connection ends.
    Closed,
    /// The server itself rejects it in every case, so docward may forward it.
    Dead,
}

use Handling::{Closed, Dead, Rejected, Silent};

/// A way to change `collection`.
pub(super) struct IndirectWrite {
    pub(super) name: &'static str,
    /// Sent directly, it changes the stored documents.
    works_directly: bool,
    handling: Handling,
    pub(super) steps: Vec<Sent>,
}

pub(super) enum Sent {
    Message(Message),
    Frame(Frame),
}

/// The target of an indirect write.
pub(super) struct Target {
    pub(super) database: String,
    pub(super) collection: &'static str,
    pub(super) update: Document,
    pub(super) uuid: Bson,
}

impl Target {
    fn namespace(&self, collection: &str) -> String {
        format!("{}.{collection}", self.database)
    }

    fn elsewhere(&self) -> String {
        elsewhere(&self.database)
    }

    fn on(&self, database: &str, mut body: Document) -> Message {
        body.insert("$db", database);
        Message::new(body)
    }

    fn message(&self, body: Document) -> Message {
        self.on(&self.database, body)
    }

    /// An indirect write with one command.
    fn indirect_write(
        &self,
        name: &'static str,
        works_directly: bool,
        handling: Handling,
        body: Document,
    ) -> IndirectWrite {
        self.sent(name, works_directly, handling, self.message(body))
    }

    fn on_admin(&self, name: &'static str, works_directly: bool, handling: Handling, body: Document) -> IndirectWrite {
        self.sent(name, works_directly, handling, self.on("admin", body))
    }

    fn sent(&self, name: &'static str, works_directly: bool, handling: Handling, message: Message) -> IndirectWrite {
        IndirectWrite { name, works_directly, handling, steps: vec![Sent::Message(message)] }
    }

    /// A command in which an invalid UTF-8 byte replaces each tilde.
    fn invalid(&self, name: &'static str, body: Document) -> IndirectWrite {
        let mut frame = self.message(body).to_frame(1, 0);
        frame.body.iter_mut().filter(|byte| **byte == b'~').for_each(|byte| *byte = 0xff);
        IndirectWrite { name, works_directly: false, handling: Dead, steps: vec![Sent::Frame(frame)] }
    }

    /// A command whose first field has this value.
    fn command(&self, name: &str, target: impl Into<Bson>, rest: Document) -> Document {
        let mut command = doc! { name: target.into() };
        command.extend(rest);
        command
    }

    fn statement(&self) -> Document {
        doc! { "q": { "_id": 1 }, "u": self.update.clone() }
    }

    /// Statements, in every command and shape that carries them.
    pub(super) fn statements(&self) -> Vec<IndirectWrite> {
        let c = self.collection;
        let list = || vec![self.statement()];
        let update = || self.message(doc! { "update": c });
        let modify = |name: &str| self.command(name, c, doc! { "query": { "_id": 1 }, "update": self.update.clone() });
        let odd = doc! { "_id": "$_id", "a": 77, "n": -5, "path": ",", "list": [1, 2, 3, 4, 5, 6], "v": 1 };
        let pipeline = vec![doc! { "$replaceWith": odd }];
        let session = || doc! { "lsid": { "id": fresh_uuid() }, "txnNumber": 1_i64 };
        let with = |mut body: Document, fields: Document| {
            body.extend(fields);
            body
        };
        let retryable = with(doc! { "update": c, "updates": list() }, session());
        let own = session();
        let begun = with(
            with(doc! { "update": c, "updates": list() }, own.clone()),
            doc! { "startTransaction": true, "autocommit": false },
        );
        let committed = with(with(doc! { "commitTransaction": 1 }, own), doc! { "autocommit": false });
        let unacknowledged = self.message(doc! { "update": c, "writeConcern": { "w": 0 } });
        let bulk = doc! { "bulkWrite": 1, "nsInfo": [{ "ns": self.namespace("free") }, { "ns": self.namespace(c) }],
        "ops": [{ "update": 1, "filter": { "_id": 1 }, "updateMods": self.update.clone() }] };
        let explain = |inner: Document| doc! { "explain": inner, "verbosity": "executionStats" };
        let symbol = Bson::Symbol(c.to_owned());
        vec![
            self.indirect_write(
                "update, list in the body",
                true,
                Rejected(REJECTED),
                doc! { "update": c, "updates": list() },
            ),
            self.sent("update, list as a section", true, Rejected(REJECTED), update().sequence("updates", list())),
            self.sent("update, section first", true, Rejected(REJECTED), update().sequence_first("updates", list())),
            self.indirect_write(
                "update, unordered",
                true,
                Rejected(REJECTED),
                doc! { "update": c, "ordered": false, "updates": list() },
            ),
            self.indirect_write("findAndModify", true, Rejected(REJECTED), modify("findAndModify")),
            self.indirect_write("findandmodify", true, Rejected(REJECTED), modify("findandmodify")),
            self.indirect_write(
                "update by pipeline",
                true,
                Rejected(REJECTED),
                doc! { "update": c, "updates": [{ "q": { "_id": 1 }, "u": pipeline.clone() }] },
            ),
            self.indirect_write(
                "findAndModify by pipeline",
                true,
                Rejected(REJECTED),
                doc! { "findAndModify": c, "query": { "_id": 1 }, "update": pipeline },
            ),
            self.indirect_write("retryable update", true, Rejected(REJECTED), retryable),
            IndirectWrite {
                steps: vec![Sent::Message(self.message(begun)), Sent::Message(self.on("admin", committed))],
                name: "transaction",
                works_directly: true,
                handling: Rejected(REJECTED),
            },
            self.sent("w: 0", true, Silent, unacknowledged.sequence("updates", list()).flags(MORE_TO_COME)),
            self.on_admin("bulkWrite", false, Rejected(REJECTED), bulk),
            self.indirect_write("explain of an update", false, Dead, explain(doc! { "update": c, "updates": list() })),
            self.indirect_write("explain of findAndModify", false, Dead, explain(modify("findAndModify"))),
            self.indirect_write(
                "update, name as symbol",
                true,
                Rejected(REJECTED),
                doc! { "update": symbol, "updates": list() },
            ),
            self.indirect_write(
                "update by UUID",
                false,
                Rejected(UNREADABLE),
                doc! { "update": self.uuid.clone(), "updates": list() },
            ),
            self.indirect_write(
                "findAndModify by UUID",
                false,
                Rejected(UNREADABLE),
                doc! { "findAndModify": self.uuid.clone(), "query": {}, "update": self.update.clone() },
            ),
            self.indirect_write(
                "update, NUL in the name",
                false,
                Dead,
                doc! { "update": format!("{c}\0"), "updates": list() },
            ),
            self.invalid("update, name that is no UTF-8", doc! { "update": format!("{c}~"), "updates": list() }),
            self.invalid(
                "findAndModify, name that is no UTF-8",
                doc! { "findAndModify": format!("{c}~"), "update": self.update.clone() },
            ),
            self.indirect_write(
                "update, other case",
                false,
                Dead,
                doc! { "update": c.to_uppercase(), "updates": list() },
            ),
            self.indirect_write(
                "update, the database in the name",
                false,
                Dead,
                doc! { "update": self.namespace(c), "updates": list() },
            ),
            self.indirect_write("update of a view", false, Dead, doc! { "update": "view", "updates": list() }),
            self.indirect_write(
                "findAndModify of a view",
                false,
                Dead,
                doc! { "findAndModify": "view", "query": {}, "update": self.update.clone() },
            ),
            self.indirect_write("Update", false, Rejected(REJECTED), doc! { "Update": c, "updates": list() }),
            self.indirect_write(
                "clusterUpdate",
                false,
                Rejected(REJECTED),
                doc! { "clusterUpdate": c, "updates": list() },
            ),
        ]
    }

    /// Aggregations and mapReduce with an output collection.
    pub(super) fn outputs(&self) -> Vec<IndirectWrite> {
        let (c, db) = (self.collection, self.database.as_str());
        let stages = |stages: Vec<Document>| doc! { "aggregate": "source", "pipeline": stages, "cursor": {} };
        let stage = |stage: Document| stages(vec![stage]);
        let place = || doc! { "db": db, "coll": c };
        let elsewhere = |stage: Document| {
            self.on(&self.elsewhere(), doc! { "aggregate": "source", "pipeline": [stage], "cursor": {} })
        };
        let nested = || vec![doc! { "$merge": c }];
        let reduce = |out: Bson| {
            doc! { "mapReduce": "source", "map": "function() { emit(this._id, 1) }", "reduce": "function() { return 1 }", "out": out }
        };
        let out = |action: &str| Bson::from(doc! { action: c });
        let into_db = |action: &str| Bson::from(doc! { action: c, "db": db });
        let merge = || stage(doc! { "$merge": c });
        let explained = |mut aggregate: Document| {
            aggregate.insert("explain", true);
            aggregate
        };
        let sectioned = |body: Document| self.message(body);
        let unfinished = || doc! { "aggregate": "source", "cursor": {} };
        vec![
            self.indirect_write("$out: string", true, Rejected(REJECTED), stage(doc! { "$out": c })),
            self.indirect_write("$out: {db, coll}", true, Rejected(REJECTED), stage(doc! { "$out": place() })),
            self.sent("$out from another database", true, Rejected(REJECTED), elsewhere(doc! { "$out": place() })),
            self.indirect_write("$out: symbol", false, Rejected(REJECTED), stage(doc! { "$out": Bson::Symbol(c.to_owned()) })),
            self.indirect_write("$merge: string", true, Rejected(REJECTED), merge()),
            self.indirect_write("$merge: {into}", true, Rejected(REJECTED), stage(doc! { "$merge": { "into": c, "whenMatched": "replace" } })),
            self.indirect_write("$merge: {into: {coll}}", true, Rejected(REJECTED), stage(doc! { "$merge": { "into": { "coll": c } } })),
            self.indirect_write("$merge: {into: {db, coll}}", true, Rejected(REJECTED), stage(doc! { "$merge": { "into": place() } })),
            self.sent("$merge from another database", true, Rejected(REJECTED), elsewhere(doc! { "$merge": { "into": place() } })),
            self.indirect_write("$merge after $documents", true, Rejected(REJECTED),
                doc! { "aggregate": 1, "cursor": {}, "pipeline": [{ "$documents": [{ "_id": 1, "stolen": true }] }, { "$merge": c }] }),
            self.indirect_write("$merge in $facet", false, Rejected(REJECTED), stage(doc! { "$facet": { "x": nested() } })),
            self.indirect_write("$merge in $lookup", false, Rejected(REJECTED), stage(doc! { "$lookup": { "from": "source", "as": "x", "pipeline": nested() } })),
            self.indirect_write("$merge in $unionWith", false, Rejected(REJECTED), stage(doc! { "$unionWith": { "coll": "source", "pipeline": nested() } })),
            self.indirect_write("$merge, explain: true", false, Rejected(REJECTED), explained(merge())),
            self.indirect_write("explain of $merge", false, Dead, doc! { "explain": merge(), "verbosity": "executionStats" }),
            self.indirect_write("view with $merge", false, Dead, doc! { "create": "merging", "viewOn": "source", "pipeline": nested() }),
            self.indirect_write("$merge into a view", false, Dead, stage(doc! { "$merge": "view" })),
            self.indirect_write("$out onto a view", false, Dead, stage(doc! { "$out": "view" })),
            self.sent("pipeline as a section", false, Rejected(REJECTED), sectioned(unfinished()).sequence("pipeline", nested())),
            self.sent("pipeline as the first section", false, Rejected(REJECTED), sectioned(unfinished()).sequence_first("pipeline", nested())),
            self.indirect_write("clusterAggregate", false, Rejected(REJECTED), doc! { "clusterAggregate": "source", "pipeline": nested(), "cursor": {} }),
            self.indirect_write("mapReduce, out: string", true, Rejected(REJECTED), reduce(c.into())),
            self.indirect_write("mapReduce, out: {replace}", true, Rejected(REJECTED), reduce(out("replace"))),
            self.indirect_write("mapReduce, out: {merge}", true, Rejected(REJECTED), reduce(out("merge"))),
            self.indirect_write("mapReduce, out: {reduce}", true, Rejected(REJECTED), reduce(out("reduce"))),
            self.indirect_write("mapReduce, out: {replace, db}", true, Rejected(REJECTED), reduce(into_db("replace"))),
            self.sent("mapReduce from another database", true, Rejected(REJECTED), self.on(&self.elsewhere(), reduce(into_db("merge")))),
            self.indirect_write("mapReduce, two outs", false, Dead, reduce(doc! { "replace": "other", "merge": c }.into())),
            self.indirect_write("mapReduce, inline and out", false, Dead, reduce(doc! { "inline": 0, "merge": c }.into())),
            self.indirect_write("explain of mapReduce", false, Dead, doc! { "explain": reduce(c.into()), "verbosity": "executionStats" }),
        ]
    }

    /// Commands on whole collections, and commands between servers.
    pub(super) fn administration(&self) -> Vec<IndirectWrite> {
        let c = self.collection;
        let ns = |collection: &str| self.namespace(collection);
        let insert = || doc! { "op": "i", "ns": ns(c), "o": { "_id": 9 } };
        let nested = |operations: Vec<Document>| doc! { "op": "c", "ns": ns("$cmd"), "o": { "applyOps": operations } };
        let by_uuid = doc! { "op": "i", "ns": ns(c), "ui": self.uuid.clone(), "o": { "_id": 9 } };
        let inner =
            || doc! { "dbName": &self.database, "command": { "delete": c, "deletes": [{ "q": {}, "limit": 0 }] } };
        let scan = doc! { "cscan": { "args": { "direction": 1 } } };
        let stage = doc! { "delete": { "args": { "node": scan, "isMulti": true } } };
        vec![
            self.on_admin("renameCollection onto", true, Rejected(REJECTED), doc! { "renameCollection": ns("source"), "to": ns(c), "dropTarget": true }),
            self.on_admin("renameCollection from", true, Rejected(REJECTED), doc! { "renameCollection": ns(c), "to": ns("gone"), "dropTarget": true }),
            self.on_admin("renameCollection from another database", true, Rejected(REJECTED),
                doc! { "renameCollection": format!("{}.source", self.elsewhere()), "to": ns(c), "dropTarget": true }),
            self.on_admin("internalRenameIfOptionsAndIndexesMatch", false, Rejected(REJECTED),
                doc! { "internalRenameIfOptionsAndIndexesMatch": 1, "from": ns("source"), "to": ns(c), "indexes": [], "collectionOptions": {} }),
            self.on_admin("_shardsvrRenameCollection", false, Rejected(REJECTED), doc! { "_shardsvrRenameCollection": ns("source"), "to": ns(c) }),
            self.on_admin("_recvChunkStart", false, Rejected(REJECTED), doc! { "_recvChunkStart": ns(c) }),
            self.indirect_write("cloneCollectionAsCapped", false, Rejected(REJECTED), doc! { "cloneCollectionAsCapped": "source", "toCollection": c, "size": 4096 }),
            self.indirect_write("convertToCapped", false, Rejected(REJECTED), doc! { "convertToCapped": c, "size": 4096 }),
            self.indirect_write("emptycapped", true, Rejected(REJECTED), doc! { "emptycapped": c }),
            self.indirect_write("captrunc", false, Rejected(REJECTED), doc! { "captrunc": c, "n": 1 }),
            self.indirect_write("godinsert", true, Rejected(REJECTED), doc! { "godinsert": c, "obj": { "_id": 9 } }),
            self.indirect_write("stageDebug", true, Rejected(REJECTED), doc! { "stageDebug": { "collection": c, "plan": stage } }),
            self.on_admin("testInternalTransactions", true, Rejected(REJECTED), doc! { "testInternalTransactions": 1, "commandInfos": [inner()] }),
            self.sent("testInternalTransactions, list as a section", false, Rejected(REJECTED),
                self.on("admin", doc! { "testInternalTransactions": 1 }).sequence("commandInfos", vec![inner()])),
            self.indirect_write("applyOps", true, Rejected(REJECTED), doc! { "applyOps": [insert()] }),
            self.on_admin("applyOps on admin", true, Rejected(REJECTED), doc! { "applyOps": [insert()] }),
            self.on_admin("applyOps, update", true, Rejected(REJECTED),
                doc! { "applyOps": [{ "op": "u", "ns": ns(c), "o2": { "_id": 1 }, "o": { "_id": 1, "z": 1 } }] }),
            self.on_admin("applyOps, delete", true, Rejected(REJECTED), doc! { "applyOps": [{ "op": "d", "ns": ns(c), "o": { "_id": 1 } }] }),
            self.on_admin("applyOps by UUID", true, Rejected(REJECTED), doc! { "applyOps": [by_uuid] }),
            self.on_admin("applyOps, drop", true, Rejected(REJECTED), doc! { "applyOps": [{ "op": "c", "ns": ns("$cmd"), "o": { "drop": c } }] }),
            self.on_admin("applyOps, nested", true, Rejected(REJECTED), doc! { "applyOps": [nested(vec![insert()])] }),
            self.on_admin("applyOps, nested twice", true, Rejected(REJECTED), doc! { "applyOps": [nested(vec![nested(vec![insert()])])] }),
            self.indirect_write("a command of tomorrow", false, Rejected(REJECTED), doc! { "overwrite": 1, "where": [{ "into": c }] }),
            self.on_admin("a command of tomorrow on admin", false, Rejected(REJECTED), doc! { "overwrite": { "ns": ns(c) } }),
        ]
    }

    /// Messages of the wire protocol before OP_MSG.
    pub(super) fn legacy(&self) -> Vec<IndirectWrite> {
        let name = self.namespace(self.collection);
        let document = |document: &Document| document.to_vec().unwrap();
        let prefix = [&[0; 4][..], name.as_bytes(), &[0]].concat();
        let frame =
            |op_code: i32, parts: &[&[u8]]| Frame { request_id: 5, response_to: 0, op_code, body: parts.concat() };
        let (one, zero) = (document(&doc! { "_id": 1 }), [0; 4]);
        let indirect_write = |name, handling, frame| IndirectWrite {
            name,
            works_directly: false,
            handling,
            steps: vec![Sent::Frame(frame)],
        };
        let insert = doc! { "insert": self.collection, "documents": [{ "_id": 9 }] };
        vec![
            indirect_write("OP_INSERT", Closed, frame(2002, &[&prefix, &document(&doc! { "_id": 9 })])),
            indirect_write("OP_UPDATE", Closed, frame(2001, &[&prefix, &zero, &one, &document(&self.update)])),
            indirect_write("OP_DELETE", Closed, frame(2006, &[&prefix, &zero, &one])),
            indirect_write("OP_QUERY", Rejected(352), Frame::query(5, &self.namespace("$cmd"), &insert)),
        ]
    }
}

/// Another database, which also has a collection `source`.
pub(super) fn elsewhere(database: &str) -> String {
    format!("{database}_elsewhere")
}

pub(super) fn fresh_uuid() -> Bson {
    static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: [number.to_le_bytes(), [7; 8]].concat() })
}

/// The reply.
#[derive(Debug)]
enum ClientOutcome {
    Replies(Vec<Document>),
    Silent,
    Closed,
}

fn send_indirect_write(client: &mut Client, address: &str, indirect_write: &IndirectWrite) -> ClientOutcome {
    let mut replies = Vec::new();
    for sent in &indirect_write.steps {
        match sent {
            Sent::Message(message) => {
                client.send(message);
                if message.flags & MORE_TO_COME != 0 {
                    // The reply to the next message arrives when this one is done.
                    client.command("admin", doc! { "ping": 1 });
                    return ClientOutcome::Silent;
                }
            }
            Sent::Frame(frame) => client.send_bytes(&frame.to_bytes()),
        }
        match client.receive_within(SOON).unwrap() {
            Some(frame) if frame.op_code == support::frame::OP_REPLY => replies.push(frame.reply_document()),
            Some(frame) => replies.push(Message::parse(&frame).body().clone()),
            None => {
                *client = Client::connect(address);
                return ClientOutcome::Closed;
            }
        }
    }
    ClientOutcome::Replies(replies)
}

fn check(indirect_write: &IndirectWrite, collection: &str, reply: &ClientOutcome) {
    let name = indirect_write.name;
    match (indirect_write.handling, reply) {
        (Dead, ClientOutcome::Replies(_)) | (Silent, ClientOutcome::Silent) | (Closed, ClientOutcome::Closed) => {}
        (Rejected(code), ClientOutcome::Replies(replies)) => {
            let errors = errors(&replies[0]);
            let explained = |(found, text): &(i32, String)| *found == code && text.contains("docward");
            assert!(!errors.is_empty() && errors.iter().all(explained), "{name} on {collection}: {replies:?}");
            let info = replies[0].get_document("errInfo").and_then(|info| info.get_document("docward"));
            // If the collection is unknown, the first of all rules rejects it.
            let is_known = code != UNREADABLE && !errors[0].1.contains("cannot determine");
            if let (Ok(info), true) = (info, is_known) {
                assert_eq!(info.get_str("rule").unwrap(), collection, "{name}: {replies:?}");
            }
        }
        (expected, reply) => panic!("{name} on {collection}: {reply:?} instead of {expected:?}"),
    }
}

/// Resets everything, as before every indirect write that may work.
fn prepare(setting: &mut Setting, collection: &str) {
    setting.seed("source", vec![doc! { "_id": 1, "stolen": true }, doc! { "_id": 3 }]);
    setting.seed(collection, stored());
    let insert = doc! { "insert": "source", "documents": [{ "_id": 1, "stolen": true }] };
    setting.direct.command(&elsewhere(&setting.database), insert);
    setting.direct.command(&setting.database, doc! { "drop": "view" });
    let view = doc! { "create": "view", "viewOn": collection, "pipeline": [] };
    setting.direct.command(&setting.database, view);
}

pub(super) fn uuid_of(setting: &mut Setting, collection: &str) -> Bson {
    setting.info(collection).get_document("info").unwrap().get("uuid").unwrap().clone()
}

/// Sends indirect writes to a collection: directly if requested, to check that they work, and then through docward.
fn send_all(
    setting: &mut Setting,
    protected: &ProtectedCollection,
    directly: bool,
    indirect_writes: fn(&Target) -> Vec<IndirectWrite>,
) -> usize {
    let (database, collection) = (setting.database.clone(), protected.collection);
    let target = |uuid| Target { database: database.clone(), collection, update: protected.update.clone(), uuid };
    prepare(setting, collection);
    let count = indirect_writes(&target(Bson::Null)).len();
    for index in 0..if directly { count } else { 0 } {
        prepare(setting, collection);
        let indirect_write = indirect_writes(&target(uuid_of(setting, collection))).swap_remove(index);
        let reply = send_indirect_write(&mut setting.direct, &mongod().address(), &indirect_write);
        let changed = setting.stored(collection) != stored();
        assert_eq!(
            changed, indirect_write.works_directly,
            "{} directly on {collection}: {reply:?}",
            indirect_write.name
        );
    }
    prepare(setting, collection);
    let (info, uuid) = (setting.info(collection), uuid_of(setting, collection));
    for indirect_write in indirect_writes(&target(uuid)) {
        let reply = send_indirect_write(&mut setting.through, &docward().address(), &indirect_write);
        check(&indirect_write, collection, &reply);
        assert_eq!(setting.stored(collection), stored(), "{} changed {collection}", indirect_write.name);
        assert_eq!(setting.info(collection), info, "{} changed {collection}", indirect_write.name);
    }
    count
}

#[test]
fn statements_are_evaluated_in_every_command_and_shape() {
    let mut setting = Setting::new();
    for protected in protected_collections() {
        send_all(&mut setting, &protected, true, Target::statements);
    }
}

#[test]
fn outputs_cannot_write_to_a_protected_collection() {
    let mut setting = Setting::new();
    for (index, protected) in protected_collections().iter().enumerate() {
        send_all(&mut setting, protected, index == 0, Target::outputs);
    }
}

#[test]
fn no_collection_command_changes_a_protected_collection() {
    let mut setting = Setting::new();
    for (index, protected) in protected_collections().iter().enumerate() {
        send_all(&mut setting, protected, index == 0, Target::administration);
        send_all(&mut setting, protected, index == 0, Target::legacy);
    }
}

/// The rule names one database, in which docward's worker first marks the beginning of the history.
#[test]
fn no_indirect_write_changes_the_states_that_a_history_keeps() {
    let mut setting = Setting { database: "recorded".to_owned(), ..Setting::new() };
    docward();
    let mut begun = || !setting.stored("kept").is_empty();
    assert!(poll(TIMEOUT, || begun().then_some(())).is_some(), "the history does not begin");
    let protected = ProtectedCollection { collection: "kept", update: doc! { "$set": { "a": 9 } } };
    for indirect_writes in [Target::statements, Target::outputs, Target::administration, Target::legacy] {
        send_all(&mut setting, &protected, false, indirect_writes);
    }
}

/// The same commands work if no rule matches, or the rule allows them: docward does not reject by command name.
#[test]
fn indirect_writes_pass_where_no_rule_rejects_them() {
    let mut setting = Setting::new();
    let database = setting.database.clone();
    for collection in ["free", "allowing", "limited"] {
        let protected = ProtectedCollection { collection, update: doc! { "$set": { "a": 9 } } };
        prepare(&mut setting, collection);
        let target = |uuid| Target { database: database.clone(), collection, update: protected.update.clone(), uuid };
        for indirect_writes in [Target::outputs, Target::administration] {
            for index in 0..indirect_writes(&target(Bson::Null)).len() {
                prepare(&mut setting, collection);
                let indirect_write = indirect_writes(&target(uuid_of(&mut setting, collection))).swap_remove(index);
                if !indirect_write.works_directly {
                    continue;
                }
                let reply = send_indirect_write(&mut setting.through, &docward().address(), &indirect_write);
                // If the target cannot be determined, the command is rejected while other rules protect a collection.
                let rejected = indirect_write.name.starts_with("applyOps")
                    && !matches!(
                        indirect_write.name,
                        "applyOps" | "applyOps on admin" | "applyOps, update" | "applyOps, delete"
                    );
                let changed = setting.stored(collection) != stored();
                assert_eq!(changed, !rejected, "{} on {collection}: {reply:?}", indirect_write.name);
            }
        }
    }
}

/// Reads that may be of a collection whose reads are evaluated.
#[test]
fn a_read_by_uuid_does_not_bypass_rules_for_reads() {
    let mut setting = Setting::new();
    for collection in ["hidden", "unread"] {
        setting.seed(collection, vec![doc! { "_id": 1, "last_modified": 1 }]);
        let uuid = uuid_of(&mut setting, collection);
        let by_symbol = Bson::Symbol(collection.to_owned());
        for (name, target) in ["find", "count", "distinct"].map(|name| (name, uuid.clone())) {
            let command = doc! { name: target, "key": "last_modified" };
            let command: Document = command.into_iter().filter(|(key, _)| key != "key" || name == "distinct").collect();
            let reply = setting.through.command(&setting.database, command.clone());
            let errors = errors(&reply);
            assert_eq!(errors[0].0, REJECTED, "{command}: {reply}");
            assert!(
                errors[0].1.contains("docward") && errors[0].1.contains("Name the collection by a string"),
                "{reply}"
            );
        }
        let reply = setting.through.command(&setting.database, doc! { "find": by_symbol });
        match collection {
            "unread" => assert_eq!(errors(&reply)[0].0, REJECTED, "{reply}"),
            _ => assert!(!reply.to_string().contains("last_modified"), "{reply}"),
        }
    }
}
