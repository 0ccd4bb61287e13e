//! Random choices from a seed.

use support::random::Random;

/// The same seed makes the same choices.
pub(super) struct Dice(Random);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        let mut random = Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        // The first numbers of neighbouring seeds are similar.
        for _ in 0..8 {
            random.next_number();
        }
        Dice(random)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        // The low bits of xorshift are its weakest.
        ((self.0.next_number() >> 16) % limit.max(1) as u64) as usize
    }

    /// True in `percent` of 100 cases.
    pub(super) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}
