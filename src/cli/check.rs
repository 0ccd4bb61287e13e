//! `docward check`: loads rules and a configuration file like `serve`, and prints every mistake. With `--upstream`, it
//! also checks collections and indexes of the deployment. With `--coverage`, it prints the effect of each rule on
//! every command that can reach its collections.

mod coverage;
mod named_files;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Args};
use serde_json::Value;
use tokio::runtime::Builder;

use super::application_string::ApplicationString;
use super::config_file::ConfigFile;
use super::notices::{notices, skipped_rules};
use super::output::{PrintResult, print, print_line};
use super::progress::Lines;
use super::typed::Unquoted;
use super::{Format, logging, values};
use crate::config::{Code, Diagnostic, Report, SettingsErrors};
use crate::document::Document;
use crate::engine::incompatible_rules;
use crate::patterns::Backfill;
use crate::rules::RuleSet;
use crate::service::ConnectionString;
use crate::service::MongoService;
use crate::service::data;
use crate::service::inspection::{self, inspect};
use crate::shell::value_text;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("deployment").args(["upstream", "data"]).multiple(true)))]
pub struct Arguments {
    /// Rule files, or folders of rule files.
    #[arg(value_name = "PATH", required_unless_present = "config")]
    paths: Vec<PathBuf>,
    /// Configuration file of serve; docward also checks its rules and certificates.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Also check that a deployment has the collections that rules name and the indexes that they need. Without a URI, that of
    /// the configuration file.
    #[arg(long, value_name = "URI", value_parser = Unquoted(values::connection_string), num_args = 0..=1)]
    upstream: Option<Option<ConnectionString>>,
    /// Also read the stored documents, and count those that lack what a rule needs or break the rule; includes --upstream.
    #[arg(long)]
    data: bool,
    /// Connection string for that check [default: that of the file, then upstream].
    #[arg(long, value_name = "URI", value_parser = Unquoted(values::connection_string), requires = "deployment")]
    service: Option<ConnectionString>,
    /// Name server for mongodb+srv:// names [default: the system's].
    #[arg(long, value_name = "ADDR", value_parser = values::address, requires = "deployment")]
    resolver: Option<SocketAddr>,
    /// Text, or a JSON list for editors and CI: of diagnostics, or of coverage with --coverage.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Show the effect of each rule on every command that can reach its collections.
    #[arg(long)]
    coverage: bool,
}

/// Exits with 0 if everything loads, even with warnings; with 1 if not, or if the deployment cannot be inspected.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let mut findings = Findings::default();
    let settings = findings.settings(arguments.config.as_deref());
    let rules = findings.rules(&[&*arguments.paths, &*settings.rules].concat());
    for notice in skipped_rules(&arguments.paths) {
        logging::print_progress(&format!("warning: {notice}"));
    }
    // Of a file with mistakes it is not known what it means.
    let config = arguments.config.as_deref().filter(|_| !findings.config_failed);
    if let (Some(config), Some(rules)) = (config, &rules) {
        for notice in notices(&settings, rules, Some(config)) {
            logging::print_progress(&format!("warning: {notice}"));
        }
    }
    let applications = config.map(|_| ApplicationString::at_settings(&settings));
    let upstream = arguments.upstream.clone().flatten();
    let is_known = upstream.is_some() || !findings.config_failed;
    let is_asked = arguments.upstream.is_some() || arguments.data;
    if let Some(rules) = rules.as_ref().filter(|_| is_asked && is_known) {
        let settings = ConfigFile {
            upstream: upstream.or(settings.upstream),
            service: arguments.service.clone().or(settings.service),
            resolver: arguments.resolver.or(settings.resolver),
            members: settings.members,
            ..ConfigFile::default()
        };
        findings.deployment(&settings, rules, arguments.data);
    }
    match arguments.format {
        Format::Json => print_line(&findings.to_json(rules.as_ref().filter(|_| arguments.coverage))),
        Format::Text => findings.show(rules.as_ref(), arguments.coverage, applications),
    }
    .unless(findings.failed)
}

/// The reports, in the order in which they are printed.
#[derive(Default)]
struct Findings {
    reports: Vec<Report>,
    /// There was an error, not only warnings.
    failed: bool,
    /// The configuration file has mistakes.
    config_failed: bool,
}

impl Findings {
    /// Reads the configuration file, its certificates and its token. Of a file with mistakes only the paths of rules are
    /// used.
    fn settings(&mut self, config: Option<&Path>) -> ConfigFile {
        match config.map(|path| ConfigFile::read_in_part(path, named_files::check)).transpose() {
            Ok(settings) => settings.unwrap_or_default(),
            Err(SettingsErrors { report, partial }) => {
                (self.failed, self.config_failed) = (true, true);
                self.reports.push(report);
                // Those that do not exist are in the report.
                let rules = partial.unwrap_or_default().rules.into_iter().filter(|path| path.exists()).collect();
                ConfigFile { rules, ..ConfigFile::default() }
            }
        }
    }

