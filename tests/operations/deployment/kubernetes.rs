//! The manifests: the embedded configurations load, and the objects are consistent. Whether an API server accepts
//! them is not tested here.

use std::collections::BTreeSet;

use serde_json::Value;
use support::certificates::Authority;

use super::{assert_is_command, assert_loads, drain_seconds, key, read};

/// The objects of a manifest.
struct Manifest(Vec<Value>);

impl Manifest {
    fn read(name: &str) -> Manifest {
        let text = read(format!("deploy/kubernetes/{name}.yaml"));
        Manifest(text.split("\n---\n").map(|object| serde_yaml::from_str(object).unwrap()).collect())
    }

    fn all(&self, kind: &str) -> Vec<&Value> {
        self.0.iter().filter(|object| object["kind"] == kind).collect()
    }

    fn one(&self, kind: &str) -> &Value {
        let found = self.all(kind);
        assert_eq!(found.len(), 1, "{kind}");
        found[0]
    }

    fn pod(&self) -> &Value {
        &self.one("Deployment")["spec"]["template"]["spec"]
    }

    /// The container that runs docward in a manifest.
    fn docward(&self) -> &Value {
        let containers = ["initContainers", "containers"].into_iter().flat_map(|key| list(&self.pod()[key]));
        containers.into_iter().find(|container| container["name"] == "docward").unwrap()
    }

    fn configuration(&self) -> &str {
        text(&self.one("ConfigMap")["data"]["docward.yaml"])
    }
}

fn list(value: &Value) -> Vec<&Value> {
    value.as_array().into_iter().flatten().collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

fn texts(value: &Value) -> Vec<&str> {
    list(value).into_iter().map(text).collect()
}

const MANIFESTS: [&str; 2] = ["replica-set", "sidecar"];

#[test]
fn configurations_in_config_maps_load() {
    for name in MANIFESTS {
        let manifest = Manifest::read(name);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "0123456789abcdef0123456789abcdef").unwrap();
        std::fs::write(folder.path().join("service"), "mongodb://docward:secret@h/?replicaSet=rs0").unwrap();
        let certificate = Authority::new(folder.path(), "ca").sign("tls", &["docward.database.svc.cluster.local"]);
        for file in ["tls.crt", "tls.key"] {
            std::fs::copy(&certificate, folder.path().join(file)).unwrap();
        }
        for (file, content) in manifest.one("ConfigMap")["data"].as_object().unwrap() {
            let content = text(content).replace("/run/secrets/docward", folder.path().to_str().unwrap());
            std::fs::write(folder.path().join(file), content).unwrap();
        }
        assert_loads(&folder.path().join("docward.yaml"));
    }
}

#[test]
fn containers_run_existing_commands_and_probe_existing_paths() {
    for name in MANIFESTS {
        let manifest = Manifest::read(name);
        let container = manifest.docward();
        assert_is_command(texts(&container["args"]));
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"].map(|probe| &container[probe]) {
            match texts(&probe["exec"]["command"])[..] {
                [] => assert!(probe.is_null() || ["/healthz", "/readyz"].contains(&text(&probe["httpGet"]["path"]))),
                [binary, ref words @ ..] => {
                    assert_eq!(binary, "/usr/bin/docward");
                    assert_is_command(words.iter().copied());
                }
            }
        }
        let mounts = &container["volumeMounts"][0];
        assert_eq!((text(&mounts["mountPath"]), &mounts["readOnly"]), ("/etc/docward", &Value::Bool(true)));
    }
}

/// Prometheus needs the token, and finds the port by its name.
#[test]
fn metrics_can_be_scraped() {
    let scrape: Value = serde_yaml::from_str(&read("deploy/prometheus/kubernetes.yaml")).unwrap();
    let scrape = &scrape["scrape_configs"][0];
    let kept = &scrape["relabel_configs"][0];
    assert_eq!((text(&kept["regex"]), text(&kept["action"])), ("docward;admin", "keep"));
    let namespaces = texts(&scrape["kubernetes_sd_configs"][0]["namespaces"]["names"]);
    for name in MANIFESTS {
        let manifest = Manifest::read(name);
        let port = list(&manifest.docward()["ports"]).into_iter().find(|port| port["name"] == "admin").unwrap();
        assert_eq!(key(manifest.configuration(), "admin"), Some(format!("0.0.0.0:{}", port["containerPort"]).as_str()));
        assert_eq!(key(manifest.configuration(), "admin_token_file"), Some("/run/secrets/docward/token"));
        assert!(namespaces.contains(&text(&manifest.one("Deployment")["metadata"]["namespace"])), "{name}");
    }
}

/// A secret's files belong to the group of the pod, and docward's user has no other way to read them.
#[test]
fn docward_can_read_its_secrets() {
    for name in MANIFESTS {
        let manifest = Manifest::read(name);
        assert_eq!(manifest.pod()["securityContext"]["fsGroup"], 65532, "{name}");
        let mount = list(&manifest.docward()["volumeMounts"]).into_iter().find(|mount| mount["name"] == "secrets");
        assert_eq!(text(&mount.unwrap()["mountPath"]), "/run/secrets/docward", "{name}");
        let volume = list(&manifest.pod()["volumes"]).into_iter().find(|volume| volume["name"] == "secrets").unwrap();
        assert!(!volume["secret"].is_null() || !volume["projected"].is_null(), "{name}");
    }
}

