//! The `bulkWrite` command of MongoDB 8.0, which the tests' mongod lacks. A scripted upstream replaces it and records
//! every op sent to it and every result that docward returns.
//!
//! The replies follow those of an 8.0 server. A real mongod tests the older write commands (`retries`, `protocol`).

mod server;

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Document, doc};
use mongodb::options::{ReplaceOneModel, UpdateOneModel, WriteModel};
use server::{STORED_VERSION, failure, server};
use support::frame::{Frame, MORE_TO_COME, Message};
use support::mongod::Mongod;
use support::proxy::Docward;
use support::raw::Client;
use support::scripted::Peer;

const RULES: &str = r#"
version: 1
rules:
  - name: no-replace
    namespace: shop.orders
    replacement: { policy: reject }
  - name: optimistic
    namespace: shop.carts
    replacement: { policy: check_version, version: version }
  - name: lenient
    namespace: shop.drafts
    replacement: { policy: check_version, version: version, on_conflict: ignore }
  - name: timestamped
    namespace: shop.devices
    timestamps: { source: at }
  - name: numbered
    namespace: shop.invoices
    sequence: { field: no, counter: no }
"#;

const NAMESPACES: [&str; 6] =
    ["shop.free", "shop.orders", "shop.carts", "shop.drafts", "shop.devices", "shop.invoices"];
const FREE: i32 = 0;
const ORDERS: i32 = 1;
const CARTS: i32 = 2;
const DRAFTS: i32 = 3;
const DEVICES: i32 = 4;
const INVOICES: i32 = 5;

struct Setting {
    peer: Peer,
    docward: Docward,
    client: Client,
}

impl Setting {
    fn new() -> Setting {
        Setting::with_batch_size(1000)
    }

    fn with_batch_size(batch_size: usize) -> Setting {
        let peer = server(batch_size);
        // Numbers are reserved on a real server; only the client's own commands reach the scripted one.
        let docward = Docward::before(&peer.uri()).rules(RULES);
        let docward = docward.argument("--service").argument(Mongod::shared().uri()).start();
        let client = Client::connect(&docward.address());
        Setting { peer, docward, client }
    }

    /// Sends the ops as sections and as arrays, checks that both give the same result, and returns the reply and the
    /// commands that the upstream received.
    fn bulk(&mut self, ops: &[Document], extra: &Document) -> (Document, Vec<Message>) {
        let mut body = doc! { "bulkWrite": 1 };
        body.extend(extra.clone());
        body.insert("$db", "admin");
        let namespaces: Vec<Document> = NAMESPACES.iter().map(|ns| doc! { "ns": ns }).collect();
        let sections = Message::new(body.clone()).sequence("ops", ops.to_vec()).sequence("nsInfo", namespaces.clone());
        let first =
            Message::new(body.clone()).sequence_first("nsInfo", namespaces.clone()).sequence("ops", ops.to_vec());
        body.extend(doc! { "ops": ops, "nsInfo": namespaces });
        let [arrays, first, sections] = [Message::new(body), first, sections].map(|message| self.send(&message));
        assert_eq!(arrays.0, sections.0);
        assert_eq!(first.0, sections.0);
        let ops_of = |sent: &[Message]| -> Vec<Vec<Document>> { sent.iter().map(|m| m.documents("ops")).collect() };
        assert_eq!(ops_of(&arrays.1), ops_of(&sections.1));
        for message in sections.1.iter().filter(|message| message.body().contains_key("bulkWrite")) {
            assert_eq!(message.documents("nsInfo").len(), NAMESPACES.len());
        }
        sections
    }

    fn send(&mut self, message: &Message) -> (Document, Vec<Message>) {
        let before = self.sent().len();
        let reply = self.client.exchange(message).body().clone();
        (reply, self.sent().split_off(before))
    }

    /// The commands that the upstream received, without docward's own: the logged-in user, the documents that a
    /// filter matches, and whether the client may store numbers.
    fn sent(&self) -> Vec<Message> {
        let questions = ["connectionStatus", "find", "explain"];
        let own = |message: &Message| questions.iter().any(|name| message.body().contains_key(name));
        self.peer.requests().iter().map(Message::parse).filter(|message| !own(message)).collect()
    }
}

