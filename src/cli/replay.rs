//! `docward replay`: sends recorded traffic to a deployment, or to two, and reports throughput, latencies, errors and
//! differences. [`crate::replay`] plans the actions, [`crate::player`] sends them; this file reads files and prints.

mod progress;
mod source;

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use tokio::runtime::Builder;

use self::progress::ProgressDisplay;
use self::source::{ActionReader, RecordedDeployment};
use super::config_file::ConfigFile;
use super::connection::start;
use super::explain::milliseconds_now;
use super::output::print;
use super::typed::Unquoted;
use super::{EXIT_USAGE, Format, fail, logging, values};
use crate::audit::shape;
use crate::player::{Pace, Player, ReplayTarget, stored};
use crate::replay::report::{ReplayReport, ReportedRules, TargetReport, to_html, to_json, to_text};
use crate::replay::{Action, Comparison, Recorded, RuleFields, Speed, TargetReply};
use crate::rules::RuleSet;
use crate::service::ConnectionString;
use crate::text::plural;

/// Rounds of a comparison: the targets take turns, so that a disturbance does not affect only one of them.
const ROUNDS: u64 = 20;
/// Actions by which a round is extended at most, so that it does not end within a transaction.
const EXTENSION: u64 = 1_000;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Captures of docward record; also mongod's log, or system.profile as JSON. gzip is detected.
    #[arg(value_name = "CAPTURE", required = true)]
    files: Vec<PathBuf>,
    /// Connection string of the deployment, or of a docward, that the traffic is sent to. Its data are changed.
    #[arg(long, value_name = "URI", value_parser = Unquoted(values::connection_string))]
    to: ConnectionString,
    /// 1x for the recorded times, 4x for four times as fast, max for no pauses.
    #[arg(long, value_name = "SPEED", value_parser = speed, default_value = "1x")]
    speed: Speed,
    /// Use at most this many connections at a time [default: one for each recorded connection].
    #[arg(long, value_name = "N", value_parser = values::count)]
    connections: Option<usize>,
    /// A second target with data of its own: send the same traffic to both in turns, and compare replies and stored
    /// documents.
    #[arg(long, value_name = "URI", value_parser = Unquoted(values::connection_string))]
    compare: Option<ConnectionString>,
    /// Rule file, or folder of rule files, of the docward that is a target: the report names them, and a comparison does
    /// not look at the fields that docward writes for them. Can be repeated.
    #[arg(long, value_name = "PATH")]
    rules: Vec<PathBuf>,
    /// Write a page with charts to this file.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Format of the result: text, or JSON for programs.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Also replay to the deployment that was recorded, or if the files do not show which one that was.
    #[arg(long)]
    allow_same_deployment: bool,
    /// Name server for mongodb+srv:// names [default: the system's].
    #[arg(long, value_name = "ADDR", value_parser = values::address)]
    resolver: Option<SocketAddr>,
}

fn speed(text: &str) -> Result<Speed, String> {
    Speed::parse(text).ok_or_else(|| "write 1x, 4x or another factor, or max".to_owned())
}

/// Exits with 0 if everything was played, and with `--compare` nothing differs; with 2 if something differs; with 1 if the
/// replay ended early.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let settings = ConfigFile { rules: arguments.rules.clone(), ..ConfigFile::default() };
    start(Ok(settings), Builder::new_multi_thread(), async |_, rules| match replay(arguments, &rules).await {
        Ok(report) => conclude(arguments, &report),
        Err(ReplayFailure::Usage(text)) => fail(&text, EXIT_USAGE),
        Err(ReplayFailure::Other(error)) => fail(&format!("{error:#}"), 1),
    })
}

/// Writes and prints the report; returns the exit code.
fn conclude(arguments: &Arguments, report: &ReplayReport) -> ExitCode {
    if let Some(path) = &arguments.report
        && let Err(error) = std::fs::write(path, to_html(report))
    {
        return fail(&format!("{}: {error}", path.display()), 1);
    }
    let text = match arguments.format {
        Format::Text => to_text(report),
        Format::Json => format!("{:#}\n", to_json(report)),
    };
    let printed = print(text.as_bytes());
    match &report.stopped {
        Some(reason) => fail(&format!("the replay ended early: {reason}"), 1),
        None if report.comparison.as_ref().is_some_and(differs) => ExitCode::from(2),
        None => printed.into(),
    }
}

fn differs(comparison: &Comparison) -> bool {
    comparison.compared != comparison.equal || comparison.stored.iter().any(|stored| !stored.is_equal())
}

