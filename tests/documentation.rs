//! The commands shown in the documentation, run: what stands below `$ docward …` in a block marked `console` is what
//! is printed. `UPDATE_EXPECT=1 cargo test --test documentation` writes it anew; read the difference.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};
use std::process::Command;

const OPENING: &str = "```console\n";
const CLOSING: &str = "```\n";

#[test]
fn commands_print_what_the_documentation_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages: Vec<PathBuf> =
        std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.push(root.join("README.md"));
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    let mut blocks = 0;
    for page in pages {
        let shown = std::fs::read_to_string(&page).unwrap();
        let mut real = String::new();
        let mut rest = shown.as_str();
        while let Some((before, block)) = rest.split_once(OPENING) {
            let (block, after) = block.split_once(CLOSING).unwrap();
            real.push_str(&format!("{before}{OPENING}{}{CLOSING}", run_block(block, root)));
            rest = after;
            blocks += 1;
        }
        real.push_str(rest);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&page, real).unwrap();
        } else {
            assert_eq!(real, shown, "{}", page.display());
        }
    }
    assert!(blocks >= 8, "{blocks}");
}

/// Every command of the block with what it prints. A command goes on where its quotes are open.
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

/// What is printed, stderr behind stdout.
fn run(command: &str, root: &Path) -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_docward")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let done = Command::new("sh").arg("-c").arg(command).env("PATH", path).current_dir(root).output().unwrap();
    String::from_utf8([done.stdout, done.stderr].concat()).unwrap()
}
