//! docward's output about itself: the schema, shell completions, manual pages.

use std::process::{Command, Stdio};
use support::process::{docward, docward_executable};

fn stdout(arguments: &[&str]) -> String {
    let output = docward(arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_printed_schema_is_the_librarys() {
    assert_eq!(stdout(&["schema"]), docward::patterns::SCHEMA);
}

#[test]
fn every_shell_completes_subcommands_and_their_flags() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = stdout(&["completions", shell]);
        for word in ["reset-clock", "upstream"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

/// The completions that bash offers for the last of these words.
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
        (&["docward", "re"][..], "record replay repair reset-clock"),
        (&["docward", "audit", "--fo"], "--format"),
        (&["docward", "audit", "--format", ""], "text json"),
        (&["docward", "record", "--tls-k"], "--tls-key"),
    ] {
        assert_eq!(completed(words), offered, "{words:?}");
    }
}

/// As with `docward check rules/ | head`.
#[test]
fn a_closed_stdout_ends_a_subcommand_quietly() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.yaml");
    let rule = |n: usize| format!("  - {{ name: r{n}, namespace: d.c{n}, together: [a, b] }}\n");
    std::fs::write(&rules, format!("version: 1\nrules:\n{}", (0..2000).map(rule).collect::<String>())).unwrap();
    let rules = rules.to_str().unwrap();
    for arguments in [
        &["check", rules][..],
        &["check", rules, "--format", "json"],
        &["check", rules, "--coverage"],
        &["explain", "--rules", rules, "db.getSiblingDB('d').c1.insertOne({a: 1})"],
        &["test", rules],
        &["schema"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
    ] {
        let mut command = Command::new(docward_executable());
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command.args(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert!(!printed.contains("panicked") && !printed.contains("Broken pipe"), "{arguments:?}: {printed}");
        assert!(output.status.code().is_some_and(|code| code <= 1), "{arguments:?}: {:?}", output.status);
    }
}

/// A folder of rules may contain them, so their names end in `.test.yaml`.
#[test]
fn a_test_file_given_as_rules_is_named_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let tests = folder.path().join("orders.yaml");
    std::fs::write(&tests, "version: 1\ntests:\n  - { rule: r, do: 'db.c.find()' }\n").unwrap();
    for command in ["check", "serve"] {
        let path = tests.to_str().unwrap();
        let arguments: &[&str] = if command == "check" { &[command, path] } else { &[command, "--rules", path] };
        let output = docward(arguments);
        let printed = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && printed.contains("this is a test file; run `docward test`"), "{printed}");
        assert!(printed.contains("orders.yaml"), "{printed}");
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
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && printed.contains("--out /proc/none: "), "{printed}");
}

/// Opening a FIFO waits for a writer, and reading some devices never ends.
#[test]
fn only_regular_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let fifo = path("fifo.yaml");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let (rules, tls) = (path("rules.yaml"), path("tls.yaml"));
    std::fs::write(&rules, "version: 1\nrules: [{name: a, namespace: a.b, together: [a, b]}]\n").unwrap();
    std::fs::write(&tls, format!("tls: {{certificate: {fifo}}}\n")).unwrap();
    let socket = path("socket.yaml");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let commands: [(&[&str], &str); 9] = [
        (&["check", &fifo], "it is a FIFO"),
        (&["check", folder.path().to_str().unwrap()], "it is a FIFO"),
        (&["check", &socket], "it is a socket"),
        (&["check", "/dev/zero"], "it is a device"),
        (&["check", "--config", &fifo], "it is a FIFO"),
        (&["check", "--config", &tls], "it is a FIFO"),
        (&["test", &rules, &path("fifo.test.yaml")], "it is a FIFO"),
        (&["explain", "--rules", &fifo, "db.c.find()"], "it is a FIFO"),
        (&["serve", "--admin", "127.0.0.1:0", "--admin-token-file", &fifo], "it is a FIFO"),
    ];
    assert!(Command::new("mkfifo").arg(path("fifo.test.yaml")).status().unwrap().success());
    for (arguments, printed) in commands {
        let child = Command::new(docward_executable()).args(arguments).stderr(Stdio::piped()).spawn().unwrap();
        let (id, (done, ended)) = (child.id(), std::sync::mpsc::channel());
        std::thread::spawn(move || done.send(child.wait_with_output()));
        let output = ended.recv_timeout(std::time::Duration::from_secs(60)).unwrap_or_else(|_| {
            let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
            panic!("{arguments:?} waits for a writer");
        });
        let output = output.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(printed), "{arguments:?}: {stderr}");
    }
}
