//! `docward health` at a running docward's admin address, and where there is none.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Instant;

use super::docward;
use super::support::mongod::Mongod;
use super::support::process::{SOON, TIMEOUT, free_port, poll};
use super::support::proxy::Docward;

const NOBODY: &str = "mongodb://127.0.0.1:1/";

/// The exit code, and what is said.
fn health_once(arguments: &[&str]) -> (Option<i32>, String) {
    let output = docward(&[&["health"], arguments].concat());
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// The same, asked again where the answer took longer than it waits, which a slow machine's may.
fn health(arguments: &[&str]) -> (Option<i32>, String) {
    poll(TIMEOUT, || Some(health_once(arguments)).filter(|(_, said)| !said.contains("nothing was said within")))
        .unwrap()
}

fn before(upstream: &str) -> Docward {
    Docward::before(upstream).admin().start()
}

#[test]
fn it_is_ready_as_soon_as_a_member_answers() {
    let docward = before(&Mongod::shared().uri());
    let admin = docward.admin_address();
    let ready = poll(TIMEOUT, || Some(health(&["--admin", &admin])).filter(|(code, _)| *code == Some(0)));
    assert_eq!(ready.unwrap().1, "ok\n");
}

#[test]
fn without_a_server_it_lives_and_is_not_ready() {
    let docward = before(NOBODY);
    let admin = docward.admin_address();
    assert_eq!(health(&["--admin", &admin, "--live"]), (Some(0), "ok\n".to_owned()));
    let (code, said) = health(&["--admin", &admin]);
    assert!(code == Some(1) && said.contains("/readyz answers 503") && said.contains("no member"), "{said}");
}

#[test]
fn the_configuration_says_where_to_ask() {
    let docward = before(NOBODY);
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
        let (code, said) = asked(configuration);
        assert!(code == Some(1) && said.contains(words), "{said}");
    }
    assert_eq!(health(&[]).0, Some(64));
}

#[test]
fn nobody_or_somebody_else_at_the_address_is_said() {
    let (code, said) = health(&["--admin", &format!("127.0.0.1:{}", free_port())]);
    assert!(code == Some(1) && said.contains("no answer from the admin address 127.0.0.1:"), "{said}");

    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let talking = std::thread::spawn(move || {
        let (mut client, _) = other.accept().unwrap();
        // What closes with something unread resets the connection.
        client.read(&mut [0; 256]).and_then(|_| client.write_all(b"SSH-2.0-OpenSSH\r\n"))
    });
    let (code, said) = health(&["--admin", &address]);
    assert!(code == Some(1) && said.contains("does not speak HTTP"), "{said}");
    talking.join().unwrap().unwrap();

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let started = Instant::now();
    let (code, said) = health_once(&["--admin", &silent.local_addr().unwrap().to_string()]);
    assert!(code == Some(1) && said.contains("nothing was said within") && started.elapsed() < SOON, "{said}");
}
