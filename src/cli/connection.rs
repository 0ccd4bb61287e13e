//! The flags of every subcommand that works on a deployment by rules, and the way each of them starts.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use tokio::runtime::Builder;

use super::config::ConfigFile;
use super::{EXIT_USAGE, fail, load_rules, values};
use crate::patterns::{Rule, RuleSet};
use crate::rules::Report;
use crate::service::MongoService;

/// As typed.
#[derive(Debug, Clone, Args)]
pub(super) struct Connection {
    /// YAML file with the same keys as the flags of serve; a flag wins.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Connection string of the deployment [default: mongodb://127.0.0.1:27017].
    #[arg(long, value_name = "URI", value_parser = values::connection_string)]
    upstream: Option<String>,
    /// Connection string for docward's own work [default: upstream, without its credentials].
    #[arg(long, value_name = "URI", value_parser = values::connection_string)]
    service: Option<String>,
    /// Name server that mongodb+srv:// names are looked up at [default: the system's].
    #[arg(long, value_name = "ADDR", value_parser = values::address)]
    resolver: Option<SocketAddr>,
    /// Rule file, or folder of them; may be repeated.
    #[arg(long, value_name = "PATH")]
    rules: Vec<PathBuf>,
}

impl Connection {
    /// Loads the rules, connects, and runs `work` to its end.
    pub(super) fn run(self, work: impl AsyncFnOnce(Arc<RuleSet>, MongoService) -> ExitCode) -> ExitCode {
        start(self.settings(), Builder::new_current_thread(), async |settings, rules| match settings.connect().await {
            Ok(service) => work(rules, service).await,
            Err(error) => fail(&format!("{error:#}"), EXIT_USAGE),
        })
    }

    /// The flags over the file.
    ///
    /// # Errors
    /// Every mistake in the file.
    pub(super) fn settings(&self) -> Result<ConfigFile, Report> {
        let file = self.config.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default();
        Ok(ConfigFile {
            upstream: self.upstream.clone().or(file.upstream),
            service: self.service.clone().or(file.service),
            resolver: self.resolver.or(file.resolver),
            rules: if self.rules.is_empty() { file.rules } else { self.rules.clone() },
            ..file
        })
    }

    /// The configuration file as it is now, to see whether it has changed; `None` when there is none to read.
    pub(super) fn config_text(&self) -> Option<Vec<u8>> {
        std::fs::read(self.config.as_deref()?).ok()
    }
}

/// Loads the rules that `settings` name, and runs `work` on `runtime`; what is wrong is printed.
pub(super) fn start(
    settings: Result<ConfigFile, Report>,
    mut runtime: Builder,
    work: impl AsyncFnOnce(ConfigFile, Arc<RuleSet>) -> ExitCode,
) -> ExitCode {
    let settings = match settings {
        Ok(settings) => settings,
        Err(report) => {
            eprint!("{}", report.render(std::io::stderr().is_terminal()));
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let rules = match load_rules(&settings.rules) {
        Ok(rules) => rules,
        Err(code) => return code,
    };
    match runtime.enable_all().build() {
        Ok(runtime) => runtime.block_on(work(settings, rules)),
        Err(error) => fail(&format!("cannot start the runtime: {error}"), 1),
    }
}

/// The rule of this name.
///
/// # Errors
/// Text for people.
pub(super) fn rule<'r>(rules: &'r RuleSet, name: &str) -> Result<&'r Rule, String> {
    let found = rules.rules().iter().find(|rule| rule.name.value == name);
    found.ok_or_else(|| format!("--rule {name}: no rule in --rules has this name"))
}
