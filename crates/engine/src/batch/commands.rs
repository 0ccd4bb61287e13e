//! Builds the commands of a statement's transaction and parses their replies.

use std::borrow::Cow;
use std::time::Duration;

use super::super::server_errors::{RETRYABLE_WRITE, has_label};
use super::BatchJob;
use crate::command::own::{self, CommandSession, Find, abort_transaction, own_command};
use crate::command::{Command, Namespace, Operation, OwnTransaction, Reply, Statement, WriteForm, is_unacknowledged};
use crate::document::{CowDocument, Document, Element, Value, Writer};
use crate::patterns::Collection;
use crate::patterns::Measured;
use crate::patterns::collation::write_simple_collation;
use crate::wire::op_msg;

/// The field with a command's time limit.
pub(super) const MAX_TIME: &str = "maxTimeMS";

// What the commands are for, for people who read them in a log or profile.
const ASKS: &str = docward_protocol::marked!("asks for an earlier send");
const ENDS: &str = docward_protocol::marked!("ends the transaction");

/// Builds the commands of one transaction.
pub(super) struct TransactionCommands<'j, 'f> {
    job: &'j BatchJob<'f>,
    own: Option<OwnTransaction>,
}

impl<'f> BatchJob<'f> {
    /// Builds commands on the client's connection: in docward's own transaction, or beside the client's statements.
    pub(super) fn commands(&self, own: Option<OwnTransaction>) -> TransactionCommands<'_, 'f> {
        TransactionCommands { job: self, own }
    }
}

impl TransactionCommands<'_, '_> {
    /// Returns a find for the documents that the statement would change, with its filter and sort.
    pub(super) fn select(&self, statement: &Statement<'_>, limit: i32, fields: Document<'_>) -> Vec<u8> {
        let filter = match &statement.operation {
            Operation::Update(update) => update.selection(),
            Operation::Delete(delete) => Cow::Borrowed(&delete.filter),
            Operation::Insert(_) => return self.find(statement, Document::EMPTY, limit, fields),
        };
        let constants = self.job.command.body.get("let");
        self.query(self.job.batch.namespace(statement), filter.as_document(), limit, fields, |w| {
            write_selecting_options(w, statement);
            if let Some(constants) = constants {
                w.value("let", constants);
            }
        })
    }

    /// Returns a find for the `_id`s and sizes of the documents that the statement would change: of one, or of all in
    /// several batches.
    pub(super) fn select_ids(&self, statement: &Statement<'_>) -> Vec<u8> {
        let namespace = self.job.batch.namespace(statement);
        let selection = statement.selection();
        let filter = selection.as_ref().map_or(Document::EMPTY, |selection| selection.as_document());
        self.cursor(namespace, filter, None, |w| {
            w.nested("projection", |w| {
                w.int32("_id", 1);
                w.nested("size", |w| w.string("$bsonSize", "$$ROOT"));
            });
            write_selecting_options(w, statement);
            match (statement.is_multi(), statement.option("sort")) {
                (true, _) => {}
                (false, Some(_)) => w.int32("limit", 1),
                // With a limit the server ranks plans otherwise than for the statement.
                (false, None) => {
                    w.int32("batchSize", 2);
                    w.boolean("singleBatch", true);
                }
            }
            self.write_variables(w, statement);
        })
    }

    /// Returns a find for whole documents in several batches, with the simple collation, and with a time limit if the
    /// client's is not shorter.
    pub(super) fn find_whole(
        &self,
        statement: &Statement<'_>,
        filter: Document<'_>,
        limit: Option<Duration>,
    ) -> Vec<u8> {
        self.cursor(self.job.batch.namespace(statement), filter, limit, write_simple_collation)
    }

