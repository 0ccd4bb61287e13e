//! Whole messages: modes and exceptions, users, indirect writes, malformed messages, triage, explain.

use super::*;
use crate::rules::{ClientGlobs, ClientNames, Mode, ModeOverride, ModeOverrides};

#[test]
fn explain_shows_the_plan_of_what_would_be_sent() {
    let rules = rules(&[("d.c", "bounds: { field: n, min: 0 }"), ("d.h", "timestamps: { source: t, hide: true }")]);
    let explain = |inner: Bson| frame(&doc! {"explain": inner, "verbosity": "queryPlanner", "$db": "d"}, "", &[], 0);
    let outcome = |inner: Bson| match first_step(&rules, &explain(inner)) {
        Step::Forward { message, .. } => documents(&message).0.get_document("explain").unwrap().clone(),
        Step::ForwardOriginal { .. } => doc! {},
        Step::Reply(reply) => doc! {"code": documents(&reply).0.get_i32("code").unwrap()},
        other => panic!("{other:?}"),
    };
    let inc = |n: i32| doc! {"$inc": {"n": n}};
    assert_eq!(
        outcome(doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": inc(-1)}]}),
        doc! {"update": "c", "updates": [{"q": {"_id": 1, "n": {"$gte": 1}}, "u": inc(-1)}]}
    );
    assert_eq!(
        outcome(doc! {"findAndModify": "c", "query": {"_id": 1}, "update": inc(-1)}),
        doc! {"findAndModify": "c", "query": {"_id": 1, "n": {"$gte": 1}}, "update": inc(-1)}
    );
    assert_eq!(
        outcome(doc! {"find": "h", "filter": {}}),
        doc! {"find": "h", "filter": {}, "projection": {"last_modified": 0}}
    );
    assert_eq!(outcome(doc! {"update": "c", "updates": [{"q": {}, "u": {"n": -1}}]}), doc! {"code": 121});
    assert_eq!(outcome(doc! {"update": "x", "updates": [{"q": {}, "u": {"n": -1}}]}), doc! {});
    assert_eq!(outcome(doc! {"find": "c"}), doc! {});
}

#[test]
fn shadow_and_except_note_outcomes_but_do_not_act() {
    let replace = update(&[doc! {"q": {}, "u": {"a": 1}}]);
    let run = |text: &str, client_state: &mut ClientState| {
        let rules = rules(&[("d.c", text)]);
        let mut plan = Plan::new(&replace, &rules, NOW);
        let step = plan.next(Input::Start, client_state);
        (step, plan.take_outcomes().iter().map(|o| (o.kind, o.statements)).collect::<Vec<_>>())
    };
    let mut client = client_state();
    let (step, outcomes) = run("mode: shadow\nreplacement: {}", &mut client);
    assert!(matches!(step, Step::ForwardOriginal { .. }));
    assert_eq!(outcomes, [(OutcomeKind::ShadowReject, 1)]);
    let (step, outcomes) = run("mode: disabled\nreplacement: {}", &mut client);
    assert!(matches!(step, Step::ForwardOriginal { .. }) && outcomes.is_empty());

    let mut migrator = ClientState { app_name: Some("migrator-7".into()), ..ClientState::default() };
    let (step, outcomes) = run("except: { apps: [\"migrator-*\"] }\nreplacement: {}", &mut migrator);
    assert!(matches!(step, Step::ForwardOriginal { .. }));
    assert_eq!(outcomes, [(OutcomeKind::ExceptReject, 1)]);

    let mut root = ClientState { users: Some(vec![("admin".into(), "root".into())]), ..ClientState::default() };
    let (step, _) = run("except: { users: [admin.root] }\nreplacement: {}", &mut root);
    assert!(matches!(step, Step::ForwardOriginal { .. }));
}

#[test]
fn a_rule_with_only_applies_to_the_clients_that_it_names() {
    let replace = update(&[doc! {"q": {}, "u": {"n": -1}}]);
    let client = |app: Option<&str>, user: Option<&str>| ClientState {
        app_name: app.map(Into::into),
        users: Some(user.map(|user| ("admin".to_owned(), user.to_owned())).into_iter().collect()),
        ..ClientState::default()
    };
    const BY_APP: &str = "only: { apps: [\"promo-*\"] }";
    const BY_USER: &str = "only: { users: [admin.promo] }";
    const BOTH: &str = "only: { apps: [\"promo-*\"], users: [admin.promo] }";
    const LESS: &str = "only: { apps: [\"promo-*\"] }\nexcept: { users: [admin.root] }";
    for (keys, app, user, expected) in [
        (BY_APP, Some("promo-7"), None, Some(OutcomeKind::Reject)),
        (BY_APP, Some("shop"), None, None),
        (BY_APP, None, None, None),
        (BY_USER, Some("promo-7"), Some("shop"), None),
        (BY_USER, None, Some("promo"), Some(OutcomeKind::Reject)),
        (BOTH, Some("promo-7"), Some("shop"), Some(OutcomeKind::Reject)),
        (BOTH, Some("shop"), Some("promo"), Some(OutcomeKind::Reject)),
        (BOTH, Some("shop"), Some("shop"), None),
        (LESS, Some("promo-7"), Some("root"), Some(OutcomeKind::ExceptReject)),
        (LESS, Some("shop"), Some("root"), None),
    ] {
        let rules = rules(&[("d.c", &format!("{keys}\nbounds: {{ field: n, min: 0 }}"))]);
        let mut plan = Plan::new(&replace, &rules, NOW);
        let step = plan.next(Input::Start, &mut client(app, user));
        let kinds: Vec<OutcomeKind> = plan.take_outcomes().iter().map(|one| one.kind).collect();
        assert_eq!(kinds, expected.into_iter().collect::<Vec<_>>(), "{keys} {app:?} {user:?}");
        let is_rejected = expected == Some(OutcomeKind::Reject);
        assert_eq!(matches!(step, Step::ForwardOriginal { .. }), !is_rejected, "{keys} {app:?} {user:?}");
    }
    // The users are asked for.
    let rules = rules(&[("d.c", &format!("{BY_USER}\nbounds: {{ field: n, min: 0 }}"))]);
    let step = Plan::new(&replace, &rules, NOW).next(Input::Start, &mut client_state());
    assert!(matches!(step, Step::Exchange(_)), "{step:?}");
}

#[test]
fn an_override_for_some_clients_leaves_the_mode_of_the_others() {
    let replace = update(&[doc! {"q": {}, "u": {"n": -1}}]);
    let client = |app: Option<&str>, users: Option<&str>| ClientState {
        app_name: app.map(Into::into),
        users: users.map(|user| vec![("admin".to_owned(), user.to_owned())]),
        ..ClientState::default()
    };
    let overridden = |file_mode: &str, mode, app: &str, user: &str| {
        let files = rules(&[("d.c", &format!("mode: {file_mode}\nbounds: {{ field: n, min: 0 }}"))]);
        let list = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let only = ClientGlobs::parse(&ClientNames { apps: list(app), users: list(user) }).unwrap();
        let (reason, by) = (String::new(), String::new());
        let found = ModeOverride { mode, only, until: u64::MAX, reason, by, shared: true };
        files.with_overrides(&ModeOverrides::from([("rule-0".to_owned(), found.into())])).unwrap()
    };
    const REJECT: Option<OutcomeKind> = Some(OutcomeKind::Reject);
    const SHADOW: Option<OutcomeKind> = Some(OutcomeKind::ShadowReject);
    for (file_mode, mode, app, user, expected) in [
        ("enforce", Mode::Shadow, Some("promo-7"), "shop", SHADOW),
        ("enforce", Mode::Shadow, Some("shop"), "promo", SHADOW),
        ("enforce", Mode::Shadow, Some("shop"), "shop", REJECT),
        ("enforce", Mode::Shadow, None, "shop", REJECT),
        ("enforce", Mode::Disabled, Some("promo-7"), "shop", None),
        ("enforce", Mode::Disabled, Some("shop"), "shop", REJECT),
        ("shadow", Mode::Enforce, Some("promo-7"), "shop", REJECT),
        ("shadow", Mode::Enforce, Some("shop"), "shop", SHADOW),
        ("disabled", Mode::Enforce, Some("shop"), "promo", REJECT),
        ("disabled", Mode::Enforce, Some("shop"), "shop", None),
    ] {
        let rules = overridden(file_mode, mode, "promo-*", "admin.promo");
        let mut plan = Plan::new(&replace, &rules, NOW);
        let step = plan.next(Input::Start, &mut client(app, Some(user)));
        let kinds: Vec<OutcomeKind> = plan.take_outcomes().iter().map(|one| one.kind).collect();
        let case = format!("{file_mode} {mode:?} {app:?} {user}");
        assert_eq!(kinds, expected.into_iter().collect::<Vec<_>>(), "{case}");
        assert_eq!(matches!(step, Step::ForwardOriginal { .. }), expected != REJECT, "{case}");
    }
    // The users are asked for, unless the application decides.
    for (app, user, asks) in [("", "admin.promo", true), ("shop", "admin.promo", true), ("promo-*", "", false)] {
        for file_mode in ["enforce", "disabled"] {
            let rules = overridden(file_mode, Mode::Shadow, app, user);
            let step = Plan::new(&replace, &rules, NOW).next(Input::Start, &mut client(Some("other"), None));
            assert_eq!(matches!(step, Step::Exchange(_)), asks, "{file_mode} {app} {user}: {step:?}");
        }
    }
}

#[test]
fn the_users_are_queried_once() {
    let rules = rules(&[("d.c", "except: { users: [admin.root] }\nreplacement: {}")]);
    let replace = update(&[doc! {"q": {}, "u": {"a": 1}}]);
    let mut client_state = client_state();
    let mut plan = Plan::new(&replace, &rules, NOW);
    let Step::Exchange(question) = plan.next(Input::Start, &mut client_state) else { panic!("no query of users") };
    assert!(documents(&question).0.contains_key("connectionStatus"));
    let reply = replies(doc! {"authInfo": {"authenticatedUsers": [{"user": "root", "db": "admin"}]}, "ok": 1.0});
    assert!(matches!(plan.next(Input::Reply(reply.clone()), &mut client_state), Step::ForwardOriginal { .. }));
    assert_eq!(client_state.users, Some(vec![("admin".into(), "root".into())]));
    let again = Plan::new(&replace, &rules, NOW).next(Input::Start, &mut client_state);
    assert!(matches!(again, Step::ForwardOriginal { .. }));
}

#[test]
fn indirect_writes_are_rejected_unless_allowed() {
    let reject = rules(&[("d.c", "replacement: {}")]);
    let allow = rules(&[("d.c", "unsupported: allow\nreplacement: {}")]);
    let indirect_writes = [
        doc! {"aggregate": "x", "pipeline": [{"$out": "c"}], "$db": "d"},
        doc! {"aggregate": 1, "pipeline": [{"$merge": {"into": {"db": "d", "coll": "c"}}}], "$db": "e"},
        doc! {"aggregate": "x", "pipeline": [{"$out": {"db": "d", "coll": "c"}}], "$db": "e"},
        doc! {"aggregate": "x", "pipeline": [{"$facet": {"a": [{"$merge": "c"}]}}], "$db": "d"},
        doc! {"mapReduce": "x", "out": {"merge": "c"}, "$db": "d"},
        doc! {"mapreduce": "x", "out": "c", "$db": "d"},
        doc! {"renameCollection": "d.x", "to": "d.c", "$db": "admin"},
        doc! {"renameCollection": "d.c", "to": "d.x", "$db": "admin"},
        doc! {"applyOps": [{"op": "i", "ns": "d.c", "o": {}}], "$db": "admin"},
        doc! {"convertToCapped": "c", "$db": "d"},
        doc! {"newWrite": "c", "$db": "d"},
    ];
    for command in indirect_writes {
        let message = frame(&command, "", &[], 0);
        assert_eq!(triage(&RequestHead::new(&message), &reject), Triage::Evaluate, "{command}");
        let Step::Reply(reply) = first_step(&reject, &message) else { panic!("{command} passes") };
        let (reply, _) = documents(&reply);
        assert_eq!((reply.get_f64("ok").unwrap(), reply.get_i32("code").unwrap()), (0.0, 121), "{command}");
        let step = first_step(&allow, &message);
        assert!(matches!(step, Step::ForwardOriginal { .. }), "{command}: {step:?}");
    }
    for command in [
        doc! {"aggregate": "c", "pipeline": [{"$out": "x"}], "$db": "d"},
        doc! {"aggregate": "x", "pipeline": [{"$project": {"a": {"$literal": {"$out": "c"}}}}], "$db": "d"},
        doc! {"mapReduce": "c", "out": {"inline": 1}, "$db": "d"},
        doc! {"renameCollection": "d.x", "to": "d.y", "$db": "admin"},
        doc! {"newWrite": "x", "$db": "d"},
        doc! {"update": "x", "updates": [{"q": {}, "u": {}}], "$db": "d"},
        doc! {"update": "c", "updates": [{"q": {}, "u": {}}], "$db": "e"},
    ] {
        let message = frame(&command, "", &[], 0);
        let forwarded = matches!(triage(&RequestHead::new(&message), &reject), Triage::Forward { .. })
            || matches!(first_step(&reject, &message), Step::ForwardOriginal { .. });
        assert!(forwarded, "{command}");
    }
}

#[test]
fn a_read_by_uuid_is_rejected_if_a_rule_may_evaluate_it() {
    let uuid = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![1; 16] };
    let find = |database: &str| frame(&doc! {"find": uuid.clone(), "$db": database}, "", &[], 0);
    for (pattern, database, rejected) in [
        ("deny: { operations: [find] }", "d", true),
        ("deny: { operations: [find] }", "e", false),
        ("deny: { operations: [count] }", "d", false),
        ("mode: shadow\ndeny: { operations: [find] }", "d", false),
        ("mode: disabled\ndeny: { operations: [find] }", "d", false),
        ("unsupported: allow\ndeny: { operations: [find] }", "d", false),
        ("timestamps: { source: t, hide: true }", "d", true),
        ("timestamps: { source: t }", "d", false),
    ] {
        let rules = rules(&[("d.c", pattern), ("d.x", "replacement: {}")]);
        let step = first_step(&rules, &find(database));
        assert_eq!(matches!(step, Step::Reply(_)), rejected, "{pattern} {database}: {step:?}");
        assert_eq!(matches!(step, Step::ForwardOriginal { .. }), !rejected, "{pattern} {database}: {step:?}");
    }
}

