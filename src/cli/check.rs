//! `docward check`: loads rules, and a configuration file, as `serve` would, and shows every mistake; with
//! `--upstream` also what the deployment lacks, with `--coverage` what each rule makes of every command that can
//! reach its collections.

mod coverage;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tokio::runtime::Builder;

use super::config::ConfigFile;
use super::{Format, values};
use crate::patterns::RuleSet;
use crate::proxy::ListenerTls;
use crate::rules::{Diagnostic, Report};
use crate::service::inspection::inspect;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Rule files, or folders of them.
    #[arg(value_name = "PATH", required_unless_present = "config")]
    paths: Vec<PathBuf>,
    /// Configuration file of serve; its rules and certificates are checked too.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Look at this deployment too: for collections that rules name, and indexes that they need.
    #[arg(long, value_name = "URI", value_parser = values::connection_string)]
    upstream: Option<String>,
    /// Connection string for that look [default: upstream, without its credentials].
    #[arg(long, value_name = "URI", value_parser = values::connection_string, requires = "upstream")]
    service: Option<String>,
    /// Name server that mongodb+srv:// names are looked up at [default: the system's].
    #[arg(long, value_name = "ADDR", value_parser = values::address, requires = "upstream")]
    resolver: Option<SocketAddr>,
    /// For people, or a JSON list for editors and CI: of diagnostics, or with --coverage of what rules cover.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Show what each rule makes of every command that can reach its collections.
    #[arg(long)]
    coverage: bool,
}

/// 0 when everything loads, whatever it warns of; 1 when it does not, or the deployment cannot be asked.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let mut paths = arguments.paths.clone();
    let mut reports = Vec::new();
    let mut fine;
    let mut settings = ConfigFile::default();
    match arguments.config.as_deref().map(ConfigFile::read).transpose() {
        Ok(config) => {
            settings = config.unwrap_or_default();
            fine = certificates_load(&settings) & admin_is_safe(&settings);
            paths.extend(settings.rules.clone());
        }
        Err(report) => {
            fine = false;
            reports.push(report);
        }
    }
    let loaded = RuleSet::load(&paths);
    fine &= loaded.is_ok();
    reports.push(match &loaded {
        Ok(rules) => rules.warnings().clone(),
        Err(report) => report.clone(),
    });
    if let (Some(upstream), Ok(rules)) = (&arguments.upstream, &loaded) {
        let settings = ConfigFile {
            upstream: Some(upstream.clone()),
            service: arguments.service.clone().or(settings.service),
            resolver: arguments.resolver.or(settings.resolver),
            ..ConfigFile::default()
        };
        match look(&settings, rules) {
            Ok(found) => reports.push(Report::new(found, rules.sources().clone())),
            Err(error) => {
                fine = false;
                eprintln!("docward: the deployment cannot be asked: {error:#}");
            }
        }
    }
    match (arguments.format, &loaded) {
        (Format::Json, Ok(rules)) if arguments.coverage && fine => println!("{}", coverage::json(rules)),
        (Format::Json, _) => println!("{}", to_json(&reports)),
        (Format::Text, loaded) => {
            reports.iter().for_each(show);
            if let Ok(rules) = loaded {
                if arguments.coverage {
                    print!("{}", coverage::text(rules));
                }
                println!("{} rules are fine (set {})", rules.rules().len(), rules.hash());
            }
        }
    }
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What the deployment lacks.
fn look(settings: &ConfigFile, rules: &RuleSet) -> anyhow::Result<Vec<Diagnostic>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let service = settings.connect().await?;
        inspect(&service, rules).await.map_err(anyhow::Error::msg)
    })
}

/// Certificates have no place in a diagnostic; what is wrong with them names their file.
fn certificates_load(config: &ConfigFile) -> bool {
    let loaded = config.tls.clone().files().and_then(|files| Ok(files.map(ListenerTls::load).transpose()?));
    if let Err(error) = &loaded {
        eprintln!("docward: tls: {error:#}");
    }
    loaded.is_ok()
}

fn admin_is_safe(config: &ConfigFile) -> bool {
    let settings = config.admin.settings();
    if let Err(error) = &settings {
        eprintln!("docward: admin: {error:#}");
    }
    settings.is_ok()
}

fn to_json(reports: &[Report]) -> serde_json::Value {
    let lists = reports.iter().map(Report::to_json);
    lists.flat_map(|list| if let serde_json::Value::Array(list) = list { list } else { Vec::new() }).collect()
}

fn show(report: &Report) {
    if !report.is_empty() {
        eprint!("{}", report.render(std::io::stderr().is_terminal()));
    }
}
