//! The pace of passes over whole collections.

use std::time::{Duration, Instant};

/// Documents after which a pass pauses.
pub(super) const BATCH: u32 = 1_000;
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(1);

/// Leaves the server half of the time to others.
#[derive(Debug)]
pub(super) struct Pause {
    documents: u64,
    began: Instant,
}

impl Default for Pause {
    fn default() -> Self {
        Self { documents: 0, began: Instant::now() }
    }
}

impl Pause {
    /// Pauses after each batch; returns whether it has paused.
    pub(super) async fn after_document(&mut self) -> bool {
        self.documents += 1;
        let is_batch = self.documents.is_multiple_of(u64::from(BATCH));
        if is_batch {
            self.after_batch().await;
        }
        is_batch
    }

    /// Pauses for as long as the batch took.
    pub(super) async fn after_batch(&mut self) {
        tokio::time::sleep(self.began.elapsed().min(LONGEST)).await;
        self.began = Instant::now();
    }
}
