//! The commands of several files in the order of their times. Each file has a thread that reads it.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::audit::capture::Record;
use crate::audit::log::{LogReader, LogServers};
use crate::audit::report::TrafficFile;
use crate::audit::{
    RecordedCommand, RecordedContent, RepeatedStatements, ReplySummary, TimeOrder, Unreadable, log, profile,
};
use crate::cli::traffic::check_distinct;
use crate::cli::traffic::entries::{CaptureDamage, EntryKind, TrafficEntries};
use crate::command::{CommandClass, Namespace};
use crate::document::{CowDocument, Document};
use crate::replay::{Action, Recorded, ReplayPlanner};

/// Entries of a file that wait to be planned.
const WAITING: usize = 1024;

/// One entry of a file.
#[derive(Debug)]
enum RecordedEntry {
    Command { stream: u64, milliseconds: i64, app: Option<String>, command: CowDocument<'static>, took: Option<u64> },
    Reply { stream: u64, microseconds: u64, reply: ReplySummary },
    UnknownStatements { stream: u64, milliseconds: i64 },
    WithoutTime,
    Servers(Vec<String>),
    End(FileEnd),
}

/// What is known of a file at its end.
#[derive(Debug)]
struct FileEnd {
    name: String,
    /// It shows which servers were recorded.
    names_servers: bool,
    /// The names are those by which the servers call themselves in their log.
    is_log: bool,
    /// The servers that wrote the log.
    writers: BTreeSet<String>,
    /// See [`TrafficFile::flaws`].
    flaws: String,
}

impl RecordedEntry {
    /// `None`: at once.
    fn milliseconds(&self) -> Option<i64> {
        match self {
            Self::Command { milliseconds, .. } | Self::UnknownStatements { milliseconds, .. } => Some(*milliseconds),
            Self::Reply { .. } | Self::WithoutTime | Self::Servers(_) | Self::End(_) => None,
        }
    }
}

/// One file.
#[derive(Debug)]
struct Feed {
    entries: Receiver<Result<RecordedEntry>>,
    /// `None`: the file has ended.
    next: Option<RecordedEntry>,
}

/// The actions of all files.
#[derive(Debug)]
pub(super) struct ActionReader {
    feeds: Vec<Feed>,
    planner: ReplayPlanner,
    recorded: Recorded,
    deployment: RecordedDeployment,
    flaws: Vec<String>,
    /// The servers that wrote logs, each with the file.
    writers: HashMap<String, String>,
    /// Two files are logs of one server.
    divided: Option<String>,
}

/// The deployment that was recorded, as far as the files show it.
#[derive(Debug, Default)]
pub(super) struct RecordedDeployment {
    pub(super) servers: Vec<String>,
    /// Some names are those by which the servers call themselves in their log.
    pub(super) has_log_names: bool,
    /// The files that do not show it.
    pub(super) unnamed: Vec<String>,
}

impl ActionReader {
    /// Opens the files. `ends`: see [`ReplayPlanner::new`].
    ///
    /// # Errors
    /// A file cannot be opened, or its kind is unknown.
    pub(super) async fn open(files: &[PathBuf], ends: HashMap<u64, u64>) -> Result<Self> {
        check_distinct(files)?;
        let mut feeds = Vec::new();
        for (number, path) in files.iter().enumerate() {
            let (sender, entries) = channel(WAITING);
            let opened =
                TrafficEntries::open(path, |file| Box::new(file)).with_context(|| path.display().to_string())?;
            drop(opened);
            let (path, order) = (path.clone(), TimeOrder::for_one_of(files.len()));
            std::thread::spawn(move || {
                let read =
                    read_entries(&path, number as u64, order, &sender).with_context(|| path.display().to_string());
                if let Err(error) = read {
                    // An error means that the receiver is gone.
                    let _ = sender.blocking_send(Err(error));
                }
            });
            let mut feed = Feed { entries, next: None };
            feed.advance().await?;
            feeds.push(feed);
        }
        let planner = ReplayPlanner::new(bson::Uuid::new().bytes(), ends);
        Ok(Self {
            feeds,
            planner,
            recorded: Recorded::default(),
            deployment: RecordedDeployment::default(),
            flaws: Vec::new(),
            writers: HashMap::new(),
            divided: None,
        })
    }

