//! The files and functions that CONTRIBUTING.md and ARCHITECTURE.md point a new contributor to.

use super::root;

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

/// The texts in backticks outside of code blocks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|prose| prose.split('`').skip(1).step_by(2))
}

#[test]
fn the_named_files_exist() {
    const FOLDERS: [&str; 9] =
        ["src/", "crates/", "tests/", "docs/", "rules/", "deploy/", "fuzz/", "scripts/", "bench/"];
    let mut seen = 0;
    for name in ["CONTRIBUTING.md", "ARCHITECTURE.md"] {
        let text = read(name);
        let paths = quoted(&text).filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)));
        // The reader of the example creates these files.
        for path in paths.filter(|path| !path.contains("frozen")) {
            assert!(root().join(path).exists(), "{name}: {path}");
            seen += 1;
        }
    }
    assert!(seen >= 40, "{seen}");
}

#[test]
fn the_named_functions_of_a_pattern_exist() {
    let text = read("CONTRIBUTING.md");
    let table = text.split("| function | returns or does |").nth(1).unwrap().split("\n\n").next().unwrap();
    let evaluate = read("crates/rules/src/patterns/mod.rs") + &read("crates/rules/src/patterns/together.rs");
    let names: Vec<&str> = table.lines().filter_map(|row| row.split(" | ").next()).flat_map(quoted).collect();
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        assert!(evaluate.contains(&format!("fn {name}")), "{name}");
    }
}

#[test]
fn the_named_make_targets_exist() {
    let makefile = read("Makefile");
    for name in ["CONTRIBUTING.md", "README.md"] {
        for line in read(name).lines().filter_map(|line| line.strip_prefix("make ")) {
            let target = line.split_whitespace().next().unwrap();
            assert!(makefile.contains(&format!("\n{target}: ## ")), "{name}: make {target}");
        }
    }
}
