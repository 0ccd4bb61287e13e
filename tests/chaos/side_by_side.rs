//! Two docward processes with one advertised name behind a TCP load balancer: one is killed, and clients continue.
//! `hand_over` tests the same with the kernel as the balancer.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use mongodb::Client;

use crate::events::router;
use crate::pymongo::Pymongo;
use crate::workload::{self, Workload};
use crate::{recovery_time, verify};
use support::balancer::balance;
use support::process::free_port;
use support::proxy::Docward;
use support::replica_set::ReplicaSet;

const OPTIONS: &str = "w=majority&serverSelectionTimeoutMS=60000";

/// The `members:` map of a docward that advertises the balancers' ports.
fn configuration(set: &ReplicaSet, ports: &[u16], advertised: &[u16]) -> String {
    let member = |(index, mongod): (usize, &support::mongod::Mongod)| {
        let (port, advertised) = (ports[index], advertised[index]);
        format!("  {}: {{ listen: 127.0.0.1:{port}, advertise: localhost:{advertised} }}\n", mongod.address())
    };
    let members: String = set.members().iter().enumerate().map(member).collect();
    format!("members:\n{members}")
}

#[test]
fn two_processes_behind_a_balancer_survive_the_death_of_one() {
    let set = ReplicaSet::start(3);
    let listeners: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let advertised: Vec<u16> = listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    let folder = tempfile::tempdir().unwrap();
    let start = |name: &str| {
        let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
        let file = folder.path().join(name);
        std::fs::write(&file, configuration(&set, &ports, &advertised)).unwrap();
        let docward = Docward::before(&set.uri()).without_listen().rules(&workload::rules(5)).listeners(3);
        (docward.argument("--config").argument(file.to_str().unwrap()).start(), ports)
    };
    let ((mut killed, first), (_staying, second)) = (start("first.yaml"), start("second.yaml"));
    for (listener, ports) in listeners.into_iter().zip(first.into_iter().zip(second)) {
        balance(listener, [ports.0, ports.1].map(|port| SocketAddr::from(([127, 0, 0, 1], port))).into());
    }
    outlive(&set, &mut killed, &format!("mongodb://localhost:{}/?replicaSet=rs0&{OPTIONS}", advertised[0]));
}

#[test]
#[ignore = "for make chaos"]
fn two_routers_behind_a_balancer_survive_the_death_of_one() {
    for service in ["", "loadBalanced=true&"] {
        let set = ReplicaSet::start(3);
        let rules = workload::rules(5);
        let (mut killed, staying) = (router(&set, &rules).start(), router(&set, &rules).start());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        balance(listener, [&killed, &staying].map(|docward| docward.address().parse().unwrap()).into());
        outlive(&set, &mut killed, &format!("mongodb://localhost:{port}/?{service}{OPTIONS}"));
    }
}

/// Works through the balancer while one docward is killed.
fn outlive(set: &ReplicaSet, killed: &mut Docward, uri: &str) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        workload::prepare(&Client::with_uri_str(uri).await.unwrap().database("chaos")).await.unwrap();
    });
    let pause = Duration::from_millis(30);
    let (workload, mut pymongo) = (Workload::start(uri, pause), Pymongo::start(uri, pause));
    let journals = [&workload.journal.clone(), &pymongo.journal.clone()];
    recovery_time(journals);
    killed.kill();
    println!("clients recovered after {:.1?}", recovery_time(journals));
    recovery_time(journals);
    workload.end();
    pymongo.end();
    journals.iter().for_each(|journal| journal.print_summary());
    let found = runtime.block_on(async { verify::faults(&set.client().await.database("chaos"), &journals).await });
    assert!(found.is_empty(), "{found:#?}");
}
