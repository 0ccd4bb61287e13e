//! Every page is in the book's summary, every link has an existing target, and the book stays short.

use std::path::{Path, PathBuf};

use docward::config::Code;

use super::{expect, pages, root};

const DIAGNOSTICS: &str = "\
# All codes of diagnostics

Generated from the program. [docward check](../check.md) prints them, and so does `docward serve` at start and on a reload. The meaning of a
code never changes.

| code | meaning |
|---|---|
";

/// The links of a page: the text between `](` and `)`, outside of code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        if in_code {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect();
        found.extend(prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())));
    }
    found
}

/// The anchor that GitHub and mdBook generate for a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn has_anchor(page: &Path, wanted: &str) -> bool {
    let text = std::fs::read_to_string(page).unwrap();
    text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line.trim_start_matches('#')) == wanted)
}

#[test]
fn every_link_has_a_target() {
    let mut seen = 0;
    for page in pages() {
        for link in links(&std::fs::read_to_string(&page).unwrap()) {
            if link.contains("://") {
                continue;
            }
            let (path, wanted) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            assert!(target.exists(), "{}: {link}", page.display());
            assert!(wanted.is_empty() || has_anchor(&target, wanted), "{}: {link}", page.display());
            seen += 1;
        }
    }
    assert!(seen >= 60, "{seen}");
}

#[test]
fn every_page_is_in_the_list() {
    let folder = root().join("docs");
    let listed = links(&std::fs::read_to_string(folder.join("SUMMARY.md")).unwrap());
    for page in pages() {
        let Ok(name) = page.strip_prefix(&folder) else { continue };
        let name = name.to_str().unwrap();
        assert!(name == "SUMMARY.md" || listed.iter().any(|link| link == name), "{name} is not in SUMMARY.md");
    }
    assert!(folder.join("book.toml").exists());
}

#[test]
fn every_code_of_a_diagnostic_is_explained() {
    let rows = Code::ALL.iter().map(|code| format!("| {} | {} |\n", code.as_str(), code.sentence()));
    let page = DIAGNOSTICS.to_owned() + &rows.collect::<String>();
    expect([root().join("docs/reference/diagnostics.md")], |_, _| page.clone());
}

#[test]
fn every_subcommand_has_a_page() {
    let help = super::output_text(&super::docward(&["--help"], &root()));
    let commands = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let names = commands.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    for name in names.filter(|name| !name.is_empty() && *name != "help") {
        let titled = |page: &std::path::PathBuf| {
            let text = std::fs::read_to_string(page).unwrap();
            let title = text.lines().next().unwrap_or_default().to_owned();
            title.starts_with("# ") && title.split([' ', ',', ':']).any(|word| word == name)
        };
        assert!(pages().iter().any(titled), "no page's title has `{name}` in it");
    }
}

/// The most words that are written by hand: on the page of a pattern, and in the whole book.
const MAX_WORDS_OF_PATTERN: usize = 900;
const MAX_WORDS: usize = 42_500;

/// Pages that tests write as a whole.
const GENERATED: [&str; 6] = [
    "reference/keys.md",
    "reference/configuration.md",
    "reference/diagnostics.md",
    "reference/metrics.md",
    "reference/router-errors.md",
    "reference/overload-errors.md",
];

/// The words of a page outside of what tests write: the text between `<!-- NAME …` and `<!-- end of NAME -->`, and the output
/// of commands.
fn words_by_hand(text: &str) -> usize {
    let (mut in_table, mut in_output, mut words) = (false, false, 0);
    for line in text.lines() {
        let is_comment = line.starts_with("<!-- ");
        in_table = (in_table || is_comment) && !line.starts_with("<!-- end of ");
        in_output = (in_output || line == "```console") && line != "```";
        words += if in_table || in_output || is_comment { 0 } else { line.split_whitespace().count() };
    }
    words
}

#[test]
fn the_book_is_short() {
    let folder = root().join("docs");
    let mut all = 0;
    let by_hand = |page: &&PathBuf| page.starts_with(&folder) && !GENERATED.iter().any(|name| page.ends_with(name));
    for page in pages().iter().filter(by_hand) {
        let words = words_by_hand(&std::fs::read_to_string(page).unwrap());
        let of_pattern = page.parent().is_some_and(|folder| folder.ends_with("patterns"));
        assert!(!of_pattern || words <= MAX_WORDS_OF_PATTERN, "{}: {words} words", page.display());
        all += words;
    }
    assert!(all <= MAX_WORDS, "the book has {all} words that are written by hand");
    assert_eq!(words_by_hand("a b\n<!-- x\n-->\nc d\n<!-- end of x -->\n```console\n$ e\n```\n```sh\nf\n```"), 6);
}
