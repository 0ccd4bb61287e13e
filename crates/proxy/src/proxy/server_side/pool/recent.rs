//! A bounded set that keeps what was used last.

use std::collections::HashSet;
use std::hash::Hash;

/// The elements that were used last. They are in two generations, so that those in use stay when many others come.
#[derive(Debug)]
pub(super) struct Recent<T> {
    new: HashSet<T>,
    old: HashSet<T>,
    most: usize,
}

impl<T: Copy + Eq + Hash> Recent<T> {
    /// Holds at most `most` elements.
    pub(super) fn new(most: usize) -> Self {
        Self { new: HashSet::new(), old: HashSet::new(), most }
    }

    pub(super) fn insert(&mut self, element: T) {
        if self.new.len() >= self.most / 2 {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(element);
    }

    /// Returns whether it is there, and uses it.
    pub(super) fn contains(&mut self, element: T) -> bool {
        if self.new.contains(&element) {
            return true;
        }
        let is_known = self.old.remove(&element);
        if is_known {
            self.insert(element);
        }
        is_known
    }

    /// Removes it. Returns whether it was there.
    pub(super) fn remove(&mut self, element: T) -> bool {
        self.new.remove(&element) | self.old.remove(&element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_stays_and_the_number_is_bounded() {
        let mut recent = Recent::new(8);
        for element in 0..1000 {
            recent.insert(element);
            assert!(recent.contains(0), "after {element}");
            assert!(recent.new.len() + recent.old.len() <= 8);
        }
        assert!(!recent.contains(500));
        assert!(recent.remove(0) && !recent.contains(0) && !recent.remove(0));
    }
}
