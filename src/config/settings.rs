//! Reads YAML settings files other than rule files, as strictly and with the same diagnostics.
//!
//! `docward.yaml` is one; `crate::cli` knows its keys.

use std::path::Path;

use super::context::ReadContext;
use super::diagnostic::Report;
use super::files::FileReader;
use super::node::NodeValue;
use super::reader::MapReader;
use super::yaml;

/// The mistakes in a file of settings.
#[derive(Debug)]
pub struct SettingsErrors<T> {
    pub report: Report,
    /// What could be read in spite of them; `None` if the file is not a mapping.
    pub partial: Option<Box<T>>,
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
    if let (Some(file), true) = (sources.files().next(), found.is_empty()) {
        match yaml::parse(file, sources.text(file)) {
            Err(mistake) => found.push(*mistake),
            Ok(mut tree) => {
                if tree.value == NodeValue::Null {
                    tree.value = NodeValue::Map(Vec::new());
                }
                let mut context = ReadContext::new(&mut found);
                if let Some(mut reader) = context.map(&tree) {
                    settings = Some(read(&mut reader));
                    reader.finish();
                }
            }
        }
    }
    let report = Report::new(found, sources);
    match settings {
        Some(settings) if !report.has_errors() => Ok(settings),
        partial => Err(SettingsErrors { report, partial: partial.map(Box::new) }),
    }
}
