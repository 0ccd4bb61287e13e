//! Reads YAML settings files other than rule files, as strictly and with the same diagnostics.
//!
//! `docward.yaml` is one; `crate::cli` knows its keys.

use std::path::Path;

use super::context::ReadContext;
use super::diagnostic::Report;
use super::files::FileReader;
use super::node::NodeValue;
use super::reader::MapReader;
use super::variables::{Environment, Variables};
use super::yaml;

/// The mistakes in a file of settings.
#[derive(Debug)]
pub struct SettingsErrors<T> {
    pub report: Report,
    /// What could be read in spite of them; `None` if the file is not a mapping.
    pub partial: Option<Box<T>>,
}

/// Reads the one mapping in the file at `path`; an empty file is an empty mapping. Each `${NAME}` in its texts is
/// replaced by a variable of the `environment`.
///
/// # Errors
/// Every mistake found in it. The report shows only the values of the top-level keys in `public`.
pub fn read_settings<T>(
    path: &Path,
    public: &'static [&'static str],
    environment: Environment,
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
        let mut variables = Variables::default();
        variables.replace(&mut tree, sources.text(file), environment, &mut found);
        let reported = found.len();
        let mut context = ReadContext::for_texts(&mut found, &variables.replaced);
        if let Some(mut reader) = context.map(&tree) {
            settings = Some(read(&mut reader));
            reader.finish();
        }
        variables.hide(reported, &mut found);
    }
    let report = Report::new(found, sources);
    match settings {
        Some(settings) if !report.has_errors() => Ok(settings),
        partial => Err(SettingsErrors { report, partial: partial.map(Box::new) }),
    }
}
