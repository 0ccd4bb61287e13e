//! The statement forms of applications, the same for every pattern: each operator on a field that the rule names and
//! on others, replacements, upserts, findAndModify, pipelines, deletes, batches, and indirect writes.

/// One statement without `db.COLLECTION.`.
#[derive(Clone, Debug)]
pub(super) struct Form {
    /// The statement's topic: the heading of its table.
    pub(super) topic: String,
    pub(super) statement: String,
}

/// The topic of the statements that only one pattern's page has.
const OF_PATTERN: &str = "Statements of this pattern";

impl Form {
    pub(super) fn is_own(&self) -> bool {
        self.topic == OF_PATTERN
    }

    /// The class of the statement: the first column of a table.
    pub(super) fn class(&self) -> &'static str {
        let has = |text| self.statement.contains(text);
        match self.statement.split('(').next().unwrap_or_default() {
            "insertOne" | "insertMany" => "insert",
            "replaceOne" | "findOneAndReplace" => "replacement",
            "deleteOne" | "deleteMany" | "findOneAndDelete" => "delete",
            "updateOne" | "updateMany" | "findOneAndUpdate" if has("}, [{$") => "update by pipeline",
            "updateOne" | "updateMany" | "findOneAndUpdate" if has("upsert: true") => "upsert",
            "updateOne" | "updateMany" | "findOneAndUpdate" => "update by operators",
            "find" | "aggregate" if !has("$out") && !has("$merge") => "read",
            "bulkWrite" => "batch",
            _ => "command",
        }
    }
}

