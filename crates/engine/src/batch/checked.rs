//! Carries out checked statements: the server executes them in a transaction, and the promises of the rules are asked for
//! each document before and after.
//!
//! A statement for one document is sent first in docward's own transaction, as a findAndModify: so it holds the document,
//! and what it returns is the state before. Otherwise the `_id`s are selected first, outside the transaction. The
//! statement, narrowed to them, is then the transaction's first command. Its documents after are read inside, and those
//! before outside: they are held, so what is committed there is the state before. Inside the client's transaction all
//! reads are part of it.

use std::time::Duration;

use smallvec::SmallVec;

use super::super::merge;
use super::super::port::{CommandPurpose, Flow, Port};
use super::super::rejection_text::RejectedBy;
use super::super::server_errors;
use super::checked_reply::{WrittenDocument, as_client_form, differ, with_modified};
use super::selected::{
    MAX_LOST_CURSORS, MAX_SELECTED_LENGTH, SelectedDocuments, by_id, divided, document_with, settled_of, sized_ids,
};
use super::transaction::{AttemptEnd, AttemptResult, RestartReason, SentCommands, TransactionAttempt, end, last};
use super::{BatchJob, Evaluated, Group, conflicts};
use crate::command::{EncodeOptions, Operation, OwnTransaction, Reply, Statement, StatementPart, WriteForm, code};
use crate::document::{CowDocument, Document, OwnedValue};
use crate::effect::equality;
use crate::patterns::{Rejection, may_omit_id};
use crate::rules::Unsupported;

/// Which documents a find reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadIn {
    /// What the transaction sees.
    Transaction,
    /// What is committed. Inside the client's transaction this is what that one sees.
    Committed,
}

impl Evaluated<'_, '_> {
    /// Whether the documents of the statement are checked piece by piece.
    pub(super) fn is_checked_in_pieces(&self) -> bool {
        !self.checked.is_empty() && self.statement.is_multi() && !self.prerequisites.has_procedure()
    }

    /// Adds to the rejection of the statement how many documents it has changed before.
    fn note_changed_before(&mut self, changed: i64) {
        if let Some(rejected) = self.rejected.as_mut().filter(|_| changed > 0) {
            let mut rejection = (*rejected.rejection).clone();
            rejection.reason.push_str(&format!("; {changed} other documents were changed before it"));
            rejected.rejection = rejection.into();
        }
    }
}

impl<'f> BatchJob<'f> {
    /// Carries out a statement for many documents in pieces, each in its own transaction, or all in the client's. Returns
    /// the reply to the last piece; `None` if the statement is rejected or has failed.
    pub(super) async fn transact_pieces(&mut self, index: usize, group: &Group, port: &Port) -> Flow<Option<Vec<u8>>> {
        let Some(statement) = self.as_sent(index, group, &mut []).map(|sent| sent.into_owned()) else {
            return Flow::Continue(None);
        };
        let selected = match self.select(index, &statement, port).await {
            Ok(selected) => selected,
            Err(AttemptEnd::Reply(error)) => return Flow::Continue(Some(error)),
            Err(AttemptEnd::Last(step)) => return Flow::Break(step),
            Err(AttemptEnd::Settled | AttemptEnd::Again(_)) => return Flow::Continue(None),
        };
        let in_transaction = self.in_transaction();
        let mut pieces = divided(selected);
        let mut done: Vec<Vec<u8>> = Vec::new();
        while let Some(piece) = pieces.pop_front() {
            // Before it inserts, each attempt selects again: another client may have inserted.
            let only = Some(&piece).filter(|piece| !piece.0.is_empty() || !statement.is_upsert());
            let Some(frame) = Box::pin(self.transact(index, group, only, port)).await? else {
                if !in_transaction {
                    let changed = self.add_pieces(index, &done);
                    self.evaluated.get_mut(index).into_iter().for_each(|one| one.note_changed_before(changed));
                }
                return Flow::Continue(None);
            };
            if Reply::parse(&frame).is_ok_and(|reply| !reply.is_ok()) {
                // The reply shows what was executed before.
                self.add_pieces(index, &done);
                return Flow::Continue(Some(frame));
            }
            let has_failed = is_failure(&frame, self.batch.form);
            if has_failed && piece.0.len() > 1 && !in_transaction {
                // The server keeps what it has changed before the document that fails.
                piece.0.into_iter().rev().for_each(|id| pieces.push_front(SelectedDocuments(vec![id])));
            } else if has_failed || pieces.is_empty() {
                if !has_failed {
                    self.add_pieces(index, &done);
                }
                return Flow::Continue(Some(frame));
            } else {
                done.push(frame);
            }
        }
        Flow::Continue(None)
    }

