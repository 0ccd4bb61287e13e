//! Suggestions for misspelled words in rules and in mongosh syntax ("did you mean").

/// Returns the word of `words` that is most similar to `written`, if it is similar enough: one edit for every three
/// letters. Case, `_` and `-` are ignored.
#[must_use]
pub fn nearest<'w>(written: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    // A longer text is not a typing error, and the distance takes quadratic time.
    const LONGEST: usize = 64;
    if written.len() > LONGEST {
        return None;
    }
    let plain = |word: &str| word.replace(['-', '_'], "").to_lowercase();
    let written = plain(written);
    let distances = words.into_iter().map(|word| {
        let distance = strsim::damerau_levenshtein(&written, &plain(word));
        (distance, word)
    });
    let (distance, word) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1.max(written.chars().count() / 3)).then_some(word)
}

/// Returns `words` as alternatives: "`a`, `b` or `c`".
#[must_use]
pub(crate) fn one_of<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    joined(words, "or")
}

/// Returns `words` as a list: "`a`, `b` and `c`".
#[must_use]
pub(crate) fn all_of<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    joined(words, "and")
}

fn joined<'w>(words: impl IntoIterator<Item = &'w str>, last_joint: &str) -> String {
    let words: Vec<_> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} {last_joint} {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{all_of, nearest, one_of};

    #[test]
    fn finds_the_most_similar_word() {
        let words = ["reject", "merge", "cascade", "max_attempts"];
        for (written, expected) in [
            ("csacade", Some("cascade")),
            ("rejects", Some("reject")),
            ("Merge", Some("merge")),
            ("maxAttempts", Some("max_attempts")),
            ("max-attempts", Some("max_attempts")),
            ("allow", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, words), expected, "{written}");
        }
        assert_eq!(nearest(&"x".repeat(1 << 20), words), None);
    }

    #[test]
    fn lists_words() {
        assert_eq!(one_of([]), "");
        assert_eq!(one_of(["a"]), "`a`");
        assert_eq!(one_of(["a", "b", "c"]), "`a`, `b` or `c`");
        assert_eq!(all_of(["a", "b", "c"]), "`a`, `b` and `c`");
    }
}
