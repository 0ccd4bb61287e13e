//! The server that the workloads run on, and the docward processes in front of it.

use anyhow::{Result, ensure};
use bson::{Document, doc};

use super::super::contenders::Contender;
use super::mongosh;
use support::mongod::{Kind, Mongod};
use support::process::repository;
use support::proxy::Docward;

/// A replica set of one member, because retryable writes need one.
pub(crate) struct Deployment {
    pub(crate) mongod: Mongod,
}

impl Deployment {
    /// Starts it with the workloads' collections and indexes.
    pub(crate) fn start() -> Result<Self> {
        let mongod = Mongod::start(Kind::ReplicaSet);
        mongosh::set_up(&mongod.uri())?;
        Ok(Self { mongod })
    }

    /// docward with the workloads' rules.
    pub(crate) fn protected(&self) -> Docward {
        Docward::before(&self.mongod.uri()).rules_path(repository("bench/shell")).start()
    }

    /// docward without rules.
    pub(crate) fn unprotected(&self) -> Docward {
        Docward::before(&self.mongod.uri()).start()
    }

    pub(crate) fn direct(&self) -> Contender {
        Contender::server(self.mongod.address())
    }

    /// Stores the number of changes that the server acknowledged, which the check compares with the documents.
    pub(crate) fn note_acknowledged(&self, workload: &str, changes: Document) -> Result<()> {
        let all = doc! { "q": { "workload": workload }, "limit": 0 };
        self.command(doc! { "delete": "acknowledged", "deletes": [all] })?;
        let record = doc! { "workload": workload, "changes": changes };
        self.command(doc! { "insert": "acknowledged", "documents": [record] })
    }

    fn command(&self, command: Document) -> Result<()> {
        let reply = self.mongod.command("meeting", command);
        ensure!(reply.get_f64("ok").is_ok_and(|ok| ok == 1.0), "{reply}");
        Ok(())
    }
}
