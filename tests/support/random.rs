//! Pseudorandom numbers that are the same in every run: xorshift, for tests that generate or change bytes.

pub struct Random(pub u64);

impl Random {
    pub fn next_number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Less than `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next_number() % limit.max(1) as u64) as usize
    }

    /// One of the list, which is not empty.
    pub fn pick<'t, T>(&mut self, list: &'t [T]) -> &'t T {
        &list[self.below(list.len())]
    }
}
