//! TLS on both sides: real drivers and a mongod that requires it, the log when a handshake fails, and certificates
//! that are replaced while connections are open.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bson::{Document, doc};
use mongodb::Client;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use support::certificates::Authority;
use support::driver::refusal;
use support::mongod::{Kind, Mongod};
use support::process::{SOON, TIMEOUT, poll, repository};
use support::proxy::{Builder, Docward};
use support::raw;
use tempfile::TempDir;

const HOSTS: &[&str] = &["localhost", "127.0.0.1"];

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A mongod that accepts TLS only and demands certificates of the same authority.
fn tls_mongod(authority: &Authority, names: &[&str]) -> Mongod {
    let certificate = authority.sign("mongod", names);
    let tls = ["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", &certificate, "--tlsCAFile", &authority.file()];
    Mongod::start_with(Kind::Standalone, &tls)
}

fn port(docward: &Docward) -> String {
    docward.address().rsplit_once(':').unwrap().1.to_owned()
}

fn uri(docward: &Docward, options: &str) -> String {
    format!("mongodb://localhost:{}/?{options}", port(docward))
}

/// A driver that opens a new connection for each of these.
async fn client(docward: &Docward, options: &str) -> Client {
    Client::with_uri_str(uri(docward, options)).await.unwrap()
}

