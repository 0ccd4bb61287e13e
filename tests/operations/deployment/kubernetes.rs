//! The manifests: the embedded configurations load, and the objects are consistent. Whether an API server accepts
//! them is not tested here.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};
use support::certificates::Authority;

use super::{assert_is_command, assert_loads, drain_seconds, key, read, repository};

/// The objects of a manifest.
struct Manifest(Vec<Value>);

impl Manifest {
    fn read(name: &str) -> Manifest {
        Manifest::parse(&read(format!("deploy/kubernetes/{name}.yaml")))
    }

    fn parse(text: &str) -> Manifest {
        let objects = text.split("\n---\n").map(|object| serde_yaml::from_str(object).unwrap());
        Manifest(objects.filter(|object: &Value| !object.is_null()).collect())
    }

    /// What the chart makes with its values and these arguments.
    fn of_chart(helm: &str, arguments: &[&str]) -> Manifest {
        let fixed = ["template", "docward", CHART, "--namespace", "database", "--kube-version", "1.30"];
        Manifest::parse(&run(helm, &[&fixed, arguments].concat()).unwrap())
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
    assert_eq!(manifest.one("PodDisruptionBudget")["spec"]["maxUnavailable"], 1);
    let (deployment, scaled) = (manifest.one("Deployment"), &manifest.one("HorizontalPodAutoscaler")["spec"]);
    assert!(scaled["minReplicas"].as_u64().unwrap() >= 2);
    assert_eq!(scaled["scaleTargetRef"]["name"], deployment["metadata"]["name"]);
    assert!(deployment["spec"]["replicas"].is_null(), "applying the manifest again must not undo the autoscaler");
    assert!(!manifest.docward()["resources"]["requests"]["cpu"].is_null(), "its target is a part of them");
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

/// docward's listener, the container's port, the Service's, and the network policy's.
#[test]
fn one_port_leads_to_docward() {
    let manifest = Manifest::read("replica-set");
    assert_eq!(key(manifest.configuration(), "topology"), Some("router"));
    let listened: u64 = key(manifest.configuration(), "listen").unwrap().rsplit_once(':').unwrap().1.parse().unwrap();
    let ports = list(&manifest.docward()["ports"]);
    let named =
        |name: &Value| ports.iter().find(|port| port["name"] == *name).unwrap()["containerPort"].as_u64().unwrap();
    let service = list(&manifest.one("Service")["spec"]["ports"]);
    assert_eq!((service.len(), &service[0]["port"], named(&service[0]["targetPort"])), (1, &listened.into(), listened));
    let policy = &manifest.all("NetworkPolicy")[0]["spec"]["ingress"];
    assert_eq!(policy[0]["ports"][0]["port"], listened);
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

const CHART: &str = "deploy/helm/docward";

/// The output of a program in the repository, or its error.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).current_dir(repository("")).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// Removes what only the chart has: labels of the release, and a value that is the default of Kubernetes.
fn without_release(object: &mut Value) {
    match object {
        Value::Object(fields) => {
            for name in ["instance", "version", "managed-by"] {
                fields.remove(&format!("app.kubernetes.io/{name}"));
            }
            fields.remove("helm.sh/chart");
            fields.retain(|key, value| !(key == "imagePullPolicy" || key == "type" && value == "ClusterIP"));
            fields.values_mut().for_each(without_release);
        }
        Value::Array(items) => items.iter_mut().for_each(without_release),
        Value::String(text) if text.contains("listen: ") => *object = serde_yaml::from_str(text).unwrap(),
        _ => {}
    }
}

/// The objects by kind and name, and the configuration as YAML.
fn comparable(manifest: Manifest) -> BTreeMap<String, Value> {
    let objects = manifest.0.into_iter().map(|mut object| {
        without_release(&mut object);
        (format!("{} {}", object["kind"], object["metadata"]["name"]), object)
    });
    objects.collect()
}

#[test]
fn the_values_of_the_chart_are_valid() {
    let values: Value = serde_yaml::from_str(&read(format!("{CHART}/values.yaml"))).unwrap();
    let schema: Value = serde_json::from_str(&read(format!("{CHART}/values.schema.json"))).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    assert_eq!(validator.validate(&values).map_err(|error| error.to_string()), Ok(()));
    for wrong in
        [json!({"config": {"listen": "0.0.0.0:1"}}), json!({"networkPolicy": {"clients": []}}), json!({"x": 1})]
    {
        assert!(!validator.is_valid(&wrong), "{wrong}");
    }
    let chart: Value = serde_yaml::from_str(&read(format!("{CHART}/Chart.yaml"))).unwrap();
    assert_eq!([&chart["version"], &chart["appVersion"]], [env!("CARGO_PKG_VERSION"); 2]);
}

/// So what the other tests find in the manifest holds for the chart. `make chart` builds helm.
#[test]
fn the_chart_makes_the_objects_of_the_manifest() {
    let Ok(helm) = std::env::var("HELM") else {
        eprintln!("skipped: HELM does not name the program");
        return;
    };
    run(&helm, &["lint", "--strict", CHART]).unwrap();
    let [of_chart, of_manifest] = [Manifest::of_chart(&helm, &[]), Manifest::read("replica-set")].map(comparable);
    assert_eq!(of_chart.keys().collect::<Vec<_>>(), of_manifest.keys().collect::<Vec<_>>());
    for (name, object) in of_manifest {
        assert_eq!(of_chart[&name], object, "{name}");
    }
    let other =
        "tlsSecret=,service=false,autoscaling.enabled=false,networkPolicy.enabled=false,rules=null,drainSeconds=60";
    let other =
        Manifest::of_chart(&helm, &["--set", other, "--set-json", r#"config={"proxy_protocol": ["10.0.0.0/8"]}"#]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "0123456789abcdef0123456789abcdef").unwrap();
    let configuration = other.configuration().replace("/run/secrets/docward", folder.path().to_str().unwrap());
    std::fs::write(folder.path().join("docward.yaml"), configuration).unwrap();
    assert_loads(&folder.path().join("docward.yaml"));
    assert_eq!(other.one("Deployment")["spec"]["replicas"], 2);
    assert_eq!(other.pod()["terminationGracePeriodSeconds"], 75);
    assert!(other.all("NetworkPolicy").is_empty() && other.all("HorizontalPodAutoscaler").is_empty());
    let without_clients = ["template", CHART, "--kube-version", "1.30", "--set-json", "networkPolicy.monitoring=[]"];
    assert!(!run(&helm, &without_clients).unwrap().contains("port: 9216"), "no rule without peers");
    let wrong = run(&helm, &["template", CHART, "--kube-version", "1.30", "--set", "config.listen=0.0.0.0:1"]);
    assert!(wrong.unwrap_err().contains("listen"));
}
