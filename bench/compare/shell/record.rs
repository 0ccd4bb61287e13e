//! Makes the captures: `docward record` runs between the shells and their server.
//!
//! The commands that fill the collections are recorded in front of the server. The other commands are recorded in
//! front of a docward with the workloads' rules, before it changes them, so a capture has what applications send to
//! docward.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bson::{Document, RawDocumentBuf};

use super::deployment::Deployment;
use super::mongosh::{self, Amount, Numbers};
use super::{Recorded, WORKLOADS, capture, capture_file};
use support::proxy::Docward;

/// Small enough to store in the repository.
const AMOUNT: Amount = Amount { shells: 4, rounds: 40 };

/// Records all workloads, and writes the commands of each to its file.
pub(crate) fn record_all() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("docward-bench-").tempdir()?;
    let deployment = Deployment::start()?;
    let (setup, traffic) = (folder.path().join("setup.bson"), folder.path().join("traffic.bson"));
    record(&deployment.mongod.uri(), &setup, mongosh::set_up)?;
    let protected = deployment.protected();
    record(&protected.uri(), &traffic, |uri| mongosh::work(uri, AMOUNT, Numbers::Docward).map(|_| ()))?;
    split(&setup, Recorded::Setup)?;
    split(&traffic, Recorded::Traffic)
}

/// Runs `shells` through a recorder in front of `upstream`.
fn record(upstream: &str, file: &Path, shells: impl Fn(&str) -> Result<()>) -> Result<()> {
    let file = file.to_str().context("a path")?;
    let mut recorder = Docward::before(upstream).subcommand("record").argument(file).start();
    shells(&recorder.uri())?;
    ensure!(recorder.terminate().success(), "docward record failed:\n{}", recorder.log().join("\n"));
    Ok(())
}

fn split(file: &Path, of: Recorded) -> Result<()> {
    let (header, records) = capture::read(file)?;
    for workload in WORKLOADS {
        let mut out = File::create(capture_file(workload, of))?;
        write(&mut out, &header)?;
        for record in records.iter().filter(|record| capture::belongs_to(record, workload)) {
            write(&mut out, record)?;
        }
    }
    Ok(())
}

fn write(out: &mut File, document: &Document) -> Result<()> {
    let bytes = RawDocumentBuf::try_from(document)?;
    Ok(std::io::Write::write_all(out, bytes.as_bytes())?)
}
