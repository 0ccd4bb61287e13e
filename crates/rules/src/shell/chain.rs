//! Parses a whole text: the collection of a method call (`db.getSiblingDB("shop").orders`), its arguments, and the
//! calls on its result (`.sort({…}).limit(5)`). The meaning of the methods is in `reads`, `writes` and `admin`.

use std::ops::Range;

use super::arguments::MethodCall;
use super::error::did_you_mean;
use super::lexer::{Lexer, Token};
use super::term::{Term, TermContent, TermField, to_document};
use super::value::{Objects, Values};
use super::{ShellContext, ShellError, admin, from_extended_json, not_a_database, reads, writes};
use crate::command::{CommandClass, classify, command_names, may_name_database};
use crate::document::CowDocument;

/// A command under construction.
#[derive(Debug, Clone)]
pub(super) struct CommandBuilder {
    pub(super) database: String,
    pub(super) fields: Vec<TermField>,
}

impl CommandBuilder {
    pub(super) fn new(database: &str, name: &str, target: Term) -> Self {
        Self { database: database.to_owned(), fields: vec![TermField::new(name, target)] }
    }

    pub(super) fn push(&mut self, key: &str, term: Term) {
        self.fields.push(TermField::new(key, term));
    }

    pub(super) fn get(&self, key: &str) -> Option<&Term> {
        self.fields.iter().find(|field| field.key == key).map(|field| &field.term)
    }

    /// Sets a field. An existing field keeps its position.
    pub(super) fn set(&mut self, key: &str, term: Term) {
        match self.fields.iter_mut().find(|field| field.key == key) {
            Some(field) => field.term = term,
            None => self.push(key, term),
        }
    }

    pub(super) fn into_document(mut self) -> CowDocument<'static> {
        self.fields.push(TermField::new("$db", Term::string(&self.database)));
        to_document(&self.fields)
    }
}

/// The collection a method is called on.
#[derive(Debug, Clone)]
pub(super) struct MethodCollection {
    pub(super) database: String,
    pub(super) name: String,
}

impl MethodCollection {
    pub(super) fn command(&self, name: &str) -> CommandBuilder {
        CommandBuilder::new(&self.database, name, Term::string(&self.name))
    }
}

/// A parser of a whole text.
#[derive(Debug)]
pub(super) struct Parser<'t> {
    text: &'t str,
    values: Values<'t>,
    database: String,
}

impl<'t> Parser<'t> {
    pub(super) fn new(text: &'t str, context: ShellContext<'t>) -> Self {
        let values = Values::new(Lexer::new(text), context, Objects::JavaScript);
        Self { text, values, database: context.database.to_owned() }
    }

    pub(super) fn parse(mut self) -> Result<Vec<CommandBuilder>, ShellError> {
        self.read_use()?;
        let (token, span) = self.values.lexer.peek()?;
        let commands = match token {
            Token::Sign('{') => vec![self.read_document()?],
            Token::Name(name) if name == "db" => {
                self.values.lexer.next()?;
                self.read_database()?
            }
            Token::End => return Err(ShellError::new(span, "there is no command").help("write one: db.orders.find()")),
            other => {
                let error = ShellError::expected(span, "`db`, or `{` of a command document", &other.describe());
                return Err(error.help(
                    "write one command, as db.COLLECTION.METHOD(…) or as its document; docward executes no JavaScript",
                ));
            }
        };
        while self.values.lexer.take_sign(';')? {}
        match self.values.lexer.peek()? {
            (Token::End, _) => Ok(commands),
            (other, span) => {
                let error = ShellError::expected(span, "the end of the command", &other.describe());
                Err(error.help("write one command at a time, and nothing that uses its result"))
            }
        }
    }

    /// Parses `use shop` on a line of its own.
    fn read_use(&mut self) -> Result<(), ShellError> {
        self.values.lexer.skip_space()?;
        let rest = self.values.lexer.rest();
        let Some(line) = rest.strip_prefix("use ").and_then(|after| after.lines().next()) else { return Ok(()) };
        let name = line.trim().trim_end_matches(';').trim_end();
        let start = self.values.lexer.at();
        if name.is_empty() || name.contains(char::is_whitespace) {
            let error = ShellError::new(start..start + "use ".len() + line.len(), "`use` needs the name of a database");
            return Err(error.help("write the command on the next line"));
        }
        if !may_name_database(name) {
            return Err(ShellError::new(start..start + "use ".len() + line.len(), not_a_database(name)));
        }
        self.database = name.to_owned();
        self.values.lexer.take_while(|c| c != '\n');
        Ok(())
    }

