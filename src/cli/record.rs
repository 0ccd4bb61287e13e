//! `docward record`: writes the commands of clients to a capture for `audit`, `suggest` and `replay`. The commands are
//! those of a proxy without rules that this process runs, or those of a `docward serve` that runs already: its admin
//! address sends a capture ([`remote`]). [`file`] writes the file.

mod file;
mod remote;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use arc_swap::ArcSwap;
use clap::Args;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::error::TryRecvError;

use self::file::{CaptureFile, CaptureLimits, WriteResult};
use super::config_file::ConfigFile;
use super::connection::{DeploymentOptions, start};
use super::file_limit::raise_file_limit;
use super::listening::ListenOptions;
use super::output::print_line;
use super::serve::{announce, configure, wait_for_signal};
use super::{EXIT_USAGE, fail, values};
use crate::audit::capture::{CaptureEnd, servers_record};
use crate::config::Glob;
use crate::player::ReplayTarget;
use crate::proxy::{Proxy, Records, Sink};
use crate::rules::RuleSet;
use crate::text::plural;

#[derive(Debug, Args)]
pub struct Arguments {
    /// The capture file; an existing capture is continued.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Record the commands of the clients of a running `docward serve`, which has this admin address.
    #[arg(long, value_name = "ADDR", value_parser = values::address, requires = "length",
        conflicts_with_all = ["listen", "advertise", "tls_certificate", "tls_key", "tls_client_ca", "upstream", "resolver",
            "rotate"])]
    from: Option<SocketAddr>,
    /// How long to record from it, such as 10m; at most 24h.
    #[arg(long = "for", value_name = "TIME", value_parser = values::duration, requires = "from")]
    length: Option<Duration>,
    /// File with the token of the admin address.
    #[arg(long, value_name = "FILE", requires = "from")]
    admin_token_file: Option<PathBuf>,
    /// Record only the commands of this application, such as promo-*; can be repeated.
    #[arg(long = "app", value_name = "GLOB")]
    apps: Vec<String>,
    /// The largest size of the file, for example 512MiB; then docward starts a new one (--rotate), or stops recording
    /// [default: unlimited; 1GiB with --from].
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    max_size: Option<usize>,
    /// Keep this many full files as FILE.1, FILE.2 and so on, the newest first, and delete older ones.
    #[arg(long, value_name = "N", value_parser = values::count, requires = "max_size")]
    rotate: Option<usize>,
    #[command(flatten)]
    listening: ListenOptions,
    #[command(flatten)]
    deployment: DeploymentOptions,
}

/// The result of writing.
#[derive(Debug, Default)]
struct RecordingState {
    end: CaptureEnd,
    bytes: u64,
    /// The first error in receiving or writing the capture.
    error: Option<anyhow::Error>,
}

/// Exits with 0 after a signal, or the end of a capture from elsewhere, if all records could be written.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let Arguments { file, from, length, admin_token_file, apps, max_size, rotate, listening, deployment } = arguments;
    if let (Some(address), Some(length)) = (from, length) {
        let wanted = remote::RemoteCapture { address, token_file: admin_token_file, length, size: max_size, apps };
        return match remote::record(wanted, &file) {
            Ok(written) => conclude(&file, written),
            Err(error) => fail(&format!("{error:#}"), EXIT_USAGE),
        };
    }
    let limits = CaptureLimits { size: max_size.map_or(u64::MAX, |size| size as u64), kept: rotate.unwrap_or(0) };
    let capture = match CaptureFile::open(&file, limits).with_context(|| file.display().to_string()) {
        Ok(capture) => capture,
        Err(error) => return fail(&format!("{error:#}"), EXIT_USAGE),
    };
    let settings = listening.with_defaults_from(deployment.with_defaults_from(ConfigFile::default()));
    start(Ok(settings), Builder::new_multi_thread(), async |settings, _| {
        raise_file_limit(None);
        match record(settings, capture, &apps).await {
            Ok(written) => conclude(&file, written),
            Err(error) => fail(&format!("{error:#}"), EXIT_USAGE),
        }
    })
}

