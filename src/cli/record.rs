//! `docward record`: forwards traffic like `serve` without rules, and writes the commands of clients to a capture for
//! `audit`, `suggest` and `replay`. `proxy::Recorder` makes the records; [`file`] writes them.

mod file;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use anyhow::{Context, Result, bail};
use arc_swap::ArcSwap;
use clap::Args;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use self::file::{CaptureFile, CaptureLimits, WriteResult};
use super::config_file::ConfigFile;
use super::connection::{DeploymentOptions, start};
use super::listening::ListenOptions;
use super::output::print_line;
use super::serve::{announce, configure, raise_file_limit};
use super::{EXIT_USAGE, fail, values};
use crate::audit::capture::servers_record;
use crate::player::ReplayTarget;
use crate::proxy::{Proxy, QueuedRecord, RecordCounts, Recorder, Sink};
use crate::service::ConnectionString;
use crate::text::counted;

#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    listening: ListenOptions,
    #[command(flatten)]
    deployment: DeploymentOptions,
    /// The capture file; an existing capture is continued.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The largest size of the file, for example 512MiB; then docward starts a new one (--rotate), or stops recording
    /// [default: unlimited].
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    max_size: Option<usize>,
    /// Keep this many full files as FILE.1, FILE.2 and so on, the newest first, and delete older ones.
    #[arg(long, value_name = "N", value_parser = values::count, requires = "max_size")]
    rotate: Option<usize>,
}

/// The result of writing.
#[derive(Debug, Default)]
struct RecordingState {
    commands: u64,
    bytes: u64,
    /// The file has reached its limit.
    is_full: bool,
    /// The first error in writing the file.
    error: Option<std::io::Error>,
}

/// Exits with 0 after a signal, if all records could be written.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let Arguments { listening, deployment, file, max_size, rotate } = arguments;
    let limits = CaptureLimits { size: max_size.map_or(u64::MAX, |size| size as u64), kept: rotate.unwrap_or(0) };
    let capture = match CaptureFile::open(&file, limits).with_context(|| file.display().to_string()) {
        Ok(capture) => capture,
        Err(error) => return fail(&format!("{error:#}"), EXIT_USAGE),
    };
    let settings = listening.with_defaults_from(deployment.with_defaults_from(ConfigFile::default()));
    start(Ok(settings), Builder::new_multi_thread(), async |settings, _| {
        raise_file_limit(None);
        match record(settings, capture).await {
            Ok((written, dropped)) => conclude(&file, &written, dropped),
            Err(error) => fail(&format!("{error:#}"), EXIT_USAGE),
        }
    })
}

fn conclude(file: &std::path::Path, written: &RecordingState, dropped: u64) -> ExitCode {
    let RecordingState { commands, bytes, is_full, error } = written;
    let full = if *is_full { ", because the file has reached --max-size" } else { "" };
    let name = file.display();
    let recorded = counted(*commands, "command");
    let counts = format!("recorded {recorded} ({bytes} bytes) in {name}; {dropped} were not recorded{full}");
    let printed = print_line(&counts);
    match error {
        Some(error) => fail(&format!("{name}: {error}; the capture is incomplete"), 1),
        None => printed.into(),
    }
}

/// Runs the proxy until a signal; returns the result of writing, and the number of dropped records.
async fn record(settings: ConfigFile, mut capture: CaptureFile) -> Result<(RecordingState, u64)> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let (upstream, resolver) = (settings.upstream(), settings.resolver);
    let (config, service) = configure(settings).await?;
    let (queue, records) = channel();
    let counts = Arc::new(RecordCounts::default());
    let sink = Sink::new(queue, counts.clone());
    let recorder = Arc::new(ArcSwap::from_pointee(Recorder::new(sink.clone())));
    let proxy = Proxy::open(config, Vec::new(), recorder, Arc::new(service)).await?;
    announce(&proxy, None)?;
    record_servers(&mut capture, &upstream, resolver).await?;
    let writer = std::thread::spawn({
        let counts = counts.clone();
        move || write_all(capture, &records, &counts)
    });
    let shutdown = async {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: draining"),
            _ = interrupt.recv() => tracing::info!("SIGINT: draining"),
        }
    };
    proxy.serve(shutdown, async |_, _| {}).await;
    sink.close();
    let written = tokio::task::spawn_blocking(move || writer.join()).await.context("the writer thread was stopped")?;
    match written {
        Ok(written) => Ok((written, counts.dropped())),
        Err(_) => bail!("the writer thread failed; its error is above"),
    }
}

/// Names the recorded servers in the capture, so that `replay` can recognise them. Without a reply they are not named.
async fn record_servers(
    capture: &mut CaptureFile,
    upstream: &ConnectionString,
    resolver: Option<SocketAddr>,
) -> Result<()> {
    let Ok(target) = ReplayTarget::parse(upstream, resolver).await else { return Ok(()) };
    let Ok(servers) = target.identity().await else { return Ok(()) };
    let servers: Vec<String> = servers.into_iter().collect();
    Ok(capture.add_to_header(&servers_record(&servers))?)
}

/// Writes records until the queue ends. Flushes whenever the queue is empty, so that the file then ends with a record.
fn write_all(mut file: CaptureFile, records: &Receiver<Option<QueuedRecord>>, counts: &RecordCounts) -> RecordingState {
    let mut written = RecordingState::default();
    loop {
        let next = match records.try_recv() {
            Err(TryRecvError::Empty) => {
                let flushed = file.flush();
                note_error(flushed, &mut written);
                records.recv().unwrap_or(None)
            }
            Err(TryRecvError::Disconnected) => None,
            Ok(record) => record,
        };
        let Some(record) = next else { break };
        counts.taken(&record);
        if written.error.is_some() || written.is_full {
            counts.drop_one(&record);
            continue;
        }
        match file.write(&record.bytes) {
            Ok(WriteResult::Whole) => {
                written.commands += u64::from(record.is_command);
                written.bytes += record.bytes.len() as u64;
            }
            Ok(WriteResult::Full) => {
                tracing::warn!("the capture has reached --max-size; recording stopped, forwarding continues");
                written.is_full = true;
                counts.drop_one(&record);
            }
            Err(error) => {
                counts.drop_one(&record);
                note_error(Err(error), &mut written);
            }
        }
    }
    let flushed = file.flush();
    note_error(flushed, &mut written);
    written
}

/// Keeps the first error. Clients are still served.
fn note_error(result: std::io::Result<()>, written: &mut RecordingState) {
    if let Err(error) = result
        && written.error.is_none()
    {
        tracing::error!("cannot write the capture; recording stopped, forwarding continues: {error}");
        written.error = Some(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_ends_only_the_recording() {
        let (queue, records) = channel();
        let counts = RecordCounts::default();
        let sink = Sink::new(queue.clone(), Arc::default());
        // More than the buffer holds, so that it writes to the disk before the end.
        let record = || QueuedRecord { bytes: vec![0; 2 << 20], is_command: true };
        (0..3).for_each(|_| queue.send(Some(record())).unwrap());
        sink.close();
        let full = CaptureFile::writing_to(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        let written = write_all(full, &records, &counts);
        assert!(written.error.is_some());
        assert_eq!(counts.dropped(), 3);
    }
}
