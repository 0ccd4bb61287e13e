//! The origin of the members' connections: their logs have the port of each connection with a driver's name, and
//! docward's debug log has the port of each of its own. Has no dependency on the workload.

use std::collections::BTreeSet;

use serde_json::Value;

use support::mongod::Mongod;

/// A member's address, and the origin of a connection to it.
type Connection = (String, String);

/// `known` are the addresses that the drivers report; `log` is the log of all docward processes.
pub(crate) fn assert_no_driver_came_directly(members: &[Mongod], known: &BTreeSet<String>, log: &[String]) {
    let ours: BTreeSet<Connection> = log.iter().filter_map(|line| made_by_docward(line)).collect();
    let mut count = 0;
    for member in members {
        let address = member.address();
        assert!(!known.contains(&address), "drivers know {address}: {known:?}");
        for from in member.whole_log().lines().filter_map(made_for_a_driver) {
            assert!(ours.contains(&(address.clone(), from.clone())), "{from} at {address} is not docward's");
            count += 1;
        }
    }
    println!("the members saw {count} connections with a driver's name, all of them docward's");
    assert!(count > 0, "no driver connected");
}

/// Parses a line of docward's log.
fn made_by_docward(line: &str) -> Option<Connection> {
    let member = line.split_once(": connected client=")?.1.split_once(" member=")?.1;
    let (member, from) = member.split_once(" from=Some(")?;
    Some((member.to_owned(), from.trim_end_matches(')').to_owned()))
}

/// Parses a line of mongod's log.
fn made_for_a_driver(line: &str) -> Option<String> {
    let is_driver = line.contains("client metadata") && line.contains("\"chaos-");
    let line: Value = is_driver.then(|| serde_json::from_str(line).ok())??;
    Some(line["attr"]["remote"].as_str()?.to_owned())
}
