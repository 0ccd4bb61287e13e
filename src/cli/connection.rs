//! The flags and the start of every subcommand that uses rules and a deployment.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use tokio::runtime::Builder;

use super::config_file::ConfigFile;
use super::typed::Unquoted;
use super::{EXIT_USAGE, fail, load_rules, logging, values};
use crate::config::{MapReader, Report};
use crate::proxy::UpstreamError;
use crate::rules::RuleId;
use crate::rules::{Rule, RuleSet};
use crate::service::connection::ConnectionError;
use crate::service::{ConnectionString, MongoService};
use crate::suggest;

/// The command line.
#[derive(Debug, Clone, Args)]
pub(super) struct ConnectionOptions {
    /// YAML file with the same keys as the flags of serve; flags take precedence.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    deployment: DeploymentOptions,
    /// Connection string for docward's own work [default: upstream; serve does not use its credentials].
    #[arg(long, value_name = "URI", value_parser = Unquoted(values::connection_string))]
    service: Option<ConnectionString>,
    /// Rule file, or folder of rule files; can be repeated.
    #[arg(long, value_name = "PATH")]
    rules: Vec<PathBuf>,
}

/// The upstream deployment.
#[derive(Debug, Clone, Args)]
pub(super) struct DeploymentOptions {
    /// Connection string of the deployment [default: mongodb://127.0.0.1:27017].
    #[arg(long, value_name = "URI", value_parser = Unquoted(values::connection_string))]
    upstream: Option<ConnectionString>,
    /// Name server for mongodb+srv:// names [default: the system's].
    #[arg(long, value_name = "ADDR", value_parser = values::address)]
    resolver: Option<SocketAddr>,
}

impl DeploymentOptions {
    /// Combines the flags with `file`; flags take precedence.
    pub(super) fn with_defaults_from(self, file: ConfigFile) -> ConfigFile {
        ConfigFile { upstream: self.upstream.or(file.upstream), resolver: self.resolver.or(file.resolver), ..file }
    }
}

impl ConnectionOptions {
    /// Loads the rules, connects, and runs `work`.
    pub(super) fn run(self, work: impl AsyncFnOnce(Arc<RuleSet>, MongoService) -> ExitCode) -> ExitCode {
        start(self.settings(), Builder::new_current_thread(), async |settings, rules| match settings.connect().await {
            Ok(service) => work(rules, service).await,
            Err(error) => fail(&format!("{error:#}"), exit_code(&error)),
        })
    }

    /// Combines the flags with `file`; flags take precedence.
    ///
    /// # Errors
    /// Every mistake in the file.
    pub(super) fn settings(&self) -> Result<ConfigFile, Report> {
        let check = |file: &ConfigFile, reader: &mut MapReader<'_, '_, '_>| {
            if self.rules.is_empty() {
                file.check_rules(reader);
            }
        };
        let file = self.config.as_deref().map(|path| ConfigFile::read_in_part(path, check)).transpose();
        let file = file.map_err(|errors| errors.report)?.unwrap_or_default();
        Ok(self.deployment.clone().with_defaults_from(ConfigFile {
            service: self.service.clone().or(file.service),
            rules: if self.rules.is_empty() { file.rules } else { self.rules.clone() },
            ..file
        }))
    }

    /// Adds rule files.
    pub(super) fn with_rules(mut self, paths: Vec<PathBuf>) -> Self {
        self.rules.extend(paths);
        self
    }

    /// The path of the configuration file.
    pub(super) fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }
}

/// The exit code for unusable connection strings: 1 if a restart may succeed, else [`EXIT_USAGE`].
pub(super) fn exit_code(error: &anyhow::Error) -> u8 {
    let connection = match error.downcast_ref() {
        Some(UpstreamError::Connection(error)) => Some(error),
        _ => error.downcast_ref::<ConnectionError>(),
    };
    if connection.is_some_and(ConnectionError::may_pass) { 1 } else { EXIT_USAGE }
}

/// Loads the rules in `settings` and runs `work` on `runtime`; prints errors.
pub(super) fn start(
    settings: Result<ConfigFile, Report>,
    mut runtime: Builder,
    work: impl AsyncFnOnce(ConfigFile, Arc<RuleSet>) -> ExitCode,
) -> ExitCode {
    let settings = match settings {
        Ok(settings) => settings,
        Err(report) => {
            logging::show(&report);
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

/// The flags of a subcommand that processes the documents of one rule.
#[derive(Debug, Args)]
pub struct OneRuleArguments {
    /// Name of the rule; its mode does not matter.
    #[arg(long = "rule", value_name = "NAME")]
    name: String,
    /// Only count the changes; change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: ConnectionOptions,
}

/// The input of such a subcommand.
pub(super) struct OneRuleInput {
    pub(super) rules: Arc<RuleSet>,
    pub(super) rule: RuleId,
    pub(super) service: MongoService,
    pub(super) dry_run: bool,
}

impl OneRuleArguments {
    /// Finds the rule, connects, and runs `work`.
    pub(super) fn run(self, work: impl AsyncFnOnce(OneRuleInput) -> ExitCode) -> ExitCode {
        let Self { name, dry_run, connection } = self;
        connection.run(async |rules, service| match find_rule(&rules, &name) {
            Ok(rule) => work(OneRuleInput { rules, rule, service, dry_run }).await,
            Err(text) => fail(&text, EXIT_USAGE),
        })
    }
}

/// Returns the rule of this name.
///
/// # Errors
/// A message for the user: no rule has this name, or no rules are loaded.
pub(super) fn find_rule(rules: &RuleSet, name: &str) -> Result<RuleId, String> {
    let names = || rules.rules().iter().map(|rule| &*rule.name.value);
    if let Some(rule) = rules.rules().iter().find(|rule| *rule.name.value == *name) {
        return Ok(rule.id);
    }
    if rules.rules().is_empty() {
        return Err(format!("no rule is named `{name}`: name rule files with --rules (rules: in docward.yaml)"));
    }
    let near = suggest::nearest(name, names()).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Err(format!("no loaded rule is named `{name}`{near}"))
}

impl OneRuleInput {
    pub(super) fn rule(&self) -> &Rule {
        self.rules.rule(self.rule)
    }

    /// Reports that the subcommand does not support the rule's pattern; `only` names the supported one.
    pub(super) fn wrong_pattern(&self, only: &str) -> ExitCode {
        let rule = self.rule();
        let (name, pattern) = (&rule.name.value, rule.pattern.name());
        fail(&format!("--rule {name}: its pattern is `{pattern}`; {only}"), EXIT_USAGE)
    }
}