    /// Adds the replies to pieces. Returns the number of documents that they changed.
    fn add_pieces(&mut self, index: usize, done: &[Vec<u8>]) -> i64 {
        let mut changed = 0;
        for reply in done.iter().filter_map(|frame| Reply::parse(frame).ok()) {
            changed += merge::matched(&reply, self.batch.form);
            self.merged.add(&reply, self.batch.form, &[index]);
        }
        changed
    }

    /// The fields that a findAndModify returns: as a rule has changed them, or as the client asks for.
    pub(super) fn returned_fields<'s>(&'s self, statement: &'s Statement<'_>) -> Option<Document<'s>> {
        let changed = self.batch.body_changes.iter().find(|(name, _)| *name == "fields");
        changed.map_or_else(|| statement.returned_fields(), |(_, fields)| fields.as_value().as_document())
    }

    /// Whether the statement is sent as a findAndModify, as the first command of docward's own transaction.
    fn is_written_first(&self, statement: &Statement<'_>) -> bool {
        // Only the server knows whether a document that equals the stored one, without its `_id`, counts as modified.
        !statement.is_multi() && self.returned_fields(statement).is_none() && !may_omit_id(&statement.operation)
    }

    /// Whether the question for an earlier send of the statement is sent together with its write.
    pub(super) fn asks_with_write(&self, index: usize) -> bool {
        let [evaluated] = &self.evaluated[..] else { return false };
        let is_only_checked = !evaluated.checked.is_empty() && evaluated.prerequisites.are_none();
        let is_first = index == 0 && evaluated.attempts == 0;
        let session = self.command.session();
        is_first
            && is_only_checked
            && evaluated.rejected.is_none()
            && session.is_retryable_write()
            && !session.in_transaction
            && self.is_written_first(&evaluated.statement)
    }

    /// Selects the documents that the statement applies to, outside docward's own transactions. Returns their `_id`s and
    /// sizes.
    async fn select(
        &mut self,
        index: usize,
        statement: &Statement<'f>,
        port: &Port,
    ) -> Result<Vec<(OwnedValue, i64)>, AttemptEnd> {
        let (mut selected, mut length, mut lost) = (Vec::new(), 0, 0);
        let mut message = self.commands(None).select_ids(statement);
        loop {
            let frame = self.exchange_part(CommandPurpose::Command, message.clone(), || message.clone(), port).await;
            self.transaction_begun = true;
            let Ok(reply) = Reply::parse(&frame) else {
                return Err(last("the server's reply to a find cannot be parsed"));
            };
            match conflicts::is_unreadable(&reply) {
                // The server has aborted the client's transaction.
                true if self.in_transaction() && self.batch.form != WriteForm::FindAndModify => {
                    self.fail(index, &reply);
                    return Err(AttemptEnd::Settled);
                }
                // The server reports the statement's own error when it is executed.
                true if !self.in_transaction() => return Ok(Vec::new()),
                // Its cursor is gone with the member.
                _ if server_errors::is_lost_cursor(&reply) && !self.in_transaction() && lost < MAX_LOST_CURSORS => {
                    (selected, length, lost) = (Vec::new(), 0, lost + 1);
                    message = self.commands(None).select_ids(statement);
                    continue;
                }
                _ if !reply.is_ok() => {
                    drop(reply);
                    return Err(AttemptEnd::Reply(frame));
                }
                _ => {}
            }
            length += frame.len();
            selected.extend(sized_ids(&reply));
            if length > MAX_SELECTED_LENGTH {
                self.reject_for_length(index, port);
                return Err(AttemptEnd::Settled);
            }
            match reply.cursor_id().filter(|cursor| *cursor != 0) {
                Some(cursor) => message = self.commands(None).more(statement, cursor),
                None => return Ok(selected),
            }
        }
    }

    fn reject_for_length(&mut self, index: usize, port: &Port) {
        let checked = self.evaluated.get(index).and_then(|evaluated| evaluated.checked.first().copied());
        let Some(rule) = checked else { return };
        let reason = format!(
            "it must be checked for each document, and the list of its documents is longer than {} MiB",
            MAX_SELECTED_LENGTH >> 20
        );
        let rejection = Rejection::new(reason, "Write fewer documents with one statement.");
        self.reject_unmatched(index, RejectedBy::new(rule, rejection), port);
    }
}

