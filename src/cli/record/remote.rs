//! Receives a capture from the admin address of a running `docward serve`.

use std::io::Read;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use super::RecordingState;
use super::file::{CaptureFile, CaptureLimits};
use crate::admin::{CaptureEndRequest, CaptureRequest};
use crate::audit::capture::{CaptureEnd, Record, header};
use crate::cli::admin_client::{self, AdminRequest, OpenReply};
use crate::cli::config_file::read_secret_file;
use crate::cli::mode::user_and_host;
use crate::cli::traffic::entries::records;
use crate::cli::values;
use crate::document::Document;
use crate::secret::Secret;

/// How long after its end the rest of a capture may take.
const GRACE: Duration = Duration::from_secs(60);
/// The longest that records wait to be written to the file while others follow.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// What to record.
pub(super) struct RemoteCapture {
    pub(super) address: SocketAddr,
    pub(super) token_file: Option<PathBuf>,
    pub(super) length: Duration,
    /// In bytes.
    pub(super) size: Option<usize>,
    pub(super) apps: Vec<String>,
}

/// Records until the capture ends; a signal ends it early.
///
/// # Errors
/// Nothing was recorded: the admin address refuses, or the file cannot be written.
pub(super) fn record(wanted: RemoteCapture, path: &Path) -> Result<RecordingState> {
    let RemoteCapture { address, token_file, length, size, apps } = wanted;
    let token =
        token_file.map(|path| read_secret_file(&path, values::token)).transpose().context("--admin-token-file")?;
    let request = CaptureRequest {
        length: format!("{}ms", length.as_millis()),
        size: size.map(|size| format!("{size}B")),
        apps,
        by: Some(user_and_host()),
    };
    let body = serde_json::to_string(&request)?;
    let request = AdminRequest { path: "/api/capture", token: token.as_ref(), body: Some(&body) };
    let mut reply = admin_client::open(address, &request).map_err(|reason| anyhow!(reason))?;
    if reply.status != 200 {
        bail!(refusal(address, reply));
    }
    let path_shown = path.display().to_string();
    let limits = CaptureLimits { size: u64::MAX, kept: 0 };
    let mut file = CaptureFile::open(path, limits).context(path_shown)?;
    let socket = reply.body.get_ref();
    // No record may come for long.
    socket.set_read_timeout(Some(length + GRACE))?;
    end_on_signal(address, token, socket.try_clone()?)?;
    Ok(receive(&mut reply.body, &mut file))
}

fn refusal(address: SocketAddr, reply: OpenReply) -> String {
    let OpenReply { status, body } = reply;
    let body = admin_client::text_of(body).unwrap_or_default();
    let text = serde_json::from_str::<serde_json::Value>(&body).unwrap_or_default();
    let reason = text["error"].as_str().unwrap_or(body.trim());
    let token = if status == 401 { " (--admin-token-file)" } else { "" };
    format!("docward at {address} returned {status}: {reason}{token}")
}

/// Writes what comes to the file.
fn receive(stream: &mut impl Read, file: &mut CaptureFile) -> RecordingState {
    let mut written = RecordingState::default();
    let (mut end, mut flushed) = (None, Instant::now());
    let received = skip_header(stream).and_then(|()| {
        records(stream, &mut |_, record| {
            written.bytes += record.len() as u64;
            end = CaptureEnd::parse(record);
            written.end.commands += u64::from(is_command(record));
            file.write(record)?;
            if flushed.elapsed() > FLUSH_INTERVAL {
                flushed = Instant::now();
                file.flush()?;
            }
            Ok(())
        })
    });
    let whole = received.and_then(|damage| match damage {
        Some(damage) => bail!("the connection to docward ended early: {damage}"),
        None => Ok(()),
    });
    let flushed = whole.and(file.flush().map_err(Into::into));
    match end {
        Some(end) => written.end = end,
        None => written.error = Some(anyhow!("the connection to docward ended before the capture")),
    }
    written.error = flushed.err().or(written.error);
    written
}

fn skip_header(stream: &mut impl Read) -> Result<()> {
    let mut start = vec![0; header().len()];
    stream.read_exact(&mut start).context("the connection to docward ended early")?;
    if start != header() {
        bail!("docward sent something else than a capture of this version");
    }
    Ok(())
}

fn is_command(record: &[u8]) -> bool {
    Document::parse(record).is_ok_and(|record| matches!(Record::parse(record), Some(Record::Command { .. })))
}

/// Asks docward to end the capture at SIGINT or SIGTERM. Its last records then still come; if it does not reply, nothing
/// does.
fn end_on_signal(address: SocketAddr, token: Option<Secret>, socket: TcpStream) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    let guard = runtime.enter();
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    drop(guard);
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        });
        let body = serde_json::to_string(&CaptureEndRequest { by: Some(user_and_host()) }).unwrap_or_default();
        let request = AdminRequest { path: "/api/capture/end", token: token.as_ref(), body: Some(&body) };
        if admin_client::send(address, &request).is_err() {
            // An error means that it has ended already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    });
    Ok(())
}