async fn ping(client: &Client) -> Result<Document, mongodb::error::Error> {
    client.database("admin").run_command(doc! { "ping": 1 }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_and_docwards_own_user_work_with_tls_on_both_sides() {
    let folder = folder();
    let authority = Authority::new(folder.path(), "authority");
    let mongod = tls_mongod(&authority, HOSTS);
    let ours = authority.sign("docward", HOSTS);
    let upstream = format!(
        "mongodb://localhost:{}/?tls=true&tlsCAFile={}&tlsCertificateKeyFile={ours}",
        mongod.port(),
        authority.file()
    );
    let rules =
        "version: 1\nrules:\n  - {name: numbers, namespace: shop.orders, sequence: {field: no, counter: orders}}\n";
    let docward = Docward::before(&upstream)
        .rules(rules)
        .argument("--tls-certificate")
        .argument(&ours)
        .argument("--tls-client-ca")
        .argument(authority.file())
        .start();
    let theirs = authority.sign("application", &["app.example.com"]);
    let driver =
        client(&docward, &format!("tls=true&tlsCAFile={}&tlsCertificateKeyFile={theirs}", authority.file())).await;
    let orders = driver.database("shop").collection::<Document>("orders");
    for number in 1..=3 {
        // Larger than a TLS record, and than every buffer in between.
        orders.insert_one(doc! { "_id": number, "text": "x".repeat(3_000_000) }).await.unwrap();
    }
    let mut found = orders.find(doc! {}).sort(doc! { "no": 1 }).await.unwrap();
    for number in 1..=3 {
        assert!(found.advance().await.unwrap());
        let order = found.deserialize_current().unwrap();
        assert_eq!((order.get_i32("_id").unwrap(), order.get_i32("no").unwrap()), (number, number));
        assert_eq!(order.get_str("text").unwrap().len(), 3_000_000);
    }
}

/// Completes the handshake with every client, and closes.
async fn tls_peer(certificate: &str) -> u16 {
    let text = std::fs::read(certificate).unwrap();
    let chain = CertificateDer::pem_slice_iter(&text).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(&text).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let _ = acceptor.accept(stream).await;
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_has_the_reason_of_a_failed_upstream_handshake() {
    let folder = folder();
    let authority = Authority::new(folder.path(), "authority");
    let other = Authority::new(folder.path(), "other");
    let mongod = tls_mongod(&authority, &["localhost"]);
    let plain = Mongod::shared();
    let expired = tls_peer(&authority.sign_expired("expired", HOSTS)).await;
    let ours = authority.sign("docward", HOSTS);
    let foreign = other.sign("foreign", HOSTS);
    let (trusted, untrusted) = (authority.file(), other.file());
    let tls = |rest: &str| format!("?tls=true&{rest}");
    for (host, port, options, words) in [
        (
            "localhost",
            mongod.port(),
            tls(&format!("tlsCAFile={untrusted}")),
            "not signed by an authority docward trusts",
        ),
        ("127.0.0.1", mongod.port(), tls(&format!("tlsCAFile={trusted}")), "certificate is not for 127.0.0.1, but for"),
        ("localhost", expired, tls(&format!("tlsCAFile={trusted}")), "not valid at this time"),
        ("localhost", mongod.port(), tls(&format!("tlsCAFile={trusted}")), "tlsCertificateKeyFile="),
        (
            "localhost",
            mongod.port(),
            tls(&format!("tlsCAFile={trusted}&tlsCertificateKeyFile={foreign}")),
            "tlsCertificateKeyFile",
        ),
        ("localhost", plain.port(), tls(&format!("tlsCAFile={trusted}")), "remove tls=true"),
        ("localhost", mongod.port(), String::new(), "add tls=true"),
    ] {
        let docward = Docward::before(&format!("mongodb://{host}:{port}/{options}")).start();
        let line = docward.wait_for_log("does not reply");
        assert!(line.contains(words), "{options}: {line}");
    }
    for options in ["tlsInsecure=true", "tlsAllowInvalidCertificates=true"] {
        let options = tls(&format!("{options}&tlsCertificateKeyFile={ours}"));
        let docward = Docward::before(&format!("mongodb://127.0.0.1:{}/{options}", mongod.port())).start();
        ping(&client(&docward, "").await).await.unwrap();
    }
}

/// The start of any ClientHello.
const CLIENT_HELLO: [u8; 24] = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2, 3];

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_the_wrong_protocol_gets_the_reason() {
    let folder = folder();
    let authority = Authority::new(folder.path(), "authority");
    let certificate = authority.sign("docward", HOSTS);
    let docward = Docward::before(&Mongod::shared().uri()).argument("--tls-certificate").argument(&certificate).start();
    let words = "add tls=true to the connection string";
    let error = refusal(&uri(&docward, ""), words).await;
    assert!(error.contains(words), "{error}");
    docward.wait_for_log("this listener accepts TLS only");
    let mut silent = raw::Client::connect(&docward.address());
    silent.finish_sending();
    assert!(silent.closes_within(SOON));
    let refused = docward.log().into_iter().filter(|line| line.contains("connection refused"));
    assert!(refused.into_iter().all(|line| line.contains("TLS only")), "a health check is nothing to log");

    let docward = Docward::before(&Mongod::shared().uri()).start();
    for pieces in [1, 3, CLIENT_HELLO.len()] {
        let mut client = raw::Client::connect(&docward.address());
        CLIENT_HELLO.chunks(pieces).for_each(|piece| _ = client.try_send_bytes(piece));
        assert!(client.closes_within(SOON));
    }
    docward.wait_for_log("it uses TLS, and this listener does not");
    refusal(&uri(&docward, &format!("tls=true&tlsCAFile={}", authority.file())), "").await;
}

#[test]
fn an_incomplete_handshake_is_closed() {
    let folder = folder();
    let certificate = Authority::new(folder.path(), "authority").sign("docward", HOSTS);
    let docward = Docward::before(&Mongod::shared().uri())
        .argument("--tls-certificate")
        .argument(&certificate)
        .argument("--handshake-timeout")
        .argument("1s")
        .start();
    for sent in [0, 1, CLIENT_HELLO.len()] {
        let mut client = raw::Client::connect(&docward.address());
        client.send_bytes(&CLIENT_HELLO[..sent]);
        assert!(client.closes_within(SOON), "{sent}");
    }
    docward.wait_for_log("the TLS handshake took too long");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_has_the_reason_of_a_failed_client_handshake() {
    let folder = folder();
    let authority = Authority::new(folder.path(), "authority");
    let other = Authority::new(folder.path(), "other");
    let certificate = authority.sign("docward", HOSTS);
    let (foreign, expired) = (other.sign("foreign", HOSTS), authority.sign_expired("expired", HOSTS));
    let (trusted, untrusted) = (authority.file(), other.file());
    for (options, words) in [
        (format!("tlsCAFile={trusted}"), "presents no certificate, and `client_ca` requires one"),
        (format!("tlsCAFile={trusted}&tlsCertificateKeyFile={foreign}"), "not signed by an authority in `client_ca`"),
        (format!("tlsCAFile={trusted}&tlsCertificateKeyFile={expired}"), "not valid at this time"),
        (format!("tlsCAFile={untrusted}"), "does not trust docward's certificate"),
    ] {
        let docward = Docward::before(&Mongod::shared().uri())
            .argument("--tls-certificate")
            .argument(&certificate)
            .argument("--tls-client-ca")
            .argument(&trusted)
            .start();
        refusal(&uri(&docward, &format!("tls=true&{options}")), "").await;
        let line = docward.wait_for_log("connection refused");
        assert!(line.contains(words), "{options}: {line}");
    }
}

/// At the start an expired certificate and a key of another certificate are errors; a reload keeps the previous ones.
#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_certificate_of_docward_is_reported_and_not_used() {
    let folder = folder();
    let authority = Authority::new(folder.path(), "authority");
    let certificate = authority.sign("docward", HOSTS);
    let (expired, other) = (authority.sign_expired("expired", HOSTS), authority.sign("other", HOSTS));
    let early = authority.sign_early("early", HOSTS);
    // Made by openssl without extensions.
    let version_1 = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/protocol/x509_version_1.pem").to_owned();
    let soon = authority.sign_for_days("soon", HOSTS, 10);
    let start = |certificate: &str, more: &[&str]| {
        let docward = Docward::before(&Mongod::shared().uri()).argument("--tls-certificate").argument(certificate);
        more.iter().fold(docward, |docward, argument| docward.argument(*argument)).try_start()
    };
    for (certificate, more, words) in [
        (&expired, &[][..], "expired on 2002-01-01T00:00:00Z; renew it"),
        (&early, &[], "is not valid before 2201-01-01"),
        (&certificate, &["--tls-key", &other], "this key does not belong to this certificate, "),
        (&version_1, &[], "it has the X.509 version 1 or 2, and TLS libraries need version 3"),
    ] {
        let error = start(certificate, more).err().unwrap();
        assert!(error.contains(words) && error.contains(certificate.as_str()), "{words}: {error}");
    }
    let docward = start(&soon, &[]).unwrap();
    docward.wait_for_log("docward's certificate expires on ");
    let trust = format!("tls=true&tlsCAFile={}", authority.file());
    ping(&client(&docward, &trust).await).await.unwrap();
    std::fs::copy(&expired, &soon).unwrap();
    let line = docward.wait_for_log("certificates not reloaded; the previous ones stay in use");
    assert!(line.contains("expired on 2002-01-01"), "{line}");
    ping(&client(&docward, &trust).await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_change_while_connections_are_open() {
    let folder = folder();
    let (old, new) = (Authority::new(folder.path(), "old"), Authority::new(folder.path(), "new"));
    let certificate = old.sign("docward", HOSTS);
    let docward = Docward::before(&Mongod::shared().uri()).argument("--tls-certificate").argument(&certificate).start();
    let trust = |authority: &Authority| format!("tls=true&tlsCAFile={}", authority.file());
    // Its monitor would notice the change; this client has open connections.
    let standing =
        client(&docward, &(trust(&old) + "&maxPoolSize=1&heartbeatFrequencyMS=600000&serverMonitoringMode=poll")).await;
    ping(&standing).await.unwrap();

    std::fs::write(&certificate, "nothing of use").unwrap();
    docward.signal("HUP");
    docward.wait_for_log("the previous ones stay");
    ping(&client(&docward, &trust(&old)).await).await.unwrap();

    std::fs::rename(new.sign("renewed", HOSTS), &certificate).unwrap();
    docward.signal("HUP");
    docward.wait_for_log("certificates reloaded");
    ping(&client(&docward, &trust(&new)).await).await.unwrap();
    refusal(&uri(&docward, &trust(&old)), "").await;
    ping(&standing).await.unwrap();

    // docward notices the change without a signal a little later; the driver retries until then.
    std::fs::rename(old.sign("renewed", HOSTS), &certificate).unwrap();
    ping(&client(&docward, &(trust(&old) + "&serverSelectionTimeoutMS=120000")).await).await.unwrap();
}

/// Of the listeners, of `upstream` and of docward's own user, in each form that openssl writes.
#[tokio::test(flavor = "multi_thread")]
async fn encrypted_keys_are_read_with_their_passwords() {
    const PASSWORD: &str = "a&b@c/d%e ü";
    const ENCODED: &str = "a%26b%40c%2Fd%25e%20%C3%BC";
    const RULES: &str =
        "version: 1\nrules:\n  - {name: numbers, namespace: shop.orders, sequence: {field: no, counter: orders}}\n";
    let folder = folder();
    let authority = Authority::new(folder.path(), "authority");
    let mongod = tls_mongod(&authority, HOSTS);
    let config = folder.path().join("docward.yaml");
    std::fs::write(folder.path().join("password"), format!("{PASSWORD}\n")).unwrap();
    let forms: [&[&str]; 4] =
        [&["-v2", "aes-256-cbc"], &["-v2", "aes-128-cbc", "-v2prf", "hmacWithSHA1"], &["-v2", "des3"], &["-scrypt"]];
    for options in forms {
        let ours = authority.sign_with_password("docward", HOSTS, PASSWORD, options);
        let uri = format!("mongodb://localhost:{}/?tls=true&tlsCAFile={}", mongod.port(), authority.file());
        let uri = format!("{uri}&tlsCertificateKeyFile={ours}&tlsCertificateKeyFilePassword=");
        let text = format!("service: {uri}${{PASSWORD}}\ntls: {{certificate: {ours}, key_password_file: password}}\n");
        std::fs::write(&config, text).unwrap();
        let docward = Docward::before(&format!("{uri}{ENCODED}")).rules(RULES).argument("--config");
        let docward = docward.argument(config.to_str().unwrap()).environment("PASSWORD", PASSWORD).start();
        let driver = client(&docward, &format!("tls=true&tlsCAFile={}", authority.file())).await;
        let orders = driver.database("shop").collection::<Document>("orders");
        orders.insert_one(doc! {}).await.unwrap();
        let order = orders.find_one(doc! {}).await.unwrap().unwrap();
        assert!(order.get_i32("no").is_ok(), "{options:?}: {order}");
    }
}

/// Key and password are two files, so one of them comes first.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_and_its_password_are_replaced_one_after_the_other() {
    for password_first in [false, true] {
        let folder = folder();
        let (old, new) = (Authority::new(folder.path(), "old"), Authority::new(folder.path(), "new"));
        let ours = old.sign_with_password("docward", HOSTS, "first", &[]);
        let renewed = new.sign_with_password("renewed", HOSTS, "second", &[]);
        let password = folder.path().join("password");
        std::fs::write(&password, "first").unwrap();
        let config = folder.path().join("docward.yaml");
        std::fs::write(&config, format!("tls: {{certificate: {ours}, key_password_file: password}}\n")).unwrap();
        let docward = Docward::before(&Mongod::shared().uri()).argument("--config");
        let docward = docward.argument(config.to_str().unwrap()).start();
        let trust = |authority: &Authority| format!("tls=true&tlsCAFile={}", authority.file());
        ping(&client(&docward, &trust(&old)).await).await.unwrap();
        let steps: [&dyn Fn(); 2] =
            [&|| std::fs::rename(&renewed, &ours).unwrap(), &|| std::fs::write(&password, "second").unwrap()];
        let [first, second] = if password_first { [steps[1], steps[0]] } else { steps };
        first();
        docward.wait_for_log("cannot be decrypted with its password");
        ping(&client(&docward, &trust(&old)).await).await.unwrap();
        second();
        docward.wait_for_log("`tls` loaded; new connections use it");
        ping(&client(&docward, &trust(&new)).await).await.unwrap();
    }
}

/// The configuration names other files while docward runs.
#[tokio::test(flavor = "multi_thread")]
async fn other_certificates_are_named_by_reload() {
    let folder = folder();
    let (old, new) = (Authority::new(folder.path(), "old"), Authority::new(folder.path(), "new"));
    let (first, second) = (old.sign("first", HOSTS), new.sign("second", HOSTS));
    let config = folder.path().join("docward.yaml");
    let write = |certificate: &str| std::fs::write(&config, format!("tls: {{certificate: {certificate}}}\n")).unwrap();
    write(&first);
    let docward = Docward::before(&Mongod::shared().uri()).argument("--config").argument(config.to_str().unwrap());
    let docward = docward.start();
    let trust = |authority: &Authority| format!("tls=true&tlsCAFile={}", authority.file());
    let standing = client(&docward, &trust(&old)).await;
    ping(&standing).await.unwrap();
    write(&old.file());
    docward.wait_for_log("`tls`: ");
    ping(&client(&docward, &trust(&old)).await).await.unwrap();
    // The files in use need not exist any more.
    std::fs::remove_file(&first).unwrap();
    docward.wait_for_log("certificates not reloaded");
    write(&second);
    docward.wait_for_log("`tls` loaded; new connections use it");
    ping(&client(&docward, &trust(&new)).await).await.unwrap();
    // The new files are watched.
    std::fs::rename(old.sign("renewed", HOSTS), &second).unwrap();
    docward.wait_for_log("certificates reloaded");
    ping(&client(&docward, &trust(&old)).await).await.unwrap();
    std::fs::write(&config, "{}\n").unwrap();
    docward.wait_for_log("`tls` has changed; it needs a restart or a hand-over");
    ping(&client(&docward, &trust(&old)).await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_may_change_its_authority() {
    let (folder, next) = (folder(), folder());
    let authority = Authority::new(folder.path(), "authority");
    let ours = authority.sign("docward", HOSTS);
    let mut mongod = tls_mongod(&authority, HOSTS);
    let options = format!("tls=true&tlsCAFile={}&tlsCertificateKeyFile={ours}", authority.file());
    let rules =
        "version: 1\nrules:\n  - {name: numbers, namespace: shop.orders, sequence: {field: no, counter: orders}}\n";
    let docward = Docward::before(&format!("mongodb://localhost:{}/?{options}", mongod.port())).rules(rules).start();
    let driver = client(&docward, "").await;
    let orders = driver.database("shop").collection::<Document>("orders");
    orders.insert_one(doc! { "_id": 1 }).await.unwrap();

    // All parties get certificates of another authority, under the same file names.
    mongod.stop();
    let authority = Authority::new(next.path(), "authority");
    authority.sign("docward", HOSTS);
    authority.sign("mongod", HOSTS);
    for file in ["authority.pem", "docward.pem", "mongod.pem"] {
        std::fs::rename(next.path().join(file), folder.path().join(file)).unwrap();
    }
    docward.signal("HUP");
    for side in ["upstream", "service"] {
        let read = |line: &String| line.contains("certificates reloaded") && line.contains(side);
        poll(TIMEOUT, || docward.log().iter().any(read).then_some(())).unwrap();
    }
    mongod.restart();
    // The old connections are closed, which a driver reports for a standalone without retrying.
    let deadline = Instant::now() + TIMEOUT;
    while let Err(error) = orders.insert_one(doc! { "_id": 2 }).await {
        assert!(Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(orders.find_one(doc! { "_id": 2 }).await.unwrap().unwrap().get_i32("no").unwrap(), 2);
}

fn with_certificate(certificate: &Path) -> Builder {
    Docward::before(&Mongod::shared().uri()).argument("--tls-certificate").argument(certificate.display().to_string())
}

#[test]
fn unusable_files_are_reported_at_start() {
    let folder = folder();
    let authority = Authority::new(folder.path(), "authority");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let whole = std::fs::read_to_string(authority.sign("docward", HOSTS)).unwrap();
    let (key, certificate) = whole.split_at(whole.find("-----BEGIN CERTIFICATE").unwrap());
    let key_file = write("key.pem", key);
    let certificate_file = write("certificate.pem", certificate);
    let encrypted = PathBuf::from(authority.sign_with_password("encrypted", HOSTS, "right", &[]));
    let old_form =
        write("old.pem", &format!("{}{certificate}", key.replacen("-\n", "-\nProc-Type: 4,ENCRYPTED\n\n", 1)));
    let whole_key = std::fs::read_to_string(&encrypted).unwrap();
    write("cut.pem", whole_key.split("-----END ENC").next().unwrap());
    let with_password = |text: &str| {
        let config = write(&format!("{}.yaml", text.len()), &format!("tls: {{{text}}}\n"));
        Docward::before(&Mongod::shared().uri()).argument("--config").argument(config.display().to_string())
    };
    let other_key = authority.sign("other", HOSTS);
    let start = |builder: Builder| builder.try_start().map(|_| ());
    for (builder, words) in [
        (with_certificate(&folder.path().join("none.pem")), "none.pem cannot be read"),
        (with_certificate(&key_file), "key.pem contains no certificate"),
        (with_certificate(&certificate_file), "certificate.pem contains no private key"),
        (with_certificate(&encrypted), "encrypted; give its password with key_password_file"),
        (with_certificate(&old_form), "openssl pkcs8 -topk8 -in"),
        (
            with_password("certificate: encrypted.pem, key_password: wrong"),
            "encrypted.pem cannot be decrypted with its password",
        ),
        (with_password("certificate: certificate.pem, key: cut.pem, key_password: right"), "cut.pem is not a PEM file"),
        (with_password("certificate: other.pem, key_password: x"), "other.pem contains no encrypted private key"),
        (with_password("certificate: encrypted.pem, key_password_file: none"), "`key_password_file`: "),
        (with_password("certificate: encrypted.pem, key_password: ''"), "`key_password` must not be empty"),
        (
            with_certificate(&certificate_file).argument("--tls-key").argument(other_key),
            "other.pem: this key does not belong to this certificate",
        ),
        (
            with_certificate(Path::new(&authority.sign("docward", HOSTS)))
                .argument("--tls-client-ca")
                .argument("/none"),
            "/none cannot be read",
        ),
        (
            Docward::before("mongodb://a/?tls=true&tlsAllowInvalidHostnames=true"),
            "tlsAllowInvalidHostnames is not supported",
        ),
        (
            Docward::before(&format!(
                "mongodb://a/?tls=true&tlsCertificateKeyFile={}&tlscertificatekeyfilepassword=wrong",
                encrypted.display()
            )),
            "encrypted.pem cannot be decrypted with its password",
        ),
        (Docward::before(&Mongod::shared().uri()).argument("--tls-key").argument("x"), "require --tls-certificate"),
    ] {
        let log = start(builder).unwrap_err();
        assert!(log.contains(words), "{words}: {log}");
    }
    start(with_certificate(&certificate_file).argument("--tls-key").argument(key_file.display().to_string())).unwrap();
}

#[test]
fn a_refused_client_gets_its_reason_with_tls_too() {
    // `connection_limits` tests the limit itself; here the refusal must follow a handshake.
    let folder = folder();
    let authority = Authority::new(folder.path(), "authority");
    let certificate = authority.sign("docward", HOSTS);
    let docward = Docward::before(&Mongod::shared().uri())
        .argument("--tls-certificate")
        .argument(&certificate)
        .argument("--connections")
        .argument("1")
        .start();
    let _holds_the_place = raw::Client::connect(&docward.address());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let uri = uri(&docward, &format!("tls=true&tlsCAFile={}", authority.file()));
    let error = runtime.block_on(refusal(&uri, "limits: connections"));
    assert!(error.contains("limits: connections"), "{error}");
}

/// The same with pymongo, whose TLS is OpenSSL: mutual TLS with both SCRAM mechanisms, and pymongo's error if it does
/// not trust docward. Arguments: address, authority, certificate, another authority.
const PYMONGO: &str = r#"
import sys
from pymongo import MongoClient
from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

address, authority, certificate, other = sys.argv[1:]

def client(tls_ca, timeout=120_000, **options):
    return MongoClient(f"mongodb://{address}/", tls=True, tlsCAFile=tls_ca, tlsCertificateKeyFile=certificate,
                       serverSelectionTimeoutMS=timeout, **options)

for mechanism in ("SCRAM-SHA-1", "SCRAM-SHA-256"):
    user = dict(username="pymongo", authMechanism=mechanism, authSource="admin")
    with client(authority, password="secret", **user) as good:
        good.shop.tls.insert_one({"mechanism": mechanism, "text": "x" * 3_000_000})
        assert len(good.shop.tls.find_one({"mechanism": mechanism})["text"]) == 3_000_000
        status = good.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
        assert status == [{"user": "pymongo", "db": "admin"}], status
    with client(authority, password="wrong", **user) as bad:
        try:
            bad.admin.command("ping")
            raise SystemExit("a wrong password was taken")
        except OperationFailure as error:
            assert error.code == 18, error
with client(other, timeout=3000) as mistrusting:
    while True:
        try:
            mistrusting.admin.command("ping")
            raise SystemExit("an unknown authority was trusted")
        except ServerSelectionTimeoutError as error:
            # On a slow machine the handshake may not be complete yet.
            if "No servers found yet" not in str(error):
                assert "CERTIFICATE_VERIFY_FAILED" in str(error), error
                break
with client(authority, authMechanism="MONGODB-X509") as by_certificate:
    try:
        by_certificate.admin.command("ping")
        raise SystemExit("a login by certificate went through")
    except OperationFailure as error:
        assert error.code == 18 and "SCRAM-SHA-256" in str(error), error
"#;

#[test]
fn pymongo_works_with_tls_and_passwords() {
    let folder = folder();
    let authority = Authority::new(folder.path(), "authority");
    let other = Authority::new(folder.path(), "other");
    let mongod = Mongod::shared();
    let user = doc! { "createUser": "pymongo", "pwd": "secret", "roles": ["readWriteAnyDatabase"] };
    assert_eq!(mongod.command("admin", user).get_f64("ok").unwrap(), 1.0);
    let docward = Docward::before(&mongod.uri())
        .argument("--tls-certificate")
        .argument(authority.sign("docward", HOSTS))
        .argument("--tls-client-ca")
        .argument(authority.file())
        .start();
    let python = Command::new(repository("scripts/python-env.sh")).output().unwrap();
    let python = String::from_utf8(python.stdout).unwrap();
    let certificate = authority.sign("application", &["app.example.com"]);
    let output = Command::new(python.trim_end())
        .args(["-c", PYMONGO, &docward.address(), &authority.file(), &certificate, &other.file()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
