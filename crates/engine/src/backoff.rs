//! Pauses before something is sent again.

use std::time::Duration;

/// Returns a random pause of at most two to this power milliseconds, so that two conflicting senders do not meet again.
pub(super) fn random_pause(seed: [u8; 16], attempts: u32, power: u32) -> Duration {
    let [a, b, c, d, ..] = seed;
    let random = u32::from_le_bytes([a, b, c, d]).rotate_left(attempts.wrapping_mul(7)).wrapping_add(attempts);
    Duration::from_millis(u64::from(1 + random % (1 << power)))
}
