//! Parses a whole text: the collection of a method call (`db.getSiblingDB("shop").orders`), its arguments, and the
//! calls on its result (`.sort({…}).limit(5)`). The meaning of the methods is in `reads`, `writes` and `admin`.

use std::ops::Range;

use super::arguments::MethodArguments;
use super::error::did_you_mean;
use super::lexer::{Lexer, Token};
use super::term::{Term, TermContent, TermField, to_document};
use super::value::{Objects, Values};
use super::{ShellContext, ShellError, admin, from_extended_json, reads, writes};
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

/// The name of a method and its arguments.
#[derive(Debug)]
pub(super) struct MethodCall {
    pub(super) name: String,
    pub(super) span: Range<usize>,
    pub(super) arguments: MethodArguments,
}

impl MethodCall {
    /// Returns the error for an unknown method of `owner`.
    pub(super) fn unknown(&self, owner: &str, known: &[&str], instead: &str) -> ShellError {
        let message = format!("docward does not support the method `{}` of {owner}", self.name);
        let error = ShellError::new(self.span.clone(), message);
        error.help(did_you_mean(&self.name, known.iter().copied()).unwrap_or_else(|| instead.to_owned()))
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
                return Err(error.help("write db.COLLECTION.METHOD(…)"));
            }
        };
        while self.values.lexer.take_sign(';')? {}
        match self.values.lexer.peek()? {
            (Token::End, _) => Ok(commands),
            (other, span) => {
                let error = ShellError::expected(span, "the end of the command", &other.describe());
                Err(error.help("write one command at a time"))
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
        if let Some(position) = fields.iter().position(|field| field.key == "$db") {
            let field = fields.remove(position);
            let name = field.term.as_str().map(str::to_owned);
            database = name.ok_or_else(|| ShellError::new(field.term.span, "`$db` must be the name of a database"))?;
        }
        if fields.is_empty() {
            return Err(
                ShellError::new(span, "the command is empty").help("its first field is its name: {find: \"orders\"}")
            );
        }
        Ok(CommandBuilder { database, fields })
    }

    /// Parses the text after `db`, or after a call that returns a database.
    fn read_database(&mut self) -> Result<Vec<CommandBuilder>, ShellError> {
        loop {
            let (name, span, quoted) = self.member("`.` and a collection or method")?;
            if quoted || !self.is_called()? {
                let collection = MethodCollection { database: self.database.clone(), name };
                return self.read_collection(collection);
            }
            let mut method = self.call(name, span)?;
            match method.name.as_str() {
                "getSiblingDB" | "getDB" => {
                    self.database = method.arguments.required_text("the name of a database")?;
                    method.arguments.finish()?;
                }
                "getMongo" => method.arguments.finish()?,
                "getCollection" => {
                    let name = method.arguments.required_text("the name of a collection")?;
                    method.arguments.finish()?;
                    return self.read_collection(MethodCollection { database: self.database.clone(), name });
                }
                "aggregate" => return self.read_cursor(reads::aggregate_database(&self.database, method)?, None),
                _ => return Ok(vec![admin::database_method(&self.database, method)?]),
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
                verbosity = Some(reads::verbosity(method.arguments)?);
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
        let method = match reads::collection_method(collection, method)? {
            reads::ParsedRead::Cursor(command) => return self.read_cursor(command, verbosity),
            reads::ParsedRead::Other(command) => return Ok(vec![explained(command, verbosity)]),
            reads::ParsedRead::No(method) => method,
        };
        let span = method.span.clone();
        let commands = match writes::collection_method(collection, method)? {
            writes::MethodCommands::Commands(commands) => commands,
            writes::MethodCommands::No(method) => vec![admin::collection_method(collection, method)?],
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
            if matches!(name.as_str(), "forEach" | "map") {
                self.skip_callback(&name, span)?;
                continue;
            }
            let method = self.call(name, span)?;
            if method.name == "explain" {
                verbosity = Some(reads::verbosity(method.arguments)?);
                continue;
            }
            command = reads::cursor_method(command, method)?;
        }
        Ok(vec![explained(command, verbosity)])
    }

    /// Skips a callback; it does not change the command.
    fn skip_callback(&mut self, name: &str, span: Range<usize>) -> Result<(), ShellError> {
        let mut ahead = self.values.lexer.clone();
        ahead.next()?;
        if let (Token::Name(_), _) = ahead.next()?
            && ahead.take_sign(')')?
        {
            self.values.lexer = ahead;
            return Ok(());
        }
        self.call(name.to_owned(), span).map(|_| ())
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
        let arguments = MethodArguments::new(&name, span.clone(), terms, end);
        Ok(MethodCall { name, span, arguments })
    }
}

/// Returns the command, inside `explain` if a verbosity is given.
fn explained(command: CommandBuilder, verbosity: Option<Term>) -> CommandBuilder {
    let Some(verbosity) = verbosity else { return command };
    let database = command.database.clone();
    let mut explain = CommandBuilder::new(&database, "explain", Term::document(command.fields));
    explain.push("verbosity", verbosity);
    explain
}
