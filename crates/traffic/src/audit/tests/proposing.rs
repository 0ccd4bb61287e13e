//! Rules that are proposed for recorded commands.

use bson::doc;

use super::*;
use crate::audit::report::TrafficFile;

/// The proposal for these commands, all from one connection. It is the same for bulkWrite.
fn proposed(commands: &[&str]) -> String {
    let mut recorded: Vec<RecordedCommand> = commands.iter().map(|text| recorded(text, 1, None)).collect();
    let text = proposed_for(&recorded);
    recorded.iter_mut().for_each(|one| one.content = as_bulk_write(&one.content));
    assert_eq!(proposed_for(&recorded), text);
    text
}

/// The same command as a bulkWrite, if it can be one.
fn as_bulk_write(content: &RecordedContent) -> RecordedContent {
    let RecordedContent::Command(command) = content else { return content.clone() };
    let command = bson::Document::from_reader(command.as_document().as_bytes()).unwrap();
    let (name, collection) = command.iter().next().map(|(name, value)| (name.clone(), value.clone())).unwrap();
    let list = ["documents", "updates", "deletes"].into_iter().find(|list| command.contains_key(list));
    let Some(list) = list.map(|list| command.get_array(list).unwrap().clone()) else { return content.clone() };
    let op = |statement: bson::Bson| {
        let mut op = bson::Document::from_iter([(name.clone(), bson::Bson::Int32(1))]);
        if name == "insert" {
            op.insert("document", statement);
            return op;
        }
        for (key, value) in statement.as_document().unwrap().clone() {
            let (key, value) = match key.as_str() {
                "q" => ("filter", value),
                "u" => ("updateMods", value),
                "limit" => ("multi", (value == bson::Bson::Int32(0)).into()),
                other => (other, value),
            };
            op.insert(key, value);
        }
        op
    };
    let ops: Vec<bson::Document> = list.into_iter().map(op).collect();
    let names = ["other", collection.as_str().unwrap()].map(|name| doc! {"ns": format!("d.{name}")});
    let command = doc! {"bulkWrite": 1, "ops": ops, "nsInfo": names.to_vec(), "$db": "admin"};
    let raw = bson::raw::RawDocumentBuf::try_from(&command).unwrap();
    RecordedContent::Command(CowDocument::from_writer(raw.into_bytes()))
}

fn proposed_for(traffic: &[RecordedCommand]) -> String {
    let mut habits = Habits::default();
    traffic.iter().for_each(|one| habits.add_command(one));
    let candidates = CandidateRules::from_habits(&habits);
    let mut evaluation = candidates.evaluation();
    traffic.iter().for_each(|one| evaluation.add_command(one));
    let evaluated = evaluation.finish();
    let mut proposal = candidates.choose(evaluated);
    if let Some(rules) = proposal.rules() {
        let mut audit = Audit::new(rules);
        traffic.iter().for_each(|one| audit.add_command(one));
        let tally = audit.finish();
        proposal.remove_breaking(tally);
    }
    let text = proposal.to_text(&[TrafficFile { name: "a.log".to_owned(), ..TrafficFile::default() }]);
    let loaded = RuleSet::from_sources(vec![SourceFile { name: "s.yaml".to_owned(), text: text.clone() }]);
    assert!(loaded.is_ok() || text.contains("No rule proposed"), "{text}\n{}", loaded.unwrap_err());
    text
}

#[test]
fn numbers_of_groups_and_numbers_stored_elsewhere_get_no_sequence() {
    let numbered = |filter: &str, more: &str, child: &str| {
        let texts = (100..106).flat_map(|number| {
            [
                format!("db.orders.find({filter}).sort({{no: -1}}).limit(1)"),
                format!("db.orders.insertOne({{no: {number}, shop: 1{}}})", more.replace('#', &number.to_string())),
                format!("db.lines.insertOne({{sku: 1{}}})", child.replace('#', &number.to_string())),
            ]
        });
        proposed_for(&texts.map(|text| recorded(&text, 1, None)).collect::<Vec<_>>())
    };
    assert!(numbered("", "", "").contains("sequence: {"), "{}", numbered("", "", ""));
    let grouped = numbered("{shop: 1}", "", "");
    assert!(!grouped.contains("sequence"), "{grouped}");
    for (more, child, place) in [
        (", code: 'INV-0#'", "", "code"),
        (", _id: #", "", "_id"),
        ("", ", order: {no: #}", "lines.order.no"),
        ("", ", order: 'INV-#'", "lines.order"),
    ] {
        let text = numbered("", more, child);
        assert!(!text.contains("\n    sequence: {") && text.contains(&format!("in '{place}'")), "{text}");
    }
}

