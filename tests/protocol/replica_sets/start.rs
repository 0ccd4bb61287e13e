//! The listeners at the start: hidden members, arbiters, members that are down, a map of members.

use std::collections::BTreeSet;

use super::*;
use support::frame::Message;
use support::http::{HttpReply, get};
use support::mongod::Kind;
use support::process::free_port;

#[test]
fn each_member_has_a_listener_and_its_name() {
    let set = ReplicaSet::start(3);
    let docward = Docward::before(&set.uri()).listeners(3).start();
    for address in docward.addresses() {
        let hello = Client::connect(address).command("admin", doc! { "hello": 1 });
        assert_hides(&hello, &set);
        let names = names(&hello);
        assert_eq!(names["hosts"], docward.addresses());
        assert_eq!(names["me"][..], *std::slice::from_ref(address));
        assert!(docward.addresses().contains(&names["primary"][0]));
    }
}

/// Several mongos, for example, are not a replica set either.
#[test]
fn standalone_servers_have_a_listener_each() {
    let servers = [Mongod::start(Kind::Standalone), Mongod::start(Kind::Standalone)];
    let uri = format!("mongodb://{},{}/", servers[0].address(), servers[1].address());
    let docward = Docward::before(&uri).listeners(2).start();
    for (server, address) in servers.iter().zip(docward.addresses()) {
        server.command("x", doc! { "insert": "here", "documents": [{ "_id": server.address() }] });
        let found = Client::connect(address).command("x", doc! { "find": "here" });
        assert!(found.to_string().contains(&server.address()), "{found}");
        let hello = Client::connect(address).command("admin", doc! { "hello": 1 });
        assert!(!hello.contains_key("hosts") && !hello.contains_key("me"), "{hello}");
    }
}

#[test]
fn hidden_members_and_arbiters_have_none() {
    let set = ReplicaSet::start_with(3, |index, member| match index {
        1 => member.extend(doc! { "hidden": true, "priority": 0 }),
        2 => _ = member.insert("arbiterOnly", true),
        _ => {}
    });
    let docward = Docward::before(&set.uri()).start();
    let hello = Client::connect(&docward.address()).command("admin", doc! { "hello": 1 });
    assert_hides(&hello, &set);
    let names = names(&hello);
    assert_eq!((&names["hosts"], &names["arbiters"]), (&vec![docward.address()], &vec![]));
}

/// Whether docward closes a new connection at its first message.
fn is_disconnected(address: &str) -> bool {
    let mut client = Client::connect(address);
    client.send(&Message::new(doc! { "hello": 1, "$db": "admin" }));
    client.closes_within(SOON)
}

#[test]
fn a_member_that_is_down_has_a_listener_that_works_once_it_is_up() {
    let mut set = ReplicaSet::start(3);
    let down = set.secondaries()[0];
    set.kill(down);
    let docward = Docward::before(&set.uri()).listeners(3).start();
    let index = set
        .hello(set.await_primary())
        .unwrap()
        .get_array("hosts")
        .unwrap()
        .iter()
        .position(|host| host.as_str() == Some(&set.member(down).address()));
    let address = &docward.addresses()[index.unwrap()];
    assert!(is_disconnected(address));
    set.restart(down);
    let hello = Client::connect(address).command("admin", doc! { "hello": 1 });
    assert_eq!(names(&hello)["me"][..], *std::slice::from_ref(address));
}

#[test]
fn member_names_are_found_later_if_none_answers_at_the_start() {
    let mut set = ReplicaSet::start(3);
    (0..3).for_each(|index| set.kill(index));
    let docward = Docward::before(&set.uri()).listeners(3).start();
    assert!(is_disconnected(&docward.address()));
    (0..3).for_each(|index| set.restart(index));
    set.await_primary();
    assert_eq!(await_hosts(&docward, 3), docward.addresses());
}

#[test]
fn a_map_sets_each_members_listener_and_hides_members() {
    let set = ReplicaSet::start(3);
    let ports = [free_port(), free_port()];
    let (first, second) = (set.member(0).address(), set.member(1).address());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("docward.yaml");
    let text = format!(
        "advertise: localhost\nmembers:\n  '{second}': {{ listen: 127.0.0.1:{}, advertise: 'localhost:9999' }}\n  \
         '{first}': {{ listen: 127.0.0.1:{} }}\n",
        ports[1], ports[0]
    );
    std::fs::write(&file, text).unwrap();
    let by_file = ["--config".to_owned(), file.to_str().unwrap().to_owned()];
    assert_is_mapped(&set, &by_file, ports);
    let member = |at: usize, more: &str| {
        ["--member".to_owned(), format!("{}=127.0.0.1:{}{more}", set.member(at).address(), ports[at])]
    };
    let advertise = ["--advertise".to_owned(), "localhost".to_owned()];
    assert_is_mapped(&set, &[member(1, ",localhost:9999"), member(0, ""), advertise].concat(), ports);
}