    fn cursor(
        &self,
        namespace: Namespace<'_>,
        filter: Document<'_>,
        limit: Option<Duration>,
        more: impl FnOnce(&mut Writer<'_>),
    ) -> Vec<u8> {
        own::cursor(&self.job.command, self.session(), namespace.database, |w| {
            w.string("find", namespace.collection);
            w.value("filter", Value::document(filter));
            more(w);
            self.write_time_of_find(w, limit);
        })
    }

    /// Without a limit a server's default for reads would apply, which does not limit writes.
    fn write_time_of_find(&self, w: &mut Writer<'_>, limit: Option<Duration>) {
        let limit = self.job.max_time().into_iter().chain(limit).min();
        w.integer(MAX_TIME, limit.map_or(0, milliseconds));
    }

    /// Returns a getMore for such a find.
    pub(super) fn more(&self, statement: &Statement<'_>, cursor: i64) -> Vec<u8> {
        let namespace = self.job.batch.namespace(statement);
        own_command(&self.job.command, self.session(), namespace.database, |w| {
            w.slot("getMore").int64(cursor);
            w.string("collection", namespace.collection);
        })
    }

    /// Returns the statement as a findAndModify that returns the document before.
    pub(super) fn write_first(&self, statement: &Statement<'_>) -> Vec<u8> {
        let namespace = self.job.batch.namespace(statement);
        let body = self.job.command.body;
        self.command(namespace.database, |w| {
            w.string("findAndModify", namespace.collection);
            statement.write_as_find_and_modify(w);
            for name in ["bypassDocumentValidation", "comment"] {
                if let Some(value) = body.get(name) {
                    w.value(name, value);
                }
            }
            self.write_variables(w, statement);
        })
    }

    /// Writes the variables of the command and the constants of the statement, which only updates have apart.
    fn write_variables(&self, w: &mut Writer<'_>, statement: &Statement<'_>) {
        let constants = statement.constants().unwrap_or(Document::EMPTY);
        match self.job.command.body.get("let").map(|variables| (variables, variables.as_document())) {
            None if constants.is_empty() => {}
            // The server reports that it is malformed.
            Some((variables, None)) => w.value("let", variables),
            Some((_, variables)) => w.nested("let", |w| {
                let variables = variables.unwrap_or(Document::EMPTY).elements();
                variables.filter(|one| constants.get(one.key).is_none()).for_each(|one| w.element(one));
                w.elements(constants);
            }),
            None => w.value("let", Value::document(constants)),
        }
    }

    /// Returns a find for one document that the statement selects.
    pub(super) fn matching(&self, statement: &Statement<'_>, fields: &[&str], measured: &[Measured]) -> Vec<u8> {
        let fields = CowDocument::build(|w| {
            w.int32("_id", 1);
            fields.iter().filter(|field| **field != "_id").for_each(|field| w.int32(field, 1));
            for (index, value) in measured.iter().enumerate() {
                // Several rules may need one value.
                if !measured.iter().take(index).any(|known| known.name == value.name) {
                    w.value(&value.name, Value::document(value.expression.as_document()));
                }
            }
        });
        self.select(statement, 1, fields.as_document())
    }

    /// Returns an update command that checks many filters at once: the update fails for each statement whose own
    /// filter, without the rules' conditions, matches a document.
    pub(super) fn match_all(&self, namespace: Namespace<'_>, statements: &[&Statement<'_>]) -> Vec<u8> {
        let Namespace { database, collection } = namespace;
        self.command(database, |w| {
            w.string("update", collection);
            w.array("updates", |a| statements.iter().for_each(|statement| a.nested(|w| write_match(w, statement))));
            w.boolean("ordered", false);
            // Nothing is written, so there is nothing to replicate.
            w.nested("writeConcern", |w| w.int32("w", 1));
            if let Some(constants) = self.job.command.body.get("let") {
                w.value("let", constants);
            }
        })
    }

    /// Returns a command that changes nothing; the reply names the statements with these numbers that the server has
    /// recorded in the client's session. All are of the kind of `statement`, except that inserts are recorded like upserts.
    pub(super) fn records(&self, statement: &Statement<'_>, ids: &[i32]) -> Vec<u8> {
        let Namespace { database, collection } = self.job.batch.namespace(statement);
        let deletes = matches!(statement.operation, Operation::Delete(_));
        let (name, list) = if deletes { ("delete", "deletes") } else { ("update", "updates") };
        own_command(&self.job.command, CommandSession::Write, database, |w| {
            w.string(name, collection);
            w.array(list, |a| {
                ids.iter().for_each(|_| {
                    a.nested(|w| {
                        w.nested("q", |w| {
                            w.nested("_id", |w| w.array("$in", |_| {}));
                            w.string("$comment", ASKS);
                        });
                        write_change(w, deletes);
                    });
                });
            });
            w.boolean("ordered", false);
            w.array("stmtIds", |a| ids.iter().for_each(|id| a.int32(*id)));
            // Nothing is written, so there is nothing to replicate.
            w.nested("writeConcern", |w| w.int32("w", 1));
            self.write_max_time(w);
        })
    }