fn insert(ns: i32, document: Document) -> Document {
    doc! { "insert": ns, "document": document }
}

fn set(ns: i32, id: i32) -> Document {
    doc! { "update": ns, "filter": { "_id": id }, "updateMods": { "$set": { "a": 1 } }, "multi": false }
}

fn replace(ns: i32, document: Document) -> Document {
    doc! { "update": ns, "filter": { "_id": 1 }, "updateMods": document, "multi": false }
}

/// `(ok, idx, code)` of every result; code 0 for results without one.
fn results(reply: &Document) -> Vec<(bool, i32, i32)> {
    let cursor = reply.get_document("cursor").unwrap();
    assert_eq!((cursor.get_i64("id").unwrap(), cursor.get_str("ns").unwrap()), (0, "admin.$cmd.bulkWrite"));
    let batch = cursor.get_array("firstBatch").unwrap().iter().map(|result| result.as_document().unwrap());
    let result = |result: &Document| {
        let code = result.get_i32("code").unwrap_or(0);
        (result.get_f64("ok").unwrap() == 1.0, result.get_i32("idx").unwrap(), code)
    };
    batch.map(result).collect()
}

/// nErrors, nInserted, nMatched, nModified, nUpserted, nDeleted.
fn counts(reply: &Document) -> [i32; 6] {
    ["nErrors", "nInserted", "nMatched", "nModified", "nUpserted", "nDeleted"].map(|n| reply.get_i32(n).unwrap())
}

#[test]
fn ops_without_a_rule_are_sent_as_one_command() {
    let mut setting = Setting::new();
    let ops = [insert(FREE, doc! { "a": 1 }), set(ORDERS, 1), doc! { "delete": CARTS, "filter": {}, "multi": true }];
    let (reply, sent) = setting.bulk(&ops, &doc! { "comment": "c" });
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].documents("ops"), ops);
    assert_eq!(sent[0].body().get_str("comment").unwrap(), "c");
    assert_eq!(results(&reply), [(true, 0, 0), (true, 1, 0), (true, 2, 0)]);
    assert_eq!(counts(&reply), [0, 1, 1, 1, 0, 1]);
}

#[test]
fn a_rejected_op_is_not_sent_and_indexes_stay_the_clients() {
    let mut setting = Setting::new();
    let ops = [
        insert(FREE, doc! { "a": 1 }),
        replace(ORDERS, doc! { "a": 2 }),
        set(FREE, 1),
        insert(FREE, doc! { "taken": true }),
        set(FREE, 2),
    ];
    let (reply, sent) = setting.bulk(&ops, &doc! {});
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].documents("ops"), ops[..1]);
    assert_eq!(results(&reply), [(true, 0, 0), (false, 1, 121)]);
    assert_eq!(counts(&reply), [1, 1, 0, 0, 0, 0]);

    let (reply, sent) = setting.bulk(&ops, &doc! { "ordered": false });
    // The order stays: the rejected op is checked between the two commands.
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].documents("ops"), ops[..1]);
    assert_eq!(sent[1].documents("ops"), ops[2..]);
    let expected = [(true, 0, 0), (false, 1, 121), (true, 2, 0), (false, 3, 11000), (true, 4, 0)];
    assert_eq!(results(&reply), expected);
    assert_eq!(counts(&reply), [2, 1, 2, 2, 0, 0]);
    assert!(reply.contains_key("operationTime"));
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let rejected = batch[1].as_document().unwrap();
    let info = rejected.get_document("errInfo").unwrap().get_document("docward").unwrap();
    assert_eq!((info.get_str("rule").unwrap(), rejected.get_i32("n").unwrap()), ("no-replace", 0));
    let raw = setting.client_reply_of(&ops);
    assert_eq!(occurrences(&raw, b"\x10n\0"), 5, "each result has one n");

    let (reply, sent) = setting.bulk(&ops[1..2], &doc! {});
    assert_eq!((sent.len(), results(&reply)), (0, vec![(false, 0, 121)]));
}

