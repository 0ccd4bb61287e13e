//! The files in `deploy/` and the Dockerfile, as far as they can be tested without a cluster, an init system or a
//! container engine: configurations load, commands use existing flags, and repeated settings agree.

mod examples;
mod health;
mod kubernetes;
mod services;

use std::path::Path;

use support::process::{docward, repository};

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(repository("").join(&path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
}

/// Asserts that `docward check` finds no error in a configuration or in the files it names.
fn assert_loads(configuration: &Path) {
    let output = docward(&["check", "--config", configuration.to_str().unwrap()]);
    let printed = String::from_utf8_lossy(&output.stderr);
    // The copies of the test are readable by every user, and some examples have no rules yet.
    let only_notices = printed.lines().all(|line| line.starts_with("warning: "));
    assert!(output.status.success() && only_notices, "{}: {printed}", configuration.display());
}

/// Asserts that the words are a valid command line: a subcommand, and flags that it has.
fn assert_is_command<'w>(words: impl IntoIterator<Item = &'w str>) {
    let words: Vec<&str> = words.into_iter().collect();
    let help = docward(&[words[0], "--help"]);
    assert!(help.status.success(), "there is no `docward {}`", words[0]);
    let help = String::from_utf8(help.stdout).unwrap();
    for flag in words.iter().filter(|word| word.starts_with("--")) {
        assert!(help.contains(flag), "`docward {}` has no {flag}", words[0]);
    }
}

/// A top-level key of a `docward.yaml`, as it is written there.
fn key<'t>(configuration: &'t str, name: &str) -> Option<&'t str> {
    let line = configuration.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.split(" #").next().unwrap_or(line).trim())
}

/// The value of `drain_timeout`, in seconds.
fn drain_seconds(configuration: &str) -> u64 {
    key(configuration, "drain_timeout").map_or(10, |time| time.strip_suffix('s').unwrap().parse().unwrap())
}