    /// Returns a write like `statement` that the server rejects before it looks for documents. As the first command of a
    /// transaction it begins that, and the error ends it.
    pub(super) fn failing(&self, statement: &Statement<'_>) -> Vec<u8> {
        let Namespace { database, collection } = self.job.batch.namespace(statement);
        let deletes = matches!(statement.operation, Operation::Delete(_));
        self.command(database, |w| match &statement.operation {
            Operation::Insert(_) => {
                w.string("insert", collection);
                // No `_id` is an array.
                w.array("documents", |a| a.nested(|w| w.array("_id", |a| a.string(ENDS))));
            }
            Operation::Update(_) | Operation::Delete(_) => {
                let (name, list) = if deletes { ("delete", "deletes") } else { ("update", "updates") };
                w.string(name, collection);
                w.array(list, |a| {
                    a.nested(|w| {
                        w.nested("q", |w| w.string("$docwardEndsTheTransaction", ENDS));
                        write_change(w, deletes);
                    });
                });
            }
        })
    }

    pub(super) fn find(
        &self,
        statement: &Statement<'_>,
        filter: Document<'_>,
        limit: i32,
        fields: Document<'_>,
    ) -> Vec<u8> {
        self.query(self.job.batch.namespace(statement), filter, limit, fields, |w| {
            write_simple_collation(w);
        })
    }

    /// Returns a find in another collection.
    pub(super) fn find_in(
        &self,
        collection: &Collection,
        filter: Document<'_>,
        limit: i32,
        fields: Document<'_>,
    ) -> Vec<u8> {
        self.query(collection.namespace(), filter, limit, fields, |_| {})
    }

