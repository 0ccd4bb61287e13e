//! `docward mode`: overrides the mode of one or all rules for a limited time, without a change of the rule files.
//!
//! With a service connection the override is stored in MongoDB, and all docward processes follow it; no docward has to
//! run. Without one, the admin address of one process is asked, and only that process has the override.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use tokio::runtime::Builder;

use super::admin_client::{self, AdminRequest, HttpReply};
use super::config_file::{AdminKeys, ConfigFile};
use super::connection::{ConnectionOptions, exit_code, find_rule};
use super::explain::milliseconds_now;
use super::output::print;
use super::{EXIT_USAGE, fail, load_rules, logging, values, words};
use crate::admin::{ChangedModes, ChangedRule, ModeRequest, Settings};
use crate::proxy::OverriddenMode;
use crate::rules::{ClientGlobs, ClientNames, Mode, ModeOverride, ModeOverrides, Rule, RuleSet};
use crate::service::{MongoService, ServerTime, modes};
use crate::shell::iso;
use crate::text::plural;

/// The longest override; for a longer time, the rule file is the right place.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// That of a rule that is not loaded.
const UNKNOWN_MODE: &str = "?";
/// The longest reason or name in bytes.
const LONGEST_TEXT: usize = 500;

/// The command line.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Name of the rule.
    #[arg(required_unless_present_any = ["list", "all"])]
    rule: Option<String>,
    /// The mode to use instead of the one in the rule file.
    #[arg(value_parser = Mode::ALL.map(Mode::as_str), required_unless_present_any = ["list", "clear", "all"], requires = "length", requires = "reason")]
    mode: Option<String>,
    /// Override the modes of all rules that are not disabled in their files, or with --clear end all overrides. Shows first
    /// what that means.
    #[arg(long, value_parser = Mode::ALL.map(Mode::as_str), value_name = "MODE", num_args = 0..=1, conflicts_with_all = ["rule", "list"])]
    all: Option<Option<String>>,
    /// Do not ask for confirmation of --all.
    #[arg(long, requires = "all")]
    yes: bool,
    /// How long, such as 2h; then the mode in the rule file applies again. At most 30d.
    #[arg(long = "for", value_name = "TIME", value_parser = length)]
    length: Option<String>,
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

/// The text of a duration, as typed.
fn length(text: &str) -> Result<String, String> {
    values::duration(text).map(|_| text.to_owned())
}

/// A requested change of modes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModeChange {
    /// `None`: all rules.
    rule: Option<String>,
    /// `None`: the overrides are to end.
    pub(super) wanted: Option<WantedMode>,
}

/// The mode to use, with its clients, duration, reason and author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedMode {
    mode: Mode,
    only: ClientGlobs,
    length: Duration,
    reason: String,
    by: String,
}

/// The effect of a change.
#[derive(Debug)]
pub(super) struct ModeResult {
    /// One of the overrides; `None`: they ended, or it was a dry run.
    pub(super) found: Option<Arc<ModeOverride>>,
    /// Why only this process has it.
    pub(super) note: Option<String>,
    pub(super) changed: ChangedModes,
}

impl WantedMode {
    fn to_override(&self, until: u64, shared: bool) -> ModeOverride {
        let Self { mode, only, length: _, reason, by } = self.clone();
        ModeOverride { mode, only, until, reason, by, shared }
    }

    /// An override of each rule that only this process has.
    pub(super) fn local(&self, rules: &[String]) -> ModeOverrides {
        let length = u64::try_from(self.length.as_millis()).unwrap_or(u64::MAX);
        let until = u64::try_from(milliseconds_now()).unwrap_or_default().saturating_add(length);
        let found = Arc::new(self.to_override(until, false));
        rules.iter().map(|rule| (rule.clone(), found.clone())).collect()
    }

    /// Whether the mode of `rule` must be overridden, so that all rules have this mode that their files do not disable and that
    /// apply to clients.
    fn changes(&self, rule: &Rule, is_overridden: bool) -> bool {
        let applies = rule.file_mode != Mode::Disabled && (self.only.is_empty() || !rule.properties.only_names);
        applies && (rule.file_mode != self.mode || is_overridden)
    }
}