#[test]
fn habits_become_rules_that_load() {
    let pushes = vec!["db.c.updateOne({o: 1}, {$push: {l: 1}})"; 25];
    let upserts = vec!["db.c.updateOne({o: 1}, {$push: {l: 1}}, {upsert: true})"; 25];
    let filtered =
        [&pushes[..], &["db.c.updateOne({o: 1}, [{$set: {l: {$filter: {input: '$l', cond: {$gt: ['$$this', 1]}}}}}])"]]
            .concat();
    let counted = [&pushes[..], &["db.c.updateOne({o: 1}, [{$set: {n: {$size: '$l'}}}])"]].concat();
    let renamed = [&pushes[..], &["db.c.updateOne({o: 1}, {$rename: {l: 'old'}})"]].concat();
    let sliced = [&pushes[..], &["db.c.updateOne({o: 1}, {$push: {l: {$each: [1], $slice: 5}}})"]].concat();
    for (commands, expected, absent) in [
        (
            vec!["db.c.find({_id: 1})", "db.c.replaceOne({_id: 1}, {a: 1})"],
            "other than _id, after the same connection had read it",
            "check_version",
        ),
        (vec![READ, SAVE, READ, SAVE], "    replacement: { policy: check_version, version: version }", "Not proposed"),
        // The version of the stored document is not known.
        (vec![SAVE], "    replacement: { policy: merge }", "\n    replacement: { policy: check_version"),
        (vec!["db.c.replaceOne({_id: 1, version: 3}, {a: 1, version: 4})"], "No rule proposed", "replacement:"),
        (vec!["db.c.updateOne({_id: 1}, {$inc: {n: -2}})"], "bounds: { field: n, min: 0 }", "replacement:"),
        (vec!["db.c.updateOne({_id: 1, n: {$gte: 2}}, {$inc: {n: -2}})"], "No rule proposed", "bounds:"),
        (
            vec!["db.c.updateOne({_id: 1, n: {$lt: 9}}, {$inc: {n: -2}})"],
            "bounds: { field: n, min: 0 }",
            "replacement:",
        ),
        (vec!["db.c.updateOne({_id: 1}, {$inc: {n: 2}})"], "No rule proposed", "bounds:"),
        (pushes, "limits: { items: { l: 1000 } }", "bucket:"),
        (upserts, "bucket: { array: l, count: l_count, limit: 100 }", "limits:"),
        (sliced, "No rule proposed", "bucket:"),
        (filtered, "No rule proposed", "limits:"),
        (renamed, "No rule proposed", "limits:"),
        (counted, "limits: { items: { l: 1000 } }", "bucket:"),
        (vec!["db.c.deleteMany({})"], "deny: { operations: [delete], when: { filter: empty } }", "update,"),
        (
            vec!["db.c.updateMany({}, {$set: {a: 1}})", "db.c.deleteMany({})"],
            "operations: [update, delete]",
            "replacement:",
        ),
    ] {
        let text = proposed(&commands);
        assert!(text.contains(expected) && !text.contains(absent), "{commands:?}\n{text}");
    }
}

#[test]
fn names_of_the_traffic_mean_themselves_in_rules() {
    for (command, expected) in [
        ("db.c.updateOne({_id: 1}, {$inc: {null: -1}})", "\n    bounds: { field: \"null\", min: 0 }"),
        ("db.c.updateOne({_id: 1}, {$inc: {True: -1}})", "\n    bounds: { field: \"True\", min: 0 }"),
        ("db.getCollection('null').updateOne({_id: 1}, {$inc: {n: -1}})", "\n    namespace: d.null"),
        ("db.getCollection('*').updateOne({_id: 1}, {$inc: {n: -1}})", "No rule proposed"),
        ("db.getCollection('a*b').deleteMany({})", "means all collections with such a name"),
        ("db.getCollection('a,b').deleteMany({})", "it does not fit a rule file: `d.a,b` is read as one namespace"),
    ] {
        let text = proposed(&[command]);
        assert!(text.contains(expected), "{command}: {text}");
    }
}