/// Operators on fields that no rule names. They change the document of [`STORED`].
const ELSEWHERE: [(&str, &str); 15] = [
    ("$set", r#"{title: "Emma"}"#),
    ("$unset", r#"{title: ""}"#),
    ("$inc", "{pages: 1}"),
    ("$mul", "{pages: 2}"),
    ("$min", "{pages: 1}"),
    ("$max", "{pages: 999}"),
    ("$bit", "{pages: {or: 1}}"),
    ("$rename", r#"{title: "name"}"#),
    ("$currentDate", "{seen: true}"),
    ("$push", r#"{tags: "b"}"#),
    ("$addToSet", r#"{tags: "b"}"#),
    ("$pull", r#"{tags: "a"}"#),
    ("$pullAll", r#"{tags: ["a"]}"#),
    ("$pop", "{tags: 1}"),
    ("$setOnInsert", r#"{title: "Emma"}"#),
];

/// Operators on a field that the rule names.
const ON_FIELD: [(&str, &str); 15] = [
    ("$set", "{FIELD: VALUE}"),
    ("$unset", r#"{FIELD: ""}"#),
    ("$inc", "{FIELD: 1}"),
    ("$mul", "{FIELD: 2}"),
    ("$min", "{FIELD: VALUE}"),
    ("$max", "{FIELD: VALUE}"),
    ("$bit", "{FIELD: {or: 1}}"),
    ("$rename", r#"{FIELD: "old"}"#),
    ("$currentDate", "{FIELD: true}"),
    ("$push", "{FIELD: 1}"),
    ("$addToSet", "{FIELD: 1}"),
    ("$pull", "{FIELD: 1}"),
    ("$pullAll", "{FIELD: [1]}"),
    ("$pop", "{FIELD: 1}"),
    ("$setOnInsert", "{FIELD: VALUE}"),
];

/// Statements on no field of the rule.
const PLAIN: [&str; 27] = [
    r#"insertOne({_id: 2, title: "Emma"})"#,
    r#"insertMany([{_id: 2, title: "Emma"}, {_id: 3, title: "Ulysses"}])"#,
    r#"updateMany({title: "Dune"}, {$set: {title: "Emma"}})"#,
    r#"updateMany({}, {$set: {title: "Emma"}})"#,
    r#"updateOne({_id: 1, tags: "a"}, {$set: {"tags.$": "b"}})"#,
    r#"updateOne({_id: 1}, {$set: {"tags.$[t]": "b"}}, {arrayFilters: [{t: "a"}]})"#,
    r#"updateOne({_id: 1}, {$set: {title: "Emma"}}, {collation: {locale: "en"}})"#,
    r#"updateOne({_id: 2}, {$set: {title: "Emma"}}, {upsert: true})"#,
    r#"updateOne({_id: 2}, {$setOnInsert: {title: "Emma"}}, {upsert: true})"#,
    r#"updateOne({_id: 1}, [{$set: {title: "Emma"}}])"#,
    r#"updateOne({_id: 1}, [{$set: {title: {$toUpper: "$title"}}}])"#,
    r#"updateOne({_id: 1}, [{$replaceWith: {title: "Emma"}}])"#,
    r#"replaceOne({_id: 1}, {title: "Emma"})"#,
    r#"replaceOne({_id: 2}, {title: "Emma"}, {upsert: true})"#,
    r#"findOneAndUpdate({_id: 1}, {$set: {title: "Emma"}})"#,
    r#"findOneAndReplace({_id: 1}, {title: "Emma"})"#,
    "findOneAndDelete({_id: 1})",
    "deleteOne({_id: 1})",
    r#"deleteMany({title: "Dune"})"#,
    "deleteMany({})",
    r#"bulkWrite([{insertOne: {document: {_id: 2, title: "Emma"}}}, {updateOne: {filter: {_id: 1}, update: {$set: {title: "Emma"}}}}])"#,
    r#"find({title: "Dune"})"#,
    r#"aggregate([{$match: {title: "Dune"}}])"#,
    r#"aggregate([{$match: {title: "Dune"}}, {$out: "COLLECTION"}])"#,
    r#"aggregate([{$match: {title: "Dune"}}, {$merge: {into: "COLLECTION"}}])"#,
    r#"renameCollection("renamed")"#,
    "drop()",
];

/// Paths below a field of the rule.
const BELOW: [&str; 3] = ["FIELD.part", "FIELD.0", "FIELD.$[]"];

/// Statements on a field of the rule. DOCUMENT is a document that has the field.
const OF_FIELD: [&str; 18] = [
    "insertOne({_id: 2, DOCUMENT})",
    "insertMany([{_id: 2, DOCUMENT}, {_id: 3, DOCUMENT}])",
    "updateMany({}, {$set: {FIELD: VALUE}})",
    r#"updateOne({_id: 1}, {$rename: {title: "FIELD"}})"#,
    r#"updateOne({_id: 1, FIELD: VALUE}, {$set: {title: "Emma"}})"#,
    "updateOne({_id: 2}, {$set: {FIELD: VALUE}}, {upsert: true})",
    "updateOne({_id: 2}, {$inc: {FIELD: 1}}, {upsert: true})",
    "updateOne({_id: 2}, {$setOnInsert: {FIELD: VALUE}}, {upsert: true})",
    r#"updateOne({_id: 2, FIELD: VALUE}, {$set: {title: "Emma"}}, {upsert: true})"#,
    "updateOne({_id: 1}, [{$set: {FIELD: {$literal: VALUE}}}])",
    r#"updateOne({_id: 1}, [{$unset: "FIELD"}])"#,
    r#"updateOne({_id: 1}, [{$set: {FIELD: {$ifNull: ["$FIELD", VALUE]}}}])"#,
    r#"replaceOne({_id: 1}, {title: "Emma", DOCUMENT})"#,
    r#"replaceOne({_id: 1, FIELD: VALUE}, {title: "Emma", DOCUMENT})"#,
    r#"replaceOne({_id: 2}, {title: "Emma", DOCUMENT}, {upsert: true})"#,
    "findOneAndUpdate({_id: 1}, {$set: {FIELD: VALUE}})",
    "findOneAndDelete({_id: 1, FIELD: VALUE})",
    "deleteOne({_id: 1, FIELD: VALUE})",
];

/// The document that the statements match and change; a field of the rule also has its value.
pub(super) const STORED: &str = r#"{_id: 1, title: "Dune", pages: 412, tags: ["a"]}"#;

/// Every form: on no field of the rule, on each of its `fields` (names with a value), and the pattern's `own`
/// statements.
pub(super) fn all(fields: &[(String, String)], own: &[String], collection: &str) -> Vec<Form> {
    let form = |topic: &str, statement: String| Form {
        topic: topic.to_owned(),
        statement: statement.replace("COLLECTION", collection),
    };
    let update = |topic: &str, operator: &str, arguments: &str| {
        form(topic, format!("updateOne({{_id: 1}}, {{{operator}: {arguments}}})"))
    };
    let elsewhere = if fields.is_empty() { "Statements" } else { "Statements on other fields" };
    let mut forms: Vec<Form> = ELSEWHERE.map(|(operator, arguments)| update(elsewhere, operator, arguments)).into();
    forms.extend(PLAIN.map(|statement| form(elsewhere, statement.to_owned())));
    for (field, value) in fields {
        let topic = format!("Statements on `{field}`");
        let of_field = |text: &str| {
            // Quotes a dotted path, unless it is quoted already.
            let quoted = text.replace("\"FIELD", &format!("\"{field}")).replace("$FIELD", &format!("${field}"));
            let name = if field.contains('.') { format!("\"{field}\"") } else { field.clone() };
            let nested = field.rsplit('.').fold(value.clone(), |inner, name| match inner == *value {
                true => format!("{name}: {inner}"),
                false => format!("{name}: {{{inner}}}"),
            });
            quoted.replace("DOCUMENT", &nested).replace("FIELD", &name).replace("VALUE", value)
        };
        forms.extend(ON_FIELD.map(|(operator, arguments)| update(&topic, operator, &of_field(arguments))));
        forms.extend(BELOW.map(|path| update(&topic, "$set", &format!("{{\"{}\": 1}}", path.replace("FIELD", field)))));
        forms.extend(OF_FIELD.map(|statement| form(&topic, of_field(statement))));
    }
    forms.extend(own.iter().map(|statement| form(OF_PATTERN, statement.clone())));
    forms
}
