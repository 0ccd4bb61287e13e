//! `docward health` with a running docward's admin address, and with an address where none listens.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Instant;

use super::docward;
use support::mongod::Mongod;
use support::process::{SOON, TIMEOUT, free_port, poll};
use support::proxy::Docward;

const UNUSED_ADDRESS: &str = "mongodb://127.0.0.1:1/";

/// The exit code and the output.
fn health_once(arguments: &[&str]) -> (Option<i32>, String) {
    let output = docward(&[&["health"], arguments].concat());
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// The same, repeated if the reply takes longer than the command's timeout, as on a slow machine.
fn health(arguments: &[&str]) -> (Option<i32>, String) {
    poll(TIMEOUT, || Some(health_once(arguments)).filter(|(_, printed)| !printed.contains("timed out after"))).unwrap()
}

fn before(upstream: &str) -> Docward {
    Docward::before(upstream).admin().start()
}

#[test]
fn docward_is_ready_once_a_member_answers() {
    let docward = before(&Mongod::shared().uri());
    let admin = docward.admin_address();
    let ready = poll(TIMEOUT, || Some(health(&["--admin", &admin])).filter(|(code, _)| *code == Some(0)));
    assert_eq!(ready.unwrap().1, "ok\n");
}

#[test]
fn without_a_server_docward_is_alive_and_not_ready() {
    let docward = before(UNUSED_ADDRESS);
    let admin = docward.admin_address();
    assert_eq!(health(&["--admin", &admin, "--live"]), (Some(0), "ok\n".to_owned()));
    let (code, printed) = health(&["--admin", &admin]);
    assert!(code == Some(1) && printed.contains("/readyz returned 503") && printed.contains("no member"), "{printed}");
}

#[test]
fn the_address_comes_from_the_configuration() {
    let docward = before(UNUSED_ADDRESS);
    let port = docward.admin_address().rsplit_once(':').unwrap().1.to_owned();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("docward.yaml");
    let asked = |configuration: &str| {
        std::fs::write(&file, configuration).unwrap();
        health(&["--live", "--config", file.to_str().unwrap()])
    };
    assert_eq!(asked(&format!("admin: localhost:{port}")).0, Some(0));
    assert_eq!(asked(&format!("admin: 0.0.0.0:{port}")).0, Some(0));
    for (configuration, words) in [("listen: 127.0.0.1:1", "there is no `admin:`"), ("amin: x", "did you mean")] {
        let (code, printed) = asked(configuration);
        assert!(code == Some(1) && printed.contains(words), "{printed}");
    }
    assert_eq!(health(&[]).0, Some(64));
}

#[test]
fn an_address_without_docward_is_an_error() {
    let (code, printed) = health(&["--admin", &format!("127.0.0.1:{}", free_port())]);
    assert!(code == Some(1) && printed.contains("no reply from the admin address 127.0.0.1:"), "{printed}");

    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let talking = std::thread::spawn(move || {
        let (mut client, _) = other.accept().unwrap();
        // Closing with unread data resets the connection.
        client.read(&mut [0; 256]).and_then(|_| client.write_all(b"SSH-2.0-OpenSSH\r\n"))
    });
    let (code, printed) = health(&["--admin", &address]);
    assert!(code == Some(1) && printed.contains("the reply is not HTTP"), "{printed}");
    talking.join().unwrap().unwrap();

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let started = Instant::now();
    let (code, printed) = health_once(&["--admin", &silent.local_addr().unwrap().to_string()]);
    assert!(code == Some(1) && printed.contains("timed out after") && started.elapsed() < SOON, "{printed}");
}