#[test]
fn an_unknown_command_that_names_a_protected_collection_is_rejected() {
    let rules = rules(&[("d.c", "replacement: {}")]);
    let forwards = |command: Bson| {
        let step = first_step(&rules, &frame(&command, "", &[], 0));
        matches!(step, Step::ForwardOriginal { .. })
    };
    let many: Vec<String> = (0..70).map(|n| format!("t{n}")).collect();
    for (command, passes) in [
        (doc! {"new": 1, "a": {"b": ["c"]}, "$db": "d"}, false),
        (doc! {"new": 1, "a": "d.c", "$db": "admin"}, false),
        (doc! {"new": 1, "db": "d", "then": [{"insert": "c"}], "$db": "admin"}, false),
        (doc! {"new": 1, "a": bson::Bson::Symbol("c".into()), "$db": "d"}, false),
        (doc! {"new": 1, "a": many, "$db": "d"}, false),
        (doc! {"new": 1, "a": "c", "$db": "e"}, true),
        (doc! {"new": 1, "a": "x", "comment": "c", "readConcern": {"level": "c"}, "$db": "d"}, true),
        (doc! {"new": 1, "lsid": {"id": bson::Uuid::from_bytes([1; 16])}, "$db": "d"}, true),
        (doc! {"new": 1, "c": 1, "$db": "d"}, true),
    ] {
        assert_eq!(forwards(command.clone()), passes, "{command}");
    }
}

