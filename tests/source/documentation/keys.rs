//! Writes `keys.md` and `configuration.md` of `docs/reference/`, the reference of all keys, from their JSON Schemas.
//! `UPDATE_EXPECT=1` rewrites the pages; without it the test compares.

use serde_json::{Map, Value};

use super::{expect, root};

const INTRODUCTION: &str = "\
# All keys

This page lists every key of a rule file and of a test file. It is generated from the JSON Schema that
[`docward schema`](../editors.md) prints. [Rules](../rules.md) explains how the keys work together.

`a.b` is the key `b` inside the mapping `a`. `[]` is one element of a list. *optional* means: you can omit the key, and it
has no default.
";

const CONFIGURATION: &str = "\
# All keys of docward.yaml

Generated from the JSON Schema that [`docward schema --config`](../editors.md) prints. [Configuration](../configuration.md) explains them. Each
key is also a flag of `docward serve`, except `upstream_file` and `service_file`: `query_listen` is `--query-listen`, `tls.key` `--tls-key`, `pool.size`
`--pool-size`, `limits.memory` `--memory`, an entry of `members` `--member NAME=ADDR,NAME`. In any text, `${NAME}` is an environment
variable.

";

/// The types that several keys share, by their name in the schema's `$defs`.
const SHARED_TYPES: [(&str, &str, &str); 5] = [
    (
        "path",
        "field path",
        "`status`, `author.name`: parts separated by dots; no part is empty, begins with `$` or is a number",
    ),
    ("namespace", "namespace", "`db.collection`, or a glob: `shop.*`, `\"*.orders\"`, `\"*.*\"`"),
    ("collection", "collection", "`db.collection`, without globs"),
    ("duration", "duration", "a whole number with a unit: `ms`, `s`, `m`, `h` or `d`, as `90s`; at most `36500d`"),
    ("operation", "operation", ""),
];

struct Schema(Value);

impl Schema {
    fn definition(&self, name: &str) -> &Value {
        &self.0["$defs"][name]
    }

    /// The name of the definition that a `$ref` points to.
    fn reference<'s>(&self, schema: &'s Value) -> Option<&'s str> {
        schema["$ref"].as_str()?.strip_prefix("#/$defs/")
    }

    /// The type in readable form: "field path", "`reject`, `merge`", "list of namespaces".
    fn type_text(&self, schema: &Value) -> String {
        if let Some(name) = self.reference(schema) {
            let shared = SHARED_TYPES.iter().find(|(definition, ..)| *definition == name);
            return match shared {
                Some(("operation", ..)) => self.type_text(self.definition(name)),
                Some((_, text, _)) => (*text).to_owned(),
                None if self.definition(name)["type"] == "object" => "mapping".to_owned(),
                None => self.type_text(self.definition(name)),
            };
        }
        if let Some(value) = schema.get("const") {
            return code(value);
        }
        if let Some(values) = schema["enum"].as_array() {
            return values.iter().map(code).collect::<Vec<_>>().join(", ");
        }
        if let Some(choices) = choices(schema) {
            // Every text can be a variable.
            let choices: Vec<_> = choices.iter().filter(|choice| self.reference(choice) != Some("variable")).collect();
            let are_words = choices.iter().all(|choice| choice.get("const").is_some());
            let one = |choice: &&Value| match choice["type"].as_str() {
                Some("array") => "a list of them".to_owned(),
                _ => self.type_text(choice),
            };
            let texts: Vec<String> = choices.iter().map(one).collect();
            return texts.join(if are_words { ", " } else { " or " });
        }
        match schema["type"].as_str() {
            Some("array") => format!("list: {}", self.type_text(&schema["items"])),
            Some("object") => "mapping".to_owned(),
            Some("integer") => format!("whole number{}", range(schema)),
            Some("boolean") => "`true`, `false`".to_owned(),
            Some(other) => other.to_owned(),
            None => panic!("no type: {schema}"),
        }
    }

    /// The rows of a mapping's keys, each followed by the rows of the mapping it holds.
    fn rows(&self, mapping: &Value, prefix: &str) -> String {
        let properties = mapping["properties"].as_object().unwrap_or_else(|| panic!("no keys: {mapping}"));
        let of_key = |(key, schema): (&String, &Value)| self.row(mapping, prefix, key, schema);
        properties.iter().map(of_key).collect()
    }

    fn row(&self, mapping: &Value, prefix: &str, key: &str, schema: &Value) -> String {
        let name = format!("{prefix}{key}");
        let own = self.line(&name, schema, &presence(mapping, key, schema));
        let inside = match schema["type"].as_str() {
            Some("object") if schema["properties"].is_object() => self.rows(schema, &format!("{name}.")),
            Some("array") if schema["items"]["properties"].is_object() => {
                self.rows(&schema["items"], &format!("{name}[]."))
            }
            Some("object") if schema["additionalProperties"]["properties"].is_object() => {
                self.rows(&schema["additionalProperties"], &format!("{name}.MEMBER."))
            }
            _ => String::new(),
        };
        own + &inside
    }

    fn line(&self, name: &str, schema: &Value, presence: &str) -> String {
        let text = self.type_text(schema).replace('|', "\\|");
        format!("| `{name}` | {text} | {presence} | {} |\n", meaning(schema).replace('|', "\\|"))
    }

    fn patterns(&self) -> Vec<&str> {
        let alternatives = self.definition("rule")["oneOf"].as_array().unwrap();
        alternatives.iter().filter_map(|one| one["required"][0].as_str()).collect()
    }

    /// The definition of a rule with only the keys that all rules have.
    fn rule_without_patterns(&self) -> Value {
        let mut rule = self.definition("rule").clone();
        let patterns = self.patterns();
        let properties: Map<String, Value> = rule["properties"].as_object().unwrap().clone();
        let common = properties.into_iter().filter(|(key, _)| !patterns.contains(&key.as_str())).collect();
        rule["properties"] = Value::Object(common);
        rule["oneOf"] = Value::Null;
        rule
    }

    fn pattern_section(&self, name: &str) -> String {
        let schema = &self.definition("rule")["properties"][name];
        let rows = match schema["properties"].is_object() {
            true => self.rows(schema, &format!("{name}.")),
            false => self.row(&Value::Null, "", name, schema),
        };
        let description = schema["description"].as_str().unwrap();
        format!("\n### {name}\n\n{description} Details: [{name}](../patterns/{name}.md).\n\n{}", table(&rows))
    }
}

