//! Writes `crates/rules/src/patterns/schema.json`, the JSON Schema (draft 2020-12) that `docward schema` prints, from the
//! declarations of the keys. `UPDATE_EXPECT=1` rewrites the file; without it the test compares.

use docward::config::keys::{
    Constraint, DeclaredKey, DeclaredScalar, Keys, NamedSchema, Presence, TextSchema, ValueSchema,
};
use docward::patterns::AnyPattern;
use docward::rules::{RULE, RULE_FILE, TEST_FILE};
use serde_json::{Map, Value, json};

use super::{expect, root};

/// Collects the schemas with names while it describes others.
#[derive(Default)]
struct Definitions(Map<String, Value>);

fn described(meaning: &str) -> Map<String, Value> {
    let mut schema = Map::new();
    if !meaning.is_empty() {
        schema.insert("description".to_owned(), json!(meaning));
    }
    schema
}

fn scalar(value: DeclaredScalar) -> Value {
    match value {
        DeclaredScalar::Text(text) => json!(text),
        DeclaredScalar::Integer(number) => json!(number),
        DeclaredScalar::Boolean(flag) => json!(flag),
    }
}

fn put(schema: &mut Map<String, Value>, members: Value) {
    let Value::Object(members) = members else { panic!("{members} has no members") };
    schema.extend(members);
}

fn text(schema: &mut Map<String, Value>, declared: TextSchema) {
    put(schema, json!({ "type": "string" }));
    match declared.pattern {
        Some(pattern) => put(schema, json!({ "pattern": pattern })),
        None => put(schema, json!({ "minLength": 1 })),
    }
    declared.longest.into_iter().for_each(|longest| put(schema, json!({ "maxLength": longest })));
    declared.other_than.into_iter().for_each(|value| put(schema, json!({ "not": { "const": value } })));
    declared.format.into_iter().for_each(|format| put(schema, json!({ "format": format })));
}

fn words(schema: &mut Map<String, Value>, words: &[(&str, &str)]) {
    if words.iter().all(|(_, meaning)| meaning.is_empty()) {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        return put(schema, json!({ "enum": words }));
    }
    let one = |(word, meaning): &(&str, &str)| json!({ "const": word, "description": meaning });
    put(schema, json!({ "oneOf": words.iter().map(one).collect::<Vec<_>>() }));
}

fn constraint(schema: &mut Map<String, Value>, constraint: &Constraint) {
    let each = |keys: &[&str]| keys.iter().map(|key| json!({ "required": [key] })).collect::<Vec<_>>();
    let is = |other: &str, value: &str| json!({ "properties": { other: { "const": value } }, "required": [other] });
    let members = match *constraint {
        Constraint::AtLeastOneKey => json!({ "minProperties": 1 }),
        Constraint::ExactlyOneKey => json!({ "minProperties": 1, "maxProperties": 1 }),
        Constraint::AtLeastOneOf(keys) => json!({ "anyOf": each(keys) }),
        Constraint::ExactlyOneOf(keys) => json!({ "oneOf": each(keys) }),
        Constraint::Needs { key, other } => {
            let mut needed = schema.get("dependentRequired").cloned().unwrap_or_else(|| json!({}));
            needed[key] = json!([other]);
            json!({ "dependentRequired": needed })
        }
        Constraint::RequiredIf { key, other, value } => {
            json!({ "if": is(other, value), "then": { "required": [key] } })
        }
        Constraint::RequiredUnless { key, other, value } => {
            json!({ "if": { "not": is(other, value) }, "then": { "required": [key] } })
        }
    };
    put(schema, members);
}

