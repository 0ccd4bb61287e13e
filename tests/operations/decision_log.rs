//! The decision log: client, action and rule on one line, without a document's values unless the operator enables
//! them.

use bson::doc;
use bson::raw::{CString, RawDocumentBuf, cstr};
use serde_json::Value;
use support::frame::{Frame, MORE_TO_COME, OP_MSG};
use support::mongod::Mongod;
use support::proxy::{Builder, Docward};
use support::raw::Client;

const RULES: &str = "version: 1\nrules:\n  - { name: whole, namespace: '*.orders', replacement: {} }\n";
/// Unescaped, this starts a new line, moves the cursor, and ends a JSON string.
const HOSTILE: &str = "a\nb\r\u{1b}[2J\u{9b}\",\"rule\":\"x\u{2028}";

fn docward() -> Builder {
    Docward::before(&Mongod::shared().uri()).rules(RULES)
}

/// Sends a replacement that is rejected, from an application and with a field of this name.
fn provoke(docward: &Docward, name: &str) {
    let mut client = Client::connect(&docward.address());
    let driver = doc! { "name": "raw", "version": "1" };
    let hello =
        doc! { "hello": 1, "client": { "application": { "name": name }, "driver": driver, "os": { "type": "x" } } };
    client.command("admin", hello);
    let stored = doc! { "q": { "_id": "secret-id" }, "u": { "$set": { "there": true } }, "upsert": true };
    Mongod::shared().command("logged", doc! { "update": "orders", "updates": [stored] });
    let update =
        doc! { "update": "orders", "updates": [{ "q": { "_id": "secret-id" }, "u": { name: "secret-value" } }] };
    assert!(client.command("logged", update).contains_key("writeErrors"));
}

#[test]
fn json_lines_have_every_field_and_escape_client_text() {
    let docward = docward().argument("--log-format").argument("json").start();
    provoke(&docward, HOSTILE);
    let line: Value = serde_json::from_str(&docward.wait_for_log("rule matched")).unwrap();
    for (field, value) in [
        ("rule", "whole"),
        ("pattern", "replacement"),
        ("namespace", "logged.orders"),
        ("outcome", "reject"),
        ("app", HOSTILE),
        ("level", "WARN"),
    ] {
        assert_eq!(line[field], value, "{line}");
    }
    assert!(line["shape"].as_str().unwrap().starts_with("replaceOne({_id}, {"));
    assert!(line["client"].as_str().unwrap().starts_with("127.0.0.1:") && line["connection"].as_u64() > Some(0));
    assert!(line["users"] == "" && line["statements"] == 1 && line["suppressed"] == 0, "{line}");
    assert!(!docward.log().join("\n").contains("secret"), "{:?}", docward.log());
    assert!(docward.log().iter().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{:?}", docward.log());
}

#[test]
fn a_rewrite_in_shadow_mode_has_a_reason() {
    let rules = "version: 1\nrules:\n  - { name: whole, namespace: '*.orders', mode: shadow, replacement: { policy: merge } }\n";
    let docward = Docward::before(&Mongod::shared().uri()).rules(rules).start();
    let update = doc! { "update": "orders", "updates": [{ "q": { "_id": 1 }, "u": { "a": 1 } }] };
    Client::connect(&docward.address()).command("logged", update);
    let line = docward.wait_for_log("rule matched");
    assert!(line.contains("shadow-rewrite") && !line.contains("reason=\"\""), "{line}");
}

#[test]
fn rust_log_chooses_levels_and_modules() {
    let docward = docward().environment("RUST_LOG", "warn,docward_proxy::proxy::listening::admission=debug").start();
    provoke(&docward, "billing");
    docward.wait_for_log(" DEBUG ");
    docward.wait_for_log("rule matched");
    let log = docward.log();
    let is_chosen =
        |line: &String| line.contains(" WARN ") || line.contains("docward_proxy::proxy::listening::admission");
    assert!(log.iter().all(is_chosen), "{log:?}");
}

#[test]
fn an_invalid_rust_log_leaves_the_level_at_info() {
    let docward = docward().environment("RUST_LOG", "docward=loud").start();
    docward.signal("HUP");
    assert!(docward.wait_for_log("rules loaded").contains(" INFO "));
}

#[test]
fn text_lines_escape_client_text() {
    let docward = docward().start();
    provoke(&docward, HOSTILE);
    let line = docward.wait_for_log("rule matched");
    assert!(line.contains(r"a\nb\r\u{1b}[2J"), "{line}");
    // An unacknowledged write that cannot be parsed ends the connection; the reason quotes its names.
    let mut client = Client::connect(&docward.address());
    let mut body = RawDocumentBuf::new();
    body.append(cstr!("update"), "orders");
    for _ in 0..2 {
        body.append(CString::try_from(HOSTILE).unwrap(), 1);
    }
    body.append(cstr!("$db"), "logged");
    let sections = [&[0][..], body.as_bytes()].concat();
    let body = [&MORE_TO_COME.to_le_bytes()[..], &sections].concat();
    client.send_bytes(&Frame { request_id: 7, response_to: 0, op_code: OP_MSG, body }.to_bytes());
    let line = docward.wait_for_log("connection closed");
    assert!(line.contains("a b"), "{line}");
    let log = docward.log();
    let is_whole = |line: &String| line.contains(" INFO ") || line.contains(" WARN ");
    assert!(log.iter().all(is_whole), "{log:?}");
    assert!(!log.iter().any(|line| line.contains(['\u{1b}', '\r', '\u{9b}'])), "{log:?}");
}

#[test]
fn documents_are_logged_if_enabled_and_never_sent_to_the_console() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("docward.yaml");
    std::fs::write(&file, "log_documents: true\nlog_format: json\n").unwrap();
    let docward = docward().argument("--config").argument(file.to_str().unwrap()).admin().start();
    provoke(&docward, "status");
    let line: Value = serde_json::from_str(&docward.wait_for_log("rule matched")).unwrap();
    let command = line["command"].as_str().unwrap();
    assert!(command.contains("secret-id") && command.contains("secret-value"), "{command}");
    let mut events = support::http::Events::open(&docward.admin_address(), "/api/decisions").unwrap();
    assert!(!events.next_event().1.to_string().contains("secret"));
}