    /// Parses a document in Extended JSON, up to the end of the text.
    pub(super) fn read_only_document(mut self) -> Result<CowDocument<'static>, ShellError> {
        let (fields, _) = self.read_fields()?;
        match self.values.lexer.peek()? {
            (Token::End, _) => Ok(to_document(&fields)),
            (other, span) => Err(ShellError::expected(span, "the end of the document", &other.describe())),
        }
    }

    /// Parses one value in mongosh syntax or in Extended JSON, up to the end of the text.
    pub(super) fn read_only_value(mut self) -> Result<Term, ShellError> {
        let term = self.values.value()?;
        match self.values.lexer.peek()? {
            (Token::End, _) => from_extended_json::convert(term, self.text),
            (other, span) => Err(ShellError::expected(span, "the end of the value", &other.describe())),
        }
    }

    /// Parses the fields of a document in Extended JSON. Returns them and the span of the document.
    fn read_fields(&mut self) -> Result<(Vec<TermField>, Range<usize>), ShellError> {
        let mut values = Values::new(self.values.lexer.clone(), self.values.context, Objects::AsWritten);
        let read = values.value()?;
        self.values.lexer = values.lexer;
        let span = read.span.clone();
        match from_extended_json::convert(read, self.text)? {
            Term { content: TermContent::Document(fields), .. } => Ok((fields, span)),
            _ => Err(ShellError::new(span, "a command must be a document")),
        }
    }

    /// Parses a command in Extended JSON.
    fn read_document(&mut self) -> Result<CommandBuilder, ShellError> {
        let (mut fields, span) = self.read_fields()?;
        let mut database = self.database.clone();
        let position = fields.iter().position(|field| field.key == "$db");
        let is_message = position.is_some();
        if let Some(position) = position {
            let field = fields.remove(position);
            let name = field.term.as_str().filter(|name| may_name_database(name));
            database = name
                .map(str::to_owned)
                .ok_or_else(|| ShellError::new(field.term.span, "`$db` must be the name of a database"))?;
        }
        match fields.first() {
            None => Err(ShellError::new(span, "the command is empty").help(FIRST_FIELD)),
            // A statement, a document or a line of a log. What was sent to a server has a `$db`.
            Some(first) if !is_message && classify(first.key.as_bytes()) == CommandClass::Unknown => {
                Err(no_command(first))
            }
            Some(_) => Ok(CommandBuilder { database, fields }),
        }
    }

    /// Parses the text after `db`, or after a call that returns a database.
    fn read_database(&mut self) -> Result<Vec<CommandBuilder>, ShellError> {
        loop {
            let (name, span, quoted) = self.member("`.` and a collection or method")?;
            if quoted || !self.is_called()? {
                let collection = MethodCollection { database: self.database.clone(), name };
                return self.read_collection(collection);
            }
            let method = self.call(name, span)?;
            match method.name.as_str() {
                "getSiblingDB" | "getDB" => {
                    self.database = method.read_call(|method| method.arguments.database())?;
                }
                "getMongo" => method.read_call(|_| Ok(()))?,
                "getCollection" => {
                    let name = method.read_call(|method| method.arguments.required_text("the name of a collection"))?;
                    return self.read_collection(MethodCollection { database: self.database.clone(), name });
                }
                "aggregate" => {
                    let command = method.read_call(|method| reads::aggregate_database(&self.database, method))?;
                    return self.read_cursor(command, None);
                }
                _ => return Ok(vec![method.read_call(|method| admin::database_method(&self.database, method))?]),
            }
        }
    }

    fn read_collection(&mut self, mut collection: MethodCollection) -> Result<Vec<CommandBuilder>, ShellError> {
        let mut verbosity = None;
        loop {
            let (name, span, quoted) = self.member("`.` and a method")?;
            if quoted || !self.is_called()? {
                if verbosity.is_some() || quoted {
                    return Err(ShellError::new(span, "a method of the collection is missing here"));
                }
                collection.name.push('.');
                collection.name.push_str(&name);
                continue;
            }
            let method = self.call(name, span)?;
            if method.name == "explain" && verbosity.is_none() {
                verbosity = Some(method.read_call(reads::verbosity)?);
                continue;
            }
            return self.read_method(&collection, method, verbosity);
        }
    }

    fn read_method(
        &mut self,
        collection: &MethodCollection,
        method: MethodCall,
        verbosity: Option<Term>,
    ) -> Result<Vec<CommandBuilder>, ShellError> {
        let span = method.span.clone();
        let commands = match method.read_call(|method| collection_method(collection, method))? {
            ParsedMethod::Cursor(command) => return self.read_cursor(command, verbosity),
            ParsedMethod::Commands(commands) => commands,
        };
        match (verbosity, <[CommandBuilder; 1]>::try_from(commands)) {
            (verbosity, Ok([command])) => Ok(vec![explained(command, verbosity)]),
            (None, Err(commands)) => Ok(commands),
            (Some(_), Err(_)) => {
                let message = "`explain` accepts only one command, and this method sends several";
                Err(ShellError::new(span, message))
            }
        }
    }

    /// Parses the calls on a cursor.
    fn read_cursor(
        &mut self,
        mut command: CommandBuilder,
        mut verbosity: Option<Term>,
    ) -> Result<Vec<CommandBuilder>, ShellError> {
        while self.values.lexer.peek()?.0 == Token::Sign('.') {
            let (name, span, _) = self.member("`.` and a method")?;
            if !self.is_called()? || reads::CALLBACK_METHODS.contains(&name.as_str()) {
                let error = ShellError::new(span, format!("docward does not evaluate `{name}`, which uses the result"));
                return Err(error.help(format!("leave out `.{name}`; evaluate commands that it sends one at a time")));
            }
            let method = self.call(name, span)?;
            if method.name == "explain" {
                verbosity = Some(method.read_call(reads::verbosity)?);
                continue;
            }
            method.read_call(|method| reads::cursor_method(&mut command, method))?;
        }
        Ok(vec![explained(command, verbosity)])
    }

    /// Parses `.name` or `["name"]`. Returns the name, its span, and whether it was quoted.
    fn member(&mut self, expected: &str) -> Result<(String, Range<usize>, bool), ShellError> {
        let lexer = &mut self.values.lexer;
        let (token, span) = lexer.next()?;
        match token {
            Token::Sign('.') => match lexer.next()? {
                (Token::Name(name), span) => Ok((name, span, false)),
                (other, span) => Err(ShellError::expected(span, "a name", &other.describe())),
            },
            Token::Sign('[') => {
                let (token, span) = lexer.next()?;
                let Token::String(name) = token else {
                    return Err(ShellError::expected(span, "the name of a collection in quotes", &token.describe()));
                };
                lexer.expect_sign(']', "`]`")?;
                Ok((name, span, true))
            }
            other => Err(ShellError::expected(span, expected, &other.describe())),
        }
    }

    fn is_called(&self) -> Result<bool, ShellError> {
        Ok(self.values.lexer.peek()?.0 == Token::Sign('('))
    }

    fn call(&mut self, name: String, span: Range<usize>) -> Result<MethodCall, ShellError> {
        let (terms, end) = self.values.arguments()?;
        Ok(MethodCall::new(name, span, terms, end))
    }
}

