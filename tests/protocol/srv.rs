//! `mongodb+srv://`: the seed list comes from the test's own name server, and TLS is on by default, as in drivers.

use std::net::SocketAddr;
use std::process::Command;

use bson::{Document, doc};
use support::certificates::Authority;
use support::mongod::{Kind, Mongod};
use support::names::{Record, serve};
use support::process::{docward_executable, repository};
use support::proxy::{Builder, Docward};

/// The targets are addresses, which every system resolves; the specification requires them to be in the name's own
/// domain, and these are.
const NAME: &str = "cluster.0.0.1";

fn service(target: &str, port: u16) -> Record {
    Record::Service { name: format!("_mongodb._tcp.{NAME}"), target: target.to_owned(), port }
}

fn text(text: &str) -> Record {
    Record::Text { name: NAME.to_owned(), text: text.to_owned() }
}

fn before(options: &str, resolver: SocketAddr) -> Builder {
    Docward::before(&format!("mongodb+srv://{NAME}/?{options}")).argument("--resolver").argument(resolver.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_is_found_by_its_service_record() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let certificate = authority.sign("mongod", &["127.0.0.1"]);
    let tls = ["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", &certificate, "--tlsCAFile", &authority.file()];
    let mongod =
        Mongod::start_with(Kind::Standalone, &[&tls[..], &["--tlsAllowConnectionsWithoutCertificates"]].concat());
    let resolver = serve(vec![service("127.0.0.1", mongod.port())]);
    // docward's own connection resolves the name in the same way.
    let rules =
        "version: 1\nrules:\n  - {name: numbers, namespace: shop.orders, sequence: {field: no, counter: orders}}\n";
    let docward = before(&format!("tlsCAFile={}", authority.file()), resolver).rules(rules).start();
    let orders = docward.client().await.database("shop").collection::<Document>("orders");
    orders.insert_one(doc! { "_id": 1 }).await.unwrap();
    assert_eq!(orders.find_one(doc! {}).await.unwrap().unwrap().get_i32("no").unwrap(), 1);

    let plain = Mongod::shared();
    let resolver = serve(vec![service("127.0.0.1", plain.port()), text("replicaSet=rs0")]);
    let docward = before("tls=false", resolver).start();
    docward.client().await.database("x").run_command(doc! { "ping": 1 }).await.unwrap();
}

#[test]
fn unresolvable_names_are_reported_at_start() {
    for (records, words) in [
        (vec![], "there is no SRV record _mongodb._tcp.cluster.0.0.1"),
        (vec![service("mongo.example.com", 1)], "not in the same domain"),
        (vec![service("127.0.0.1", 1), text("w=majority")], "no options but authSource"),
        (vec![service("127.0.0.1", 1), text("replicaSet=a"), text("replicaSet=b")], "at most one TXT record"),
    ] {
        let log = before("tls=false", serve(records)).try_start().map(|_| ()).unwrap_err();
        assert!(log.contains(words), "{log}");
    }
    let log = before("", "127.0.0.1:9".parse().unwrap()).try_start().map(|_| ()).unwrap_err();
    assert!(log.contains("the DNS lookup of"), "{log}");
}

/// A service manager restarts docward unless it exits with 64.
#[test]
fn an_unreachable_name_server_is_not_a_configuration_error() {
    let code = |subcommand: &[&str], resolver: SocketAddr| {
        let mut command = Command::new(docward_executable());
        command.args(subcommand).args(["--upstream", &format!("mongodb+srv://{NAME}/")]);
        command.args(["--resolver", &resolver.to_string()]).output().unwrap().status.code()
    };
    let (unused, empty) = ("127.0.0.1:9".parse().unwrap(), serve(vec![]));
    assert_eq!((code(&["serve"], unused), code(&["serve"], empty)), (Some(1), Some(64)));
    let rules = repository("rules/copies.yaml");
    let repair = ["repair", "--rule", "friends-names", "--rules", rules.to_str().unwrap()];
    assert_eq!((code(&repair, unused), code(&repair, empty)), (Some(1), Some(64)));
}
