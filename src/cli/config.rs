//! `docward.yaml`: the keys of `serve`'s flags in a file. A flag wins over the file, the file over the default.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use serde::Deserialize;

use crate::service::MongoService;

/// Bytes of a configuration file; real ones have a few hundred.
const MAX_LENGTH: usize = 64 * 1024;

/// The deployment when neither a flag nor the file names one.
const UPSTREAM: &str = "mongodb://127.0.0.1:27017";

/// What the file says; every key may be absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigFile {
    pub(super) listen: Option<String>,
    pub(super) advertise: Option<String>,
    /// Members by the names their set knows them by; without it they take the following ports.
    #[serde(default)]
    pub(super) members: BTreeMap<String, MemberEntry>,
    pub(super) query_listen: Option<String>,
    /// A length of time such as `10s`.
    pub(super) drain_timeout: Option<String>,
    /// As written; relative to the file's folder.
    pub(super) hand_over: Option<PathBuf>,
    pub(super) upstream: Option<String>,
    pub(super) service: Option<String>,
    /// As written; relative to the file's folder.
    #[serde(default)]
    pub(super) rules: Vec<PathBuf>,
}

/// Where one member's listener is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MemberEntry {
    pub(super) listen: String,
    /// HOST or HOST:PORT.
    pub(super) advertise: Option<String>,
}

impl ConfigFile {
    /// # Errors
    /// Text with file, line and column of what is wrong.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("--config {}: cannot be read", path.display()))?;
        ensure!(
            text.len() <= MAX_LENGTH,
            "--config {}: more than {MAX_LENGTH} bytes; is it the right file?",
            path.display()
        );
        let mut file = Self::parse(&text, path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        file.rules.iter_mut().chain(&mut file.hand_over).for_each(|path| *path = folder.join(&*path));
        Ok(file)
    }

    pub(super) fn upstream(&self) -> &str {
        self.upstream.as_deref().unwrap_or(UPSTREAM)
    }

    /// docward's own connection; made when it is first used.
    ///
    /// # Errors
    /// Text that says what is wrong with the connection string.
    pub(super) async fn connect(&self) -> Result<MongoService> {
        let service = match &self.service {
            Some(uri) => MongoService::parse(uri).await,
            None => MongoService::parse_without_credentials(self.upstream()).await,
        };
        service.map_err(|error| anyhow!("--service: {}", error.kind))
    }

    fn parse(text: &str, path: &Path) -> Result<Self> {
        let options = serde_yaml::options! {
            strict_booleans: true,
            merge_keys: serde_yaml::MergeKeyPolicy::Error,
            reject_unsupported_tags: true,
            budget: serde_yaml::budget! { max_depth: 8, max_anchors: 0 },
        };
        serde_yaml::from_str_with_options(text, options).map_err(|error| {
            let name = path.display().to_string();
            let rendering = serde_yaml::render_options! { source_name: Some(&name) };
            anyhow!("--config: {}", error.render_with_options(rendering))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConfigFile> {
        ConfigFile::parse(text, Path::new("docward.yaml"))
    }

    #[test]
    fn keys_are_those_of_the_flags() {
        let file = parse("listen: 127.0.0.1:1\nupstream: mongodb://a\nrules: [rules/, more.yaml]\n").unwrap();
        assert_eq!(file.listen.as_deref(), Some("127.0.0.1:1"));
        assert_eq!(file.rules, [PathBuf::from("rules/"), PathBuf::from("more.yaml")]);
    }

    #[test]
    fn what_is_wrong_is_shown_with_its_place() {
        for (text, place) in
            [("listen: a\nupstreem: b\n", "docward.yaml:2:1"), ("listen: a\nlisten: b\n", "docward.yaml:2:1")]
        {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(place), "{message}");
        }
    }

    #[test]
    fn rules_are_looked_for_beside_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("docward.yaml");
        std::fs::write(&path, "rules: [rules]").unwrap();
        assert_eq!(ConfigFile::read(&path).unwrap().rules, [folder.path().join("rules")]);
    }
}
