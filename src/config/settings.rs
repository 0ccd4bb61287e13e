//! Reads YAML settings files other than rule files, as strictly and with the same diagnostics.
//!
//! `docward.yaml` is one; `crate::cli` knows its keys.

use std::path::Path;

use super::code::Code;
use super::context::ReadContext;
use super::diagnostic::{Diagnostic, Report};
use super::files::FileReader;
use super::node::{Node, NodeValue};
use super::reader::MapReader;
use super::yaml;

/// The mistakes in a file of settings.
#[derive(Debug)]
pub struct SettingsErrors<T> {
    pub report: Report,
    /// What could be read in spite of them; `None` if the file is not a mapping.
    pub partial: Option<Box<T>>,
}

/// Reports texts with `${…}`: a file that was meant for a tool that replaces variables. Messages do not repeat the text,
/// which may be a password.
fn report_variables(node: &Node, context: &mut ReadContext<'_>) {
    match &node.value {
        NodeValue::Text(text) if text.contains("${") => {
            let message = "this contains `${`, and docward does not replace variables in its configuration";
            context.push(Diagnostic::error(Code::InvalidValue, node.span, message).help(
                "write the value, or make the file with envsubst; in a connection string, write a `$` of a password as %24",
            ));
        }
        NodeValue::List(items) => items.iter().for_each(|item| report_variables(item, context)),
        NodeValue::Map(entries) => entries.iter().for_each(|(_, value)| report_variables(value, context)),
        _ => {}
    }
}

/// Reads the one mapping in the file at `path`; an empty file is an empty mapping.
///
/// # Errors
/// Every mistake found in it. The report shows only the values of the top-level keys in `public`.
pub fn read_settings<T>(
    path: &Path,
    public: &'static [&'static str],
    read: impl FnOnce(&mut MapReader<'_, '_, '_>) -> T,
) -> Result<T, SettingsErrors<T>> {
    let (sources, mut found) = FileReader::settings(path, public);
    let mut settings = None;
    if let (Some(file), true) = (sources.files().next(), found.is_empty())
        && let Some(mut tree) = yaml::parse(file, sources.text(file), &mut found)
    {
        if tree.value == NodeValue::Null {
            tree.value = NodeValue::Map(Vec::new());
        }
        let mut context = ReadContext::new(&mut found);
        report_variables(&tree, &mut context);
        if let Some(mut reader) = context.map(&tree) {
            settings = Some(read(&mut reader));
            reader.finish();
        }
    }
    let report = Report::new(found, sources);
    match settings {
        Some(settings) if !report.has_errors() => Ok(settings),
        partial => Err(SettingsErrors { report, partial: partial.map(Box::new) }),
    }
}