fn conclude(file: &Path, written: RecordingState) -> ExitCode {
    let RecordingState { end: CaptureEnd { reason, commands, omitted }, bytes, error } = written;
    let why = match &*reason {
        "time" => "; the time is over",
        "size" => "; the capture has reached its largest size (--max-size)",
        "operator" => "; the capture was ended",
        _ => "",
    };
    let (name, recorded) = (file.display(), plural(commands, "command"));
    let counts = format!("recorded {recorded} ({bytes} bytes) in {name}; {omitted} omitted{why}");
    let printed = print_line(&counts);
    match error {
        Some(error) => fail(&format!("{name}: {error:#}; the capture is incomplete"), 1),
        None => printed.into(),
    }
}

/// Runs a proxy until a signal, and records the commands of its clients.
async fn record(settings: ConfigFile, mut capture: CaptureFile, apps: &[String]) -> Result<RecordingState> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let (upstream, resolver) = (settings.upstream(), settings.resolver);
    let (config, service) = configure(settings).await?;
    let proxy =
        Proxy::open(config, Vec::new(), Arc::new(ArcSwap::from_pointee(RuleSet::default())), Arc::new(service)).await?;
    let (sink, records) = Sink::new(apps.iter().map(|app| Glob::new(app)).collect());
    let observer = proxy.observer();
    let _is_first = observer.start_capture(sink);
    announce(&proxy, None)?;
    let servers = ReplayTarget::server_names(&upstream, resolver).await;
    if !servers.is_empty() {
        capture.add_to_header(&servers_record(&servers))?;
    }
    let writer = std::thread::spawn(move || write_all(capture, records));
    proxy.serve(wait_for_signal(&mut terminate, &mut interrupt, "draining"), async |_, _| {}).await;
    observer.end_capture();
    let written = tokio::task::spawn_blocking(move || writer.join()).await.context("the writer thread was stopped")?;
    match written {
        Ok(written) => Ok(written),
        Err(_) => bail!("the writer thread failed; its error is above"),
    }
}

/// Writes records until the capture ends. Flushes whenever the queue is empty, so that the file then ends with a record.
fn write_all(mut file: CaptureFile, records: Records) -> RecordingState {
    let Records { mut queue, counts } = records;
    let mut written = RecordingState::default();
    "signal".clone_into(&mut written.end.reason);
    loop {
        let next = match queue.try_recv() {
            Err(TryRecvError::Empty) => {
                let flushed = file.flush();
                note_error(flushed, &mut written);
                queue.blocking_recv().flatten()
            }
            Err(TryRecvError::Disconnected) => None,
            Ok(record) => record,
        };
        let Some(record) = next else { break };
        if written.error.is_some() || written.end.reason == "size" {
            counts.drop_one(&record);
            continue;
        }
        match file.write(&record.bytes) {
            Ok(WriteResult::Whole) => counts.write_one(&record),
            Ok(WriteResult::Full) => {
                tracing::warn!("the capture has reached --max-size; recording stopped, forwarding continues");
                "size".clone_into(&mut written.end.reason);
                counts.drop_one(&record);
            }
            Err(error) => {
                counts.drop_one(&record);
                note_error(Err(error), &mut written);
            }
        }
    }
    written.bytes = counts.bytes();
    (written.end.commands, written.end.omitted) = (counts.commands(), counts.omitted());
    let finished = file.finish(&written.end);
    note_error(finished, &mut written);
    written
}

/// Keeps the first error. Clients are still served.
fn note_error(result: io::Result<()>, written: &mut RecordingState) {
    if let Err(error) = result
        && written.error.is_none()
    {
        tracing::error!("cannot write the capture; recording stopped, forwarding continues: {error}");
        written.error = Some(error.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_ends_only_the_recording() {
        // More than the buffer holds, so that it is written to the disk before the end.
        let (sink, records) = Sink::new(Vec::new());
        (0..3).for_each(|_| assert!(sink.offer(true, 2 << 20, || Some(vec![0; 2 << 20]))));
        drop(sink);
        let counts = records.counts.clone();
        let full = CaptureFile::writing_to(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        let written = write_all(full, records);
        assert!(written.error.is_some());
        assert_eq!((counts.omitted(), written.end.omitted), (3, 3));
    }
}
