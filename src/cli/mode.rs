//! `docward mode`: overrides the mode of a rule for a limited time, without a change of the rule files.
//!
//! With a service connection the override is stored in MongoDB, and all docward processes follow it; no docward has to
//! run. Without one, the admin address of one process is asked, and only that process has the override.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::Value;
use tokio::runtime::Builder;

use super::admin_client::{self, AdminRequest, HttpReply};
use super::config_file::{AdminKeys, ConfigFile};
use super::connection::{ConnectionOptions, exit_code, find_rule};
use super::output::print;
use super::{EXIT_USAGE, fail, load_rules, logging, values};
use crate::admin::{ModeRequest, Settings};
use crate::rules::{ClientGlobs, ClientNames, Mode, ModeOverride, RuleSet};
use crate::service::{MongoService, ServerTime, modes};

/// The longest override; for a longer time, the rule file is the right place.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// The longest reason or name in bytes.
const LONGEST_TEXT: usize = 500;

/// The command line.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Name of the rule.
    #[arg(required_unless_present = "list")]
    rule: Option<String>,
    /// The mode to use instead of the one in the rule file.
    #[arg(value_enum, required_unless_present_any = ["list", "clear"], requires = "length", requires = "reason")]
    mode: Option<ModeWord>,
    /// How long, such as 2h; then the mode in the rule file applies again. At most 30d.
    #[arg(long = "for", value_name = "TIME", value_parser = values::duration)]
    length: Option<Duration>,
    /// Only for clients with this application name (appName), a glob such as promo-*; repeatable. The mode in the rule file
    /// applies to the others.
    #[arg(long = "app", value_name = "GLOB", conflicts_with_all = ["clear", "list"])]
    apps: Vec<String>,
    /// Only for clients that are authenticated as this user, a glob such as admin.ada; repeatable. Beside --app: these too.
    #[arg(long = "user", value_name = "AUTHDB.USER", conflicts_with_all = ["clear", "list"])]
    users: Vec<String>,
    /// Why. Shown wherever the rule is shown.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// End the override now.
    #[arg(long, conflicts_with_all = ["mode", "list"])]
    clear: bool,
    /// List the overrides.
    #[arg(long, conflicts_with = "rule")]
    list: bool,
    /// Ask the docward process with this admin address, instead of MongoDB.
    #[arg(long, value_name = "ADDR", value_parser = values::address)]
    admin: Option<SocketAddr>,
    /// File with the token of the admin address.
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    #[command(flatten)]
    connection: ConnectionOptions,
}

/// A mode on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeWord {
    Enforce,
    Shadow,
    Disabled,
}

/// A requested change of one rule's mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModeChange {
    pub(super) rule: String,
    /// `None`: the override is to end.
    pub(super) wanted: Option<WantedMode>,
}

/// The mode to use, with its clients, duration, reason and author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedMode {
    pub(super) mode: Mode,
    pub(super) only: ClientGlobs,
    pub(super) length: Duration,
    pub(super) reason: String,
    pub(super) by: String,
}

/// The effect of a change.
#[derive(Debug)]
pub(super) struct ModeResult {
    /// The override; `None`: it ended.
    pub(super) found: Option<Arc<ModeOverride>>,
    /// Why only this process has it.
    pub(super) note: Option<String>,
}

impl WantedMode {
    pub(super) fn to_override(&self, until: u64, shared: bool) -> ModeOverride {
        let Self { mode, only, length: _, reason, by } = self.clone();
        ModeOverride { mode, only, until, reason, by, shared }
    }
}

impl ModeChange {
    /// # Errors
    /// A message for the user: what is wrong with the request.
    pub(super) fn parse(request: ModeRequest) -> Result<Self, String> {
        let ModeRequest { rule, mode, only, length, reason, by } = request;
        let Some(mode) = mode else {
            return match only.is_empty() {
                true => Ok(Self { rule, wanted: None }),
                false => Err("`only`: an override ends for all its clients".to_owned()),
            };
        };
        let only = ClientGlobs::parse(&only)?;
        let mode = Mode::parse(&mode).ok_or_else(|| format!("`{mode}`: write enforce, shadow or disabled"))?;
        let length = length.ok_or("`for` is missing: how long, for example 2h")?;
        let length = values::duration(&length).map_err(|error| format!("`for`: {error}"))?;
        if length.is_zero() || length > LONGEST {
            return Err("`for`: an override lasts at most 30d; for a longer time, change the rule file".to_owned());
        }
        let reason = reason.map(|reason| reason.trim().to_owned()).filter(|reason| !reason.is_empty());
        let reason = reason.ok_or("`reason` is missing: why the mode is overridden")?;
        let by = by.unwrap_or_else(|| "unknown".to_owned());
        if reason.len() > LONGEST_TEXT || by.len() > LONGEST_TEXT {
            return Err(format!("`reason` has at most {LONGEST_TEXT} bytes"));
        }
        Ok(Self { rule, wanted: Some(WantedMode { mode, only, length, reason, by }) })
    }

