//! Chooses the session and number of docward's own transactions.
//!
//! A retryable write (session L, number N) may be sent again after its reply was lost, to this process or another,
//! and must not take effect twice. The session of its transaction is therefore derived from L and the statement's
//! position in the batch, its number from N and the attempt. Attempt k + 1 starts only after k is known to be
//! aborted. A process that receives the statement again repeats the attempts in order and finds the committed one in
//! the server's own records.
//!
//! The server (6.0) rejects a used number with 117 and a lower one with 225; abortTransaction of a committed transaction
//! returns 256. Two processes with the same write abort each other's attempts, so the one that lost waits longer each time.

use super::super::OwnSession;
use super::BatchJob;
use crate::command::OwnTransaction;
use crate::document::Value;

/// The number of attempts at one write that fit into the derived numbers.
const ATTEMPTS: i64 = 1 << 10;
/// Added to a client's session id to derive docward's; any constant works ("docward" and zeros).
const OFFSET: u128 = u128::from_be_bytes(*b"docward\0\0\0\0\0\0\0\0\0");

impl BatchJob<'_> {
    /// Returns the next transaction for statement `index`.
    pub(super) fn own_transaction(&self, index: usize, own_session: &mut OwnSession) -> OwnTransaction {
        let evaluated = self.evaluated.get(index);
        let attempt = evaluated.map_or(0, |evaluated| evaluated.attempts);
        // A statement that can change several documents is not retryable, and may need several transactions.
        let is_multi = evaluated.is_some_and(|evaluated| evaluated.statement.is_multi());
        let own = (!is_multi).then(|| self.attempt_at(index, attempt, own_session.routed)).flatten();
        own.map(|own| OwnTransaction { begun: false, ..own }).unwrap_or_else(|| {
            // Drivers do not retry such a statement.
            own_session.next_number();
            let OwnSession { id, last_number, routed } = *own_session;
            OwnTransaction { session: id, number: i64::from(last_number), begun: false, routed }
        })
    }

    /// Returns the last transaction of a retryable statement, as if it had begun. No attempt uses it, nor the one before.
    pub(super) fn last_attempt(&self, index: usize, routed: bool) -> Option<OwnTransaction> {
        self.attempt_at(index, u32::try_from(ATTEMPTS - 1).ok()?, routed)
    }

    /// Returns the transaction of an attempt at a retryable statement, as if it had begun. Other versions of docward must
    /// derive the same.
    pub(super) fn attempt_at(&self, index: usize, attempt: u32, routed: bool) -> Option<OwnTransaction> {
        let session = self.command.session();
        let id = session.lsid?.as_document()?.get("id").and_then(Value::as_uuid)?;
        let number = session.txn_number?.as_integer()?.checked_mul(ATTEMPTS)?.checked_add(i64::from(attempt))?;
        let position = u128::try_from(self.batch.statement_id(index)).ok()?;
        let session = u128::from_be_bytes(id).wrapping_add(OFFSET).wrapping_add(position).to_be_bytes();
        Some(OwnTransaction { session, number, begun: true, routed })
    }
}
