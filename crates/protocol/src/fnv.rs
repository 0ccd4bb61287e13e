//! The 64-bit FNV-1a hash. It is the same in every build and in every run, and is not cryptographic.

/// The hash of the bytes that were added so far.
#[derive(Clone, Copy)]
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self::from_hash(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Adds to bytes that have this hash.
    pub const fn from_hash(hash: u64) -> Self {
        Self(hash)
    }

    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub const fn hash(self) -> u64 {
        self.0
    }
}

/// Returns the hash of `bytes`.
pub fn hash_of(bytes: &[u8]) -> u64 {
    let mut hash = Fnv::default();
    hash.add(bytes);
    hash.hash()
}

/// The published test vectors of FNV-1a.
#[test]
fn the_hash_is_fnv_1a() {
    assert_eq!(hash_of(b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(hash_of(b"a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(hash_of(b"foobar"), 0x8594_4171_f739_67e8);
}
