//! The instrumented docward process.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) struct Docward {
    process: Child,
    address: String,
    /// Its further output; without a reader, docward would end.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Docward {
    /// Starts it in front of `upstream`.
    pub(crate) fn start(program: &str, upstream: &str, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--upstream", upstream]).args(arguments);
        command.env("RUST_LOG", "error").stdout(Stdio::piped());
        let mut process = command.spawn().with_context(|| format!("{program} does not start"))?;
        let mut lines = BufReader::new(process.stdout.take().context("no output")?).lines();
        let line = lines.next().context("docward ended at once")??;
        let address = line.strip_prefix("listening on ").context("docward does not listen")?.to_owned();
        Ok(Self { process, address, _output: lines })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Lets it end by itself, because only then it writes its counts.
    pub(crate) fn end(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.process), Signal::TERM)?;
        let status = self.process.wait()?;
        ensure!(status.success(), "docward ended with {status}");
        Ok(())
    }
}

impl Drop for Docward {
    fn drop(&mut self) {
        // The process has already ended unless the training failed.
        let _ = self.process.kill();
    }
}

/// Runs `docward` on captured traffic and on the rules' own tests: these patterns get no useful canned reply.
pub(crate) fn evaluate(program: &str, root: &Path) -> Result<()> {
    let captures = root.join("bench/shell");
    for name in ["devices", "inbox", "jobs", "library", "shop"] {
        let capture = captures.join(format!("captures/{name}.bson"));
        let rules = captures.join(format!("{name}.yaml"));
        without_output(Command::new(program).arg("audit").arg(capture).arg("--rules").arg(rules))?;
    }
    for entry in fs::read_dir(root.join("rules"))? {
        without_output(Command::new(program).arg("test").arg(entry?.path()))?;
    }
    Ok(())
}

fn without_output(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
