//! `docs/reference/metrics.md` is made from a scrape (`UPDATE_EXPECT=1`), and the dashboard and the alert rules in
//! deploy/ use no other metrics.

use std::collections::{BTreeMap, BTreeSet};

use bson::doc;
use serde_json::Value;
use support::certificates::Authority;
use support::http::{get, request};
use support::mongod::Mongod;
use support::process::repository;
use support::proxy::Docward;
use support::raw::Client;

/// The rule with a worker needs a database of its own.
fn rules(database: &str) -> String {
    format!(
        "version: 1
rules:
  - {{ name: whole, namespace: '*.orders', replacement: {{}} }}
  - {{ name: kept, namespace: {database}.invoices, history: {{ into: invoices_history, keep: 5 }} }}
  - {{ name: share, namespace: named.shared, throttle: {{ concurrent: 1, per: app }} }}
"
    )
}

const INTRODUCTION: &str = "\
# All metrics

Made from a scrape of `/metrics`; [observability](../observability.md#metrics) explains how to read them. Counters have the suffix
`_total`, infos `_info`.

| metric | type | labels | meaning |
|---|---|---|---|
";

const TOKEN: &str = "0123456789abcdef";

/// The type of a metric family, and the labels of its series.
type Families = BTreeMap<String, (String, BTreeSet<String>)>;

fn scrape() -> String {
    let rules = rules(&Mongod::shared().fresh_database());
    let docward = Docward::before(&Mongod::shared().uri()).rules(&rules).argument("--pool-size").argument("2").admin();
    let docward = docward.argument("--admin-token").argument(TOKEN).start();
    docward.wait_for_log("worker started: keeps the history");
    let mut client = Client::connect(&docward.address());
    client.command("named", doc! { "ping": 1 });
    client.command("named", doc! { "find": "shared" });
    client.command(
        "named",
        doc! { "update": "orders", "updates": [{ "q": { "_id": 1 }, "u": [{ "$replaceWith": { "a": 1 } }] }] },
    );
    client.wait_until_counted();
    let authorization = format!("Bearer {TOKEN}");
    let headers =
        [("Host", "localhost"), ("Authorization", authorization.as_str()), ("Content-Type", "application/json")];
    let wanted = r#"{"rule": "whole", "mode": "shadow", "for": "1h", "reason": "r"}"#;
    let admin = docward.admin_address();
    assert_eq!(request(&admin, "POST", "/api/modes", &headers, wanted).status, 200);
    request(&admin, "GET", "/metrics", &headers, "").body + &certificate_series() + &router_series()
}

/// The families of a router.
fn router_series() -> String {
    let docward = Docward::before(&Mongod::shared().uri()).argument("--topology").argument("router");
    let docward = docward.without_test_pool().admin().start();
    assert_eq!(Client::connect(&docward.address()).command("named", doc! { "ping": 1 }).get_f64("ok").unwrap(), 1.0);
    let body = get(&docward.admin_address(), "/metrics").body;
    let series = body.lines().filter(|line| line.contains("docward_router_"));
    let series: Vec<_> = series.map(|line| format!("{line}\n")).collect();
    assert!(series.iter().any(|line| line.ends_with("role=\"primary\"} 1\n")), "{body}");
    series.concat()
}

/// The series of a docward with a certificate.
fn certificate_series() -> String {
    let folder = tempfile::tempdir().unwrap();
    let certificate = Authority::new(folder.path(), "ca").sign("docward", &["localhost"]);
    let docward = Docward::before(&Mongod::shared().uri()).argument("--tls-certificate").argument(certificate);
    let body = get(&docward.admin().start().admin_address(), "/metrics").body;
    let series = body.lines().filter(|line| line.starts_with("docward_certificate_expiry"));
    let series: Vec<_> = series.map(|line| format!("{line}\n")).collect();
    assert_eq!(series.len(), 1, "{body}");
    series.concat()
}

fn families(scrape: &str) -> Families {
    let mut families = Families::new();
    for line in scrape.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            families.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
        } else if let Some((name, labels)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let family = families
                .iter_mut()
                .filter(|(family, _)| name.starts_with(*family))
                .max_by_key(|(family, _)| family.len());
            let labels = labels.split('}').next().unwrap().split(',').map(|label| label.split('=').next().unwrap());
            family.unwrap().1.1.extend(labels.filter(|label| *label != "le").map(str::to_owned));
        }
    }
    families
}

