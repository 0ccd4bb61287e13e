//! The tables of messages in the documentation quote texts that docward really prints.

use std::path::Path;

use super::{pages, root};

/// The heads of such tables, and the column of the text.
const TABLES: [(&str, usize); 4] = [
    ("| code | text | section |", 1),
    ("| log | what to do |", 0),
    ("| text | what to do |", 0),
    ("| line | what to do |", 0),
];

/// The program's source files, without comments and tests, for searching their string literals.
fn sources() -> String {
    let mut text = String::new();
    let mut folders = vec![root().join("src"), root().join("crates")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
                text.push_str(&program(&path));
            }
        }
    }
    text
}

fn program(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    // A literal continues after a backslash at the end of its line.
    let joined = lines.fold(String::new(), |text, line| match text.strip_suffix('\\') {
        Some(text) => text.to_owned() + line.trim_start(),
        None => text + "\n" + line,
    });
    joined.replace("\\\"", "\"")
}

/// The constant parts of a text that has placeholders or alternatives.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let text = text.strip_prefix("docward: ").unwrap_or(text);
    let parts = text.split('…').flat_map(|part| part.split(", "));
    parts.map(|part| part.trim_matches([' ', '\'', ':', '`'])).filter(|part| !part.is_empty())
}

#[test]
fn quoted_messages_are_those_of_the_program() {
    let sources = sources();
    let mut seen = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let mut column = None;
        for line in text.lines() {
            let head = TABLES.iter().find(|(head, _)| *head == line);
            column = head.map(|(_, column)| *column).or(column.filter(|_| line.starts_with('|')));
            let Some(text) = column.and_then(|column| line.trim_matches('|').split(" | ").nth(column)) else {
                continue;
            };
            let text = text.trim();
            // Italics mark messages of other programs.
            if head.is_some() || text.starts_with('*') || text.starts_with("---") {
                continue;
            }
            for part in parts(text) {
                assert!(sources.contains(part), "{}: {text}: docward never prints: {part}", page.display());
            }
            seen += 1;
        }
    }
    assert!(seen >= 35, "{seen}");
}
