//! A text that names something and cannot be such a name, or hardly, is reported, at each key of each pattern: a rule with
//! it would match nothing. The keys come from the declarations, so a new pattern is tested too.

use docward::config::SourceFile;
use docward::config::keys::{Keys, ValueSchema};
use docward::patterns::AnyPattern;
use docward::rules::{RULE, RuleSet};
use serde_json::{Value, json};

use super::schema::{envelope, file, patterns};

/// Texts that are not the name that they are written for, by the schema of the key.
fn wrong_names(schema: &str) -> Option<Vec<&'static str>> {
    const ANYWHERE: [&str; 10] =
        [" ", ", ", "a.b, a.c", "{a.b,a.c}", "[a.b, a.c]", "\"a.b\"", " a.b", "a.b\u{a0}", "- a.b\n- a.c\n", "a.?b"];
    let more: &[&str] = match schema {
        "namespace" => &[
            "a.b|a.c",
            "a.{b,c}",
            "a.b a.c",
            "a..b",
            "a.",
            ".b",
            "a",
            "a/b",
            "!a.b",
            "^a.*",
            "a.b$",
            "“a.b”",
            "a.system.b",
        ],
        "collection" => &["a.*", "*.b", "a.b a.c", "a", "a..b", "a.$b"],
        "nearCollection" => &["b, c", "b*", "a.*", "a..b", "a.$b", "a.b a.c", ".b"],
        "path" | "topLevelField" | "source" => {
            &["a..b", ".a", "a.", "$a", "a.$.b", "a.0.b", "a[].b", "a[0]", "a.*.b", "*", "a|b", "a;b", "a, b", "{a,b}"]
        }
        "app" => &["a, b", "{a,b}", "a?"],
        "user" => &["root", "a/b.root", "a.b a.c", ".root", "admin.", "admin.root?", "a$b.root"],
        "operator" => &["where", "$where, $function", "$where $function", "$", "$a.b", "$wheer", "$WHERE"],
        "option" => &["maxTimeMS, limit", "max time", "-", "maxTimeMs", "maxTimeMSS"],
        "shape" => &[
            "deleteMany({ })",
            "updateOne({_id: 1}, {$set: {a: 1}})",
            "db.a.deleteMany({})",
            "deleteMany({_id})x",
            "deleteMany({_id: ?})",
        ],
        "operation" => &["remove", "insert, update", "Update", "update*"],
        _ => return None,
    };
    Some(ANYWHERE.iter().chain(more).copied().collect())
}

/// Keys with texts that are not names: free texts, and texts with a form of their own.
const OTHER_TEXTS: [&str; 12] =
    ["name", "why", "given", "becomes", "app", "at", "counter", "separator", "rate", "expect", "free", "claimed"];
/// Schemas of texts that are not names.
const OTHER_SCHEMAS: [&str; 2] = ["duration", "size"];

/// A text at `pointer`, or the keys of the mapping there.
struct NamePlace {
    pointer: String,
    schema: &'static str,
    is_key: bool,
}

/// Collects the places of names in values of this schema.
fn places(schema: &ValueSchema, pointer: &str, found: &mut Vec<NamePlace>) {
    let place = |schema, is_key| NamePlace { pointer: pointer.to_owned(), schema, is_key };
    match schema {
        ValueSchema::Shared(shared) if wrong_names(shared.name).is_some() => found.push(place(shared.name, false)),
        ValueSchema::Shared(shared) if OTHER_SCHEMAS.contains(&shared.name) => {}
        ValueSchema::Shared(shared) => places(&(shared.schema)(), pointer, found),
        ValueSchema::Text(_) => {
            let key = pointer.rsplit('/').next().unwrap();
            assert!(OTHER_TEXTS.contains(&key), "{pointer} is a text: declare what it names, or list it above");
        }
        ValueSchema::OneOrMore(one) => places(one, pointer, found),
        ValueSchema::AnyOf(any) | ValueSchema::OneOf(any) => any.iter().for_each(|one| places(one, pointer, found)),
        ValueSchema::List { items, .. } => places(items, &format!("{pointer}/0"), found),
        ValueSchema::Mapping(keys) => places_of_keys(keys, pointer, found),
        ValueSchema::Pairs { names, values } => {
            found.push(place(names.name, true));
            places(values, &format!("{pointer}/*"), found);
        }
        ValueSchema::Whole(_)
        | ValueSchema::Number
        | ValueSchema::Boolean
        | ValueSchema::Constant(_)
        | ValueSchema::Words(_) => {}
    }
}

fn places_of_keys(keys: &Keys, pointer: &str, found: &mut Vec<NamePlace>) {
    for setting in keys.settings {
        places(&setting.schema(), &format!("{pointer}/{}", setting.name()), found);
    }
}

/// `rules` with the text at this place replaced; `None` if they have none there.
fn replaced(rules: &Value, place: &NamePlace, wrong: &str) -> Option<Value> {
    let mut rules = rules.clone();
    let parent_of_any = place.pointer.strip_suffix("/*");
    let at = rules.pointer_mut(parent_of_any.unwrap_or(&place.pointer))?;
    match at {
        Value::Object(pairs) if place.is_key => {
            let (_, value) = std::mem::take(pairs).into_iter().next()?;
            pairs.insert(wrong.to_owned(), value);
        }
        Value::Object(pairs) if parent_of_any.is_some() => *pairs.values_mut().next()? = json!(wrong),
        Value::Array(texts) => texts[0] = json!(wrong),
        text => *text = json!(wrong),
    }
    Some(rules)
}

/// The diagnostics that loading `rules` causes.
fn diagnostics(rules: &Value) -> Vec<String> {
    // JSON is YAML.
    let source = SourceFile { name: "rules.yaml".into(), text: rules.to_string() };
    let report = match RuleSet::from_sources(vec![source]) {
        Ok(rules) => rules.warnings().clone(),
        Err(report) => report,
    };
    report.diagnostics.iter().map(|one| format!("{} {}", one.code.as_str(), one.message)).collect()
}

#[test]
fn no_wrong_name_is_accepted_silently() {
    let mut examples: Vec<(ValueSchema, &str, Value)> = vec![((RULE.schema)(), "/rules/0", envelope())];
    let conditions = [json!({"without": "maxTimeMS"}), json!({"shape": "deleteMany({})"}), json!({"uses": ["$where"]})];
    let denied = conditions.map(|when| ("deny", json!({"operations": ["delete", "find"], "when": when})));
    for (name, declaration) in AnyPattern::declarations() {
        for (_, settings) in patterns().into_iter().chain(denied.clone()).filter(|(pattern, _)| *pattern == name) {
            examples.push((declaration.schema.clone(), "", file(name, &settings)));
        }
    }
    let mut tried = 0;
    let mut silent = Vec::new();
    for (schema, root, rules) in examples {
        let pattern = rules["rules"][0]
            .as_object()
            .unwrap()
            .keys()
            .find(|key| AnyPattern::NAMES.contains(&key.as_str()))
            .unwrap();
        let root = if root.is_empty() { format!("/rules/0/{pattern}") } else { root.to_owned() };
        let mut found = Vec::new();
        places(&schema, &root, &mut found);
        let before = diagnostics(&rules);
        for place in found {
            for wrong in wrong_names(place.schema).unwrap() {
                let Some(changed) = replaced(&rules, &place, wrong) else { continue };
                tried += 1;
                if diagnostics(&changed) == before {
                    silent.push(format!("{}: {wrong:?}", place.pointer));
                }
            }
        }
    }
    assert!(silent.is_empty(), "accepted silently: {silent:#?}");
    assert!(tried > 500, "{tried}");
}
