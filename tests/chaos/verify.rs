//! Compares the database after the events with the results that the clients got; reads it directly, from a settled
//! replica set.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Document, doc};
use mongodb::Database;

use crate::journal::{Journal, Outcome, Record};
use crate::workload::priced_item;
use support::driver::all;

/// Descriptions of everything that is wrong; empty if all is correct.
pub(crate) async fn faults(database: &Database, journals: &[&Journal]) -> Vec<String> {
    let records: Vec<Record> = journals.iter().flat_map(|journal| journal.records()).collect();
    let content = Content::read(database).await;
    let mut faults = written_once(expected(&records), content.tokens());
    for collection in ["orders", "transfers"] {
        faults.extend(numbers(content.of(collection)));
    }
    faults.extend(stock(content.of("stock")));
    faults.extend(prices(&records, &content));
    faults.extend(accounts(&content));
    faults.extend(tree(content.of("nodes")));
    faults
}

/// All collections by name.
struct Content(BTreeMap<&'static str, Vec<Document>>);

impl Content {
    async fn read(database: &Database) -> Content {
        let mut content = BTreeMap::new();
        for name in ["orders", "logs", "stock", "articles", "prices", "accounts", "transfers", "nodes"] {
            content.insert(name, all(database, name).await);
        }
        Content(content)
    }

    fn of(&self, collection: &str) -> &[Document] {
        &self.0[collection]
    }

    /// How often each token is in the database; prices are excluded, because they keep only the last token.
    fn tokens(&self) -> BTreeMap<String, usize> {
        let mut tokens: BTreeMap<String, usize> = BTreeMap::new();
        let mut count = |token: &str| *tokens.entry(token.to_owned()).or_default() += 1;
        for order in self.of("orders") {
            let batch = order.get_i32("batch").or_else(|_| order.get_i64("batch").map(|number| number as i32));
            let part = batch.map(|number| format!("/{number}")).unwrap_or_default();
            count(&format!("{}{part}", order.get_str("token").unwrap()));
        }
        for (collection, list) in [("logs", "log"), ("articles", "tokens"), ("nodes", "log")] {
            let lists = self.of(collection).iter().filter_map(|document| document.get_array(list).ok());
            lists.flatten().for_each(|token| count(token.as_str().unwrap()));
        }
        for collection in ["transfers", "nodes"] {
            self.of(collection).iter().filter_map(|document| document.get_str("token").ok()).for_each(&mut count);
        }
        for item in self.of("stock") {
            item.get_array("moves").unwrap().iter().for_each(|step| {
                count(step.as_document().unwrap().get_str("token").unwrap());
            });
        }
        tokens
    }
}

/// The tokens that an operation writes, each with the operation's result; prices are excluded.
fn expected(records: &[Record]) -> impl Iterator<Item = (String, Outcome)> {
    let records = records.iter().filter(|record| record.kind != "price");
    records.flat_map(|record| {
        let tokens: Vec<String> = match record.kind.as_str() {
            "batch" => (0..4).map(|part| format!("{}/{part}", record.token)).collect(),
            _ => vec![record.token.clone()],
        };
        tokens.into_iter().map(|token| (token, record.outcome))
    })
}

/// Acknowledged tokens are found once, rejected ones never, unknown ones at most once; no other token is found.
pub(crate) fn written_once(
    expected: impl IntoIterator<Item = (String, Outcome)>,
    mut found: BTreeMap<String, usize>,
) -> Vec<String> {
    let mut faults = Vec::new();
    for (token, outcome) in expected {
        let count = found.remove(&token).unwrap_or(0);
        let right = match outcome {
            Outcome::Acknowledged => count == 1,
            Outcome::Rejected => count == 0,
            Outcome::Unknown => count <= 1,
        };
        if !right {
            faults.push(format!("{token} is there {count} times: {outcome:?}"));
        }
    }
    faults.extend(found.keys().map(|token| format!("no operation wrote {token}")));
    faults
}

/// Every document has a number in `no`, and no number occurs twice.
pub(crate) fn numbers(documents: &[Document]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut issued = BTreeSet::new();
    for document in documents {
        match document.get("no").and_then(integer) {
            Some(number) if issued.insert(number) => {}
            number => faults.push(format!("number {number:?} twice or missing in {document}")),
        }
    }
    faults
}

/// `available` starts at 5, matches the sum of its recorded moves, and was in 0..=10 after each.
pub(crate) fn stock(items: &[Document]) -> Vec<String> {
    let wrong = |item: &&Document| {
        let available = item.get("available").and_then(integer).unwrap();
        let mut sum = 5;
        let in_bounds = item.get_array("moves").unwrap().iter().all(|step| {
            sum += step.as_document().unwrap().get("delta").and_then(integer).unwrap();
            (0..=10).contains(&sum)
        });
        !in_bounds || sum != available
    };
    items.iter().filter(wrong).map(|item| format!("out of bounds: {item}")).collect()
}

/// Each item has the newest acknowledged price, or a newer one whose client got no reply.
fn prices(records: &[Record], content: &Content) -> Vec<String> {
    let mut attempted: BTreeSet<i64> = BTreeSet::from([0]);
    let mut newest: BTreeMap<i64, i64> = BTreeMap::new();
    for record in records.iter().filter(|record| record.kind == "price") {
        let time: i64 = record.token.parse().unwrap();
        attempted.insert(time);
        if record.outcome == Outcome::Acknowledged {
            let newest = newest.entry(priced_item(time)).or_default();
            *newest = time.max(*newest);
        }
    }
    let wrong = |item: &&Document| {
        let price = item.get_i64("price").unwrap();
        let id = item.get("_id").and_then(integer).unwrap();
        !attempted.contains(&price) || newest.get(&id).is_some_and(|newest| price < *newest)
    };
    content.of("prices").iter().filter(wrong).map(|item| format!("an older price won: {item}, {newest:?}")).collect()
}

/// The total is unchanged, and every account lists exactly its transfers.
fn accounts(content: &Content) -> Vec<String> {
    let mut balances: BTreeMap<i64, i64> = (0..10).map(|account| (account, 1000)).collect();
    for transfer in content.of("transfers") {
        for (side, change) in [("from", -1), ("to", 1)] {
            *balances.get_mut(&transfer.get(side).and_then(integer).unwrap()).unwrap() += change;
        }
    }
    let stored: BTreeMap<i64, i64> = content
        .of("accounts")
        .iter()
        .map(|account| {
            (account.get("_id").and_then(integer).unwrap(), account.get("balance").and_then(integer).unwrap())
        })
        .collect();
    if stored == balances { Vec::new() } else { vec![format!("accounts are {stored:?}, transfers make {balances:?}")] }
}

/// Every path is the parent's path plus the parent, so the tree has no cycle.
pub(crate) fn tree(nodes: &[Document]) -> Vec<String> {
    let path = |node: &Document| node.get_str("path").ok().map(str::to_owned);
    let paths: BTreeMap<&str, Option<String>> =
        nodes.iter().map(|node| (node.get_str("_id").unwrap(), path(node))).collect();
    let wrong = |node: &&Document| match node.get_str("parent") {
        Err(_) => path(node).is_some(),
        Ok(parent) => paths.get(parent).is_none_or(|above| {
            let above = above.clone().unwrap_or_else(|| ",".to_owned());
            path(node) != Some(format!("{above}{parent},"))
        }),
    };
    nodes.iter().filter(wrong).map(|node| format!("not where its path is: {node}")).collect()
}

/// A whole number of any stored type.
pub(crate) fn integer(value: &bson::Bson) -> Option<i64> {
    value.as_i64().or_else(|| value.as_i32().map(i64::from)).or_else(|| value.as_f64().map(|number| number as i64))
}

#[cfg(test)]
#[test]
fn faults_are_found() {
    let record = |token: &str, outcome| Record { kind: "log".into(), token: token.into(), outcome, error: None };
    let records = [
        record("lost", Outcome::Acknowledged),
        record("twice", Outcome::Acknowledged),
        record("refused", Outcome::Rejected),
        record("maybe", Outcome::Unknown),
        record("right", Outcome::Acknowledged),
    ];
    let log = doc! { "_id": 1, "log": ["twice", "twice", "refused", "right", "strange"] };
    let names = ["orders", "articles", "prices", "accounts", "nodes"];
    let mut content: BTreeMap<&'static str, Vec<Document>> = names.map(|name| (name, Vec::new())).into();
    content.insert("logs", vec![log]);
    let out = doc! { "_id": 1, "available": 5, "moves": [{ "token": "strange", "delta": 6 }, { "token": "strange", "delta": -6 }] };
    content.insert("stock", vec![out]);
    let node = |id: &str, parent: &str, path: &str| doc! { "_id": id, "parent": parent, "path": path };
    content.insert("nodes", vec![doc! { "_id": "root" }, node("a", "root", ",root,"), node("b", "a", ",root,")]);
    content.insert("transfers", vec![doc! { "no": 1, "from": 1, "to": 2 }, doc! { "no": 1, "from": 1, "to": 2 }]);
    let price = |time: i64| doc! { "_id": priced_item(time), "price": time };
    content.insert("prices", vec![price(40), price(6)]);
    let priced = |time: i64| Record { kind: "price".into(), ..record(&time.to_string(), Outcome::Acknowledged) };
    let content = Content(content);
    assert_eq!(prices(&[priced(40), priced(80), priced(6)], &content).len(), 1);
    let found = written_once(expected(&records), content.tokens());
    assert_eq!(found.len(), 4, "{found:#?}");
    assert_eq!(
        [numbers(content.of("transfers")), stock(content.of("stock")), accounts(&content), tree(content.of("nodes"))]
            .map(|faults| faults.len()),
        [1; 4]
    );
}
