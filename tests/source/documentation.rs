//! Checks the documentation against docward. The text below `$ docward …` in a block marked `console` is the
//! command's output; `UPDATE_EXPECT=1 cargo test --test source documentation` rewrites it, and you review the diff.
//!
//! Rules and their tables: `rules.rs`; the schema: `schema.rs`; the page of all keys: `keys.rs`; the sections of
//! each pattern's page: `patterns.rs`; the verdict on each kind of statement: `verdicts.rs`, `forms.rs`, `stored.rs`; links and the list of pages: `book.rs`; texts of docward: `texts.rs`; certificates: `tls.rs`; the
//! documentation for contributors: `contributing.rs`.

mod book;
mod contributing;
mod forms;
mod keys;
mod patterns;
mod rules;
mod schema;
mod stored;
mod texts;
mod tls;
mod verdicts;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use support::process::docward_executable;

/// Every page of `docs/`, and the Markdown files of the project's root.
fn pages() -> Vec<PathBuf> {
    let papers = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];
    let mut pages: Vec<PathBuf> = papers.map(|paper| root().join(paper)).into();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                Some(extension) if extension == "md" => pages.push(path),
                _ if path.is_dir() => folders.push(path),
                _ => {}
            }
        }
    }
    pages.sort();
    pages
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn docward(arguments: &[&str], folder: &Path) -> Output {
    Command::new(docward_executable()).args(arguments).current_dir(folder).output().unwrap()
}

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// The blocks of this language, each with its first line number. Blocks may be indented in lists.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<(usize, Vec<&'t str>)> {
    let opening = format!("```{language}");
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        if line.trim() == opening {
            let block = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```").collect();
            found.push((at + 1, block));
        }
    }
    found
}

/// Every flag of a shown command exists in its subcommand.
#[test]
fn commands_in_shell_blocks_have_flags_that_exist() {
    let mut seen = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for (line, block) in ["sh", "console"].iter().flat_map(|language| blocks(&text, language)) {
            for command in block.iter().map(|line| line.trim_start_matches("$ ")) {
                let Some(words) = command.strip_prefix("docward ") else { continue };
                let subcommand = words.split_whitespace().next().unwrap();
                let help = docward(&[subcommand, "--help"], &root());
                assert!(help.status.success(), "{}:{line}: {command}", page.display());
                let flags = words.split_whitespace().filter(|word| word.starts_with("--"));
                for flag in flags.map(|flag| flag.split('=').next().unwrap()) {
                    assert!(output_text(&help).contains(flag), "{}:{line}: {command}: {flag}", page.display());
                }
                seen += 1;
            }
        }
    }
    assert!(seen >= 12, "{seen}");
}

/// Replaces each of `pages` by the result of `regenerate` if `UPDATE_EXPECT` is set; otherwise asserts that the two
/// are equal.
fn expect(pages: impl IntoIterator<Item = PathBuf>, mut regenerate: impl FnMut(&Path, &str) -> String) {
    // Two tests write to the same pages.
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    for page in pages {
        let shown = std::fs::read_to_string(&page).unwrap();
        let real = regenerate(&page, &shown);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&page, real).unwrap();
        } else {
            assert_eq!(real, shown, "{}: UPDATE_EXPECT=1 rewrites it", page.display());
        }
    }
}

const OPENING: &str = "```console\n";
const CLOSING: &str = "```\n";

#[test]
fn commands_print_what_the_documentation_shows() {
    let root = root();
    let mut blocks = 0;
    expect(pages(), |_, shown| {
        let mut real = String::new();
        let mut rest = shown;
        while let Some((before, block)) = rest.split_once(OPENING) {
            let (block, after) = block.split_once(CLOSING).unwrap();
            real.push_str(&format!("{before}{OPENING}{}{CLOSING}", run_block(block, &root)));
            rest = after;
            blocks += 1;
        }
        real + rest
    });
    assert!(blocks >= 8, "{blocks}");
}

/// Prints every command of the block with its output. A command continues while its quotes are open.
fn run_block(block: &str, root: &Path) -> String {
    let mut out = String::new();
    let mut command = String::new();
    for line in block.lines() {
        match line.strip_prefix("$ ") {
            Some(first) => command = first.to_owned(),
            None if !command.is_empty() => command.push_str(&format!("\n{line}")),
            None => continue,
        }
        if command.matches('\'').count().is_multiple_of(2) {
            out.push_str(&format!("$ {command}\n{}", run(&command, root)));
            command.clear();
        }
    }
    out
}

/// The output, with stderr after stdout.
fn run(command: &str, root: &Path) -> String {
    let folder = docward_executable().parent().unwrap().to_owned();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let done = Command::new("sh").arg("-c").arg(command).env("PATH", path).current_dir(root).output().unwrap();
    String::from_utf8([done.stdout, done.stderr].concat()).unwrap()
}