    fn query(
        &self,
        namespace: Namespace<'_>,
        filter: Document<'_>,
        limit: i32,
        fields: Document<'_>,
        more: impl FnOnce(&mut Writer<'_>),
    ) -> Vec<u8> {
        let found = Find { namespace, filter, projection: fields, limit };
        own::find(&self.job.command, self.session(), found, |w| {
            more(w);
            self.write_time_of_find(w, None);
        })
    }

    /// Returns an update or delete command with these statements, in order.
    pub(super) fn write(
        &self,
        statement: &Statement<'_>,
        name: &str,
        list: &str,
        statements: &[CowDocument<'static>],
    ) -> Vec<u8> {
        self.change(self.job.batch.namespace(statement), name, list, statements)
    }

    /// Returns an update command for another collection.
    pub(super) fn update_in(&self, collection: &Collection, statements: &[CowDocument<'static>]) -> Vec<u8> {
        self.change(collection.namespace(), "update", "updates", statements)
    }

    fn change(&self, namespace: Namespace<'_>, name: &str, list: &str, statements: &[CowDocument<'static>]) -> Vec<u8> {
        let Namespace { database, collection } = namespace;
        self.command(database, |w| {
            w.string(name, collection);
            w.array(list, |a| {
                for statement in statements {
                    a.nested(|w| statement.as_document().elements().for_each(|element| write_marked(w, element)));
                }
            });
        })
    }

    /// Returns commitTransaction with the client's write concern.
    pub(super) fn commit(&self) -> Vec<u8> {
        let concern = self.job.command.body.get("writeConcern").filter(|concern| !is_unacknowledged(*concern));
        // maxTimeMS also limits the wait for the write concern.
        self.command("admin", |w| {
            w.int32("commitTransaction", 1);
            if let Some(concern) = concern {
                w.value("writeConcern", concern);
            }
        })
    }

    pub(super) fn abort(&self) -> Vec<u8> {
        abort_transaction(&self.job.command, self.session())
    }

    /// Builds a command with the client's time limit.
    fn command(&self, database: &str, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        own_command(&self.job.command, self.session(), database, |w| {
            write(w);
            self.write_max_time(w);
        })
    }

    fn write_max_time(&self, w: &mut Writer<'_>) {
        if let Some(left) = self.job.max_time() {
            w.integer(MAX_TIME, milliseconds(left));
        }
    }

    fn session(&self) -> CommandSession {
        match self.own {
            Some(own) => CommandSession::Own(own),
            None => CommandSession::Client { begun: self.job.has_begun_transaction() },
        }
    }
}

/// Writes the options that decide which documents a statement selects.
fn write_selecting_options(w: &mut Writer<'_>, statement: &Statement<'_>) {
    for name in ["sort", "hint", "collation"] {
        if let Some(value) = statement.option(name) {
            w.value(name, value);
        }
    }
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Writes a field of a statement of docward's own.
fn write_marked(w: &mut Writer<'_>, element: Element<'_>) {
    match element.value.as_document().filter(|_| element.key == b"q") {
        Some(filter) => w.nested("q", |w| {
            w.elements(filter);
            w.string("$comment", docward_protocol::marked!("belongs to a statement"));
        }),
        None => w.element(element),
    }
}

/// Writes the rest of a statement that matches nothing.
fn write_change(w: &mut Writer<'_>, deletes: bool) {
    if deletes {
        w.int32("limit", 1);
    } else {
        w.nested("u", |w| w.nested("$unset", |w| w.string("_id", ASKS)));
    }
}

/// Writes a statement's filter with an update that the server rejects for every document.
fn write_match(w: &mut Writer<'_>, statement: &Statement<'_>) {
    let Operation::Update(update) = &statement.operation else { return };
    w.value("q", Value::document(update.filter.as_document()));
    w.nested("u", |w| w.nested("$unset", |w| w.string("_id", docward_protocol::marked!("looks for a match"))));
    for name in ["hint", "collation"] {
        if let Some(value) = statement.option(name) {
            w.value(name, value);
        }
    }
}

/// Returns the reply to a statement as of the commit: with its time and its write concern error. The server marks every
/// commit as retryable; the label is kept only if a retried write gets the same reply (`repeatable`).
pub(super) fn as_committed(applied: &[u8], commit: &Reply<'_>, repeatable: bool) -> Option<Vec<u8>> {
    let applied = Reply::parse(applied).ok()?;
    let time = commit.body.get("operationTime");
    Some(applied.with_body(applied.message.header.response_to, |w| {
        for element in applied.body.elements() {
            match (element.key, element.value.as_document(), time) {
                // The statement's is that of the session's last write before the transaction. The term is the same:
                // an election would have ended the transaction.
                (b"opTime", Some(before), Some(time)) => w.nested("opTime", |w| {
                    w.value("ts", time);
                    before.get("t").into_iter().for_each(|term| w.value("t", term));
                }),
                _ => w.element(element),
            }
        }
        match commit.write_concern_error() {
            Some(error) => w.value("writeConcernError", error),
            // It has failed after it took effect.
            None if !commit.is_ok() => w.nested("writeConcernError", |w| {
                let kept = |element: &Element<'_>| matches!(element.key, b"code" | b"codeName" | b"errmsg");
                commit.body.elements().filter(kept).for_each(|element| w.element(element));
            }),
            None => {}
        }
        let has_failed = commit.write_concern_error().is_some() || !commit.is_ok();
        if has_failed && repeatable && has_label(commit, RETRYABLE_WRITE) {
            w.array("errorLabels", |labels| labels.string(RETRYABLE_WRITE));
        }
    }))
}

/// Returns the reply to a statement of which is only known that it was committed. Transactions that match nothing are
/// not committed, so the count is 1. Returns `None` if the reply needs more than that.
pub(super) fn remembered_reply(command: &Command<'_>, form: WriteForm, operation: &Operation<'_>) -> Option<Vec<u8>> {
    let count_suffices = match operation {
        Operation::Insert(_) => true,
        Operation::Update(update) => !update.upsert && !update.multi,
        Operation::Delete(delete) => !delete.multi,
    };
    if !count_suffices || !matches!(form, WriteForm::Insert | WriteForm::Update | WriteForm::Delete) {
        return None;
    }
    let mut writer = op_msg::MessageWriter::new(0, command.message.header.request_id, 0, 64);
    writer.body(|out| {
        Writer::document(out, |w| {
            w.int32("n", 1);
            if form == WriteForm::Update {
                w.int32("nModified", 1);
            }
            w.double("ok", 1.0);
        });
    });
    Some(writer.finish())
}
