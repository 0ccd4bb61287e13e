//! A diff of two texts by lines: `-` is only in the first, `+` only in the second.

use similar::{ChangeTag, TextDiff};

const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const PLAIN: &str = "\u{1b}[0m";

/// All lines of both texts, with ANSI colours if `coloured`. A trailing comma does not count as a difference: it only
/// depends on whether another line follows.
pub(super) fn difference(before: &str, after: &str, coloured: bool) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let (old, new) = (without_commas(&before), without_commas(&after));
    let mut out = String::new();
    for change in TextDiff::from_slices(&old, &new).iter_all_changes() {
        let (sign, colour) = match change.tag() {
            ChangeTag::Delete => ("-", RED),
            ChangeTag::Insert => ("+", GREEN),
            ChangeTag::Equal => (" ", ""),
        };
        let line = change.new_index().and_then(|at| after.get(at)).or_else(|| before.get(change.old_index()?));
        let line = line.copied().unwrap_or_default();
        match coloured && !colour.is_empty() {
            true => out.push_str(&format!("{colour}{sign} {line}{PLAIN}\n")),
            false => out.push_str(&format!("{sign} {line}\n")),
        }
    }
    out
}

fn without_commas<'t>(lines: &[&'t str]) -> Vec<&'t str> {
    lines.iter().map(|line| line.strip_suffix(',').unwrap_or(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn lines_of_both_texts_are_in_order() {
        assert_eq!(difference("a\nb\nc\n", "a\nB\nc\n", false), "  a\n- b\n+ B\n  c\n");
        assert_eq!(difference("a,\nb\n", "a,\nb,\nc\n", false), "  a,\n  b,\n+ c\n");
        assert_eq!(difference("a,\nb\n", "a\n", false), "  a\n- b\n");
        assert_eq!(difference("a", "b", true), "\u{1b}[31m- a\u{1b}[0m\n\u{1b}[32m+ b\u{1b}[0m\n");
    }
}