    /// Returns the next action; `None` at the end.
    ///
    /// # Errors
    /// A file cannot be read, or is damaged.
    pub(super) async fn next(&mut self) -> Result<Option<Box<Action>>> {
        loop {
            let due = |feed: &Feed| feed.next.as_ref().map(|next| next.milliseconds().unwrap_or(i64::MIN));
            let earliest = self.feeds.iter_mut().filter(|feed| feed.next.is_some()).min_by_key(|feed| due(feed));
            let Some(feed) = earliest else { return Ok(None) };
            let Some(entry) = feed.next.take() else { return Ok(None) };
            feed.advance().await?;
            if let Some(action) = self.plan(entry) {
                return Ok(Some(action));
            }
        }
    }

    fn plan(&mut self, entry: RecordedEntry) -> Option<Box<Action>> {
        match entry {
            RecordedEntry::Command { stream, milliseconds, app, command, took } => {
                let planned = self.planner.command(stream, milliseconds, app.as_deref(), command.as_document());
                let action = planned.ok()?;
                self.recorded.command(milliseconds);
                took.into_iter().for_each(|took| self.recorded.reply(action.name, took));
                return Some(action);
            }
            RecordedEntry::Reply { stream, microseconds, reply } => {
                if let Some(reply) = self.planner.reply(stream, microseconds, &reply) {
                    self.recorded.reply(reply.name, reply.microseconds);
                }
            }
            RecordedEntry::UnknownStatements { stream, .. } => self.planner.unknown_statements(stream),
            RecordedEntry::WithoutTime => self.planner.without_time(),
            RecordedEntry::Servers(servers) => self.deployment.servers.extend(servers),
            RecordedEntry::End(FileEnd { name, names_servers, is_log, writers, flaws }) => {
                for server in writers {
                    if let Some(other) = self.writers.insert(server.clone(), name.clone()) {
                        let text = format!(
                            "{other} and {name} are logs of one server ({server}): join them into one file, the oldest \
                             first, because a connection or a statement can be in both"
                        );
                        self.divided.get_or_insert(text);
                    }
                }
                self.flaws.extend((!flaws.is_empty()).then(|| format!("{name}: {flaws}")));
                self.deployment.has_log_names |= is_log && names_servers;
                self.deployment.unnamed.extend((!names_servers).then_some(name));
            }
        }
        None
    }

    /// Reads everything.
    ///
    /// # Errors
    /// As [`Self::next`]; or two files are logs of one server.
    pub(super) async fn survey(mut self) -> Result<Self> {
        while self.next().await?.is_some() {}
        match self.divided.take() {
            Some(divided) => Err(anyhow!(divided)),
            None => Ok(self),
        }
    }

    pub(super) fn planner(&self) -> &ReplayPlanner {
        &self.planner
    }

    pub(super) fn deployment(&self) -> &RecordedDeployment {
        &self.deployment
    }

    /// What is wrong with the files that have been read, one text for each.
    pub(super) fn flaws(&self) -> &[String] {
        &self.flaws
    }