fn choices(schema: &Value) -> Option<&Vec<Value>> {
    schema["oneOf"].as_array().or(schema["anyOf"].as_array())
}

fn code(value: &Value) -> String {
    format!("`{}`", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

fn range(schema: &Value) -> String {
    match (schema["minimum"].as_i64(), schema["maximum"].as_i64()) {
        (Some(least), Some(most)) => format!(", {least} to {most}"),
        _ => String::new(),
    }
}

/// "Required", or the key's default.
fn presence(mapping: &Value, key: &str, schema: &Value) -> String {
    let holds = |list: &Value| list.as_array().is_some_and(|keys| keys.iter().any(|one| one == key));
    let alternatives = |kind: &str| {
        let sets = mapping[kind].as_array()?;
        let keys: Vec<&Value> = sets.iter().map(|set| &set["required"][0]).collect();
        keys.contains(&&Value::from(key)).then(|| keys.into_iter().map(code).collect::<Vec<_>>().join(", "))
    };
    if holds(&mapping["required"]) || mapping.is_null() {
        "required".to_owned()
    } else if let Some(keys) = alternatives("oneOf") {
        format!("exactly one of {keys}")
    } else if let Some(keys) = alternatives("anyOf") {
        format!("at least one of {keys}")
    } else if let Some(value) = schema.get("default") {
        format!("default {}", code(value))
    } else if holds(&mapping["then"]["required"]) {
        "required in some cases".to_owned()
    } else if mapping["maxProperties"] == 1 {
        "exactly one of these keys".to_owned()
    } else if mapping["minProperties"] == 1 {
        "at least one of these keys".to_owned()
    } else {
        "optional".to_owned()
    }
}

/// The description of a key, and of each value it accepts.
fn meaning(schema: &Value) -> String {
    let mut lines: Vec<String> = schema["description"].as_str().map(str::to_owned).into_iter().collect();
    for choice in choices(schema).into_iter().flatten() {
        if let (Some(word), Some(text)) = (choice.get("const"), choice["description"].as_str()) {
            lines.push(format!("{}: {text}", code(word)));
        }
    }
    // An asterisk outside of code would start emphasis.
    let escaped = |(at, part): (usize, &str)| if at % 2 == 0 { part.replace('*', "\\*") } else { part.to_owned() };
    lines.join("<br>").split('`').enumerate().map(escaped).collect::<Vec<_>>().join("`")
}

fn table(rows: &str) -> String {
    format!("| key | type | required, default | meaning |\n|---|---|---|---|\n{rows}")
}

fn page() -> String {
    let schema = Schema(super::schema::schema());
    let section = |title: &str, text: &str, mapping: &Value, prefix: &str| {
        format!("\n## {title}\n\n{text}\n\n{}", table(&schema.rows(mapping, prefix)))
    };
    let types: String = SHARED_TYPES
        .iter()
        .filter(|(.., text)| !text.is_empty())
        .map(|(definition, name, text)| {
            assert!(schema.definition(definition).is_object(), "{definition}");
            format!("| {name} | {text} |\n")
        })
        .collect();
    let mut page = INTRODUCTION.to_owned();
    page += &format!("\n| type | form |\n|---|---|\n{types}");
    page += &section("Rule file", "The top level of a rule file.", schema.definition("ruleFile"), "");
    page += &section(
        "Every rule",
        "These keys exist in every rule. In addition, a rule has exactly one [pattern](#patterns).",
        &schema.rule_without_patterns(),
        "",
    );
    let about_tests = "One element of `tests:`, in a rule or in a test file. See [docward test](../test.md).";
    page += &section("Rule test", about_tests, schema.definition("test"), "");
    page += &section("Test file", "The top level of a `*.test.yaml` file.", schema.definition("testFile"), "");
    page += "\n## Patterns\n\nA rule has exactly one of these keys.\n";
    page + &schema.patterns().iter().map(|name| schema.pattern_section(name)).collect::<String>()
}

#[test]
fn keys_page_matches_the_schema() {
    expect([root().join("docs/reference/keys.md")], |_, _| page());
}

#[test]
fn configuration_page_matches_the_schema() {
    let schema = std::fs::read_to_string(root().join("src/cli/config_schema.json")).unwrap();
    let schema = Schema(serde_json::from_str(&schema).unwrap());
    let page = CONFIGURATION.to_owned() + &table(&schema.rows(&schema.0, ""));
    expect([root().join("docs/reference/configuration.md")], |_, _| page.clone());
}