impl Setting {
    /// The bytes of an unordered reply, because decoding drops a duplicate field.
    fn client_reply_of(&mut self, ops: &[Document]) -> Vec<u8> {
        let namespaces = NAMESPACES.iter().map(|ns| doc! { "ns": ns }).collect();
        let message = Message::new(doc! { "bulkWrite": 1, "ordered": false, "$db": "admin" });
        self.client.send(&message.sequence("ops", ops.to_vec()).sequence("nsInfo", namespaces));
        self.client.receive().body
    }
}

fn occurrences(bytes: &[u8], needle: &[u8]) -> usize {
    bytes.windows(needle.len()).filter(|window| *window == needle).count()
}

#[test]
fn a_checked_replacement_that_matches_nothing_is_a_conflict() {
    let mut setting = Setting::new();
    let ops = [
        set(FREE, 1),
        replace(CARTS, doc! { "version": STORED_VERSION }),
        replace(CARTS, doc! { "version": 7 }),
        insert(FREE, doc! {}),
        replace(DRAFTS, doc! { "version": 7 }),
    ];
    let (reply, sent) = setting.bulk(&ops, &doc! {});
    let sizes: Vec<usize> = sent.iter().map(|message| message.documents("ops").len()).collect();
    assert_eq!(sizes, [1, 1, 1]);
    let protected = &sent[1].documents("ops")[0];
    assert_eq!(protected.get_document("filter").unwrap(), &doc! { "_id": 1, "version": STORED_VERSION });
    assert_eq!(protected.get_document("updateMods").unwrap(), &doc! { "version": STORED_VERSION + 1 });
    assert_eq!(results(&reply), [(true, 0, 0), (true, 1, 0), (false, 2, 112)]);
    assert_eq!(counts(&reply), [1, 0, 2, 2, 0, 0]);

    let (reply, _) = setting.bulk(&ops, &doc! { "ordered": false });
    let expected = [(true, 0, 0), (true, 1, 0), (false, 2, 112), (true, 3, 0), (true, 4, 0)];
    assert_eq!(results(&reply), expected);
    assert_eq!(counts(&reply), [1, 1, 2, 2, 0, 0]);

    let (reply, _) = setting.bulk(&ops, &doc! { "ordered": false, "errorsOnly": true });
    assert_eq!(results(&reply), [(false, 2, 112)]);
    assert_eq!(counts(&reply), [1, 1, 2, 2, 0, 0]);
}

#[test]
fn upserted_ids_and_server_errors_keep_their_indexes_across_split_batches() {
    let mut setting = Setting::new();
    let mut upsert = set(FREE, 1);
    upsert.insert("upsert", true);
    let ops = [
        set(FREE, 1),
        replace(CARTS, doc! { "version": STORED_VERSION }),
        upsert,
        insert(FREE, doc! { "taken": true }),
        set(FREE, 3),
    ];
    let (reply, _) = setting.bulk(&ops, &doc! {});
    assert_eq!(results(&reply), [(true, 0, 0), (true, 1, 0), (true, 2, 0), (false, 3, 11000)]);
    assert_eq!(counts(&reply), [1, 0, 2, 2, 1, 0]);
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert!(batch[2].as_document().unwrap().contains_key("upserted"));
    assert_eq!(batch[3].as_document().unwrap().get_document("keyPattern").unwrap(), &doc! { "taken": 1 });
}

#[test]
fn numbers_and_timestamps_are_added() {
    let mut setting = Setting::new();
    let at = DateTime::from_millis(1000);
    let ops = [
        insert(INVOICES, doc! { "_id": 1 }),
        insert(FREE, doc! { "_id": 1 }),
        doc! { "update": DEVICES, "filter": { "_id": 1 }, "updateMods": { "$set": { "t": 20, "at": at } }, "multi": false },
        insert(INVOICES, doc! { "_id": 2 }),
        insert(INVOICES, doc! { "_id": 3, "no": 500 }),
        insert(DEVICES, doc! { "_id": 2, "t": 20, "at": at }),
    ];
    let message = Message::new(doc! { "bulkWrite": 1, "$db": "admin" });
    let message = message.sequence("ops", ops.to_vec());
    let message = message.sequence("nsInfo", NAMESPACES.iter().map(|ns| doc! { "ns": ns }).collect());
    let (reply, sent) = setting.send(&message);
    assert_eq!(counts(&reply), [0, 5, 1, 1, 0, 0]);
    assert_eq!(sent.len(), 1, "rewritten ops need no command of their own");
    let sent = sent[0].documents("ops");
    let numbers: Vec<i32> =
        [0, 3, 4].map(|index: usize| sent[index].get_document("document").unwrap().get_i32("no").unwrap()).into();
    assert_eq!((numbers[1] - numbers[0], numbers[2]), (1, 500));
    assert_eq!(sent[1], ops[1]);
    assert!(matches!(sent[2].get("updateMods"), Some(Bson::Array(_))), "{}", sent[2]);
    let timestamps = doc! { "t": at, "at": at };
    assert_eq!(sent[5].get_document("document").unwrap().get_document("last_modified").unwrap(), &timestamps);
}

