//! What goes to stderr: log lines, and what is wrong with what was typed. For the journal, every line begins with its
//! priority, and the time is left out, which the journal keeps itself.

use std::fmt;
use std::fs::File;
use std::io::{IsTerminal, stderr};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::LazyLock;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, layer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::LogFormat;
use crate::rules::Report;
use crate::secret::redact;

/// Whether stderr is the journal: systemd says which socket that is (`JOURNAL_STREAM`, systemd.exec(5)), and a shell
/// in between may have led stderr elsewhere.
static IS_JOURNAL: LazyLock<bool> = LazyLock::new(|| {
    let named = std::env::var("JOURNAL_STREAM");
    let own = stderr().as_fd().try_clone_to_owned().and_then(|stderr| File::from(stderr).metadata());
    matches!((named, own), (Ok(named), Ok(own)) if named == format!("{}:{}", own.dev(), own.ino()))
});

/// Logs to stderr; stdout belongs to what a command prints.
pub(super) fn start(format: LogFormat) {
    let lines = layer().with_writer(stderr).with_ansi(stderr().is_terminal());
    let logs = tracing_subscriber::registry().with(filter());
    match format {
        LogFormat::Json => logs.with(lines.json().flatten_event(true).map_event_format(Prioritised)).init(),
        LogFormat::Text if *IS_JOURNAL => logs.with(lines.without_time().map_event_format(Prioritised)).init(),
        LogFormat::Text => logs.with(lines).init(),
    }
}

/// What RUST_LOG says of levels and modules: `warn`, `info,docward::proxy=debug`. docward has no spans, which are all
/// that `EnvFilter` knows beyond that, with the help of regular expressions.
fn filter() -> Targets {
    let chosen = std::env::var("RUST_LOG").ok().and_then(|directives| directives.parse().ok());
    chosen.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO))
}

/// Why a command does not do what it was asked to. It may quote a connection string that was typed as something else.
pub(super) fn complain(text: &str) {
    eprint!("{}", lines(Level::ERROR, &redact(text)));
}

/// What is wrong with rules or a configuration, with its places.
pub(super) fn show(report: &Report) {
    complain(&report.render(stderr().is_terminal()));
}

/// Events of another format, as the journal reads them.
struct Prioritised<F>(F);

impl<S, N, F> FormatEvent<S, N> for Prioritised<F>
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

/// `text` as it is to be written; each line of it is a message of its own to the journal.
fn lines(level: Level, text: &str) -> String {
    if !*IS_JOURNAL {
        return text.to_owned();
    }
    // Those of syslog(3).
    let priority = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    };
    text.lines().map(|line| format!("<{priority}>{line}\n")).collect()
}