/// The help for a document that is no command.
pub(super) const FIRST_FIELD: &str = "its first field is its name: {find: \"orders\"}";

/// Returns the error for a document that begins with this field.
fn no_command(first: &TermField) -> ShellError {
    let error = ShellError::new(first.key_span.clone(), format!("docward does not know the command `{}`", first.key));
    let known = did_you_mean(&first.key, command_names());
    error.help(known.unwrap_or_else(|| match first.key.as_str() {
        "q" => "a statement is part of a command: {update: \"COLLECTION\", updates: [{q: …, u: …}]}".to_owned(),
        name => format!("{FIRST_FIELD}; write a command that docward does not know as db.runCommand({{{name}: …}})"),
    }))
}

/// What a method of a collection sends.
pub(super) enum ParsedMethod {
    /// A command whose cursor may have further calls.
    Cursor(CommandBuilder),
    Commands(Vec<CommandBuilder>),
}

fn collection_method(collection: &MethodCollection, method: &mut MethodCall) -> Result<ParsedMethod, ShellError> {
    if let Some(read) = reads::collection_method(collection, method)? {
        return Ok(read);
    }
    Ok(ParsedMethod::Commands(match writes::collection_method(collection, method)? {
        Some(commands) => commands,
        None => vec![admin::collection_method(collection, method)?],
    }))
}

/// Returns the command, inside `explain` if a verbosity is given.
fn explained(command: CommandBuilder, verbosity: Option<Term>) -> CommandBuilder {
    let Some(verbosity) = verbosity else { return command };
    let database = command.database.clone();
    let mut explain = CommandBuilder::new(&database, "explain", Term::document(command.fields));
    explain.push("verbosity", verbosity);
    explain
}