#[test]
fn results_in_further_batches_are_collected_with_get_more() {
    let mut setting = Setting::with_batch_size(2);
    let mut ops = vec![replace(ORDERS, doc! { "a": 1 })];
    ops.extend((0..5).map(|id| insert(FREE, doc! { "_id": id })));
    let session = Binary { subtype: BinarySubtype::Uuid, bytes: vec![3; 16] };
    let extra = doc! { "ordered": false, "lsid": { "id": session }, "apiVersion": "1" };
    let (reply, sent) = setting.bulk(&ops, &extra);
    let names: Vec<&str> = sent.iter().map(|m| m.body().keys().next().unwrap().as_str()).collect();
    assert_eq!(names, ["bulkWrite", "getMore", "getMore"]);
    for message in &sent {
        assert!(message.body().contains_key("lsid"));
        assert_eq!(message.body().get_str("apiVersion").unwrap(), "1");
    }
    assert_eq!(sent[1].body().get_i64("getMore").unwrap(), 77);
    let expected: Vec<_> = std::iter::once((false, 0, 121)).chain((1..6).map(|index| (true, index, 0))).collect();
    assert_eq!(results(&reply), expected);
    assert_eq!(counts(&reply), [1, 5, 0, 0, 0, 0]);
}

#[test]
fn statement_ids_follow_the_clients_op_order() {
    let mut setting = Setting::new();
    let ops = [
        set(FREE, 1),
        replace(ORDERS, doc! { "a": 1 }),
        replace(CARTS, doc! { "version": STORED_VERSION }),
        set(FREE, 2),
    ];
    let session = Binary { subtype: BinarySubtype::Uuid, bytes: vec![4; 16] };
    let extra = doc! { "ordered": false, "lsid": { "id": session }, "txnNumber": 1i64 };
    let (_, sent) = setting.bulk(&ops, &extra);
    let mut numbers: Vec<(Bson, usize)> =
        sent.iter().map(|m| (m.body().get("stmtIds").unwrap().clone(), m.documents("ops").len())).collect();
    numbers.sort_by_key(|(_, length)| *length);
    assert_eq!(numbers, [0, 2, 3].map(|id| (Bson::from(vec![id]), 1)));
    let mut with_ids = extra;
    with_ids.insert("stmtIds", vec![5, 6, 7, 8]);
    let (_, sent) = setting.bulk(&ops, &with_ids);
    for id in [5, 8] {
        assert!(sent.iter().any(|m| m.body().get_array("stmtIds").unwrap() == &[Bson::from(id)]));
    }
}

