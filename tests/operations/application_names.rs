//! Application names, which clients choose at will: what docward remembers of them is bounded.

use bson::{Document, doc};
use support::http::get;
use support::mongod::Mongod;
use support::process::Resident;
use support::proxy::Docward;
use support::raw::Client;

const RULES: usize = 20;
const CLIENTS: usize = 480;

fn rules() -> String {
    let rule = |number| {
        format!(
            "  - {{name: tried-{number}, namespace: named.tried, mode: shadow, bounds: {{field: n{number}, min: 0}}}}\n"
        )
    };
    format!("version: 1\nrules:\n{}", (0..RULES).map(rule).collect::<String>())
}

/// Connects with a name of the greatest length, and lets every rule match.
fn named(docward: &Docward, number: usize) -> Client {
    let mut client = Client::connect(&docward.address());
    let name = format!("{number:-<128}");
    let driver = doc! { "name": "raw", "version": "1" };
    let metadata = doc! { "application": { "name": name }, "driver": driver, "os": { "type": "x" } };
    assert_eq!(client.command("admin", doc! { "hello": 1, "client": metadata }).get_f64("ok").unwrap(), 1.0);
    let set: Document = (0..RULES).map(|rule| (format!("n{rule}"), (-1).into())).collect();
    let update = doc! { "update": "tried", "updates": [{ "q": { "_id": number as i32 }, "u": { "$set": set } }] };
    assert_eq!(client.command("named", update).get_f64("ok").unwrap(), 1.0);
    client
}

#[test]
fn many_names_and_rules_take_little_memory_and_a_short_report() {
    let docward = Docward::before(&Mongod::shared().uri()).rules(&rules()).admin().without_test_pool().start();
    let report = || get(&docward.admin_address(), "/api/rules").body;
    drop(named(&docward, 0));
    report();
    let before = Resident::of(docward.pid()).now;
    let clients: Vec<Client> = (1..=CLIENTS).map(|number| named(&docward, number)).collect();
    let report = report();
    let grown = (Resident::of(docward.pid()).most - before) >> 20;
    // Each rule lists at most 100 names, and counts the others together.
    let names = report.matches("---").count();
    eprintln!("a report of {} bytes, {grown} MiB more", report.len());
    assert!(report.contains("(others)") && names > 0);
    assert!(report.len() < RULES * 100_000, "a report of {} bytes", report.len());
    assert!(grown < 24, "{grown} MiB for {} names", clients.len());
}
