//! In which session docward's own transactions run, and under which numbers.
//!
//! A retryable write (session L, number N) may come again when its reply was lost, to this docward or another,
//! and must not happen twice. Its transaction therefore runs in a session that follows from L and the
//! statement's place in the batch, under numbers that follow from N and the attempt. Attempt k + 1 begins only
//! when k is known to be aborted; so whoever gets the statement again asks through the attempts and finds the
//! one that was committed, in the server's own records.

use super::{BatchJob, OwnSession};
use crate::command::OwnTransaction;
use crate::document::Value;

/// Attempts at one write that numbers have room for.
const ATTEMPTS: i64 = 1 << 10;
/// Added to a client's session id for docward's; any constant would do ("docward" and zeros).
const OFFSET: u128 = u128::from_be_bytes(*b"docward\0\0\0\0\0\0\0\0\0");

impl BatchJob<'_> {
    /// The next transaction for statement `index`.
    pub(super) fn own_transaction(&mut self, index: usize) -> OwnTransaction {
        let attempt = self.evaluated.get(index).map_or(0, |evaluated| evaluated.attempts);
        self.following(index, attempt).unwrap_or_else(|| {
            // Nobody sends such a statement again.
            self.own_session.next_number();
            let OwnSession { id, last_number, routed } = self.own_session;
            OwnTransaction { session: id, number: i64::from(last_number), begun: false, routed }
        })
    }

    fn following(&self, index: usize, attempt: u32) -> Option<OwnTransaction> {
        let session = self.command.session();
        let id = session.lsid?.as_document()?.get("id").and_then(Value::as_uuid)?;
        let number = session.txn_number?.as_integer()?.checked_mul(ATTEMPTS)?.checked_add(i64::from(attempt))?;
        let place = u128::try_from(self.batch.statement_id(index)).ok()?;
        let session = u128::from_be_bytes(id).wrapping_add(OFFSET).wrapping_add(place).to_be_bytes();
        Some(OwnTransaction { session, number, begun: false, routed: self.own_session.routed })
    }
}