/// Each op is executed as often as the reply shows, and no label lets a driver repeat what was executed. The older
/// commands are tested with a real server (`partial_failures`).
#[test]
fn an_error_of_a_part_shows_what_was_executed() {
    let mut setting = Setting::new();
    let overloaded = ["SystemOverloadedError", "RetryableError", "NoWritesPerformed"];
    let errors = [
        doc! { "code": 462, "errorLabels": overloaded.to_vec() },
        doc! { "code": 462, "errorLabels": overloaded[..2].to_vec() },
        doc! { "code": 91, "errorLabels": ["RetryableWriteError"] },
        doc! { "code": 10107 },
        doc! { "code": 262 },
        doc! { "code": 1 },
    ];
    let op = |id: i32, error: Option<&Document>| {
        let mut op = if id % 2 == 0 { set(FREE, id) } else { replace(CARTS, doc! { "version": STORED_VERSION }) };
        let filter = op.get_document_mut("filter").unwrap();
        filter.insert("_id", id);
        filter.extend(error.map(|error| doc! { "fails": error.clone() }).unwrap_or_default());
        op
    };
    let mut half_done = 0;
    let cases = errors.iter().flat_map(|error| (0..4).map(move |failing| (error, failing)));
    for (number, (error, failing)) in cases.enumerate() {
        for (ordered, is_numbered) in [(true, false), (false, false), (true, true), (false, true)] {
            let ops: Vec<Document> = (0..4).map(|id| op(id, Some(error).filter(|_| id == failing))).collect();
            let mut body = doc! { "bulkWrite": 1, "ordered": ordered, "maxTimeMS": 50, "$db": "admin" };
            if is_numbered {
                body.extend(doc! { "lsid": { "id": bson::Uuid::new() }, "txnNumber": number as i64 });
            }
            let namespaces = NAMESPACES.iter().map(|ns| doc! { "ns": ns }).collect();
            let message = Message::new(body.clone()).sequence("ops", ops).sequence("nsInfo", namespaces);
            let (reply, sent) = setting.send(&message);
            let what = format!("{body}: op {failing} fails with {error}: {reply}");
            let succeeded = sent.iter().filter(|message| failure(message).is_none());
            let ids = succeeded.flat_map(|message| message.documents("ops"));
            let mut executed: Vec<i32> =
                ids.map(|op| op.get_document("filter").unwrap().get_i32("_id").unwrap()).collect();
            executed.sort_unstable();
            assert!(executed.windows(2).all(|pair| pair[0] != pair[1]), "executed twice: {executed:?} {what}");
            let labels = reply.get_array("errorLabels").cloned().unwrap_or_default();
            let has = |label: &str| labels.contains(&label.into());
            if !executed.is_empty() {
                assert!(!has("NoWritesPerformed"), "{executed:?} {what}");
                assert!(is_numbered || labels.is_empty(), "{executed:?} {what}");
            }
            if reply.get_f64("ok").unwrap() != 1.0 {
                assert!(
                    executed.is_empty() || has("RetryableError") || has("RetryableWriteError"),
                    "{executed:?} {what}"
                );
                continue;
            }
            half_done += i32::from(!executed.is_empty());
            let shown = results(&reply);
            let shown_executed: Vec<i32> = shown.iter().filter(|(ok, ..)| *ok).map(|(_, idx, _)| *idx).collect();
            assert_eq!(shown_executed, executed, "{what}");
            assert!(shown.iter().any(|(ok, idx, _)| !ok && *idx == failing), "{what}");
        }
    }
    assert!(half_done > 20, "{half_done} of the replies are those of several parts");
}

#[test]
fn a_rejection_inside_a_transaction_aborts_it_on_the_server() {
    let mut setting = Setting::new();
    let session = Binary { subtype: BinarySubtype::Uuid, bytes: vec![5; 16] };
    let in_transaction = doc! { "lsid": { "id": session }, "txnNumber": 1i64, "autocommit": false };
    for (ops, code, names) in [
        (vec![set(FREE, 1), replace(ORDERS, doc! { "a": 1 })], 121, vec!["bulkWrite", "abortTransaction"]),
        (vec![replace(ORDERS, doc! { "a": 1 })], 121, vec!["abortTransaction"]),
        (vec![replace(CARTS, doc! { "version": 7 })], 112, vec!["bulkWrite", "abortTransaction"]),
    ] {
        let (reply, sent) = setting.bulk(&ops, &in_transaction);
        let sent_names: Vec<&str> = sent.iter().map(|m| m.body().keys().next().unwrap().as_str()).collect();
        assert_eq!(sent_names, names);
        assert_eq!(results(&reply).last().unwrap(), &(false, ops.len() as i32 - 1, code));
        let abort = sent.last().unwrap().body();
        assert_eq!(abort.get("lsid"), in_transaction.get("lsid"));
        assert!(!abort.get_bool("autocommit").unwrap());
    }
}

