//! Renders commands as mongosh text: `update` with one statement as `updateOne(…)`, a find with its options as calls
//! on the cursor.
//!
//! The rendered text is parsed again and must give the same command. Otherwise the command is rendered as
//! `runCommand({…})`, or as Extended JSON if that does not give the same command either.

use super::layout::Piece;
use super::members::DATABASE_MEMBERS;
use super::write_text::{document, extended_json, is_plain_name, piece, quoted};
use super::{is_same, parse};
use crate::command::has_operators;
use crate::document::{CowDocument, Document, Value};

/// Returns the command as text that [`parse`] reads as the same command, on one line if it fits. `database` is the
/// reader's current database. Only invalid UTF-8 is lost.
#[must_use]
pub fn render(command: Document<'_>, database: &str) -> String {
    match shown(command, database) {
        Some(piece) => piece.print(),
        None => extended_json(command).to_string(),
    }
}

/// Returns the same text on one line of any length.
#[must_use]
pub fn render_unbroken(command: Document<'_>, database: &str) -> String {
    match shown(command, database) {
        Some(piece) => piece.print_unbroken(),
        None => extended_json(command).to_string(),
    }
}

/// Returns the same text with every argument on its own line, so that two commands can be compared line by line.
#[must_use]
pub fn render_lines(command: Document<'_>, database: &str) -> String {
    match shown(command, database) {
        Some(piece) => piece.print_broken(),
        None => format!("{:#}", extended_json(command)),
    }
}

/// Returns a value such as `ObjectId("65…")` or `{a: 1}` on one line.
#[must_use]
pub fn value_text(value: Value<'_>) -> String {
    piece(value).map_or_else(
        || {
            let whole = CowDocument::build(|w| w.value("value", value));
            extended_json(whole.as_document()).get("value").map(ToString::to_string).unwrap_or_default()
        },
        |piece| piece.print_unbroken(),
    )
}

/// Returns the best form that is parsed as the same command, or `None` if there is none.
fn shown(command: Document<'_>, database: &str) -> Option<Piece> {
    let parses_as_the_same = |piece: &Piece| {
        let parsed = parse(&piece.print(), database).ok();
        parsed.is_some_and(|parsed| matches!(parsed.commands.as_slice(), [one] if is_same(one.as_document(), command)))
    };
    let method = Rendering::from_command(command, database).and_then(Rendering::method).filter(parses_as_the_same);
    method.or_else(|| run_command(command, database).filter(parses_as_the_same))
}

/// Returns `db.runCommand({…})`.
fn run_command(command: Document<'_>, database: &str) -> Option<Piece> {
    let own = command.get("$db")?.as_str()?;
    let body = CowDocument::build(|w| {
        command.elements().filter(|element| element.key != b"$db").for_each(|element| w.element(element));
    });
    let (receiver, method) = match own {
        "admin" if database != "admin" => ("db".to_owned(), "adminCommand"),
        _ => (database_text(own, database), "runCommand"),
    };
    Some(Piece::call(format!("{receiver}.{method}"), vec![document(body.as_document())?]))
}

fn database_text(own: &str, database: &str) -> String {
    if own == database { "db".to_owned() } else { format!("db.getSiblingDB({})", quoted(own)) }
}

/// A command on a collection that is being rendered as a method call.
struct Rendering<'c> {
    command: Document<'c>,
    /// `db.orders`
    receiver: String,
    /// Names of the fields that are already rendered.
    rendered: Vec<&'static str>,
}

impl<'c> Rendering<'c> {
    fn from_command(command: Document<'c>, database: &str) -> Option<Self> {
        let first = command.first()?;
        let own = command.get("$db")?.as_str()?;
        if let (b"explain", Some(inner)) = (first.key, first.value.as_document()) {
            return Self::of_explained(command, inner, database);
        }
        let (own, name) = match first.key {
            b"renameCollection" => first.value.as_str()?.split_once('.')?,
            _ => (own, first.value.as_str()?),
        };
        let receiver = collection_text(own, name, database);
        Some(Self { command, receiver, rendered: vec!["$db"] })
    }

    /// Renders an explain as `db.orders.explain("queryPlanner")` and the explained command as a method. mongosh can
    /// explain writes only by their old methods, so these are rendered as commands.
    fn of_explained(command: Document<'c>, inner: Document<'c>, database: &str) -> Option<Self> {
        let first = inner.first()?;
        let explainable = match first.key {
            b"find" | b"aggregate" | b"distinct" | b"findAndModify" => true,
            b"count" => inner.get("query").is_some(),
            _ => false,
        };
        let own = command.get("$db")?.as_str()?;
        let verbosity = command.get("verbosity")?.as_str()?;
        let receiver = collection_text(own, first.value.as_str()?, database);
        let receiver = format!("{receiver}.explain({})", quoted(verbosity));
        let whole = explainable && command.elements().count() == 3;
        whole.then_some(Self { command: inner, receiver, rendered: vec!["$db"] })
    }