/// The names that queries use.
fn queried(families: &Families) -> BTreeSet<String> {
    let names = families.iter().flat_map(|(name, (kind, _))| {
        let suffixes: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        suffixes.iter().map(move |suffix| format!("{name}{suffix}"))
    });
    names.collect()
}

/// Every word of an expression with the prefix of docward's metrics.
fn named(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("docward_") || word.starts_with("process_"))
}

#[test]
fn the_page_lists_every_metric() {
    let scrape = scrape();
    let families = families(&scrape);
    let meanings = scrape.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    let meanings: BTreeMap<&str, &str> = meanings.collect();
    let rows = families.iter().map(|(name, (kind, labels))| {
        let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        format!("| `{name}` | {kind} | {labels} | {} |\n", meanings[name.as_str()])
    });
    let real = INTRODUCTION.to_owned() + &rows.collect::<String>();
    let page = repository("docs/reference/metrics.md");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&page, &real).unwrap();
    }
    assert_eq!(real, std::fs::read_to_string(page).unwrap(), "UPDATE_EXPECT=1 rewrites it");
    // The values of labels that the meanings list.
    for (family, label) in [
        ("docward_connections_ended", "reason"),
        ("docward_connections_refused", "reason"),
        ("docward_lookup_failures", "reason"),
        ("docward_reloads", "result"),
    ] {
        for line in scrape.lines().filter(|line| line.starts_with(&format!("{family}_total{{"))) {
            let value = line.split(&format!("{label}=\"")).nth(1).unwrap().split('"').next().unwrap();
            assert!(meanings[family].contains(&format!("`{value}`")), "{family}: {value}");
        }
    }
}

#[test]
fn the_dashboard_uses_existing_metrics() {
    let known = queried(&families(&scrape()));
    let text = std::fs::read_to_string(repository("deploy/grafana/docward.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut places = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}");
        for expression in targets.iter().map(|target| target["expr"].as_str().unwrap()) {
            assert!(named(expression).count() > 0, "{title}: {expression}");
            for name in named(expression) {
                assert!(known.contains(name), "{title}: {name}");
            }
            assert_eq!(expression.matches('(').count(), expression.matches(')').count(), "{title}");
        }
        let place = &panel["gridPos"];
        assert!(place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24, "{title}");
        assert!(places.insert((place["y"].as_u64(), place["x"].as_u64())), "{title} lies on another panel");
    }
    let variables: String = dashboard["templating"].to_string() + &dashboard["annotations"].to_string();
    assert!(named(&variables).all(|name| known.contains(name)), "{variables}");
    // Every metric has a panel, except those that duplicate other metrics.
    let unseen: Vec<&String> = known.iter().filter(|name| !text.contains(name.as_str())).collect();
    let aside = ["_sum", "_count", "_timestamp_seconds", "docward_draining", "docward_reserved_numbers_total"];
    assert!(unseen.iter().all(|name| aside.iter().any(|end| name.ends_with(end))), "{unseen:?}");
}

#[test]
fn alerts_use_existing_metrics() {
    let known = queried(&families(&scrape()));
    let text = std::fs::read_to_string(repository("deploy/prometheus/alerts.yaml")).unwrap();
    let alerts: Vec<&str> = text.split("      - alert: ").skip(1).collect();
    assert!(alerts.len() >= 10);
    let names: BTreeSet<&str> = alerts.iter().map(|alert| alert.lines().next().unwrap()).collect();
    assert_eq!(names.len(), alerts.len(), "two alerts have one name");
    for alert in alerts {
        for part in ["expr: ", "labels: { severity: ", "annotations:", "summary: \""] {
            assert!(alert.contains(part), "{part}: {alert}");
        }
        assert!(named(alert).count() > 0 || alert.contains("up{"), "{alert}");
        for name in named(alert) {
            assert!(known.contains(name), "{name}: {alert}");
        }
    }
}
