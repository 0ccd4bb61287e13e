//! `docward history`: lists the changes of a document, or prints it as it was at a time, from the entries of a
//! `history` rule. The work is in `service::history::read`.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::connection::ConnectionOptions;
use super::explain::{milliseconds_now, time};
use super::output::print_line;
use super::{EXIT_USAGE, Format, fail};
use crate::document::{Document, OwnedValue};
use crate::patterns::AnyPattern;
use crate::patterns::history::History;
use crate::rules::{Mode, RuleSet};
use crate::service::history::read::{Reader, Revision, StateAt};
use crate::shell::{self, ShellContext, iso};
use crate::suggest;

#[derive(Debug, Args)]
pub struct Arguments {
    /// The collection, as DATABASE.COLLECTION.
    #[arg(value_name = "NAMESPACE")]
    namespace: String,
    /// The document's _id in mongosh syntax: 17, '"text"', 'ObjectId("…")'.
    #[arg(value_name = "ID", allow_negative_numbers = true)]
    id: String,
    /// Print the document as it was at this time, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<i64>,
    /// Format of the list; a document is printed as Extended JSON in both.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    #[command(flatten)]
    connection: ConnectionOptions,
}

/// Exits with 0 if the document's history or state was printed; with 1 if there is none, it is not known, or the server
/// cannot be used.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let Arguments { namespace, id, at, format, connection } = arguments;
    let id = match parse_id(&id) {
        Ok(id) => id,
        Err(text) => return fail(&text, EXIT_USAGE),
    };
    connection.run(async |rules, service| {
        let Some(history) = find_rule(&rules, &namespace) else {
            return fail(&no_rule(&rules, &namespace), EXIT_USAGE);
        };
        let shown = match Reader::new(&service, history, id) {
            Err(text) => Err(text),
            Ok(reader) => match at {
                None => list(&reader, format).await,
                Some(at) => state(&reader, at).await,
            },
        };
        shown.unwrap_or_else(|text| fail(&text, 1))
    })
}

fn parse_id(text: &str) -> Result<OwnedValue, String> {
    let context = ShellContext { database: "", now: milliseconds_now() };
    let parsed = shell::named_value("_id", text, context).map_err(|error| {
        let hexadecimal = text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let help = match hexadecimal {
            true => format!("for an ObjectId write 'ObjectId(\"{text}\")', for a string '\"{text}\"'"),
            false => "write it in mongosh syntax or as Extended JSON: 17, '\"text\"', 'ObjectId(\"65a1…\")'".to_owned(),
        };
        format!("ID {text}: {error}; {help}")
    })?;
    parsed.as_document().get("_id").map(OwnedValue::from).ok_or_else(|| format!("ID {text}: this is not a value"))
}

/// The rules with the pattern.
fn histories(rules: &RuleSet) -> impl Iterator<Item = (Mode, &History)> {
    rules.rules().iter().filter_map(|rule| match &rule.pattern {
        AnyPattern::History(history) => Some((rule.mode, history)),
        _ => None,
    })
}

/// The rule for the collection: an enforced one, if there are several.
fn find_rule<'r>(rules: &'r RuleSet, namespace: &str) -> Option<&'r History> {
    let all = || histories(rules).filter(|(_, history)| history.of.to_string() == namespace);
    let enforced = all().find(|(mode, _)| *mode == Mode::Enforce);
    enforced.or_else(|| all().next()).map(|(_, history)| history)
}

fn no_rule(rules: &RuleSet, namespace: &str) -> String {
    let names: Vec<String> = histories(rules).map(|(_, history)| history.of.to_string()).collect();
    let rest = match (names.is_empty(), suggest::nearest(namespace, names.iter().map(String::as_str))) {
        (true, _) => "; --rules has none, and docward history reads what such a rule has stored".to_owned(),
        (false, Some(near)) => format!("; did you mean {near}?"),
        (false, None) => format!("; --rules has rules for {}", names.join(", ")),
    };
    format!("no `history` rule is for the collection {namespace}{rest}")
}

async fn list(reader: &Reader<'_>, format: Format) -> Result<ExitCode, String> {
    let mut found = 0;
    let unfinished = reader
        .revisions(|revision| {
            if found == 0 && matches!(format, Format::Text) {
                _ = print_line("revision  time                      operation  changed fields");
            }
            found += 1;
            _ = print_line(&match format {
                Format::Text => as_line(&revision),
                Format::Json => as_json(&revision).to_string(),
            });
        })
        .await?;
    match (found, unfinished) {
        (0, None) => Err("no change of this document is recorded".to_owned()),
        (0, Some(why)) => Err(format!("no change of this document is recorded; {why}")),
        (_, None) => Ok(ExitCode::SUCCESS),
        (_, Some(why)) => Err(format!("the list may lack the last changes: {why}")),
    }
}

fn as_line(revision: &Revision) -> String {
    let Revision { revision, at, operation, changed, unknown } = revision;
    let number = revision.map_or("-".to_owned(), |revision| revision.to_string());
    let changed = match (revision, changed, unknown) {
        (None, _, Some(why)) => format!("changes before are not recorded: {why}"),
        (Some(_), _, Some(why)) => format!("not known: {why}"),
        (_, None, None) => "not known: the next state is not".to_owned(),
        (_, Some(changed), None) => changed.join(", "),
    };
    format!("{number:<8}  {:<24}  {operation:<9}  {changed}", iso(*at)).trim_end().to_owned()
}

fn as_json(revision: &Revision) -> Value {
    let Revision { revision, at, operation, changed, unknown } = revision;
    json!({"revision": revision, "at": iso(*at), "operation": operation, "changed": changed, "unknown": unknown})
}

async fn state(reader: &Reader<'_>, at: i64) -> Result<ExitCode, String> {
    let at_text = iso(at);
    match reader.at(at).await? {
        StateAt::Document(document) => {
            let document = Document::parse(document.as_bytes()).map_err(|error| error.to_string())?;
            Ok(print_line(&shell::relaxed_json(document).to_string()).into())
        }
        StateAt::Absent => Err(format!("the document did not exist at {at_text}")),
        StateAt::Unknown(why) => Err(format!("the state at {at_text} is not known: {why}")),
    }
}