    /// What has been read so far.
    pub(super) fn recorded(&self) -> Recorded {
        Recorded { connections: self.planner.stream_count(), ..self.recorded.clone() }
    }
}

impl Feed {
    async fn advance(&mut self) -> Result<()> {
        self.next = self.entries.recv().await.transpose()?;
        Ok(())
    }
}

/// Reads one file to its end, or until the receiver is gone.
fn read_entries(path: &Path, number: u64, mut order: TimeOrder, out: &Sender<Result<RecordedEntry>>) -> Result<()> {
    let entries = TrafficEntries::open(path, |file| Box::new(file))?;
    let mut logs = LogReader::default();
    let (mut commands, mut ordered, mut repeated) = (Vec::new(), Vec::new(), RepeatedStatements::default());
    let mut due = Vec::new();
    let mut file = TrafficFile { name: path.display().to_string(), ..TrafficFile::default() };
    // `is_partly_unnamed`: a command came before the names of servers, or from a profile, which has none. The file may be
    // joined from several.
    let (mut names_servers, mut is_log, mut is_partly_unnamed) = (false, false, false);
    let mut writers = BTreeSet::new();
    // Connections of different servers may have the same number.
    let stream_of = |connection: u64| connection ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let give = |due: &mut Vec<RecordedCommand>| {
        due.drain(..).map(|command| entry_of(command, &stream_of)).try_for_each(|entry| send(out, entry))
    };
    let wanted = |_: Namespace<'_>, class: CommandClass, _: &[u8]| class != CommandClass::Hello;
    let read = entries.read_all(&mut |kind, position, entry| {
        let parsed = match kind {
            EntryKind::Capture => {
                let record = Document::parse(entry).map_err(|error| {
                    anyhow!("the record at byte {position} is damaged ({error}); remove the file's end from there")
                })?;
                let Some(record) = Record::parse(record) else { return Ok(()) };
                names_servers |= matches!(record, Record::Servers(_));
                is_partly_unnamed |= !names_servers;
                return send(out, of_record(record));
            }
            EntryKind::Log if !log::is_command(entry) => {
                let LogServers { own, members } = log::servers(entry);
                writers.extend(own.clone());
                let servers: Vec<String> = own.into_iter().chain(members).collect();
                (names_servers, is_log) = (names_servers || !servers.is_empty(), true);
                return if servers.is_empty() { Ok(()) } else { send(out, RecordedEntry::Servers(servers)) };
            }
            EntryKind::Log => {
                is_partly_unnamed |= !names_servers;
                logs.parse_line(entry, &wanted, &mut commands)
            }
            EntryKind::Profile => {
                is_partly_unnamed = true;
                profile::parse_line(entry, &wanted, &mut commands)
            }
        };
        if let Err(Unreadable(reason)) = parsed {
            file.unreadable += 1;
            file.note.get_or_insert_with(|| format!("the entry at byte {position}: {reason}"));
        }
        commands.drain(..).for_each(|command| order.add(command, &mut ordered));
        ordered.drain(..).for_each(|command| repeated.add(command, &mut |command| due.push(command)));
        give(&mut due)
    })?;
    logs.finish(&mut commands);
    commands.drain(..).for_each(|command| order.add(command, &mut ordered));
    order.finish(&mut ordered);
    ordered.drain(..).for_each(|command| repeated.add(command, &mut |command| due.push(command)));
    repeated.finish(&mut |command| due.push(command));
    give(&mut due)?;
    if let Some(flaw) = order.flaw() {
        bail!("{flaw}");
    }
    let flaw = match read.flaw {
        Some(damage @ CaptureDamage::Damaged { .. }) => bail!("{damage}"),
        cut => cut.map(|cut| cut.to_string()),
    };
    file.note = flaw.or(file.note).or(read.first);
    (file.unreadable, file.skipped) = (file.unreadable + read.unreadable, read.other);
    let flaws = file.flaws();
    let names_servers = names_servers && !is_partly_unnamed;
    send(out, RecordedEntry::End(FileEnd { name: file.name, names_servers, is_log, writers, flaws }))
}

fn send(out: &Sender<Result<RecordedEntry>>, entry: RecordedEntry) -> Result<()> {
    out.blocking_send(Ok(entry)).map_err(|_| anyhow!("the replay has ended"))
}

fn of_record(record: Record<'_>) -> RecordedEntry {
    match record {
        Record::Command { connection, milliseconds, app, command } => RecordedEntry::Command {
            stream: connection.cast_unsigned(),
            milliseconds,
            app: app.map(str::to_owned),
            command: CowDocument::build(|w| w.elements(command)),
            took: None,
        },
        Record::Reply { connection, microseconds, reply } => {
            RecordedEntry::Reply { stream: connection.cast_unsigned(), microseconds, reply }
        }
        Record::Servers(servers) => RecordedEntry::Servers(servers),
    }
}

fn entry_of(recorded: RecordedCommand, stream_of: &impl Fn(u64) -> u64) -> RecordedEntry {
    let RecordedCommand { client, milliseconds, took, content, .. } = recorded;
    let stream = stream_of(client.connection);
    // Logs and profiles have the time at which the command ended.
    let Some(milliseconds) = milliseconds else { return RecordedEntry::WithoutTime };
    let milliseconds = milliseconds - i64::try_from(took.unwrap_or_default()).unwrap_or_default();
    match content {
        RecordedContent::Command(command) => RecordedEntry::Command {
            stream,
            milliseconds,
            app: client.app,
            command,
            took: took.map(|took| took * 1000),
        },
        RecordedContent::UnknownStatements(_) => RecordedEntry::UnknownStatements { stream, milliseconds },
    }
}
