//! Two texts side by side, line by line: `-` is only in the first, `+` only in the second.

use similar::{ChangeTag, TextDiff};

const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const PLAIN: &str = "\u{1b}[0m";

/// All lines of both, each with a line break; with ANSI colours if `coloured`.
pub(super) fn difference(before: &str, after: &str, coloured: bool) -> String {
    let difference = TextDiff::from_lines(before, after);
    let mut out = String::new();
    for change in difference.iter_all_changes() {
        let (sign, colour) = match change.tag() {
            ChangeTag::Delete => ("-", RED),
            ChangeTag::Insert => ("+", GREEN),
            ChangeTag::Equal => (" ", ""),
        };
        let line = change.value().trim_end_matches('\n');
        match coloured && !colour.is_empty() {
            true => out.push_str(&format!("{colour}{sign} {line}{PLAIN}\n")),
            false => out.push_str(&format!("{sign} {line}\n")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn lines_of_both_in_order() {
        assert_eq!(difference("a\nb\nc\n", "a\nB\nc\n", false), "  a\n- b\n+ B\n  c\n");
        assert_eq!(difference("a", "b", true), "\u{1b}[31m- a\u{1b}[0m\n\u{1b}[32m+ b\u{1b}[0m\n");
    }
}
