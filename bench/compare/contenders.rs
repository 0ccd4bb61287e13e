//! The contenders: servers and the proxies in front of them, each a process of its own so that CPU and memory are
//! measured per process. Uses the fixtures of the integration tests to start and stop them.

use std::net::TcpStream;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use bson::doc;
use tempfile::TempDir;

use super::{frames, usage};
use support::cpu_time;
use support::mongod::{Kind, Mongod};
use support::process::{ChildGuard, Lines, TIMEOUT, free_port, poll};
use support::proxy::Docward;

/// A server, and the processes that keep it running.
pub(crate) struct Upstream {
    address: String,
    /// Its connection string.
    uri: String,
    _process: Process,
}

/// One path to the server.
pub(crate) struct Contender {
    /// Where clients connect.
    pub(crate) address: String,
    /// The proxy process; `None` for a direct connection.
    process: Option<Process>,
    /// The process whose CPU and memory are measured instead of the proxy's.
    measured: Option<u32>,
}

#[allow(dead_code, reason = "a process and its folder live as long as this does")]
enum Process {
    Docward(Docward),
    Mongod(Mongod),
    Other(ChildGuard, TempDir),
}

/// A thousand rules that match none of the messages, and a few rules for one collection each.
pub(crate) fn thousand_rules() -> String {
    let rewriting = frames::rewriting_rules();
    let (_, rewriting) = rewriting.split_once("rules:\n").unwrap_or_default();
    frames::unrelated_rules(1_000) + rewriting
}

impl Upstream {
    pub(crate) fn canned() -> Result<Self> {
        let (address, process) = own(&["serve", "canned"])?;
        Ok(Self { uri: format!("mongodb://{address}/"), address, _process: process })
    }

    /// A mongod that stores a document for each connection's reads and updates.
    pub(crate) fn mongod(kind: Kind, connections: usize) -> Result<Self> {
        let mongod = Mongod::start(kind);
        let device = |id| doc! { "_id": id, "name": "a device", "temperature": 0.0 };
        let documents: Vec<_> = (0..connections as i64).map(device).collect();
        let reply = mongod.command("bench", doc! { "insert": "devices", "documents": documents });
        ensure!(reply.get_f64("ok").is_ok_and(|ok| ok == 1.0), "the documents could not be inserted: {reply}");
        Ok(Self { address: mongod.address(), uri: mongod.uri(), _process: Process::Mongod(mongod) })
    }

    /// The connections that a mongod has now, without the one that asks.
    ///
    /// # Errors
    /// It is not a mongod, or does not report them.
    pub(crate) fn connections(&self) -> Result<usize> {
        let Process::Mongod(mongod) = &self._process else { bail!("not a mongod") };
        let status = mongod.command("admin", doc! { "serverStatus": 1 });
        let open = status.get_document("connections")?.get_i32("current")?;
        Ok(usize::try_from(open)?.saturating_sub(1))
    }
}

impl Contender {
    pub(crate) fn direct(upstream: &Upstream) -> Self {
        Self { address: upstream.address.clone(), process: None, measured: None }
    }

    /// A server that another value keeps running, with no proxy in front.
    pub(crate) fn server(address: String) -> Self {
        Self { address, process: None, measured: None }
    }

    /// A docward that already runs in front of its upstream.
    pub(crate) fn running(docward: Docward) -> Self {
        Self { address: docward.address(), process: Some(Process::Docward(docward)), measured: None }
    }

    pub(crate) fn relay(upstream: &Upstream) -> Result<Self> {
        let (address, process) = own(&["serve", "relay", &upstream.address])?;
        Ok(Self { address, process: Some(process), measured: None })
    }

    pub(crate) fn docward(upstream: &Upstream, rules: &str) -> Self {
        Self::running(Docward::before(&upstream.uri).rules(rules).start())
    }

    /// docward with a pool of this size, as a router or a listener of a member.
    pub(crate) fn pooled(upstream: &Upstream, rules: &str, size: usize, topology: &str) -> Self {
        let size = size.to_string();
        let docward = Docward::before(&upstream.uri).rules(rules).argument("--pool-size").argument(&size);
        Self::running(docward.argument("--topology").argument(topology).start())
    }

    /// HAProxy in TCP mode with one thread per core; `None` if it is not installed.
    pub(crate) fn haproxy(upstream: &Upstream) -> Result<Option<Self>> {
        let version = Command::new("haproxy").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !version.is_ok_and(|status| status.success()) {
            eprintln!("HAProxy is skipped: no `haproxy` on the PATH (on Debian: apt-get install haproxy)");
            return Ok(None);
        }
        let folder = tempfile::Builder::new().prefix("docward-bench-").tempdir()?;
        let address = format!("127.0.0.1:{}", free_port());
        let file = folder.path().join("haproxy.cfg");
        let configuration = format!(
            "global\n  maxconn 9920\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 5m\n  \
             timeout server 5m\nfrontend clients\n  bind {address}\n  default_backend upstream\nbackend upstream\n  \
             server upstream {}\n",
            upstream.address
        );
        std::fs::write(&file, configuration)?;
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let process = ChildGuard::spawn(&mut command, folder.path());
        poll(TIMEOUT, || TcpStream::connect(&address).ok()).context("haproxy does not listen")?;
        Ok(Some(Self { address, process: Some(Process::Other(process, folder)), measured: None }))
    }

    /// Measures CPU and memory of the server instead of the proxy.
    pub(crate) fn measuring(mut self, upstream: &Upstream) -> Self {
        self.measured = match &upstream._process {
            Process::Mongod(mongod) => Some(mongod.pid()),
            _ => None,
        };
        self
    }

    fn pid(&self) -> Option<u32> {
        if self.measured.is_some() {
            return self.measured;
        }
        self.process.as_ref().map(|process| match process {
            Process::Docward(docward) => docward.pid(),
            Process::Mongod(mongod) => mongod.pid(),
            Process::Other(process, _) => process.pid(),
        })
    }

    /// CPU time of the proxy process so far.
    pub(crate) fn cpu(&self) -> Result<Option<std::time::Duration>> {
        match self.measured {
            Some(server) => Ok(Some(cpu_time::of_process(server))),
            None => self.pid().map(usage::cpu).transpose(),
        }
    }

    /// Resident memory of the proxy process in bytes.
    pub(crate) fn resident(&self) -> Result<u64> {
        usage::resident(self.pid().context("nothing is in between")?)
    }
}

/// Starts this program in another role; returns the address it prints.
fn own(arguments: &[&str]) -> Result<(String, Process)> {
    let folder = tempfile::Builder::new().prefix("docward-bench-").tempdir()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = ChildGuard::spawn(&mut command, folder.path());
    let output = Lines::collect(process.child().stdout.take().context("no output")?);
    let line = output.wait_for("listening on ", 1, TIMEOUT).pop().context("a server of the benchmark did not start")?;
    Ok((line.replacen("listening on ", "", 1), Process::Other(process, folder)))
}
