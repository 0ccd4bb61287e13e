//! `docward record`: forwards traffic like `serve` without rules, and writes the commands of clients to a capture for
//! `audit` and `suggest`. `proxy::Recorder` makes the records; this file writes them.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use anyhow::{Context, Result, bail};
use arc_swap::ArcSwap;
use clap::Args;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use super::config::ConfigFile;
use super::connection::{Deployment, start};
use super::listening::Listening;
use super::output::print_line;
use super::serve::{announce, configure, raise_file_limit};
use super::{EXIT_USAGE, fail};
use crate::audit::capture;
use crate::proxy::{Proxy, RecordCounts, Recorder, Sink};

#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    listening: Listening,
    #[command(flatten)]
    deployment: Deployment,
    /// The capture file; an existing capture is continued.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// The result of writing.
#[derive(Debug, Default)]
struct RecordingState {
    records: u64,
    bytes: u64,
    /// The first error in writing the file.
    error: Option<std::io::Error>,
}

/// Exits with 0 after a signal, if all records could be written.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let Arguments { listening, deployment, file } = arguments;
    let capture = match open(&file).with_context(|| file.display().to_string()) {
        Ok(capture) => capture,
        Err(error) => return fail(&format!("{error:#}"), EXIT_USAGE),
    };
    let settings = listening.over(deployment.over(ConfigFile::default()));
    start(Ok(settings), Builder::new_multi_thread(), async |settings, _| {
        raise_file_limit(None);
        match record(settings, capture).await {
            Ok((written, dropped)) => conclude(&file, &written, dropped),
            Err(error) => fail(&format!("{error:#}"), EXIT_USAGE),
        }
    })
}

fn conclude(file: &Path, written: &RecordingState, dropped: u64) -> ExitCode {
    let RecordingState { records, bytes, error } = written;
    let place = file.display();
    let printed =
        print_line(&format!("recorded {records} commands ({bytes} bytes) in {place}; {dropped} were not recorded"));
    match error {
        Some(error) => fail(&format!("{place}: {error}; the capture is incomplete"), 1),
        None => printed.into(),
    }
}

/// Runs the proxy until a signal; returns the result of writing, and the number of dropped records.
async fn record(settings: ConfigFile, capture: File) -> Result<(RecordingState, u64)> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let (config, service) = configure(settings).await?;
    let (queue, records) = channel();
    let counts = Arc::new(RecordCounts::default());
    let sink = Sink::new(queue, counts.clone());
    let writer = std::thread::spawn({
        let counts = counts.clone();
        move || write_all(capture, &records, &counts)
    });
    let recorder = Arc::new(ArcSwap::from_pointee(Recorder::new(sink.clone())));
    let proxy = Proxy::open(config, Vec::new(), recorder, Arc::new(service)).await?;
    announce(&proxy, None)?;
    let shutdown = async {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: draining"),
            _ = interrupt.recv() => tracing::info!("SIGINT: draining"),
        }
    };
    proxy.serve(shutdown, || {}).await;
    sink.close();
    let written = tokio::task::spawn_blocking(move || writer.join()).await.context("the writer thread was stopped")?;
    match written {
        Ok(written) => Ok((written, counts.dropped())),
        Err(_) => bail!("the writer thread failed; its error is above"),
    }
}

/// Writes records until the queue ends. Flushes whenever the queue is empty, so that the file then ends with a record.
fn write_all(capture: File, records: &Receiver<Option<Vec<u8>>>, counts: &RecordCounts) -> RecordingState {
    let mut written = RecordingState::default();
    let mut file = BufWriter::with_capacity(1 << 20, capture);
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
        if written.error.is_some() {
            counts.drop_one();
            continue;
        }
        let result = file.write_all(&record);
        if result.is_ok() {
            written.records += 1;
            written.bytes += record.len() as u64;
        } else {
            counts.drop_one();
        }
        note_error(result, &mut written);
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

/// Opens a new capture, or an existing one at its end. Only its owner can read it, because it contains documents.
fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let length = file.metadata()?.len();
    if length == 0 {
        file.write_all(&capture::header())?;
        return Ok(file);
    }
    let mut reader = BufReader::new(&mut file);
    let mut start = vec![0; capture::header().len()];
    let read = reader.read_exact(&mut start);
    if read.is_err() || start != capture::header() {
        bail!("the file exists and is not a capture; choose another name");
    }
    let end = end_of_last(&mut reader, length)?;
    // A killed process may have left a partial record.
    file.set_len(end)?;
    file.seek(SeekFrom::Start(end))?;
    Ok(file)
}

/// The offset at which the last whole record ends. The reader is positioned after the header.
fn end_of_last(reader: &mut BufReader<&mut File>, length: u64) -> Result<u64> {
    let mut end = capture::header().len() as u64;
    let mut prefix = [0; 4];
    loop {
        match reader.read_exact(&mut prefix) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(end),
            other => other?,
        }
        let record = u64::from(u32::from_le_bytes(prefix));
        if !(5..=capture::MAX_RECORD_LENGTH as u64).contains(&record) {
            bail!("the capture is damaged at byte {end}; choose another name");
        }
        if end + record > length {
            return Ok(end);
        }
        end += record;
        reader.seek_relative(i64::try_from(record).unwrap_or(i64::MAX) - 4)?;
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
        (0..3).for_each(|_| queue.send(Some(vec![0; 2 << 20])).unwrap());
        sink.close();
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let written = write_all(full, &records, &counts);
        assert!(written.error.is_some());
        assert_eq!(counts.dropped(), 3);
    }
}