/// Why nothing could be played.
enum ReplayFailure {
    Usage(String),
    Other(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for ReplayFailure {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

async fn replay(arguments: &Arguments, rules: &Arc<RuleSet>) -> Result<ReplayReport, ReplayFailure> {
    let survey = ActionReader::open(&arguments.files, HashMap::new()).await?.survey().await?;
    let total = survey.recorded().commands;
    if total == 0 {
        let files: Vec<String> = arguments.files.iter().map(|file| file.display().to_string()).collect();
        let not_sent = survey.planner().not_sent().iter();
        let reasons = not_sent.map(|(one, count)| format!("{}: {}", plural(*count, "command"), one.reason()));
        let reasons: Vec<String> = survey.flaws().iter().cloned().chain(reasons).collect();
        let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
        let files = files.join(", ");
        return Err(ReplayFailure::Usage(format!("{files}: no command in it can be replayed{reasons}")));
    }
    let uris = [("--to", Some(&arguments.to)), ("--compare", arguments.compare.as_ref())];
    let (mut players, mut data) = (Vec::new(), Vec::new());
    for (flag, uri) in uris {
        let Some(uri) = uri else { continue };
        let target = ReplayTarget::parse(uri, arguments.resolver).await.context(flag)?;
        check_deployment(flag, &target, survey.deployment(), arguments.allow_same_deployment).await?;
        if arguments.compare.is_some() {
            data.push(target.data_id().await.context(flag)?);
        }
        let pace = Pace { speed: arguments.speed, connections: arguments.connections };
        let compared = arguments.compare.as_ref().map(|_| RuleFields::new(rules.clone()));
        players.push(Player::start(target, pace, compared).await.context(flag)?);
    }
    if let [one, other] = data.as_slice()
        && one == other
    {
        return Err(ReplayFailure::Usage(
            "--to and --compare are the same deployment, and each target needs data of its own: give --compare a copy"
                .to_owned(),
        ));
    }
    announce(arguments, &survey, &players);
    let began = milliseconds_now();
    let mut replay = Replay::open(arguments, players, &survey).await?;
    let stopped = tokio::select! {
        stopped = replay.play() => stopped?,
        _ = tokio::signal::ctrl_c() => Some("interrupted".to_owned()),
    };
    Ok(replay.finish(arguments, (began, rules), stopped, &survey).await?)
}

/// Returns an error if the target is not the replica set that its connection string names, or may be the deployment that
/// was recorded: a replay writes.
async fn check_deployment(
    flag: &str,
    target: &ReplayTarget,
    recorded: &RecordedDeployment,
    allowed: bool,
) -> Result<(), ReplayFailure> {
    if let Some(other) = target.other_set().await {
        return Err(ReplayFailure::Usage(format!("{flag}: {other}")));
    }
    if allowed {
        return Ok(());
    }
    let mut names: BTreeSet<String> = target.identity().await.context(flag.to_owned())?;
    let own = if recorded.has_log_names { target.own_name().await.context(flag.to_owned())? } else { None };
    let is_nameless = recorded.has_log_names && own.is_none();
    names.extend(own);
    let name = target.name();
    let unknown = "and a replay would write the traffic there again; if it is another one, add --allow-same-deployment";
    Err(ReplayFailure::Usage(if recorded.servers.iter().any(|server| names.contains(server)) {
        format!(
            "{flag}: the traffic was recorded from this deployment ({name}), and a replay would write it there again; use \
             a copy, or add --allow-same-deployment"
        )
    } else if let [unnamed, ..] = recorded.unnamed.as_slice() {
        format!("{flag}: {unnamed} does not show whether it was recorded from this deployment ({name}), {unknown}")
    } else if is_nameless {
        format!(
            "{flag}: docward cannot see whether this deployment ({name}) was recorded, because its user may not run \
             serverStatus, {unknown}"
        )
    } else {
        return Ok(());
    }))
}

/// Prints what will be done.
fn announce(arguments: &Arguments, survey: &ActionReader, players: &[Player]) {
    survey.flaws().iter().for_each(|flaws| logging::print_progress(flaws));
    let Recorded { commands, connections, .. } = survey.recorded();
    let targets: Vec<&str> = players.iter().map(|player| player.target().name()).collect();
    let seconds = survey.recorded().seconds();
    logging::print_progress(&format!(
        "sending {} of {}, recorded in {seconds:.1} s, to {} at {}",
        plural(commands, "command"),
        plural(connections as u64, "connection"),
        targets.join(" and "),
        arguments.speed
    ));
    let written: Vec<String> =
        survey.planner().written().iter().map(|(database, collection)| format!("{database}.{collection}")).collect();
    let shown = written.iter().take(10).cloned().collect::<Vec<_>>().join(", ");
    let more = if written.len() > 10 { format!(" and {} more", written.len() - 10) } else { String::new() };
    let shown = if shown.is_empty() { "none" } else { &shown };
    logging::print_progress(&format!("collections that this changes: {shown}{more}"));
}

/// One target with its actions.
struct PlayedTarget {
    player: Player,
    source: ActionReader,
    ended: bool,
}

struct Replay {
    targets: Vec<PlayedTarget>,
    comparison: Option<Comparison>,
    /// Actions of a round.
    round: u64,
    shown: ProgressDisplay,
}

impl Replay {
    async fn open(arguments: &Arguments, players: Vec<Player>, survey: &ActionReader) -> Result<Self> {
        let total = survey.recorded().commands;
        let shown = ProgressDisplay::start(total * players.len() as u64, players.iter().map(Player::watch).collect());
        let mut targets = Vec::new();
        for player in players {
            targets.push(PlayedTarget {
                player,
                source: ActionReader::open(&arguments.files, survey.planner().ends()).await?,
                ended: false,
            });
        }
        let comparison = arguments.compare.as_ref().map(|_| Comparison::default());
        let round = if comparison.is_some() { total.div_ceil(ROUNDS) } else { u64::MAX };
        Ok(Self { targets, comparison, round, shown })
    }

    /// Plays all rounds; returns why not, if a target fails.
    async fn play(&mut self) -> Result<Option<String>> {
        let mut first = 0;
        while self.targets.iter().any(|target| !target.ended) {
            let count = self.targets.len();
            let mut outcomes: Vec<Vec<(Box<Action>, TargetReply)>> = vec![Vec::new(); count];
            for turn in 0..count {
                let at = (first + turn) % count;
                let Some(target) = self.targets.get_mut(at) else { continue };
                let played = target.round(self.round).await?;
                if let Some(reason) = target.player.failure() {
                    return Ok(Some(format!("{}: {reason}", target.player.target().name())));
                }
                outcomes.get_mut(at).into_iter().for_each(|outcomes| outcomes.clone_from(&played));
            }
            if let (Some(comparison), [one, other]) = (&mut self.comparison, outcomes.as_mut_slice()) {
                compare(comparison, one, other);
            }
            first += 1;
        }
        Ok(None)
    }

    async fn finish(
        mut self,
        arguments: &Arguments,
        (began, rules): (i64, &Arc<RuleSet>),
        stopped: Option<String>,
        survey: &ActionReader,
    ) -> Result<ReplayReport> {
        self.shown.end();
        for PlayedTarget { player, source, .. } in &mut self.targets {
            player.finish(source.planner().sessions().collect()).await;
        }
        if let (Some(comparison), [one, other], None) = (&mut self.comparison, self.targets.as_slice(), &stopped) {
            let fields = RuleFields::new(rules.clone());
            for (database, collection) in survey.planner().written() {
                let (one, other) = (one.player.target(), other.player.target());
                let without = fields.of_namespace(&format!("{database}.{collection}"));
                let found = stored::compare(one, other, (database, collection), &without).await;
                let found = found.with_context(|| format!("cannot compare {database}.{collection}"))?;
                comparison.stored.push(found);
            }
        }
        let names = |files: &[PathBuf]| {
            let name = |file: &PathBuf| {
                file.file_name().map_or_else(|| file.display().to_string(), |name| name.to_string_lossy().into_owned())
            };
            files.iter().map(name).collect()
        };
        let played = self.targets.iter().map(|PlayedTarget { player, .. }| {
            let played = player.played();
            TargetReport { target: player.target().name().to_owned(), tally: played.tally, seconds: played.seconds }
        });
        let read = self.targets.first().map(|target| &target.source).unwrap_or(survey);
        Ok(ReplayReport {
            files: names(&arguments.files),
            began,
            rules: (!arguments.rules.is_empty()).then(|| ReportedRules {
                files: names(&arguments.rules),
                count: rules.rules().len(),
                hash: rules.hash().to_string(),
            }),
            speed: arguments.speed,
            connections: arguments.connections,
            recorded: survey.recorded(),
            not_sent: read.planner().not_sent().clone(),
            played: played.collect(),
            comparison: self.comparison,
            stopped,
        })
    }
}

impl PlayedTarget {
    /// Plays about `count` actions, and waits until they are answered.
    async fn round(&mut self, count: u64) -> Result<Vec<(Box<Action>, TargetReply)>> {
        self.player.begin_round();
        let mut open = BTreeSet::new();
        let mut dispatched = 0;
        while dispatched < count || (!open.is_empty() && dispatched < count.saturating_add(EXTENSION)) {
            let Some(action) = self.source.next().await? else {
                self.ended = true;
                break;
            };
            if let Some(session) = action.transaction {
                if action.in_transaction {
                    open.insert(session)
                } else {
                    open.remove(&session)
                };
            }
            self.player.dispatch(action).await;
            dispatched += 1;
            if self.player.failure().is_some() {
                break;
            }
        }
        Ok(self.player.end_round().await)
    }
}

/// Compares the replies of a round.
fn compare(
    comparison: &mut Comparison,
    one: &mut [(Box<Action>, TargetReply)],
    other: &mut [(Box<Action>, TargetReply)],
) {
    one.sort_unstable_by_key(|(action, _)| action.number);
    other.sort_unstable_by_key(|(action, _)| action.number);
    for ((action, first), (same, second)) in one.iter().zip(other.iter()) {
        debug_assert_eq!(action.number, same.number);
        comparison.add(action, first, second, || shape(action.command()));
    }
}