#[test]
fn messages_that_cannot_be_parsed_get_an_error() {
    let rules = rules(&[("d.c", "replacement: {}")]);
    let set = doc! {"q": {}, "u": {"$set": {"a": 1}}};
    let both =
        frame(&doc! {"update": "c", "updates": [set.clone()], "$db": "d"}, "updates", std::slice::from_ref(&set), 0);
    let unknown_list = frame(&doc! {"update": "c", "$db": "d"}, "inserts", std::slice::from_ref(&set), 0);
    let unknown_field = update(&[doc! {"q": {}, "u": {"$set": {"a": 1}}, "upsertSupplied": true}]);
    let deep = (0..201).fold(doc! {}, |inner, _| doc! {"a": inner});
    let too_deep = update(&[doc! {"q": deep, "u": {"$set": {"a": 1}}}]);
    for (message, code) in [(both, 9), (unknown_list, 9), (unknown_field, 9), (too_deep, 15)] {
        let Step::Reply(reply) = first_step(&rules, &message) else { panic!("passes") };
        assert_eq!(documents(&reply).0.get_i32("code").unwrap(), code);
    }
    // The client expects no reply, so the connection closes.
    let silent = frame(&doc! {"update": "c", "updates": 1, "$db": "d"}, "", &[], crate::wire::op_msg::MORE_TO_COME);
    assert!(matches!(first_step(&rules, &silent), Step::Close(_)));
}

