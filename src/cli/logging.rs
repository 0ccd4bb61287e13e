//! Writes log lines and error messages to stderr. For the systemd journal, every line starts with its
//! priority and has no time, because the journal adds the time itself.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal, Write, stderr};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::panic::PanicHookInfo;
use std::sync::{LazyLock, OnceLock};

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, layer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

use super::LogFormat;
use crate::config::Report;
use crate::rate_limit::note_logged;
use crate::secret::redact;

/// Whether stderr is the journal: systemd sets `JOURNAL_STREAM` to the device and inode of its socket
/// (systemd.exec(5)). A shell in between may have redirected stderr.
static IS_JOURNAL: LazyLock<bool> = LazyLock::new(|| {
    let named = std::env::var("JOURNAL_STREAM");
    let own = stderr().as_fd().try_clone_to_owned().and_then(|stderr| File::from(stderr).metadata());
    matches!((named, own), (Ok(named), Ok(own)) if named == format!("{}:{}", own.dev(), own.ino()))
});

/// The format of the log, once it has started.
static STARTED: OnceLock<LogFormat> = OnceLock::new();

/// The levels and modules that are logged, once the log has started.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Starts logging to stderr. Only the output of subcommands goes to stdout.
pub(super) fn start(format: LogFormat, level: Option<&LogLevel>) {
    _ = STARTED.set(format);
    let lines = layer().with_writer(|| CountedStderr).with_ansi(stderr().is_terminal());
    let (filter, handle) = reload::Layer::new(filter(level));
    _ = FILTER.set(handle);
    let logs = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Json => logs.with(lines.json().flatten_event(true).map_event_format(JournalLines)).init(),
        LogFormat::Text if *IS_JOURNAL => logs.with(lines.without_time().map_event_format(JournalLines)).init(),
        LogFormat::Text => logs.with(lines).init(),
    }
    std::panic::set_hook(Box::new(log_panic));
}

/// Logs other levels and modules from now on.
pub(super) fn set_level(level: Option<&LogLevel>) {
    // It fails only without a log.
    _ = FILTER.get().map(|handle| handle.reload(filter(level)));
}

/// Levels and modules, in the form of RUST_LOG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogLevel(String);

impl LogLevel {
    /// # Errors
    /// A message for the user.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let is_level = |level: &str| level.parse::<LevelFilter>().is_ok() && !level.is_empty();
        // A misspelled level would be the name of a module.
        let is_valid = |one: &str| match one.trim().split_once('=') {
            Some((module, level)) => !module.is_empty() && is_level(level),
            None => is_level(one.trim()),
        };
        let is_known = text.split(',').all(is_valid) && text.parse::<Targets>().is_ok();
        let usage = "write off, error, warn, info, debug or trace, also for modules: info,docward_proxy=debug";
        is_known.then(|| Self(text.to_owned())).ok_or_else(|| usage.to_owned())
    }
}

/// Stderr; its bytes count for the rate limit of log lines that clients can cause.
struct CountedStderr;

impl Write for CountedStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = stderr().write(bytes)?;
        note_logged(written);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        stderr().flush()
    }
}

/// Logs a panic as a line of the log, with the backtrace that RUST_BACKTRACE asks for.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let reason = panic_reason(panic.payload_as_str());
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => {
            tracing::error!(location, %backtrace, "docward panicked: {reason}; please report this as a bug");
        }
        _ => tracing::error!(location, "docward panicked: {reason}; please report this as a bug"),
    }
}

/// The text of a panic. It may quote a value, such as a connection string.
fn panic_reason(payload: Option<&str>) -> Cow<'_, str> {
    redact(payload.unwrap_or("no reason"))
}

/// Whether every line of stderr must be a JSON object.
pub(super) fn is_json() -> bool {
    STARTED.get() == Some(&LogFormat::Json)
}

/// The levels and modules of `level` or RUST_LOG: `warn`, `info,docward_proxy=debug`. `EnvFilter` would add only
/// filters on spans, which docward does not have, and needs a regular-expression library.
fn filter(level: Option<&LogLevel>) -> Targets {
    let chosen = level.map(|level| level.0.clone()).or_else(|| std::env::var("RUST_LOG").ok());
    chosen
        .and_then(|directives| directives.parse().ok())
        .unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO))
}

/// Prints an error. Hides credentials, because `text` may quote a connection string that was typed elsewhere.
pub(super) fn print_error(text: &str) {
    let text = redact(text);
    match is_json() {
        true => tracing::error!("{}", text.trim_start_matches("docward: ").trim_end()),
        false => write(&lines(Level::ERROR, &text)),
    }
}

/// Prints progress, as a line.
pub(super) fn print_progress(text: &str) {
    match is_json() {
        true => tracing::info!("{text}"),
        false => write(&lines(Level::INFO, &format!("{text}\n"))),
    }
}

/// Prints text for a person who answers, as it is.
pub(super) fn print_question(text: &str) {
    write(text);
}

/// Nothing can be printed if stderr is closed.
fn write(text: &str) {
    _ = stderr().lock().write_all(text.as_bytes());
}

/// Prints the diagnostics of rules or a configuration file.
pub(super) fn show(report: &Report) {
    if !is_json() {
        return print_error(&report.render(stderr().is_terminal()));
    }
    let diagnostics = report.to_json();
    for one in diagnostics.as_array().into_iter().flatten() {
        let text = |key: &str| one.get(key).and_then(serde_json::Value::as_str);
        let number = |key: &str| one.get(key).and_then(serde_json::Value::as_u64);
        let (code, file, line, column) = (text("code"), text("file"), number("line"), number("column"));
        let (message, help) = (text("message").unwrap_or_default(), text("help"));
        if text("severity") == Some("error") {
            tracing::error!(code, file, line, column, help, "{message}");
        } else {
            tracing::warn!(code, file, line, column, help, "{message}");
        }
    }
}

/// Prefixes each line of another format with its priority, if stderr is the journal.
struct JournalLines<F>(F);

impl<S, N, F> FormatEvent<S, N> for JournalLines<F>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    N: for<'w> FormatFields<'w> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        if !*IS_JOURNAL {
            return self.0.format_event(context, writer, event);
        }
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        writer.write_str(&lines(*event.metadata().level(), &text))
    }
}

/// `text` with a priority before each line, if stderr is the journal. The journal treats each line as a message.
fn lines(level: Level, text: &str) -> String {
    if !*IS_JOURNAL {
        return text.to_owned();
    }
    // The priorities of syslog(3).
    let priority = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    };
    text.lines().map(|line| format!("<{priority}>{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_level_is_an_error() {
        for text in ["warn", "off", "info,docward_proxy=debug", "docward=trace, info"] {
            assert!(LogLevel::parse(text).is_ok(), "{text}");
        }
        for text in ["", "inof", "info,", "docward=verbose", "=info", "docward_proxy"] {
            assert!(LogLevel::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_panic_shows_no_password() {
        let reason = "called `Result::unwrap()` on an `Err` value: \"mongodb://user:pencil@db.example/?bogus=1\"";
        let shown = panic_reason(Some(reason));
        assert!(shown.contains("`Err` value") && shown.contains("db.example") && !shown.contains("pencil"), "{shown}");
    }
}