impl ModeChange {
    /// # Errors
    /// A message for the user: what is wrong with the request.
    pub(super) fn parse(request: ModeRequest) -> Result<Self, String> {
        let ModeRequest { rule, all, dry_run: _, mode, only, length, reason, by } = request;
        if rule.is_some() == all {
            return Err("give either `rule` or `all`".to_owned());
        }
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

    /// Returns what it changes; `overrides` are those in force.
    ///
    /// # Errors
    /// A message for the user: there is no such rule or override, or the rules would contradict each other.
    pub(super) fn dry_run(&self, rules: &RuleSet, overrides: &ModeOverrides) -> Result<ChangedModes, String> {
        let names = self.names(rules, overrides)?;
        if let Some(wanted) = &self.wanted {
            let mut all = overrides.clone();
            all.extend(wanted.local(&names));
            rules.with_overrides(&all).map_err(|report| report.render(false))?;
        }
        let is_off = self.wanted.as_ref().is_some_and(|wanted| wanted.mode != Mode::Enforce);
        let loaded: HashMap<&str, &Rule> = rules.rules().iter().map(|rule| (&*rule.name.value as &str, rule)).collect();
        let ended = |name: &String| {
            let file_mode = loaded.get(name.as_str()).map_or(UNKNOWN_MODE, |rule| rule.file_mode.as_str());
            Some(words::overridden(name, &OverriddenMode::new(overrides.get(name)?, file_mode)))
        };
        let ended = names.iter().filter_map(ended).collect();
        let changed = |name: String| {
            let pattern = loaded.get(name.as_str()).map(|rule| &rule.pattern);
            let when_off = pattern.filter(|_| is_off).map(|pattern| pattern.when_off().to_owned());
            ChangedRule { pattern: pattern.map(|pattern| pattern.name().to_owned()), when_off, rule: name }
        };
        Ok(ChangedModes { ended, rules: names.into_iter().map(changed).collect() })
    }

    /// The rules whose overrides begin or end.
    fn names(&self, rules: &RuleSet, overrides: &ModeOverrides) -> Result<Vec<String>, String> {
        let loaded = || rules.rules().iter();
        match (&self.rule, &self.wanted) {
            (Some(rule), None) if overrides.contains_key(rule) => Ok(vec![rule.clone()]),
            (Some(rule), wanted) => {
                find_rule(rules, rule)?;
                match wanted {
                    Some(_) => Ok(vec![rule.clone()]),
                    None => Err(format!("the mode of `{rule}` is not overridden")),
                }
            }
            (None, Some(wanted)) => {
                let changed = loaded().map(|rule| (rule, rule.name.value.to_string()));
                let changed = changed.filter(|(rule, name)| wanted.changes(rule, overrides.contains_key(name)));
                let names: Vec<String> = changed.map(|(_, name)| name).collect();
                let mode = wanted.mode.as_str();
                let none =
                    || format!("every loaded rule is disabled or has the mode {mode} in its file, and no override");
                if names.is_empty() { Err(none()) } else { Ok(names) }
            }
            (None, None) => {
                let names = loaded().map(|rule| rule.name.value.to_string());
                let names: Vec<String> = names.filter(|name| overrides.contains_key(name)).collect();
                if names.is_empty() { Err("no loaded rule's mode is overridden".to_owned()) } else { Ok(names) }
            }
        }
    }

    /// Stores the overrides of these rules in MongoDB.
    ///
    /// # Errors
    /// The server or network error as text.
    pub(super) async fn store(
        wanted: &WantedMode,
        rules: &[String],
        service: &MongoService,
    ) -> Result<(ModeOverrides, ServerTime), String> {
        modes::set(service, rules, &wanted.to_override(u64::MAX, true), wanted.length).await
    }
}

/// Exits with 0 if overrides were set, ended or listed; with 1 if not.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let settings = match arguments.connection.settings() {
        Ok(settings) => settings,
        Err(report) => {
            logging::show(&report);
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let request = match arguments.request() {
        Ok(request) => request,
        Err(reason) => return fail(&reason, EXIT_USAGE),
    };
    let admin = match arguments.admin(&settings) {
        Ok(admin) => admin,
        Err(reason) => return fail(&reason, EXIT_USAGE),
    };
    let confirm = |announcement: &str| confirm(announcement, arguments.yes);
    let done = match admin {
        Some(admin) => ask_process(&admin, request, confirm),
        None => match use_database(settings, request, confirm) {
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
    ///
    /// # Errors
    /// A message for the user: `--all` needs a mode or `--clear`.
    fn request(&self) -> Result<Option<ModeRequest>, String> {
        if self.list {
            return Ok(None);
        }
        let mode = self.mode.clone().or_else(|| self.all.clone().flatten());
        if mode.is_some() == self.clear {
            return Err("--all: write a mode, as in `--all shadow`, or --clear".to_owned());
        }
        let only = ClientNames { apps: self.apps.clone(), users: self.users.clone() };
        Ok(Some(ModeRequest {
            rule: self.rule.clone(),
            all: self.all.is_some(),
            dry_run: false,
            mode,
            only,
            length: self.length.clone(),
            reason: self.reason.clone(),
            by: Some(user_and_host()),
        }))
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

/// Asks the docward process at this address. `confirm` gets what a change means.
fn ask_process(
    admin: &Settings,
    request: Option<ModeRequest>,
    confirm: impl Fn(&str) -> Result<(), String>,
) -> Result<String, String> {
    let Some(request) = request else {
        let mut reply = ask(admin, None)?;
        let rows = serde_json::from_value(reply["overrides"].take());
        let unreadable = |error| format!("docward at {} is of another version: {error}", admin.address);
        return rows.map(|rows: Vec<Row>| table(&rows)).map_err(unreadable);
    };
    let changed = |reply: &Value| serde_json::from_value::<ChangedModes>(reply.clone()).unwrap_or_default();
    if request.all {
        confirm(&announcement(
            &request,
            &changed(&ask(admin, Some(&ModeRequest { dry_run: true, ..request.clone() }))?),
        ))?;
    }
    let reply = ask(admin, Some(&request))?;
    let until = reply["until"].as_u64().map(|until| (until, reply["shared"] == true));
    Ok(confirmation(&request, &changed(&reply), until, reply["note"].as_str()))
}

/// Sends a request, or asks for the list.
fn ask(admin: &Settings, request: Option<&ModeRequest>) -> Result<Value, String> {
    let body = request.and_then(|request| serde_json::to_string(request).ok());
    let sent = AdminRequest { path: "/api/modes", token: admin.token.as_ref(), body: body.as_deref() };
    let HttpReply { status, body } = admin_client::send(admin.address, &sent)?;
    let reply: Value = serde_json::from_str(&body).unwrap_or_default();
    if status == 200 {
        return Ok(reply);
    }
    let reason = reply["error"].as_str().map_or_else(|| body.trim().to_owned(), str::to_owned);
    Err(format!("docward at {} returned {status}: {reason}", admin.address))
}

/// Reads or changes `docward.modes`.
///
/// # Errors
/// The exit code, after printing.
fn use_database(
    settings: ConfigFile,
    request: Option<ModeRequest>,
    confirm: impl Fn(&str) -> Result<(), String>,
) -> Result<Result<String, String>, ExitCode> {
    let rules = load_rules(&settings.rules)?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| fail(&format!("cannot start the runtime: {error}"), 1))?;
    runtime.block_on(async {
        let service = settings.connect().await.map_err(|error| fail(&format!("{error:#}"), exit_code(&error)))?;
        Ok(match request {
            None => list(&service, &rules).await,
            Some(request) => change(&service, &rules, request, confirm).await,
        })
    })
}

async fn list(service: &MongoService, rules: &RuleSet) -> Result<String, String> {
    let found = modes::load_overrides(service).await?.overrides;
    let row = |(rule, found): (String, Arc<ModeOverride>)| Row {
        found: OverriddenMode::new(&found, file_mode(rules, &rule)),
        rule,
    };
    Ok(table(&found.into_iter().map(row).collect::<Vec<_>>()))
}

async fn change(
    service: &MongoService,
    rules: &RuleSet,
    request: ModeRequest,
    confirm: impl Fn(&str) -> Result<(), String>,
) -> Result<String, String> {
    let change = ModeChange::parse(request.clone())?;
    let changed = change.dry_run(rules, &modes::load_overrides(service).await?.overrides)?;
    if request.all {
        confirm(&announcement(&request, &changed))?;
    }
    let names: Vec<String> = changed.rules.iter().map(|changed| changed.rule.clone()).collect();
    let until = match &change.wanted {
        None => {
            modes::clear(service, &names).await?;
            None
        }
        Some(wanted) => ModeChange::store(wanted, &names, service).await?.0.values().next().map(|found| found.until),
    };
    Ok(confirmation(&request, &changed, until.map(|until| (until, true)), None))
}

/// What a change of all rules means, before it is done.
fn announcement(request: &ModeRequest, changed: &ChangedModes) -> String {
    let ModeRequest { mode, only, length, .. } = request;
    let count = plural(changed.rules.len() as u64, "rule");
    let mut out = match mode {
        None => format!("The overrides of {count} end; the modes in the rule files apply:\n"),
        Some(mode) => {
            let (only, length) = (only.after(" for "), length.as_deref().unwrap_or_default());
            format!("Mode {mode}{only}, for {length}, of {count}:\n")
        }
    };
    let mut by_pattern: Vec<(&ChangedRule, Vec<&str>)> = Vec::new();
    for rule in &changed.rules {
        match by_pattern.iter_mut().find(|(first, _)| first.pattern == rule.pattern) {
            Some((_, names)) => names.push(&rule.rule),
            None => by_pattern.push((rule, vec![&rule.rule])),
        }
    }
    for (ChangedRule { pattern, when_off, .. }, names) in by_pattern {
        let (pattern, names) = (pattern.as_deref().unwrap_or("not loaded here"), names.join(", "));
        let when_off = when_off.as_ref().map(|text| format!("\n    {text}")).unwrap_or_default();
        let _ = writeln!(out, "  {pattern}: {names}{when_off}");
    }
    if !changed.ended.is_empty() {
        let _ = writeln!(out, "These overrides end with that:\n  {}", changed.ended.join("\n  "));
    }
    out
}

/// Prints what a change means, and asks on a terminal unless it is confirmed already.
///
/// # Errors
/// The change is not confirmed.
fn confirm(announcement: &str, is_confirmed: bool) -> Result<(), String> {
    logging::print_question(announcement);
    if is_confirmed {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err("nothing is changed: give --yes to confirm, because stdin is not a terminal".to_owned());
    }
    logging::print_question("Continue? [y/N] ");
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    let is_yes = read.is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str());
    if is_yes { Ok(()) } else { Err("nothing is changed".to_owned()) }
}

/// What was done; `until` is that of the overrides, and whether all processes have them.
fn confirmation(
    request: &ModeRequest,
    changed: &ChangedModes,
    until: Option<(u64, bool)>,
    note: Option<&str>,
) -> String {
    let (only, mode) = (&request.only, request.mode.as_deref().unwrap_or_default());
    let clients = only.after(" for ");
    let what = request.rule.clone().unwrap_or_else(|| plural(changed.rules.len() as u64, "rule"));
    let ended = changed.ended.iter().filter(|_| request.mode.is_some()).map(|ended| format!("replaced: {ended}\n"));
    let done = match until {
        None if request.all => format!("{what}: the overrides ended; the modes in the rule files apply\n"),
        None => format!("{what}: the override ended; the mode in the rule file applies\n"),
        Some((until, true)) => {
            let until = shown_time(until);
            // `ANNOUNCED`, for some patterns: also if a rule is enforced again for the clients of an earlier override.
            let seconds = if mode == "enforce" || !only.is_empty() { 5 } else { 2 };
            format!(
                "{what}: {mode}{clients} until {until}; every docward of the deployment follows within {seconds} s\n"
            )
        }
        Some((until, false)) => {
            let (until, note) = (shown_time(until), note.unwrap_or_default());
            format!("{what}: {mode}{clients} until {until}, only in this process and until it restarts: {note}\n")
        }
    };
    done + &ended.collect::<String>()
}

#[derive(Deserialize)]
struct Row {
    rule: String,
    #[serde(flatten)]
    found: OverriddenMode,
}

/// One line for each override.
fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no rule's mode is overridden\n".to_owned();
    }
    let width = rows.iter().map(|row| row.rule.len()).max().unwrap_or_default().max(4);
    let mut out = format!("{:width$}  {:8}  {:8}  {:24}  by, reason\n", "rule", "mode", "file", "until");
    for Row { rule, found: OverriddenMode { mode, only, file_mode, until, by, reason, shared } } in rows {
        let only = only.after("; only for ");
        let process = if *shared { "" } else { " (only in this process)" };
        let until = shown_time(*until);
        let _ = writeln!(out, "{rule:width$}  {mode:8}  {file_mode:8}  {until:24}  {by}: {reason}{only}{process}");
    }
    out
}

/// The mode in the rule file.
fn file_mode(rules: &RuleSet, name: &str) -> &'static str {
    rules.rules().iter().find(|rule| *rule.name.value == *name).map_or(UNKNOWN_MODE, |rule| rule.file_mode.as_str())
}

/// `ada@db1`; `uid 1000@db1` if the environment does not name the user.
pub(super) fn user_and_host() -> String {
    let named = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    let user = named.unwrap_or_else(|_| format!("uid {}", rustix::process::getuid().as_raw()));
    format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
}

/// `2026-11-23T15:04:05.000Z`
pub(super) fn shown_time(milliseconds: u64) -> String {
    iso(i64::try_from(milliseconds).unwrap_or(i64::MAX))
}