/// With these flags the first two members have these ports and the third is hidden.
fn assert_is_mapped(set: &ReplicaSet, flags: &[String], ports: [u16; 2]) {
    let builder = Docward::before(&set.uri()).without_listen().listeners(2);
    let docward = flags.iter().fold(builder, |builder, flag| builder.argument(flag)).start();
    let hello = Client::connect(&format!("127.0.0.1:{}", ports[1])).command("admin", doc! { "hello": 1 });
    assert_hides(&hello, set);
    let names = names(&hello);
    assert_eq!(names["hosts"], [format!("localhost:{}", ports[0]), "localhost:9999".to_owned()]);
    assert_eq!(names["me"], ["localhost:9999"]);
    docward.wait_for_log(&format!("member {} has no listener and is hidden", set.member(2).address()));
}

/// Clients cannot write then, although docward and all members work.
#[test]
fn a_primary_without_a_listener_is_reported_and_gets_one_by_reload() {
    let set = ReplicaSet::start(2);
    let primary = set.await_primary();
    let (hidden, seen) = (set.member(primary).address(), set.member(1 - primary).address());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("docward.yaml");
    let [port, moved, added] = [(); 3].map(|()| free_port());
    let write = |members: &[(&str, u16)]| {
        let lines =
            members.iter().map(|(member, port)| format!("  \"{member}\": {{ listen: \"127.0.0.1:{port}\" }}\n"));
        std::fs::write(&file, format!("members:\n{}", lines.collect::<String>())).unwrap();
    };
    write(&[(&seen, port), ("other:1", free_port())]);
    let docward = Docward::before(&format!("mongodb://{seen}/?replicaSet=rs0"))
        .without_listen()
        .admin()
        .argument("--config")
        .argument(file.to_str().unwrap())
        .start();
    docward.wait_for_log("the primary has no listener: clients cannot write");
    docward.wait_for_log("`members` names other:1, which is not a member of the replica set");
    let admin = docward.admin_address();
    // A hello that fails under load leaves the primary unknown for a moment.
    let is_reported = |ready: &HttpReply| ready.status == 503 && ready.body.contains("primary_without_listener");
    let ready = poll(TIMEOUT, || Some(get(&admin, "/readyz")).filter(is_reported));
    assert!(ready.is_some(), "{}", get(&admin, "/readyz").body);
    let metrics = get(&admin, "/metrics").body;
    for (metric, value) in [("up", 1), ("primary", 1), ("listener", 0)] {
        let line = format!("docward_member_{metric}{{member=\"{hidden}\"}} {value}");
        assert!(metrics.contains(&line), "{line} not in {metrics}");
    }
    // The file may name it while docward runs, and other addresses.
    let mut client = Client::connect(&format!("127.0.0.1:{port}"));
    write(&[(&seen, moved), (&hidden, port)]);
    let ready = poll(TIMEOUT, || Some(get(&admin, "/readyz")).filter(|ready| ready.status == 200));
    assert!(ready.is_some(), "{} {:#?}", get(&admin, "/readyz").body, docward.log());
    assert!(client.closes_within(TIMEOUT));
    let hosts = |port| {
        let hello = Client::connect(&format!("127.0.0.1:{port}")).command("admin", doc! { "hello": 1 });
        let hosts = hello.get_array("hosts").unwrap().iter().map(|host| host.as_str().unwrap().to_owned());
        (hello.get_bool("isWritablePrimary").unwrap(), hosts.collect::<BTreeSet<_>>())
    };
    let names = |ports: &[u16]| ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<BTreeSet<_>>();
    assert_eq!(hosts(port), (true, names(&[port, moved])));
    assert_eq!(hosts(moved), (false, names(&[port, moved])));
    // Without `members`, and with two listeners of one address, they stay as they are.
    std::fs::write(&file, "{}\n").unwrap();
    docward.wait_for_log("`members` has changed; it needs a restart or a hand-over");
    write(&[(&seen, moved), (&hidden, moved)]);
    docward.wait_for_log("listen on one address");
    assert_eq!(hosts(port).1, names(&[port, moved]));
    write(&[(&seen, moved), (&hidden, added)]);
    let listens = || Client::try_connect(&format!("127.0.0.1:{added}")).ok();
    assert!(poll(TIMEOUT, listens).is_some(), "{:#?}", docward.log());
    assert_eq!(hosts(added), (true, names(&[added, moved])));
}

/// A member that shuts down replies to hello with such an error for up to 15 s.
#[test]
fn an_error_reply_to_hello_is_no_description_of_the_member() {
    let set = ReplicaSet::start(2);
    let ending = set.secondaries()[0];
    let fail = |mode: &str| {
        let data = doc! {"failCommands": ["hello"], "errorCode": 91};
        set.member(ending).command("admin", doc! {"configureFailPoint": "failCommand", "mode": mode, "data": data});
    };
    fail("alwaysOn");
    let docward = Docward::before(&set.uri()).listeners(2).start();
    let inserted = |address: &String| {
        let insert = doc! { "insert": "c", "documents": [{}] };
        Client::connect(address)
            .try_command("x", insert, SOON)
            .is_some_and(|reply| matches!(reply.get_f64("ok"), Ok(1.0)))
    };
    assert!(docward.addresses().iter().any(inserted), "{:?}", docward.log());
    docward.wait_for_log("it replies with an error");
    fail("off");
    docward.wait_for_log("member replies again");
    fail("alwaysOn");
    docward.wait_for_log("it replies with an error");
    fail("off");
    assert!(docward.log().iter().all(|line| !line.contains("is not a member of a replica set")), "{:?}", docward.log());
}