impl<'f> TransactionAttempt<'_, 'f> {
    /// Executes the statement in its transaction, and asks the promises. Returns the reply in the client's form.
    pub(super) async fn apply_checked(&mut self, statement: &Statement<'f>) -> AttemptResult<Vec<u8>> {
        let is_own = self.own.is_some();
        if is_own && self.job.is_written_first(statement) {
            return self.write_first(statement).await;
        }
        if self.piece.is_none() {
            self.piece = Some(self.select_piece(statement).await?);
        }
        let piece = self.piece.clone().unwrap_or_default();
        if piece.0.is_empty() && statement.is_upsert() {
            return self.insert_checked(statement).await;
        }
        let before_in_client = match is_own {
            true => Vec::new(),
            false => self.read_documents(statement, &piece, ReadIn::Committed).await?,
        };
        let narrowed = statement.narrowed(&piece.condition());
        let frame = match self.apply(&narrowed).await {
            // Another client has changed the selected document since.
            AttemptResult::Break(AttemptEnd::Reply(frame))
                if is_own
                    && !statement.is_multi()
                    && !piece.0.is_empty()
                    && matches_nothing(&frame, self.job.batch.form) =>
            {
                return AttemptResult::Break(AttemptEnd::Again(RestartReason::WriteConflict));
            }
            applied => applied?,
        };
        let after = match statement.operation {
            Operation::Delete(_) => Vec::new(),
            _ => self.read_documents(statement, &piece, ReadIn::Transaction).await?,
        };
        let before = match is_own {
            true => self.read_documents(statement, &piece, ReadIn::Committed).await?,
            false => before_in_client,
        };
        let (before, after) = (by_id(&before), by_id(&after));
        let (mut changed, mut written) = (0, Vec::with_capacity(piece.0.len()));
        let reply = super::transaction::parse(&frame)?;
        for id in &piece.0 {
            let (old, new) = (document_with(&before, id), document_with(&after, id));
            let is_gone = new.is_none() && !matches!(statement.operation, Operation::Delete(_));
            match (old, new) {
                (None, None) => continue,
                // Another client has changed it since it was selected, and the statement did not match it any more.
                (Some(_), None) | (None, Some(_)) if is_own && (is_gone || old.is_none()) => {
                    return self.again().await;
                }
                _ => {}
            }
            changed += i64::from(differ(old, new));
            written.push((old, new));
        }
        let settled = self.keep_promises(statement, &written, &reply).await?;
        let allowed = match self.job.batch.form {
            WriteForm::Update => reply.modified(),
            form => merge::matched(&reply, form),
        };
        if is_own && changed > allowed {
            // What differs was changed by another client, so it was not held.
            return self.again().await;
        }
        let corrected = (!settled.is_empty()).then(|| {
            let settled = by_id(&settled);
            let changed = written.iter().filter(|one| differ(one.0, settled_of(&settled, **one).or(one.1))).count();
            with_modified(self.job.command.message.header.request_id, &reply, changed)
        });
        drop(reply);
        let frame = corrected.unwrap_or(frame);
        self.with_settled(statement, frame, &settled).await
    }

    /// Sends the statement as the first command of docward's own transaction.
    async fn write_first(&mut self, statement: &Statement<'f>) -> AttemptResult<Vec<u8>> {
        self.in_other_form = true;
        let (frame, ahead) = self.send_first(statement).await?;
        let Some(reply) = self.accept(&frame)? else {
            return self.take_failure(SentCommands::Statement, frame).await;
        };
        let Some(written) = WrittenDocument::from_reply(&reply) else {
            return end("the server's reply to a write cannot be parsed");
        };
        let Some(id) = written.id else {
            let nothing = as_client_form(&self.job.command, self.job.batch.form, statement, &reply, &written, None);
            self.abort().await?;
            return AttemptResult::Break(AttemptEnd::Reply(nothing));
        };
        let piece = SelectedDocuments(vec![id.into()]);
        let found = match statement.operation {
            Operation::Delete(_) => Vec::new(),
            // The filter has named this document.
            _ if by_id(&ahead).contains_key(&OwnedValue::from(id)) => ahead,
            _ => self.read_documents(statement, &piece, ReadIn::Transaction).await?,
        };
        let after = by_id(&found).into_values().next();
        if after.is_none() && !matches!(statement.operation, Operation::Delete(_)) {
            return end("a document that a statement has just written is missing in its transaction");
        }
        let settled = self.keep_promises(statement, &[(written.before, after)], &reply).await?;
        let after = by_id(&settled).into_values().next().or(after);
        AttemptResult::Continue(as_client_form(
            &self.job.command,
            self.job.batch.form,
            statement,
            &reply,
            &written,
            after,
        ))
    }

    /// Sends the statement's write, without waiting in between after the question for an earlier send, and before the find of
    /// the document after, if the filter names it. Returns the replies to the last two.
    async fn send_first(&mut self, statement: &Statement<'f>) -> AttemptResult<(Vec<u8>, Vec<Vec<u8>>)> {
        let index = self.index;
        let write = self.commands().write_first(statement);
        let selection = statement.selection();
        let named = selection.as_ref().and_then(|selection| equality(selection.as_document(), "_id"));
        let named = named.filter(|_| !matches!(statement.operation, Operation::Delete(_)));
        let asks = self.job.asks_with_write(index);
        let (Some(own), false) = (&mut self.own, self.job.merged.has_effect() || !asks && named.is_none()) else {
            return AttemptResult::Continue((self.exchange(write).await, Vec::new()));
        };
        own.begun = true;
        let own = Some(*own);
        let mut messages = SmallVec::new();
        messages.extend(asks.then(|| self.job.earlier_sends(self.port).record_question(statement, &[index])));
        messages.push(write);
        messages.extend(named.map(|id| {
            let condition = CowDocument::build(|w| w.value("_id", id));
            self.job.commands(own).find_whole(statement, condition.as_document(), None)
        }));
        let mut replies = self.port.exchange_all(messages).await.into_iter();
        if asks {
            let answer = replies.next().unwrap_or_default();
            if server_errors::is_lost_member_frame(&answer) {
                return AttemptResult::Break(AttemptEnd::Again(RestartReason::MemberLost));
            }
            let record = match self.job.earlier_sends(self.port).read_record(&[index], &answer) {
                Flow::Continue(record) => record,
                Flow::Break(step) => {
                    return AttemptResult::Break(self.abort_and(AttemptEnd::Last(step)).await);
                }
            };
            if record.is_none_or(|recorded| !recorded.is_empty()) {
                // The server answers it from its record.
                let ending = self.abort_and(AttemptEnd::Settled).await;
                self.job.send_as_it_came(index);
                self.job.continue_alone(index);
                return AttemptResult::Break(ending);
            }
        }
        AttemptResult::Continue((replies.next().unwrap_or_default(), replies.collect()))
    }

    /// Executes an upsert that matches no document.
    async fn insert_checked(&mut self, statement: &Statement<'f>) -> AttemptResult<Vec<u8>> {
        let frame = self.apply(statement).await?;
        let reply = super::transaction::parse(&frame)?;
        let Some(id) = merge::upserted_id(&reply, self.job.batch.form) else {
            // Another client has inserted a document since the select.
            return self.again().await;
        };
        let piece = SelectedDocuments(vec![id]);
        let found = self.read_documents(statement, &piece, ReadIn::Transaction).await?;
        let Some(after) = by_id(&found).into_values().next() else {
            return end("a document that a statement has just inserted is missing in its transaction");
        };
        let settled = self.keep_promises(statement, &[(None, Some(after))], &reply).await?;
        drop(reply);
        self.with_settled(statement, frame, &settled).await
    }

    /// Selects the documents that the statement applies to.
    async fn select_piece(&mut self, statement: &Statement<'f>) -> AttemptResult<SelectedDocuments> {
        let selected = match self.own {
            Some(_) => match self.job.select(self.index, statement, self.port).await {
                Ok(selected) => selected,
                Err(ending) => return AttemptResult::Break(ending),
            },
            None => {
                let select = self.job.commands(None).select_ids(statement);
                let frames = self.read_all(statement, select, ReadIn::Committed).await?;
                frames.iter().filter_map(|frame| Reply::parse(frame).ok()).flat_map(|reply| sized_ids(&reply)).collect()
            }
        };
        let ids = selected.into_iter().map(|(id, _)| id);
        let count = if statement.is_multi() { usize::MAX } else { 1 };
        AttemptResult::Continue(SelectedDocuments(ids.take(count).collect()))
    }

    /// Reads the documents of a piece.
    pub(super) async fn read_documents(
        &mut self,
        statement: &Statement<'f>,
        piece: &SelectedDocuments,
        read_in: ReadIn,
    ) -> AttemptResult<Vec<Vec<u8>>> {
        let condition = piece.condition();
        let limit = self.is_held_for(read_in).then(|| self.longest_hold());
        let find = self.job.commands(self.reading(read_in)).find_whole(statement, condition.as_document(), limit);
        self.read_all(statement, find, read_in).await
    }

    /// Whether docward's own transaction is open during a read outside of it.
    fn is_held_for(&self, read_in: ReadIn) -> bool {
        self.own.is_some_and(|own| own.begun) && read_in == ReadIn::Committed
    }

    /// How long a read may take while docward's transaction is open: an operation that waits for the transaction, and for
    /// which the read waits, would keep both until the transaction expires. Twice as long after each attempt.
    fn longest_hold(&self) -> Duration {
        const MAX_DOUBLINGS: u32 = 4;
        let attempts = self.job.evaluated.get(self.index).map_or(0, |evaluated| evaluated.attempts);
        Duration::from_secs(1 << attempts.min(MAX_DOUBLINGS))
    }

    /// The transaction in which docward's own reads run.
    fn reading(&self, read_in: ReadIn) -> Option<OwnTransaction> {
        self.own.filter(|_| read_in == ReadIn::Transaction)
    }

    /// Sends a find, and reads its documents to their end. Returns the replies.
    async fn read_all(
        &mut self,
        statement: &Statement<'f>,
        find: Vec<u8>,
        read_in: ReadIn,
    ) -> AttemptResult<Vec<Vec<u8>>> {
        let (mut frames, mut message) = (Vec::new(), find);
        loop {
            let frame = match (self.own, read_in) {
                (Some(_), ReadIn::Committed) => self.port.exchange(message).await,
                _ => self.exchange(message).await,
            };
            let (cursor, is_repeated) = {
                let reply = super::transaction::parse(&frame)?;
                let is_late = reply.code() == Some(code::MAX_TIME_MS_EXPIRED) && self.is_held_for(read_in);
                let is_repeated = is_late || self.own.is_some() && reply.code() == Some(code::CURSOR_NOT_FOUND);
                (reply.is_ok().then(|| reply.cursor_id().filter(|cursor| *cursor != 0)), is_repeated)
            };
            let Some(cursor) = cursor else {
                if is_repeated {
                    return self.again().await;
                }
                return self.take_failure(SentCommands::Find, frame).await;
            };
            frames.push(frame);
            match cursor {
                Some(cursor) => message = self.job.commands(self.reading(read_in)).more(statement, cursor),
                None => return AttemptResult::Continue(frames),
            }
        }
    }

    /// Starts the transaction again.
    async fn again<T>(&mut self) -> AttemptResult<T> {
        let again = AttemptEnd::Again(RestartReason::WriteConflict);
        AttemptResult::Break(match self.own {
            Some(_) => self.abort_and(again).await,
            None => again,
        })
    }

    /// Ends an attempt whose statement failed in another form than the client's: the statement is executed once more in the
    /// client's form, in a transaction that is aborted, so that code and text are its own.
    pub(super) async fn end_in_own_form(&mut self) -> AttemptEnd {
        if let AttemptResult::Break(ending) = self.abort().await {
            return ending;
        }
        let index = self.index;
        self.own = Some(self.port.own_session(|own_session| self.job.own_transaction(index, own_session)));
        let options = EncodeOptions { transaction_begun: false, ordered: false, own: self.own };
        let part = StatementPart { index, statement: &self.statement };
        let message = self.job.batch.encode_part(&self.job.command, &[part], options);
        let frame = self.exchange(message).await;
        let failed = is_failure(&frame, self.job.batch.form);
        let is_transient =
            Reply::parse(&frame).is_ok_and(|reply| server_errors::has_label(&reply, server_errors::TRANSIENT));
        let is_lost = server_errors::is_lost_member_frame(&frame);
        let ending = match failed && !is_transient {
            _ if is_lost => AttemptEnd::Again(RestartReason::MemberLost),
            true => AttemptEnd::Reply(frame),
            false => AttemptEnd::Again(RestartReason::WriteConflict),
        };
        self.abort_and(ending).await
    }

    /// Ends an attempt at a transaction that the server does not support here, `which`: rejects the statement, or sends it
    /// unchecked if all its rules allow that.
    pub(super) async fn end_without_transaction(&mut self, which: &str) -> AttemptEnd {
        let index = self.index;
        let checked = self.job.evaluated.get(index).map_or(&[][..], |evaluated| &evaluated.checked);
        let ending = match checked.iter().copied().find(|rule| rule.unsupported == Unsupported::Reject) {
            Some(rule) => {
                let reason = format!("it must be checked in a transaction, which {which}");
                let hint = "Write it in a plain form, which needs no transaction: `docward explain` shows the part that is \
                            not plain. Or tell the DBA.";
                self.reject(rule, Rejection::new(reason, hint))
            }
            None => {
                self.job.evaluated.get_mut(index).into_iter().for_each(|evaluated| evaluated.checked.clear());
                self.job.continue_alone(index);
                AttemptEnd::Settled
            }
        };
        self.abort_and(ending).await
    }
}

fn is_failure(frame: &[u8], form: WriteForm) -> bool {
    Reply::parse(frame).map_or(true, |reply| !reply.is_ok() || !merge::errors_of(&reply, form).is_empty())
}

/// Whether the statement has matched nothing. The reply to one that was committed before is another.
fn matches_nothing(frame: &[u8], form: WriteForm) -> bool {
    !is_failure(frame, form) && Reply::parse(frame).is_ok_and(|reply| merge::matched(&reply, form) == 0)
}