    fn method(mut self) -> Option<Piece> {
        match self.command.first()?.key {
            b"insert" => self.insert(),
            b"update" => self.update(),
            b"delete" => self.delete(),
            b"findAndModify" => self.find_and_modify(),
            b"find" => self.find(),
            b"count" => match self.command.get("query") {
                Some(query) => self.call("count", vec![piece(query)?], &["count", "query"]),
                None => self.call("estimatedDocumentCount", Vec::new(), &["count"]),
            },
            b"distinct" => {
                let arguments = vec![piece(self.command.get("key")?)?, piece(self.command.get("query")?)?];
                self.call("distinct", arguments, &["distinct", "key", "query"])
            }
            b"aggregate" => {
                let pipeline = piece(self.command.get("pipeline")?)?;
                let plain = self.command.get("cursor").and_then(Value::as_document).is_some_and(Document::is_empty);
                self.rendered.extend(plain.then_some("cursor"));
                self.call("aggregate", vec![pipeline], &["aggregate", "pipeline"])
            }
            b"renameCollection" => self.rename(),
            b"drop" => self.call("drop", Vec::new(), &["drop"]),
            _ => None,
        }
    }

    /// Returns a call with the remaining fields of the command as options.
    fn call(self, method: &str, arguments: Vec<Piece>, rendered: &[&'static str]) -> Option<Piece> {
        self.call_with(Document::EMPTY, method, arguments, rendered)
    }

    /// Returns a call with the options of `statement` before those of the command.
    fn call_with(
        mut self,
        statement: Document<'_>,
        method: &str,
        mut arguments: Vec<Piece>,
        rendered: &[&'static str],
    ) -> Option<Piece> {
        self.rendered.extend_from_slice(rendered);
        let ordered = self.command.get("ordered").and_then(Value::as_bool);
        self.rendered.extend((ordered == Some(true)).then_some("ordered"));
        arguments.extend(options([statement, self.command], &self.rendered, &[])?);
        Some(Piece::call(format!("{}.{method}", self.receiver), arguments))
    }

    fn statements(&self, list: &str) -> Option<Vec<Document<'c>>> {
        self.command.get(list)?.as_array()?.values().map(Value::as_document).collect()
    }

    fn insert(self) -> Option<Piece> {
        let documents = self.statements("documents")?;
        let rendered = ["insert", "documents"];
        match documents.as_slice() {
            [one] => self.call("insertOne", vec![document(*one)?], &rendered),
            _ => {
                let list = piece(self.command.get("documents")?)?;
                self.call("insertMany", vec![list], &rendered)
            }
        }
    }

    fn update(self) -> Option<Piece> {
        let statements = self.statements("updates")?;
        let [one] = statements.as_slice() else { return self.bulk(&statements, "update", "updates", update_parts) };
        let (method, _, filter, update) = update_parts(*one)?;
        let arguments = vec![piece(filter)?, piece(update?)?];
        self.call_with(*one, method, arguments, &["update", "updates", "q", "u", "multi"])
    }

    fn delete(self) -> Option<Piece> {
        let statements = self.statements("deletes")?;
        let [one] = statements.as_slice() else { return self.bulk(&statements, "delete", "deletes", delete_parts) };
        let (method, _, filter, _) = delete_parts(*one)?;
        self.call_with(*one, method, vec![piece(filter)?], &["delete", "deletes", "q", "limit"])
    }

    fn bulk(
        self,
        statements: &[Document<'c>],
        name: &'static str,
        list: &'static str,
        parts: fn(Document<'c>) -> Option<StatementParts<'c>>,
    ) -> Option<Piece> {
        let operation = |statement: &Document<'c>| {
            let (method, key, filter, update) = parts(*statement)?;
            let mut items = vec![field("filter", piece(filter)?)];
            if let Some(update) = update {
                items.push(field(key, piece(update)?));
            }
            items.extend(option_items([*statement], &STATEMENT_PARTS)?);
            let operation = Piece::Group { open: "{".to_owned(), items, close: "}" };
            Some(Piece::Group { open: "{".to_owned(), items: vec![field(method, operation)], close: "}" })
        };
        let items = statements.iter().map(operation).collect::<Option<_>>()?;
        self.call("bulkWrite", vec![Piece::Group { open: "[".to_owned(), items, close: "]" }], &[name, list])
    }

    fn find_and_modify(mut self) -> Option<Piece> {
        let flag = |name| self.command.get(name).and_then(Value::as_bool);
        let (remove, new, upsert) = (flag("remove")?, flag("new")?, flag("upsert")?);
        let mut arguments = vec![piece(self.command.get("query")?)?];
        let mut first = Vec::new();
        let method = if remove {
            "findOneAndDelete"
        } else {
            let update = self.command.get("update")?;
            arguments.push(piece(update)?);
            if is_operators(update) { "findOneAndUpdate" } else { "findOneAndReplace" }
        };
        if new {
            first.push(field("returnDocument", Piece::atom("\"after\"")));
        }
        if let Some(fields) = self.command.get("fields") {
            first.push(field("projection", piece(fields)?));
        }
        self.rendered.extend(["findAndModify", "query", "update", "remove", "new", "fields"]);
        self.rendered.extend((!upsert).then_some("upsert"));
        arguments.extend(options([self.command], &self.rendered, &first)?);
        Some(Piece::call(format!("{}.{method}", self.receiver), arguments))
    }

    /// The options become calls on the cursor.
    fn find(self) -> Option<Piece> {
        const CALLED: [&str; 13] = [
            "sort",
            "hint",
            "skip",
            "limit",
            "batchSize",
            "comment",
            "max",
            "min",
            "returnKey",
            "showRecordId",
            "allowDiskUse",
            "collation",
            "maxTimeMS",
        ];
        let mut arguments = vec![piece(self.command.get("filter")?)?];
        let projection = self.command.get("projection").map(piece);
        let mut rendered = vec!["$db", "find", "filter", "projection"];
        rendered.extend(CALLED);
        let rest = option_items([self.command], &rendered)?;
        match projection {
            Some(projection) => arguments.push(projection?),
            None if !rest.is_empty() => arguments.push(Piece::atom("{}")),
            None => {}
        }
        if !rest.is_empty() {
            arguments.push(Piece::Group { open: "{".to_owned(), items: rest, close: "}" });
        }
        let mut row = vec![Piece::call(format!("{}.find", self.receiver), arguments)];
        for name in CALLED {
            if let Some(value) = self.command.get(name) {
                row.push(Piece::call(format!(".{name}"), vec![piece(value)?]));
            }
        }
        Some(Piece::Row(row))
    }

    fn rename(self) -> Option<Piece> {
        let (_, to) = self.command.get("to")?.as_str()?.split_once('.')?;
        let mut arguments = vec![Piece::atom(quoted(to))];
        if self.command.get("dropTarget")?.as_bool()? {
            arguments.push(Piece::atom("true"));
        }
        Some(Piece::call(format!("{}.renameCollection", self.receiver), arguments))
    }
}

/// Fields of statements that become arguments or determine the method.
const STATEMENT_PARTS: [&str; 4] = ["q", "u", "multi", "limit"];

/// The method of a statement, the name of its update in bulkWrite, its filter and its update.
type StatementParts<'c> = (&'static str, &'static str, Value<'c>, Option<Value<'c>>);

fn update_parts(statement: Document<'_>) -> Option<StatementParts<'_>> {
    let update = statement.get("u")?;
    let multi = statement.get("multi").map_or(Some(false), Value::as_bool)?;
    let (method, key) = match (multi, is_operators(update)) {
        (true, _) => ("updateMany", "update"),
        (false, true) => ("updateOne", "update"),
        (false, false) => ("replaceOne", "replacement"),
    };
    Some((method, key, statement.get("q")?, Some(update)))
}

fn delete_parts(statement: Document<'_>) -> Option<StatementParts<'_>> {
    let method = match statement.get("limit")?.as_i32()? {
        0 => "deleteMany",
        _ => "deleteOne",
    };
    Some((method, "", statement.get("q")?, None))
}

/// Returns whether an update is a pipeline or has operators.
fn is_operators(update: Value<'_>) -> bool {
    update.as_array().is_some() || update.as_document().is_some_and(has_operators)
}

fn collection_text(own: &str, name: &str, database: &str) -> String {
    let receiver = database_text(own, database);
    let plain = is_plain_name(name) && !name.starts_with('_') && !DATABASE_MEMBERS.contains(&name);
    if plain { format!("{receiver}.{name}") } else { format!("{receiver}.getCollection({})", quoted(name)) }
}

fn field(key: &str, value: Piece) -> Piece {
    Piece::Row(vec![Piece::Atom(format!("{key}: ")), value])
}

/// Returns the options argument: `first`, and all fields that are not yet rendered. The inner `None` means no
/// options.
fn options<const N: usize>(of: [Document<'_>; N], rendered: &[&str], first: &[Piece]) -> Option<Option<Piece>> {
    let items: Vec<Piece> = first.iter().cloned().chain(option_items(of, rendered)?).collect();
    Some((!items.is_empty()).then(|| Piece::Group { open: "{".to_owned(), items, close: "}" }))
}

fn option_items<const N: usize>(of: [Document<'_>; N], rendered: &[&str]) -> Option<Vec<Piece>> {
    let elements = of.into_iter().flat_map(Document::elements);
    let left = elements.filter(|element| !rendered.iter().any(|name| name.as_bytes() == element.key));
    left.map(|element| {
        let key = std::str::from_utf8(element.key).ok().filter(|key| is_plain_name(key))?;
        Some(field(key, piece(element.value)?))
    })
    .collect()
}