    /// Stores the override in MongoDB.
    ///
    /// # Errors
    /// The server or network error as text.
    pub(super) async fn store(
        wanted: &WantedMode,
        rule: &str,
        service: &MongoService,
    ) -> Result<(ModeOverride, ServerTime), String> {
        modes::set(service, rule, &wanted.to_override(u64::MAX, true), wanted.length).await
    }
}

/// Exits with 0 if the override was set, ended or listed; with 1 if not.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let settings = match arguments.connection.settings() {
        Ok(settings) => settings,
        Err(report) => {
            logging::show(&report);
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let request = arguments.request();
    let admin = match arguments.admin(&settings) {
        Ok(admin) => admin,
        Err(reason) => return fail(&reason, EXIT_USAGE),
    };
    let done = match admin {
        Some(admin) => ask_process(&admin, request),
        None => match use_database(settings, request) {
            Ok(done) => done,
            Err(code) => return code,
        },
    };
    match done {
        Ok(text) => print(text.as_bytes()).into(),
        Err(reason) => fail(&reason, 1),
    }
}

impl Arguments {
    /// `None`: list the overrides.
    fn request(&self) -> Option<ModeRequest> {
        let rule = self.rule.clone()?;
        let word = self.mode.and_then(|mode| mode.to_possible_value()).map(|word| word.get_name().to_owned());
        let length = self.length.map(|length| format!("{}ms", length.as_millis()));
        let only = ClientNames { apps: self.apps.clone(), users: self.users.clone() };
        Some(ModeRequest { rule, mode: word, only, length, reason: self.reason.clone(), by: Some(user_and_host()) })
    }

    /// The admin address to ask; `None`: the overrides are in MongoDB.
    ///
    /// # Errors
    /// A message for the user.
    fn admin(&self, file: &ConfigFile) -> Result<Option<Settings>, String> {
        if self.admin.is_none() && file.service.is_some() {
            return Ok(None);
        }
        let keys = AdminKeys {
            address: self
                .admin
                .map(|address| values::AdminAddress { address, name: None })
                .or(file.admin.address.clone()),
            token: file.admin.token.clone().filter(|_| self.admin_token_file.is_none()),
            token_file: self.admin_token_file.clone(),
        };
        let settings = keys.settings().map_err(|error| format!("{error:#}"))?;
        settings.map(Some).ok_or_else(|| {
            "overrides are kept in MongoDB or in one docward process: give --service (service: in docward.yaml), or \
             --admin and --admin-token-file"
                .to_owned()
        })
    }
}

/// Asks the docward process at this address.
fn ask_process(admin: &Settings, request: Option<ModeRequest>) -> Result<String, String> {
    let body = request.as_ref().and_then(|request| serde_json::to_string(request).ok());
    let token = admin.token.as_ref();
    let sent = AdminRequest { path: "/api/modes", token, body: body.as_deref() };
    let HttpReply { status, body } = admin_client::send(admin.address, &sent)?;
    let reply: Value = serde_json::from_str(&body).unwrap_or_default();
    if status != 200 {
        let reason = reply["error"].as_str().map_or_else(|| body.trim().to_owned(), str::to_owned);
        return Err(format!("docward at {} returned {status}: {reason}", admin.address));
    }
    match request {
        None => {
            let rows = reply["overrides"].as_array().map(Vec::as_slice).unwrap_or_default().iter();
            let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
            Ok(table(rows.map(|row| Row {
                rule: text(row, "rule"),
                mode: text(row, "mode"),
                only: serde_json::from_value(row["only"].clone()).unwrap_or_default(),
                file_mode: text(row, "file_mode"),
                until: row["until"].as_u64().unwrap_or_default(),
                by: text(row, "by"),
                reason: text(row, "reason"),
                shared: row["shared"].as_bool().unwrap_or_default(),
            })))
        }
        Some(request) => {
            let until = reply["until"].as_u64();
            let note = reply["note"].as_str();
            Ok(confirmation(&request, until.map(|until| (until, reply["shared"] == true)), note))
        }
    }
}

