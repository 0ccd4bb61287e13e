//! The systemd units, the Debian package and the image, compared with the configurations that they use.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use super::{assert_is_command, drain_seconds, key, read, repository};
use support::process::{ChildGuard, SOON, TIMEOUT, docward_executable, poll, uninterrupted};
use support::proxy::Docward;

/// The values of a key of a unit.
fn settings<'t>(unit: &'t str, name: &str) -> Vec<&'t str> {
    unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

#[test]
fn the_service_runs_an_existing_command_and_allows_a_drain() {
    let unit = read("deploy/systemd/docward.service");
    let configuration = read("deploy/debian/docward.yaml");
    let mut words = settings(&unit, "ExecStart")[0].split(' ');
    assert_eq!(words.next(), Some("/usr/bin/docward"));
    assert_is_command(words);
    assert_is_command(settings(&unit, "ExecReload")[0].strip_prefix("/usr/bin/docward ").unwrap().split(' '));
    let stop_timeout: u64 = settings(&unit, "TimeoutStopSec")[0].strip_suffix('s').unwrap().parse().unwrap();
    assert!(stop_timeout > drain_seconds(&configuration) + 5);
}

/// docward sends what `Type=notify` waits for, and how long a drain may take.
#[test]
fn the_service_manager_is_notified_of_start_and_stop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(TIMEOUT)).unwrap();
    let notification = || {
        let mut buffer = [0; 64];
        let length = uninterrupted(|| manager.recv(&mut buffer)).unwrap();
        String::from_utf8_lossy(&buffer[..length]).trim().to_owned()
    };
    let unused = "mongodb://127.0.0.1:1/";
    let docward = Docward::before(unused).environment("NOTIFY_SOCKET", path.to_str().unwrap());
    let mut docward = docward.argument("--drain-timeout").argument("50s").start();
    assert_eq!(notification(), "READY=1");
    docward.signal("TERM");
    assert_eq!(notification(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=60000000");
    assert!(docward.wait().success());
}

/// Starts `serve` with its stderr in a file, which is declared to be the journal if `journal` is set; returns the
/// content once it contains `enough`.
fn logged(arguments: &[&str], journal: bool, enough: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stderr");
    let file = std::fs::File::create(&path).unwrap();
    let of = file.metadata().unwrap();
    let mut command = Command::new(docward_executable());
    command.arg("serve").args(arguments).env_remove("JOURNAL_STREAM").stdout(Stdio::null()).stderr(file);
    if journal {
        command.env("JOURNAL_STREAM", format!("{}:{}", of.dev(), of.ino()));
    }
    let _docward = ChildGuard::spawn(&mut command, folder.path());
    poll(SOON, || std::fs::read_to_string(&path).ok().filter(|text| text.contains(enough))).unwrap()
}

#[test]
fn lines_in_the_journal_have_their_priority_and_no_time() {
    // No other process hands over, and no runtime directory exists for the next one.
    let fails = ["--listen", "127.0.0.1:0", "--upstream", "mongodb://127.0.0.1:1/", "--hand-over", "/no/such/folder/x"];
    let line = |arguments: &[&str], journal| {
        let log = logged(arguments, journal, "take over");
        log.lines().find(|line| line.contains("take over")).unwrap().to_owned()
    };
    let (marked, plain) = (line(&fails, true), line(&fails, false));
    assert!(marked.starts_with("<3>ERROR docward_proxy::"), "{marked}");
    assert!(plain.starts_with("20") && plain.contains("Z ERROR docward_proxy::"), "a time: {plain}");
    let json = line(&[&fails[..], &["--log-format", "json"]].concat(), true);
    assert!(json.starts_with("<3>{\"timestamp\":"), "{json}");
    // An error in rules has several lines.
    let rules = repository("no/such/rules.yaml");
    let refused = logged(&["--rules", rules.to_str().unwrap()], true, "1 error");
    assert!(refused.lines().count() > 1 && refused.lines().all(|line| line.starts_with("<3>")), "{refused}");
}

#[test]
fn a_passed_socket_of_another_address_is_named() {
    let passed = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = passed.local_addr().unwrap();
    let docward =
        Docward::before("mongodb://127.0.0.1:1/").passing(&passed).listen(&format!("0.0.0.0:{}", address.port()));
    let log = docward.try_start().map(|_| ()).unwrap_err();
    assert!(log.contains(&format!("LISTEN_FDS passed a socket on {address}")), "{log}");
}

/// A passed socket without a listener would keep its port open unused.
#[test]
fn the_socket_is_what_the_configuration_listens_on() {
    let unit = read("deploy/systemd/docward.socket");
    let configuration = read("deploy/debian/docward.yaml");
    assert_eq!(settings(&unit, "ListenStream"), [key(&configuration, "listen").unwrap()]);
}

#[test]
fn all_packaged_files_exist() {
    let manifest = read("Cargo.toml");
    let assets = manifest.split("assets = [").nth(1).unwrap().split("\n]").next().unwrap();
    for asset in assets.lines().filter_map(|line| line.trim().strip_prefix("[\"")?.split('"').next()) {
        // `scripts/deb.sh` makes these.
        if asset.starts_with("target/") {
            continue;
        }
        let folder = asset.strip_suffix("*.yaml").unwrap_or(asset);
        assert!(repository(folder).exists(), "{asset}");
    }
}

/// The `["word", "word"]` after an instruction of the Dockerfile, or after CMD of its health check.
fn words<'t>(dockerfile: &'t str, before: &str) -> Vec<&'t str> {
    let line = dockerfile.lines().find_map(|line| line.trim().strip_prefix(before)).unwrap();
    line.trim_matches(['[', ']']).split(", ").map(|word| word.trim_matches('"')).collect()
}

/// The compose file publishes the port of the image, and waits for a drain.
#[test]
fn the_compose_file_fits_the_image() {
    let compose: serde_json::Value = serde_yaml::from_str(&read("deploy/docker/compose.yaml")).unwrap();
    let service = &compose["services"]["docward"];
    let configuration = read("deploy/docker/docward.yaml");
    let port = key(&configuration, "listen").unwrap().strip_prefix("0.0.0.0:").unwrap();
    assert_eq!(service["ports"][0], format!("{port}:{port}"));
    assert_eq!(service["volumes"][0], "./docward:/etc/docward:ro");
    let grace: u64 = service["stop_grace_period"].as_str().unwrap().strip_suffix('s').unwrap().parse().unwrap();
    assert!(grace >= drain_seconds(&configuration) + 5);
}

#[test]
fn the_image_runs_existing_commands() {
    let dockerfile = read("Dockerfile");
    let binary = words(&dockerfile, "ENTRYPOINT ");
    let check = words(&dockerfile, "CMD [\"/usr/bin/docward\", ");
    assert!(dockerfile.contains(&format!("/image{}", binary[0])));
    assert_is_command(check.iter().copied());
    let start = words(&dockerfile, "CMD [\"serve\"");
    let start: Vec<&str> = std::iter::once("serve").chain(start.into_iter().filter(|word| !word.is_empty())).collect();
    assert_is_command(start.iter().copied());
    assert_eq!((start.last(), check.contains(&"health")), (check.last(), true), "both by one configuration");
    let configuration = read("deploy/docker/docward.yaml");
    let port = key(&configuration, "listen").unwrap().strip_prefix("0.0.0.0:").unwrap();
    assert!(dockerfile.contains(&format!("EXPOSE {port}\n")) && dockerfile.contains("USER 65532:65532\n"));
    assert!(key(&configuration, "admin").unwrap().starts_with("127.0.0.1:"));
}
