//! What a client may do is asked before docward draws a number for it.

use super::*;

const NUMBERED: &str = "sequence: { field: no, counter: c, on_upsert: true }";

fn status(users: i32, privileges: &[(Bson, &[&str])]) -> Vec<u8> {
    let users: Vec<Bson> = (0..users).map(|_| doc! {"db": "admin", "user": "bob"}).collect();
    let list: Vec<Bson> =
        privileges.iter().map(|(resource, actions)| doc! {"resource": resource.clone(), "actions": *actions}).collect();
    let info = doc! {"authenticatedUsers": users, "authenticatedUserRoles": [], "authenticatedUserPrivileges": list};
    replies(doc! {"authInfo": info, "ok": 1.0})
}

fn refusal(code: i32) -> Vec<u8> {
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

/// What becomes of a command when the server answers so: "leased", what is replied (its code) or what is asked.
fn told(command: &[u8], session: &mut Session, answers: &[Vec<u8>]) -> String {
    let rules = rules(&[("d.*", NUMBERED)]);
    let mut plan = Plan::new(command, &rules, NOW);
    let mut answers = answers.iter();
    let mut step = plan.next(Input::Start, session);
    loop {
        step = match step {
            Step::Exchange(question) => match answers.next() {
                Some(answer) => plan.next(Input::Reply(answer), session),
                None => return documents(&question).0.to_string(),
            },
            Step::Lookup(_) => return "leased".to_owned(),
            Step::Reply(reply) => return documents(&reply).0.get_i32("code").unwrap().to_string(),
            Step::Silent => return "silent".to_owned(),
            other => panic!("{other:?}"),
        };
    }
}

#[test]
fn the_server_is_asked_without_api_strict_and_then_probed() {
    let mut session = Session::default();
    assert_eq!(
        told(&insert("c", 0), &mut session, &[]),
        r#"{ "connectionStatus": 1, "showPrivileges": true, "apiVersion": "1", "$db": "admin" }"#
    );
    let probe = told(&insert("c", 0), &mut session, &[status(1, &[])]);
    assert!(probe.starts_with(r#"{ "explain": { "update": "c", "updates": [{ "q": { "_id": 0 }"#), "{probe}");
    assert!(probe.ends_with(r#""upsert": true }] }, "verbosity": "queryPlanner", "apiVersion": "1", "$db": "d" }"#));
}

#[test]
fn a_privilege_counts_as_mongod_counts_it() {
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
        let answer = told(&command, &mut Session::default(), &[status(1, &[(resource.clone(), actions)])]);
        assert_eq!(answer == "leased", granted, "{resource} {actions:?}: {answer}");
    }
}

#[test]
fn what_is_granted_is_remembered_until_the_login_changes() {
    let mut session = Session::default();
    let granted = status(1, &[(doc! {"db": "d", "collection": "c"}, &["insert"])]);
    assert_eq!(told(&insert("c", 0), &mut session, std::slice::from_ref(&granted)), "leased");
    assert_eq!(told(&insert("c", 0), &mut session, &[]), "leased");
    assert!(told(&insert("other", 0), &mut session, &[]).contains("connectionStatus"));
    session.forget_users();
    assert!(told(&insert("c", 0), &mut session, &[]).contains("connectionStatus"));
}

#[test]
fn what_is_refused_is_the_answer_and_is_asked_again() {
    let mut session = Session::default();
    for _ in 0..2 {
        assert_eq!(told(&insert("c", 0), &mut session, &[status(0, &[]), refusal(13)]), "13");
        assert_eq!(told(&insert("c", 2), &mut session, &[status(0, &[]), refusal(13)]), "silent");
        // The server is about to go, and says nothing about privileges.
        assert_eq!(told(&insert("c", 0), &mut session, &[status(0, &[]), refusal(11600)]), "11600");
    }
}

/// Whatever else an `explain` comes to, nobody has asked for a privilege.
#[test]
fn a_server_without_access_control_is_asked_once() {
    for probe in [replies(doc! {"ok": 1.0}), refusal(166), refusal(59)] {
        for status in [status(0, &[]), status(1, &[]), refusal(59)] {
            let mut session = Session::default();
            assert_eq!(told(&insert("c", 0), &mut session, &[status, probe.clone()]), "leased");
            assert_eq!(told(&insert("other", 0), &mut session, &[]), "leased");
        }
    }
}