/// Reads or changes `docward.modes`.
///
/// # Errors
/// The exit code, after printing.
fn use_database(settings: ConfigFile, request: Option<ModeRequest>) -> Result<Result<String, String>, ExitCode> {
    let rules = load_rules(&settings.rules)?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| fail(&format!("cannot start the runtime: {error}"), 1))?;
    runtime.block_on(async {
        let service = settings.connect().await.map_err(|error| fail(&format!("{error:#}"), exit_code(&error)))?;
        Ok(match request {
            None => list(&service, &rules).await,
            Some(request) => change(&service, &rules, request).await,
        })
    })
}

async fn list(service: &MongoService, rules: &RuleSet) -> Result<String, String> {
    let found = modes::load_overrides(service).await?.overrides;
    Ok(table(found.into_iter().map(|(rule, found)| Row {
        mode: found.mode.as_str().to_owned(),
        only: found.only.names(),
        file_mode: file_mode(rules, &rule).to_owned(),
        until: found.until,
        by: found.by.clone(),
        reason: found.reason.clone(),
        shared: true,
        rule,
    })))
}

async fn change(service: &MongoService, rules: &RuleSet, request: ModeRequest) -> Result<String, String> {
    let change = ModeChange::parse(request.clone())?;
    let Some(wanted) = &change.wanted else {
        return match modes::clear(service, &change.rule).await? {
            true => Ok(confirmation(&request, None, None)),
            false => Err(format!("the mode of `{}` is not overridden", change.rule)),
        };
    };
    find_rule(rules, &change.rule)?;
    let mut all = modes::load_overrides(service).await?.overrides;
    all.insert(change.rule.clone(), Arc::new(wanted.to_override(u64::MAX, true)));
    rules.with_overrides(&all).map_err(|report| report.render(false))?;
    let (stored, _) = ModeChange::store(wanted, &change.rule, service).await?;
    Ok(confirmation(&request, Some((stored.until, true)), None))
}

/// What was done; `until` is that of the override, and whether all processes have it.
fn confirmation(request: &ModeRequest, until: Option<(u64, bool)>, note: Option<&str>) -> String {
    let (rule, only, mode) = (&request.rule, &request.only, request.mode.as_deref().unwrap_or_default());
    let clients = only.after(" for ");
    match until {
        None => format!("{rule}: the override ended; the mode in the rule file applies\n"),
        Some((until, true)) => {
            let until = shown_time(until);
            // `ANNOUNCED`, for some patterns: also if a rule is enforced again for the clients of an earlier override.
            let seconds = if mode == "enforce" || !only.is_empty() { 5 } else { 2 };
            format!(
                "{rule}: {mode}{clients} until {until}; every docward of the deployment follows within {seconds} s\n"
            )
        }
        Some((until, false)) => {
            let (until, note) = (shown_time(until), note.unwrap_or_default());
            format!("{rule}: {mode}{clients} until {until}, only in this process and until it restarts: {note}\n")
        }
    }
}

struct Row {
    rule: String,
    mode: String,
    only: ClientNames,
    file_mode: String,
    until: u64,
    by: String,
    reason: String,
    shared: bool,
}

/// One line for each override.
fn table(rows: impl Iterator<Item = Row>) -> String {
    let rows: Vec<Row> = rows.collect();
    if rows.is_empty() {
        return "no rule's mode is overridden\n".to_owned();
    }
    let width = rows.iter().map(|row| row.rule.len()).max().unwrap_or_default().max(4);
    let mut out = format!("{:width$}  {:8}  {:8}  {:24}  by, reason\n", "rule", "mode", "file", "until");
    for Row { rule, mode, only, file_mode, until, by, reason, shared } in rows {
        let only = only.after("; only for ");
        let process = if shared { "" } else { " (only in this process)" };
        let until = shown_time(until);
        let _ = writeln!(out, "{rule:width$}  {mode:8}  {file_mode:8}  {until:24}  {by}: {reason}{only}{process}");
    }
    out
}

/// The mode in the rule file; `?` if the rule is not loaded.
fn file_mode(rules: &RuleSet, name: &str) -> &'static str {
    rules.rules().iter().find(|rule| *rule.name.value == *name).map_or("?", |rule| rule.file_mode.as_str())
}

/// `ada@db1`; `uid 1000@db1` if the environment does not name the user.
pub(super) fn user_and_host() -> String {
    let named = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    let user = named.unwrap_or_else(|_| format!("uid {}", rustix::process::getuid().as_raw()));
    format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
}

/// `2026-11-23T15:04:05.000Z`
pub(super) fn shown_time(milliseconds: u64) -> String {
    let time = bson::DateTime::from_millis(i64::try_from(milliseconds).unwrap_or(i64::MAX));
    time.try_to_rfc3339_string().unwrap_or_else(|_| milliseconds.to_string())
}
