//! What docward prints about itself: the schema, completions, manual pages.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::process::{Command, Output};

fn docward(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_docward")).args(arguments).output().unwrap()
}

fn stdout(arguments: &[&str]) -> String {
    let output = docward(arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_schema_is_the_one_that_the_library_has() {
    assert_eq!(stdout(&["schema"]), docward::patterns::SCHEMA);
}

#[test]
fn every_shell_learns_the_subcommands_and_their_flags() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = stdout(&["completions", shell]);
        for word in ["reset-clock", "upstream"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

/// What bash offers for the last of these words.
fn completed(words: &[&str]) -> String {
    let [.., before, last] = words else { panic!("{words:?}") };
    let script = format!(
        "{}\nCOMP_WORDS=({}); COMP_CWORD={}\n_docward docward '{last}' {before}\necho \"${{COMPREPLY[@]}}\"",
        stdout(&["completions", "bash"]),
        words.iter().map(|word| format!("'{word}' ")).collect::<String>(),
        words.len() - 1,
    );
    let bash = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert!(bash.status.success() && bash.stderr.is_empty(), "{bash:?}");
    String::from_utf8(bash.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn bash_completes_subcommands_flags_and_words() {
    for (words, offered) in [
        (&["docward", "re"][..], "record repair reset-clock"),
        (&["docward", "audit", "--fo"], "--format"),
        (&["docward", "audit", "--format", ""], "text json"),
        (&["docward", "record", "--tls-k"], "--tls-key"),
    ] {
        assert_eq!(completed(words), offered, "{words:?}");
    }
}

#[test]
fn there_is_a_manual_page_for_every_subcommand() {
    assert!(stdout(&["man"]).contains(".TH docward 1"));
    let folder = tempfile::tempdir().unwrap();
    stdout(&["man", "--out", folder.path().to_str().unwrap()]);
    let help = stdout(&["--help"]);
    let listed = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let subcommands: Vec<&str> =
        listed.map_while(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect();
    assert!(subcommands.contains(&"serve"), "{help}");
    for name in subcommands {
        let page = std::fs::read_to_string(folder.path().join(format!("docward-{name}.1"))).unwrap();
        assert!(page.contains(".SH OPTIONS") && page.contains(env!("CARGO_PKG_VERSION")), "{name}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_to_is_named() {
    let output = docward(&["man", "--out", "/proc/none"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("--out /proc/none: "), "{said}");
}