/// If one op cannot be evaluated, docward sends none of the batch.
#[test]
fn writes_to_buckets_of_a_protected_time_series_are_rejected_among_other_namespaces() {
    let mut setting = Setting::new();
    for (buckets, refused) in [("shop.system.buckets.orders", true), ("shop.system.buckets.free", false)] {
        let namespaces = ["shop.free", buckets, "shop.carts"].map(|ns| doc! { "ns": ns }).to_vec();
        let ops = vec![insert(0, doc! { "_id": 1 }), set(1, 2), insert(2, doc! { "_id": 3 })];
        let message = Message::new(doc! { "bulkWrite": 1, "$db": "admin" });
        let (reply, sent) = setting.send(&message.sequence("ops", ops).sequence("nsInfo", namespaces));
        assert_eq!(sent.is_empty(), refused, "{reply}");
        if refused {
            assert_eq!(reply.get_i32("code").unwrap(), 121, "{reply}");
            assert!(reply.get_str("errmsg").unwrap().contains("docward rule 'no-replace'"), "{reply}");
        } else {
            assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}");
        }
    }
}

#[test]
fn ops_without_a_namespace_are_rejected() {
    let mut setting = Setting::new();
    for (ops, namespaces) in [
        (vec![insert(6, doc! {})], NAMESPACES.to_vec()),
        (vec![insert(-1, doc! {})], NAMESPACES.to_vec()),
        (vec![doc! { "upsert": 0, "filter": {} }], NAMESPACES.to_vec()),
        (vec![insert(0, doc! {})], vec!["nodot"]),
        (vec![doc! { "update": 0, "filter": {}, "updateMods": {}, "unknown": 1 }], NAMESPACES.to_vec()),
    ] {
        let namespaces = namespaces.iter().map(|ns| doc! { "ns": ns }).collect();
        let message = Message::new(doc! { "bulkWrite": 1, "$db": "admin" });
        let (reply, sent) = setting.send(&message.sequence("ops", ops).sequence("nsInfo", namespaces));
        assert_eq!((reply.get_i32("code").unwrap(), sent.len()), (9, 0), "{reply}");
    }
}

#[test]
fn an_unacknowledged_batch_gets_no_reply() {
    let mut setting = Setting::new();
    let ops = vec![set(FREE, 1), replace(ORDERS, doc! { "a": 1 }), set(FREE, 2)];
    let body = doc! { "bulkWrite": 1, "ordered": false, "writeConcern": { "w": 0 }, "$db": "admin" };
    let namespaces = NAMESPACES.iter().map(|ns| doc! { "ns": ns }).collect();
    let message = Message::new(body).sequence("ops", ops.clone()).sequence("nsInfo", namespaces);
    setting.client.send(&message.flags(MORE_TO_COME));
    let ping: Frame = {
        setting.client.send(&Message::new(doc! { "ping": 1, "$db": "admin" }));
        setting.client.receive()
    };
    assert_eq!(ping.response_to, 2);
    let sent = setting.sent();
    assert_eq!((sent[0].documents("ops"), sent[1].documents("ops")), (ops[..1].to_vec(), ops[2..].to_vec()));
    assert_eq!(sent[2].body().keys().next().unwrap(), "ping");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_driver_reports_rejections_with_the_applications_indexes() {
    let setting = Setting::new();
    let client = setting.docward.client().await;
    let shop = client.database("shop");
    let orders = shop.collection::<Document>("orders").namespace();
    let carts = shop.collection::<Document>("carts").namespace();
    let set = UpdateOneModel::builder().namespace(orders.clone()).filter(doc! { "_id": 1 });
    let set = set.update(doc! { "$set": { "a": 1 } }).build();
    let replace = |namespace, document: Document| {
        let model = ReplaceOneModel::builder().namespace(namespace).filter(doc! { "_id": 1 });
        model.replacement(document).build()
    };
    let models: Vec<WriteModel> = vec![
        set.clone().into(),
        replace(orders, doc! { "a": 2 }).into(),
        replace(carts, doc! { "version": 7 }).into(),
        set.into(),
    ];
    let error = client.bulk_write(models).ordered(false).await.unwrap_err();
    let mongodb::error::ErrorKind::BulkWrite(failure) = *error.kind else { panic!("{error:?}") };
    let mut codes: Vec<(usize, i32)> = failure.write_errors.iter().map(|(index, error)| (*index, error.code)).collect();
    codes.sort_unstable();
    assert_eq!(codes, [(1, 121), (2, 112)]);
}
