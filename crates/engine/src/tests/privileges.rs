//! docward checks the client's privileges before it reserves a number.

use super::*;

const NUMBERED: &str = "sequence: { field: no, counter: c, on_upsert: true }";

fn status(users: i32, privileges: &[(Bson, &[&str])]) -> Vec<u8> {
    let users: Vec<Bson> = (0..users).map(|_| doc! {"db": "admin", "user": "bob"}).collect();
    let list: Vec<Bson> =
        privileges.iter().map(|(resource, actions)| doc! {"resource": resource.clone(), "actions": *actions}).collect();
    let info = doc! {"authenticatedUsers": users, "authenticatedUserRoles": [], "authenticatedUserPrivileges": list};
    replies(doc! {"authInfo": info, "ok": 1.0})
}

fn error(code: i32) -> Vec<u8> {
    replies(doc! {"ok": 0.0, "errmsg": "no", "code": code})
}

fn insert(collection: &str, flags: u32) -> Vec<u8> {
    frame(
        &doc! {"insert": collection, "apiVersion": "1", "apiStrict": true, "$db": "d"},
        "documents",
        &[doc! {}],
        flags,
    )
}

/// Returns the result of a command with these replies of the server: "numbers", the code of the reply, or the next
/// query.
fn result(command: &[u8], client_state: &mut ClientState, replies: &[Vec<u8>]) -> String {
    let rules = rules(&[("d.*", NUMBERED)]);
    let mut plan = Plan::new(command, &rules, NOW);
    let mut replies = replies.iter();
    let mut step = plan.next(Input::Start, client_state);
    loop {
        step = match step {
            Step::Exchange(question) => match replies.next() {
                Some(reply) => plan.next(Input::Reply(reply.to_vec()), client_state),
                None => return documents(&question).0.to_string(),
            },
            Step::Lookup(_) => return "numbers".to_owned(),
            Step::Reply(reply) => return documents(&reply).0.get_i32("code").unwrap().to_string(),
            Step::Silent => return "silent".to_owned(),
            other => panic!("{other:?}"),
        };
    }
}

#[test]
fn the_server_is_queried_without_api_strict_and_then_probed() {
    let mut client_state = ClientState::default();
    assert_eq!(
        result(&insert("c", 0), &mut client_state, &[]),
        r#"{ "connectionStatus": 1, "showPrivileges": true, "apiVersion": "1", "$db": "admin" }"#
    );
    let probe = result(&insert("c", 0), &mut client_state, &[status(1, &[])]);
    assert!(probe.starts_with(r#"{ "explain": { "update": "c", "updates": [{ "q": { "_id": 0,"#), "{probe}");
    assert!(probe.ends_with(r#""upsert": true }] }, "verbosity": "queryPlanner", "apiVersion": "1", "$db": "d" }"#));
}

#[test]
fn privileges_are_matched_as_mongod_matches_them() {
    let upsert = |collection: &str| {
        let statement = doc! {"q": {"_id": 1}, "u": {"$set": {"a": 1}}, "upsert": true};
        frame(&doc! {"update": collection, "$db": "d"}, "updates", &[statement], 0)
    };
    let on = |db: &str, collection: &str| doc! {"db": db, "collection": collection};
    let both: &[&str] = &["insert", "update"];
    let cases: [(Bson, &[&str], Vec<u8>, bool); 14] = [
        (on("d", "c"), &["insert"], insert("c", 0), true),
        (on("d", "c"), &["find", "update"], insert("c", 0), false),
        (on("d", "c"), &["insert"], upsert("c"), false),
        (on("d", "c"), &["update"], upsert("c"), false),
        (on("d", "c"), both, upsert("c"), true),
        (on("d", "x"), both, insert("c", 0), false),
        (on("x", "c"), both, insert("c", 0), false),
        (on("d", ""), both, insert("c", 0), true),
        (on("", "c"), both, insert("c", 0), true),
        (on("", ""), both, insert("c", 0), true),
        (doc! {"cluster": true}, both, insert("c", 0), false),
        (doc! {"db": "d", "system_buckets": "c"}, both, insert("c", 0), false),
        (doc! {"anyResource": true}, &["anyAction"], insert("c", 0), true),
        (doc! {"anyResource": true}, &["find"], insert("c", 0), false),
    ];
    for (resource, actions, command, granted) in cases {
        let reply = result(&command, &mut ClientState::default(), &[status(1, &[(resource.clone(), actions)])]);
        assert_eq!(reply == "numbers", granted, "{resource} {actions:?}: {reply}");
    }
}

#[test]
fn granted_privileges_are_kept_until_the_login_changes() {
    let mut client_state = ClientState::default();
    let granted = status(1, &[(doc! {"db": "d", "collection": "c"}, &["insert"])]);
    assert_eq!(result(&insert("c", 0), &mut client_state, std::slice::from_ref(&granted)), "numbers");
    assert_eq!(result(&insert("c", 0), &mut client_state, &[]), "numbers");
    assert!(result(&insert("other", 0), &mut client_state, &[]).contains("connectionStatus"));
    client_state.forget_users();
    assert!(result(&insert("c", 0), &mut client_state, &[]).contains("connectionStatus"));
}

#[test]
fn a_missing_privilege_is_reported_and_checked_again() {
    let mut client_state = ClientState::default();
    for _ in 0..2 {
        assert_eq!(result(&insert("c", 0), &mut client_state, &[status(0, &[]), error(13)]), "13");
        assert_eq!(result(&insert("c", 2), &mut client_state, &[status(0, &[]), error(13)]), "silent");
        // The server is shutting down and does not check privileges.
        assert_eq!(result(&insert("c", 0), &mut client_state, &[status(0, &[]), error(11600)]), "11600");
    }
}

/// Any error of an `explain` other than Unauthorized means that access control is off.
#[test]
fn a_server_without_access_control_is_queried_once() {
    for probe in [replies(doc! {"ok": 1.0}), error(166), error(59)] {
        for status in [status(0, &[]), status(1, &[]), error(59)] {
            let mut client_state = ClientState::default();
            assert_eq!(result(&insert("c", 0), &mut client_state, &[status, probe.clone()]), "numbers");
            assert_eq!(result(&insert("other", 0), &mut client_state, &[]), "numbers");
        }
    }
}
