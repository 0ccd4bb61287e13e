//! The end of docward's own operations, when the process ends.

use std::time::Duration;

use bson::doc;
use support::mongod::{Kind, Mongod};
use support::proxy::Docward;
use support::raw::Client;

const NUMBERED: &str = "version: 1\nrules: [{ name: r, namespace: d.c, sequence: { field: n, counter: c } }]\n";
/// Without the order of the end about every third process ends no session.
const PROCESSES: usize = 8;

/// The driver's tasks must not end before docward's operations: then the driver panics, and sessions stay on the server.
#[test]
fn sessions_on_the_server_end_before_the_process() {
    let mongod = Mongod::start(Kind::Standalone);
    let ended = || {
        let status = mongod.command("admin", doc! { "serverStatus": 1 });
        let commands = status.get_document("metrics").unwrap().get_document("commands").unwrap();
        commands.get_document("endSessions").unwrap().get_i64("total").unwrap()
    };
    for process in 0..PROCESSES {
        let mut docward = Docward::start(&mongod, NUMBERED);
        let insert = doc! { "insert": "c", "documents": [{}] };
        let reply = Client::connect(&docward.address()).command("d", insert);
        assert_eq!(reply.get_i32("n").ok(), Some(1), "{reply}");
        // The check of what the rules need has a session of its own, which ends by itself.
        std::thread::sleep(Duration::from_millis(500));
        let before = ended();
        assert!(docward.terminate().success());
        assert!(ended() > before, "process {process} left its session");
        assert!(!docward.log().iter().any(|line| line.contains("panicked")), "{:?}", docward.log());
    }
}