impl Definitions {
    fn describe(&mut self, schema: &mut Map<String, Value>, declared: &ValueSchema) {
        match declared {
            ValueSchema::Text(declared) => text(schema, *declared),
            ValueSchema::Whole(range) => {
                put(schema, json!({ "type": "integer" }));
                let (least, most) = (*range.start(), *range.end());
                (least > i64::MIN).then(|| put(schema, json!({ "minimum": least })));
                (most < i64::MAX).then(|| put(schema, json!({ "maximum": most })));
            }
            ValueSchema::Number => put(schema, json!({ "type": "number" })),
            ValueSchema::Boolean => put(schema, json!({ "type": "boolean" })),
            ValueSchema::Constant(value) => put(schema, json!({ "const": scalar(*value) })),
            ValueSchema::Words(list) => words(schema, list),
            ValueSchema::Shared(shared) => put(schema, self.reference(shared)),
            ValueSchema::OneOrMore(one) => {
                let list = ValueSchema::List { items: one.clone(), at_least: 1, distinct: true };
                let schemas = [self.schema(one), self.schema(&list)];
                put(schema, json!({ "oneOf": schemas }));
            }
            ValueSchema::AnyOf(declared) => put(schema, json!({ "anyOf": self.schemas(declared) })),
            ValueSchema::OneOf(declared) => put(schema, json!({ "oneOf": self.schemas(declared) })),
            ValueSchema::List { items, at_least, distinct } => {
                put(schema, json!({ "type": "array", "items": self.schema(items) }));
                (*at_least > 0).then(|| put(schema, json!({ "minItems": at_least })));
                distinct.then(|| put(schema, json!({ "uniqueItems": true })));
            }
            ValueSchema::Mapping(keys) => self.mapping(schema, keys),
            ValueSchema::Pairs { names, values } => {
                let (names, values) = (self.reference(names), self.schema(values));
                put(schema, json!({ "type": "object", "minProperties": 1 }));
                put(schema, json!({ "propertyNames": names, "additionalProperties": values }));
            }
        }
    }

    fn schema(&mut self, declared: &ValueSchema) -> Value {
        let meaning = if let ValueSchema::Mapping(keys) = declared { keys.meaning } else { "" };
        let mut schema = described(meaning);
        self.describe(&mut schema, declared);
        Value::Object(schema)
    }

    fn schemas(&mut self, declared: &[ValueSchema]) -> Vec<Value> {
        declared.iter().map(|one| self.schema(one)).collect()
    }

    fn reference(&mut self, shared: &NamedSchema) -> Value {
        if !self.0.contains_key(shared.name) {
            // Forms refer to each other, so the name must be known first.
            self.0.insert(shared.name.to_owned(), Value::Null);
            let mut schema = described(shared.meaning);
            self.describe(&mut schema, &(shared.schema)());
            if shared.name == RULE.name {
                self.add_patterns(&mut schema);
            }
            self.0.insert(shared.name.to_owned(), Value::Object(schema));
        }
        json!({ "$ref": format!("#/$defs/{}", shared.name) })
    }

    fn mapping(&mut self, schema: &mut Map<String, Value>, keys: &Keys) {
        put(schema, json!({ "type": "object", "additionalProperties": false }));
        let properties: Map<String, Value> =
            keys.settings.iter().map(|key| (key.name().to_owned(), self.key(*key))).collect();
        put(schema, json!({ "properties": properties }));
        let required = keys.settings.iter().filter(|key| matches!(key.presence(), Presence::Required));
        let required: Vec<&str> = required.map(|key| key.name()).collect();
        (!required.is_empty()).then(|| put(schema, json!({ "required": required })));
        keys.constraints.iter().for_each(|one| constraint(schema, one));
    }

    fn key(&mut self, key: &dyn DeclaredKey) -> Value {
        let mut schema = described(key.meaning());
        self.describe(&mut schema, &key.schema());
        if let Presence::Default(value) = key.presence() {
            put(&mut schema, json!({ "default": scalar(value) }));
        }
        if !key.examples().is_empty() {
            put(&mut schema, json!({ "examples": key.examples() }));
        }
        Value::Object(schema)
    }

    /// A rule has exactly one pattern besides its other keys.
    fn add_patterns(&mut self, rule: &mut Map<String, Value>) {
        let mut alternatives = Vec::new();
        for (name, declaration) in AnyPattern::declarations() {
            let mut schema = described(declaration.meaning);
            self.describe(&mut schema, &declaration.schema);
            rule["properties"][name] = Value::Object(schema);
            alternatives.push(json!({ "required": [name] }));
        }
        put(rule, json!({ "oneOf": alternatives }));
    }
}

pub(super) fn schema() -> Value {
    let mut definitions = Definitions::default();
    let test_file = definitions.reference(&TEST_FILE);
    let rule_file = definitions.reference(&RULE_FILE);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "docward rule or test file",
        "description": "Rules that docward enforces between applications and MongoDB.",
        "type": "object",
        "if": { "required": ["tests"] },
        "then": test_file,
        "else": rule_file,
        "$defs": definitions.0,
    })
}

#[test]
fn the_schema_matches_the_declared_keys() {
    expect([root().join("crates/rules/src/patterns/schema.json")], |_, _| format!("{:#}\n", schema()));
}
