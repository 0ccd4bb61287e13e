//! Tracks the transactions that are open through this process, so that a drain can wait for them.
//!
//! They are tracked per process, not per connection: drivers may continue a transaction on any of their connections. A
//! message outside transactions costs a walk over its field names and takes no lock.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::engine::{TransactionChange, TransactionId, transaction};

/// The server's default limit on a transaction's lifetime (`transactionLifetimeLimitSeconds`).
const LIFETIME: Duration = Duration::from_secs(60);
/// Time for the reply to a transaction's last message, and for the client's next request.
const REPLY_PAUSE: Duration = Duration::from_millis(100);
/// Number of open transactions from which expired ones are swept.
const SWEEP_AT: usize = 4096;
/// Number of open transactions tracked; a drain does not wait for further ones.
const MAX_OPEN: usize = 65_536;
/// The minimum time between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The open transactions and when they began.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Transactions {
    open: Mutex<OpenTransactions>,
    ended: Notify,
}

#[derive(Debug, Default)]
struct OpenTransactions {
    since: HashMap<TransactionId, Instant>,
    /// Size at which to sweep next: twice what the last sweep left, so that sweeps stay rare.
    sweep_at: usize,
    swept: Option<Instant>,
}

impl Transactions {
    /// Tracks a message that begins with `head`.
    pub(in crate::proxy) fn track(&self, head: &[u8]) {
        match transaction(head) {
            None => {}
            Some(TransactionChange::Continues(id)) => self.lock().go_on(id),
            Some(TransactionChange::Ends(id)) => {
                self.lock().since.remove(&id);
                self.ended.notify_waiters();
            }
        }
    }

    /// Waits until all currently open transactions have ended; later ones are not waited for.
    pub(in crate::proxy) async fn ended(&self) {
        let mut awaited: HashSet<TransactionId> = {
            let mut open = self.lock();
            open.sweep();
            open.since.keys().copied().collect()
        };
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // Registered before the check, so that an end in between is not missed.
            ended.as_mut().enable();
            self.keep_open(&mut awaited);
            if awaited.is_empty() {
                return;
            }
            ended.await;
            sleep(REPLY_PAUSE).await;
        }
    }

    /// The number of open transactions.
    pub(in crate::proxy) fn count(&self) -> usize {
        let mut open = self.lock();
        open.sweep();
        open.since.len()
    }

    fn keep_open(&self, transactions: &mut HashSet<TransactionId>) {
        let open = self.lock();
        transactions.retain(|id| open.since.contains_key(id));
    }

    fn lock(&self) -> MutexGuard<'_, OpenTransactions> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenTransactions {
    fn go_on(&mut self, id: TransactionId) {
        if self.since.contains_key(&id) {
            return;
        }
        let is_large = self.since.len() >= self.sweep_at.clamp(SWEEP_AT, MAX_OPEN);
        if is_large && self.swept.is_none_or(|swept| swept.elapsed() >= SWEEP_INTERVAL) {
            self.sweep();
            (self.sweep_at, self.swept) = (2 * self.since.len(), Some(Instant::now()));
        }
        if self.since.len() < MAX_OPEN {
            self.since.insert(id, Instant::now());
        }
    }

    fn sweep(&mut self) {
        self.since.retain(|_, since| since.elapsed() < LIFETIME);
    }
}

#[cfg(test)]
mod tests {
    use bson::{Binary, doc, spec::BinarySubtype};

    use super::*;
    use crate::wire::op_msg::MessageWriter;

    #[test]
    fn the_number_of_tracked_transactions_is_bounded() {
        let transactions = Transactions::default();
        for number in 0..MAX_OPEN as i64 + 1000 {
            let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
            let body = doc! {"insert": "c", "lsid": {"id": id}, "txnNumber": number, "autocommit": false, "$db": "d"};
            let mut writer = MessageWriter::new(1, 0, 0, 0);
            writer.body(|out| out.extend_from_slice(bson::RawDocumentBuf::try_from(&body).unwrap().as_bytes()));
            transactions.track(&writer.finish());
        }
        assert_eq!(transactions.lock().since.len(), MAX_OPEN);
    }
}