#[test]
fn triage_decides_from_the_first_bytes() {
    let rules = rules(&[("d.c", "replacement: {}")]);
    let big = "x".repeat(1000);
    let elsewhere = frame(&doc! {"insert": "other", "$db": "d"}, "documents", &[doc! {"a": big.clone()}], 0);
    assert_eq!(triage(&RequestHead::new(&elsewhere[..60]), &rules), Triage::Forward { expects_reply: true });
    assert_eq!(triage(&RequestHead::new(&elsewhere[..30]), &rules), Triage::More);
    let protected = frame(&doc! {"insert": "c", "$db": "d"}, "documents", &[doc! {"a": big}], 0);
    assert_eq!(triage(&RequestHead::new(&protected), &rules), Triage::Evaluate);
    assert_eq!(triage(&RequestHead::new(&protected[..40]), &rules), Triage::Evaluate, "$db is not among the bytes");
    let hello = frame(&doc! {"hello": 1, "$db": "admin"}, "", &[], 0);
    assert_eq!(triage(&RequestHead::new(&hello), &rules), Triage::Hello);
    let sasl = frame(&doc! {"saslStart": 1, "$db": "admin"}, "", &[], 0);
    assert_eq!(triage(&RequestHead::new(&sasl), &rules), Triage::Authenticate { expects_reply: true });
    for end in 16..protected.len() {
        let _ = triage(&RequestHead::new(&protected[..end]), &rules);
    }
}