    /// Loads the rules; `None` if they have errors.
    fn rules(&mut self, paths: &[PathBuf]) -> Option<RuleSet> {
        let rules = RuleSet::load_in_part(paths);
        let has_errors = rules.warnings().has_errors();
        self.failed |= has_errors;
        self.reports.push(rules.warnings().clone());
        self.reports.push(Report::new(incompatible_rules(&rules), rules.sources().clone()));
        (!has_errors).then_some(rules)
    }

    /// Adds the diagnostics about the deployment.
    fn deployment(&mut self, settings: &ConfigFile, rules: &RuleSet, with_data: bool) {
        match inspect_deployment(settings, rules, with_data) {
            Ok(found) => self.reports.push(Report::new(found, rules.sources().clone())),
            Err(error) => {
                self.failed = true;
                logging::print_error(&format!("docward: cannot inspect the deployment: {error:#}\n"));
            }
        }
    }

    fn show(&self, rules: Option<&RuleSet>, with_coverage: bool, applications: Option<String>) -> PrintResult {
        self.reports.iter().filter(|report| !report.is_empty()).for_each(logging::show);
        let Some(rules) = rules else { return PrintResult::default() };
        let mut text = if with_coverage { coverage::text(rules) } else { String::new() };
        if !self.failed {
            let counted = match rules.rules().len() {
                1 => "1 rule is fine".to_owned(),
                count => format!("{count} rules are fine"),
            };
            text += &format!("{counted} (set {})\n", rules.hash());
            if let Some(applications) = applications {
                text += &format!("applications connect to {applications}\n");
            }
        }
        print(&text)
    }

    /// The diagnostics, or the coverage of `covering` if there are no errors.
    fn to_json(&self, covering: Option<&RuleSet>) -> String {
        if let Some(rules) = covering.filter(|_| !self.failed) {
            return coverage::json(rules);
        }
        let lists = self.reports.iter().map(Report::to_json);
        let each = lists.flat_map(|list| if let Value::Array(list) = list { list } else { Vec::new() });
        each.collect::<Value>().to_string()
    }
}

fn inspect_deployment(settings: &ConfigFile, rules: &RuleSet, with_data: bool) -> anyhow::Result<Vec<Diagnostic>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let service = settings.connect().await?;
        for notice in member_notices(&service, settings).await.map_err(anyhow::Error::msg)? {
            logging::print_progress(&format!("warning: {notice}"));
        }
        let mut found = inspect(&service, rules).await.map_err(anyhow::Error::msg)?;
        if with_data {
            let mut shown = Lines::default();
            let data = data::check(&service, rules, |progress| shown.show(progress)).await;
            found.extend(data.map_err(anyhow::Error::msg)?.iter().map(|finding| stored(finding, rules)));
        }
        Ok(found)
    })
}

/// How `members` differs from the members of the replica set.
async fn member_notices(service: &MongoService, settings: &ConfigFile) -> Result<Vec<String>, String> {
    let named: Vec<&str> = settings.members.keys().map(String::as_str).collect();
    if named.is_empty() {
        return Ok(Vec::new());
    }
    let members = inspection::members(service).await?;
    // The entries for several mongos are named as in the connection string.
    if members.is_empty() {
        return Ok(Vec::new());
    }
    let has = |names: &[&str], name: &str| names.iter().any(|other| other.eq_ignore_ascii_case(name));
    let known: Vec<&str> = members.iter().map(String::as_str).collect();
    let unnamed = known.iter().filter(|member| !has(&named, member)).map(|member| {
        format!("`members` does not name {member}: clients do not see it, and cannot write when it is primary")
    });
    let unknown = named
        .iter()
        .filter(|name| !has(&known, name))
        .map(|name| format!("`members` names {name}, which is not a member of the replica set ({})", known.join(", ")));
    Ok(unnamed.chain(unknown).collect())
}

/// The diagnostic for stored documents.
fn stored(finding: &data::Finding, rules: &RuleSet) -> Diagnostic {
    let rule = rules.rule(finding.rule);
    let data::Finding { collection, check, count, examples, .. } = finding;
    let documents = if *count == 1 { "1 document" } else { &format!("{count} documents") };
    let name = &rule.name.value;
    let ids: Vec<String> = examples.iter().map(id_text).collect();
    let more = if *count > ids.len() as u64 { ", …" } else { "" };
    let ids = if ids.is_empty() { String::new() } else { format!(" (_id: {}{more})", ids.join(", ")) };
    let message = format!("`{name}`: {documents} of {collection} {}{ids}: {}", check.found, check.consequence);
    let warning = Diagnostic::warning(Code::StoredDocuments, rule.name.span, message);
    match &check.backfill {
        None => warning,
        Some(backfill) => {
            let sets = match backfill {
                Backfill::Update { what, .. } | Backfill::Computed { what, .. } => format!("sets {what}"),
                Backfill::Counter => "raises the counter".to_owned(),
                Backfill::Copies => "corrects them".to_owned(),
            };
            warning.help(format!("docward backfill {name} {sets}"))
        }
    }
}

fn id_text(id: &bson::Bson) -> String {
    let Ok(bytes) = bson::RawDocumentBuf::try_from(&bson::doc! {"_id": id}) else { return id.to_string() };
    let parsed = Document::parse(bytes.as_bytes()).ok().and_then(|document| document.get("_id"));
    parsed.map_or_else(|| id.to_string(), value_text)
}
