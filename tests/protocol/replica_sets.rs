//! docward in front of replica sets of three: drivers see one listener per member and nothing else, whatever happens
//! to the members.
//!
//! `hand_over` tests a new process that replaces the old one, `queries` the query listener.

mod members;
mod start;

use std::collections::BTreeMap;
use std::time::Duration;

use bson::{Bson, Document, doc};
use support::mongod::Mongod;
use support::process::{SOON, TIMEOUT, poll};
use support::proxy::Docward;
use support::raw::Client;
use support::replica_set::ReplicaSet;

/// The names in the lists of a hello reply and in `primary` and `me`.
fn names(hello: &Document) -> BTreeMap<&'static str, Vec<String>> {
    let text = |value: &Bson| value.as_str().unwrap().to_owned();
    let of = |key: &'static str| match hello.get(key) {
        Some(Bson::Array(names)) => (key, names.iter().map(text).collect()),
        Some(name) => (key, vec![text(name)]),
        None => (key, Vec::new()),
    };
    ["hosts", "passives", "arbiters", "primary", "me"].into_iter().map(of).collect()
}

/// Asserts that the reply contains no member's own address.
fn assert_hides(hello: &Document, set: &ReplicaSet) {
    let text = hello.to_string();
    for address in set.members().iter().map(Mongod::address) {
        assert!(!text.contains(&address), "{address} in {text}");
    }
}

/// The hosts in the hello reply of docward's first listener, once there are `count`.
fn await_hosts(docward: &Docward, count: usize) -> Vec<String> {
    let hosts = || {
        let hello = Client::connect(&docward.address()).command("admin", doc! { "hello": 1 });
        let hosts = names(&hello).remove("hosts").unwrap();
        (hosts.len() == count).then_some(hosts)
    };
    poll(TIMEOUT, hosts).unwrap_or_else(|| panic!("docward does not show {count} hosts"))
}

/// The connection string of a driver with all of docward's addresses.
fn through(docward: &Docward, options: &str) -> String {
    format!("mongodb://{}/?replicaSet=rs0&{options}", docward.addresses().join(","))
}