#[test]
fn only_a_login_by_certificate_is_rejected() {
    let rules = RuleSet::default();
    for (command, rejected) in [
        (doc! {"authenticate": 1, "mechanism": "MONGODB-X509", "user": "CN=x", "$db": "$external"}, true),
        (doc! {"authenticate": 1, "$db": "$external"}, true),
        (doc! {"saslStart": 1, "payload": 1, "mechanism": "MONGODB-X509", "$db": "$external"}, true),
        (doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": 1, "$db": "admin"}, false),
        (doc! {"saslStart": 1, "mechanism": "PLAIN", "payload": 1, "$db": "$external"}, false),
        (doc! {"saslContinue": 1, "payload": "MONGODB-X509", "$db": "admin"}, false),
        (doc! {"logout": 1, "$db": "admin"}, false),
    ] {
        let whole = frame(&command, "", &[], 0);
        let expected = if rejected { Triage::Evaluate } else { Triage::Authenticate { expects_reply: true } };
        assert_eq!(triage(&RequestHead::new(&whole), &rules), expected, "{command}");
        let early = (16..whole.len()).map(|end| triage(&RequestHead::new(&whole[..end]), &rules));
        assert!(early.into_iter().all(|triage| triage == Triage::More || triage == expected), "{command}");
        match first_step(&rules, &whole) {
            Step::Reply(reply) if rejected => assert_eq!(documents(&reply).0.get_i32("code").unwrap(), 18),
            Step::ForwardOriginal { .. } if !rejected => {}
            other => panic!("{command}: {other:?}"),
        }
    }
}