#[test]
fn a_time_without_late_writes_gives_no_rule() {
    let set = |time: &str| {
        format!("db.c.updateOne({{_id: 1}}, {{$set: {{updated_at: ISODate('2026-01-01T00:00:{time}Z')}}}})")
    };
    let times = |times: &[&str]| times.iter().map(|time| set(time)).collect::<Vec<_>>();
    let on_time = times(&["00", "10", "20", "19.900", "30"]);
    let late = times(&["00", "20", "10", "30", "25"]);
    let of = |commands: &[String]| proposed(&commands.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(of(&on_time).contains("No rule proposed"), "{}", of(&on_time));
    assert!(of(&late).contains("timestamps: { source: updated_at"), "{}", of(&late));
}

#[test]
fn a_rule_that_breaks_the_application_is_not_proposed() {
    // It counts its own version up.
    let saves: Vec<String> = (1..9).map(|n| format!("db.c.replaceOne({{_id: 1}}, {{a: 1, version: {n}}})")).collect();
    let counting: Vec<&str> = saves.iter().flat_map(|save| [READ, save.as_str()]).collect();
    // It changes the document by an update between reading and saving it.
    let views = "db.c.updateOne({_id: 1}, {$inc: {views: 1}})";
    let between = [READ, views, SAVE].repeat(5);
    // It saves the same document again without reading it.
    let again = [READ, SAVE, SAVE, SAVE].to_vec();
    for commands in [counting, between, again] {
        let text = proposed(&commands);
        assert!(text.contains("would meet a version conflict"), "{commands:?}\n{text}");
        assert!(text.contains("\n    replacement: { policy: merge }"), "{commands:?}\n{text}");
    }
    // A save that removes a field would keep it with merge.
    let removing = ["db.c.insertOne({_id: 1, a: 1, b: 1})", "db.c.replaceOne({_id: 1}, {a: 2})"];
    let text = proposed(&removing);
    assert!(text.contains("No rule proposed") && text.contains("remove a field ('b')"), "{text}");
    // A temperature is below zero.
    let cold = ["db.c.updateOne({_id: 1}, {$inc: {n: -1}})", "db.c.insertOne({_id: 2, n: -5})"];
    let text = proposed(&cold);
    assert!(text.contains("No rule proposed") && text.contains("it would reject 1 of 2 statements"), "{text}");
    // A decrement below zero that succeeded is rare for a stock, and normal for a balance that may be negative.
    let sold = |stock: usize| {
        [
            vec![format!("db.c.insertOne({{_id: 1, n: {stock}}})")],
            vec!["db.c.updateOne({_id: 1}, {$inc: {n: -1}})".to_owned(); 10],
        ]
        .concat()
    };
    for (stock, expected) in [(9, "1 would change nothing"), (3, "7 of 10 statements would change nothing")] {
        let text = proposed(&sold(stock).iter().map(String::as_str).collect::<Vec<_>>());
        assert!(text.contains(expected) && text.contains("No rule proposed") == (stock == 3), "{text}");
    }
    for (amount, lost) in [("NumberLong(-1)", 3), ("-1.5", 4), ("NumberDecimal('-1.5')", 4)] {
        let update = format!("db.c.updateOne({{_id: 1}}, {{$inc: {{n: {amount}}}}})");
        let sold = [vec!["db.c.insertOne({_id: 1, n: 2})"], vec![&update; 5]].concat();
        let text = proposed(&sold);
        assert!(text.contains(&format!("{lost} of 5 statements would change nothing")), "{amount}\n{text}");
    }
    // What is stored is not known after a drop, nor after an aggregation into the collection.
    const INSERT: &str = "db.c.insertOne({_id: 1, n: 0})";
    const UPDATE: &str = "db.c.updateOne({_id: 1}, {$inc: {n: -1}})";
    assert!(proposed(&[INSERT, UPDATE]).contains("1 of 1 statements would change nothing"));
    let aggregate = "db.o.aggregate([{$match: {}}, {$unionWith: {coll: 'p'}}, {$merge: {into: 'c'}}])";
    for between in ["db.c.drop()", "db.o.aggregate([{$out: 'c'}])", aggregate] {
        let text = proposed(&[INSERT, between, UPDATE]);
        assert!(text.contains("1 rewritten with a condition that the traffic cannot confirm"), "{text}");
    }
    // A pipeline would be checked.
    let pipeline =
        ["db.c.updateOne({_id: 1}, {$inc: {n: -1}})", "db.c.updateOne({_id: 1}, [{$set: {n: {$max: ['$n', 0]}}}])"];
    let text = proposed(&pipeline);
    assert!(text.contains("    bounds:") && !text.contains("Not proposed"), "{text}");
}

#[test]
fn a_proposal_is_contradicted_by_the_traffic_that_it_comes_from() {
    let numbered = |n: usize| {
        [
            "db.c.find().sort({no: -1}).limit(1)".to_owned(),
            format!("db.c.insertOne({{_id: '{}', no: {n}}})", "x".repeat(n)),
        ]
    };
    let numbers: Vec<String> = (1..=6).flat_map(numbered).collect();
    let imported = "db.c.insertMany([{_id: 'i', no: 900}, {_id: 'j', no: 850}])".to_owned();
    let before_import = [numbers.clone(), vec![imported.clone()]].concat();
    let pushes = vec!["db.c.updateOne({o: 1}, {$push: {l: 1}}, {upsert: true})".to_owned(); 25];
    let renamed = [pushes.clone(), vec!["db.c.updateOne({o: 1}, {$set: {title: 'x'}})".to_owned()]].concat();
    let at = |set: &str, time: &str| {
        format!("db.c.updateOne({{_id: 1}}, {{$set: {{{set}, updated_at: ISODate('2026-01-01T00:00:{time}Z')}}}})")
    };
    let sensors = vec![at("t: 1", "00"), at("t: 2", "30"), at("h: 1", "10"), at("t: 3", "50"), at("h: 2", "40")];
    let editor = [at("t: 1", "30"), READ.to_owned(), at("t: 2", "10"), READ.to_owned(), at("t: 3", "05")].to_vec();
    let replaced = vec!["db.c.replaceOne({_id: 1}, {a: 1})".to_owned()];
    let compared = [vec!["db.c.insertOne({_id: 1, a: 0})".to_owned()], replaced.clone()].concat();
    let both = [compared.clone(), vec!["db.c.replaceOne({_id: 7}, {a: 1})".to_owned()]].concat();
    for (commands, expected, absent) in [
        (numbers, "    sequence: { field: no,", "Not proposed"),
        (before_import, "2 of 8 inserts have another number than the next one", "\n    sequence:"),
        (pushes, "    bucket:", "    limits:"),
        (renamed, "    limits:", "bucket:"),
        (sensors, "    timestamps: { source: updated_at, without_source: pass }", "per: document"),
        (editor, "the application sets it back on purpose", "\n    timestamps:"),
        (replaced, "The traffic does not show whether the recorded ones remove a field", "remove no field"),
        (compared, "The recorded ones remove no field.", "does not show"),
        (both, "1 of the 2 recorded ones remove no field; the traffic does not show it of the others", "The recorded"),
        (
            vec!["db.c.updateOne({_id: 1}, {$inc: {n: -1}})".to_owned()],
            "1 rewritten with a condition that the traffic cannot confirm",
            "Not proposed",
        ),
    ] {
        let text = proposed(&commands.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(text.contains(expected) && !text.contains(absent), "{commands:#?}\n{text}");
    }
}

#[test]
fn a_proposal_counts_what_the_source_does_not_contain() {
    let (mut reader, mut out) = (LogReader::default(), Vec::new());
    let masked = line("a", "update", "d.c", r####"{"q":{"_id":"###"},"u":{"a":"###"}}"####, "");
    reader.parse_line(masked.as_bytes(), &everything, &mut out).unwrap();
    reader.finish(&mut out);
    let text = proposed_for(&out);
    assert!(text.contains("# 1 statement could not be considered: the source masks its values.\n"), "{text}");
}

#[test]
fn proposals_of_all_kinds_load_together() {
    let mut commands = vec!["db.c.updateOne({o: 1}, {$push: {l: 1}})"; 25];
    commands.extend([
        "db.c.replaceOne({_id: 1}, {a: 1, version: 4, updated_at: ISODate('2026-01-01T00:00:00Z')})",
        "db.c.updateOne({_id: 1}, {$inc: {'n.#x: y': -2, n: -1, 'yes': -1}})",
        "db.getCollection('C').deleteMany({})",
        "db.getCollection('c').deleteMany({})",
        "db.getCollection('a: b #').deleteMany({})",
    ]);
    proposed(&commands);
}