#[test]
fn two_pods_are_not_on_one_node() {
    let manifest = Manifest::read("replica-set");
    let constraint = &manifest.pod()["topologySpreadConstraints"][0];
    assert_eq!(text(&constraint["topologyKey"]), "kubernetes.io/hostname");
    assert_eq!(text(&constraint["whenUnsatisfiable"]), "DoNotSchedule");
    assert!(manifest.one("Deployment")["spec"]["replicas"].as_u64().unwrap() >= 2);
    assert_eq!(manifest.one("PodDisruptionBudget")["spec"]["maxUnavailable"], 1);
}

#[test]
fn docward_has_no_privileges() {
    for name in MANIFESTS {
        let manifest = Manifest::read(name);
        let (pod, container) = (&manifest.pod()["securityContext"], &manifest.docward()["securityContext"]);
        assert_eq!((&pod["runAsNonRoot"], text(&pod["seccompProfile"]["type"])), (&true.into(), "RuntimeDefault"));
        assert_eq!(container["allowPrivilegeEscalation"], false);
        assert_eq!(container["readOnlyRootFilesystem"], true);
        assert_eq!(texts(&container["capabilities"]["drop"]), ["ALL"]);
        // The image's numeric user, because `runAsNonRoot` checks the number.
        assert!([&pod["runAsUser"], &container["runAsUser"]].contains(&&65532.into()));
    }
}

#[test]
fn a_pod_has_time_to_drain() {
    for name in MANIFESTS {
        let manifest = Manifest::read(name);
        let before = manifest.docward()["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap_or(0);
        let grace_period = manifest.pod()["terminationGracePeriodSeconds"].as_u64().unwrap();
        assert!(grace_period >= before + drain_seconds(manifest.configuration()) + 5, "{name}");
    }
}

/// One port for each member: docward's listener, the container's port, the Service's, and the network policy's.
#[test]
fn the_ports_of_the_members_agree() {
    let manifest = Manifest::read("replica-set");
    let listened = manifest.configuration().split("listen: 0.0.0.0:").skip(1);
    let listened: BTreeSet<u64> = listened.map(|rest| rest.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(listened.len(), 3);
    let ports = list(&manifest.docward()["ports"]);
    let named =
        |name: &Value| ports.iter().find(|port| port["name"] == *name).unwrap()["containerPort"].as_u64().unwrap();
    let service = list(&manifest.one("Service")["spec"]["ports"]);
    let offered: BTreeSet<u64> = service.iter().map(|port| port["port"].as_u64().unwrap()).collect();
    assert_eq!(offered, listened);
    for port in service {
        assert_eq!(
            named(&port["targetPort"]),
            port["port"].as_u64().unwrap(),
            "hello answers name the port listened on"
        );
    }
    let policy = &manifest.all("NetworkPolicy")[0]["spec"]["ingress"];
    let admitted = &policy[0]["ports"][0];
    let admitted = admitted["port"].as_u64().unwrap()..=admitted["endPort"].as_u64().unwrap();
    assert!(admitted.eq(listened));
    let admin = key(manifest.configuration(), "admin").unwrap().rsplit_once(':').unwrap().1.parse::<u64>().unwrap();
    assert_eq!((named(&"admin".into()), &policy[1]["ports"][0]["port"]), (admin, &admin.into()));
    for probe in ["readinessProbe", "livenessProbe"] {
        assert_eq!(manifest.docward()[probe]["httpGet"]["port"], "admin");
    }
}

#[test]
fn selectors_select_docwards_pods() {
    for name in MANIFESTS {
        let manifest = Manifest::read(name);
        let labels = &manifest.one("Deployment")["spec"]["template"]["metadata"]["labels"];
        assert_eq!(&manifest.one("Deployment")["spec"]["selector"]["matchLabels"], labels);
        for service in manifest.all("Service") {
            assert_eq!(&service["spec"]["selector"], labels);
        }
        for budget in manifest.all("PodDisruptionBudget") {
            assert_eq!(&budget["spec"]["selector"]["matchLabels"], labels);
        }
        if let Some(policy) = manifest.all("NetworkPolicy").first() {
            assert_eq!(&policy["spec"]["podSelector"]["matchLabels"], labels);
        }
    }
}

/// Clients in other namespaces find docward by the name in hello replies.
#[test]
fn hello_replies_name_the_service() {
    let manifest = Manifest::read("replica-set");
    let service = &manifest.one("Service")["metadata"];
    let name = format!("{}.{}.svc.cluster.local", text(&service["name"]), text(&service["namespace"]));
    assert_eq!(key(manifest.configuration(), "advertise"), Some(name.as_str()));
}
