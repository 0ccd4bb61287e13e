//! Globs: texts in which `*` matches any run of characters, including an empty one.
//!
//! Works on bytes, because names arrive as bytes from the wire. UTF-8 globs match bytes and
//! characters alike. Does not depend on namespaces (`namespace.rs`) or users.

use std::fmt;

/// A glob. All characters except `*` match only themselves; matching is case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glob {
    /// The text, without adjacent stars.
    text: Box<str>,
}

impl Glob {
    /// Makes a glob of any text. A run of stars means the same as one star.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut plain = String::with_capacity(text.len());
        for character in text.chars() {
            if character != '*' || !plain.ends_with('*') {
                plain.push(character);
            }
        }
        Self { text: plain.into() }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it contains no star, so that it matches only itself.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        !self.text.contains('*')
    }

    /// The text before the first star.
    #[must_use]
    pub fn literal_prefix(&self) -> &str {
        self.text.split('*').next().unwrap_or_default()
    }

    pub(crate) fn stars(&self) -> usize {
        self.text.matches('*').count()
    }

    /// Whether it matches all of `name`. Takes time at most proportional to the product of both lengths.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        let glob = self.text.as_bytes();
        let (mut at, mut in_name) = (0, 0);
        // Where to continue when the literal after the last star does not match: the star takes one more byte.
        let mut retry: Option<(usize, usize)> = None;
        while in_name < name.len() {
            match glob.get(at) {
                Some(b'*') => {
                    retry = Some((at + 1, in_name));
                    at += 1;
                }
                Some(byte) if *byte == name[in_name] => {
                    at += 1;
                    in_name += 1;
                }
                _ => {
                    let Some((after_star, taken)) = retry else {
                        return false;
                    };
                    retry = Some((after_star, taken + 1));
                    at = after_star;
                    in_name = taken + 1;
                }
            }
        }
        glob[at..].iter().all(|byte| *byte == b'*')
    }

    /// Whether it matches everything that `other` matches.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        // A star of `other` may match any text, so only a star of ours can match it; no literal of ours is a star.
        self.matches(other.text.as_bytes())
    }

    /// Whether some text matches both.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        if other.is_literal() {
            return self.matches(other.text.as_bytes());
        }
        if self.is_literal() {
            return other.matches(self.text.as_bytes());
        }
        let (a, b) = (self.text.as_bytes(), other.text.as_bytes());
        let differs = |(x, y): (&u8, &u8)| x != y;
        let (prefix, other_prefix) = (self.literal_prefix(), other.literal_prefix());
        if prefix.bytes().zip(other_prefix.bytes()).any(|(x, y)| differs((&x, &y))) {
            return false;
        }
        shared_text(a, b)
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whether some text matches both `a` and `b`, by dynamic programming over their suffixes: `shared[j]`
/// is whether the current suffix of `a` and `b[j..]` match a common text.
fn shared_text(a: &[u8], b: &[u8]) -> bool {
    let mut shared = vec![false; b.len() + 1];
    shared[b.len()] = true;
    for j in (0..b.len()).rev() {
        shared[j] = b[j] == b'*' && shared[j + 1];
    }
    for &in_a in a.iter().rev() {
        // The value of `shared[j + 1]` for the shorter suffix of `a`.
        let mut diagonal = shared[b.len()];
        shared[b.len()] = in_a == b'*' && shared[b.len()];
        for j in (0..b.len()).rev() {
            let shorter_a = shared[j];
            shared[j] = if in_a == b'*' || b[j] == b'*' {
                // A star matches nothing, or one more byte of the other side.
                shorter_a || shared[j + 1]
            } else {
                in_a == b[j] && diagonal
            };
            diagonal = shorter_a;
        }
    }
    shared[0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Glob;
    use support::cpu_time::CpuTimer;

    /// All texts over two letters of up to six characters: enough to distinguish globs of four.
    fn texts() -> Vec<String> {
        let mut all = vec![String::new()];
        let mut start = 0;
        for _ in 0..6 {
            let end = all.len();
            for at in start..end {
                for letter in ["a", "b"] {
                    all.push(format!("{}{letter}", all[at]));
                }
            }
            start = end;
        }
        all
    }

    /// Matching by definition: a star is nothing, or one character and the star again.
    fn naive(glob: &str, text: &str) -> bool {
        let mut characters = glob.chars();
        match characters.next() {
            None => text.is_empty(),
            Some('*') => naive(characters.as_str(), text) || (!text.is_empty() && naive(glob, &text[1..])),
            Some(one) => text.starts_with(one) && naive(characters.as_str(), &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_definition(glob in "[ab*]{0,6}", text in "[ab]{0,8}") {
            prop_assert_eq!(Glob::new(&glob).matches(text.as_bytes()), naive(&glob, &text));
        }

        #[test]
        fn relations_agree_with_the_texts_matched(a in "[ab*]{0,4}", b in "[ab*]{0,4}") {
            let (left, right) = (Glob::new(&a), Glob::new(&b));
            // Two globs of four with a star each have at most six letters, so if they match a common
            // text, they match a common one of at most six.
            let shared = texts().iter().any(|t| naive(&a, t) && naive(&b, t));
            prop_assert_eq!(left.intersects(&right), shared, "{} {}", &a, &b);
            prop_assert_eq!(right.intersects(&left), shared, "{} {}", &b, &a);
            // A letter that is in neither glob can only match a star.
            let inside = naive(&a, &b.replace('*', "c"));
            prop_assert_eq!(left.contains(&right), inside);
            if inside {
                prop_assert!(texts().iter().all(|t| !naive(&b, t) || naive(&a, t)));
            }
        }
    }

    #[test]
    fn a_hostile_name_is_matched_fast() {
        let glob = Glob::new(&format!("{}b", "*a".repeat(100)));
        let started = CpuTimer::start();
        assert!(!glob.matches("a".repeat(100_000).as_bytes()));
        assert!(started.elapsed().as_secs() < 5);
    }
}
