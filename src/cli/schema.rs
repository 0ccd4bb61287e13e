//! `docward schema`: the JSON Schemas of rule files and of `docward.yaml`, for editors.

use std::process::ExitCode;

use super::output::print;
use crate::patterns;

/// JSON Schema (draft 2020-12) of `docward.yaml`. It accepts what the reader accepts, as far as a schema can.
const CONFIG: &str = include_str!("config_schema.json");

/// The command line.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The schema of docward.yaml instead of the schema of rule and test files.
    #[arg(long)]
    config: bool,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    print(if arguments.config { CONFIG } else { patterns::SCHEMA }).into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::config_file::ConfigFile;
    use super::CONFIG;

    fn reads(file: &Value) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("docward.yaml");
        // JSON is YAML.
        std::fs::write(&path, file.to_string()).unwrap();
        std::fs::write(folder.path().join("uri"), "mongodb://u:p@a/\n").unwrap();
        std::fs::write(folder.path().join("token"), "0123456789abcdef\n").unwrap();
        ConfigFile::read_file(&path).map(drop).map_err(|report| report.to_string())
    }

    /// Every key, apart from those that exclude others.
    fn full() -> Value {
        json!({
            "advertise": "proxy.example.com", "upstream": "mongodb://a/?replicaSet=rs", "service": "mongodb://u:p@a/",
            "resolver": "127.0.0.1:53", "rules": ["rules/"], "topology": "members",
            "tls": { "certificate": "a.pem", "key": "a.key", "key_password": "p", "client_ca": "ca.pem" },
            "admin": "127.0.0.1:9216", "admin_token": "0123456789abcdef",
            "log_format": "json", "log_level": "warn", "log_documents": true, "otlp": "http://127.0.0.1:4318",
            "limits": {
                "connections": 1, "connections_per_address": 1, "idle_timeout": "30m", "max_lifetime": "1h",
                "handshake_timeout": "10s", "memory": "512MiB",
            },
            "pool": {
                "size": 50, "reserve": 5, "max_wait": "5s", "idle_timeout": "10m", "max_lifetime": "1h",
                "credentials": "forget",
            },
            "drain_timeout": "10s", "hand_over": "/run/hand-over.sock", "query_listen": "127.0.0.1:27118",
            "proxy_protocol": ["10.0.0.0/8", "2001:db8::7"],
            "members": { "a:27017": { "listen": "0.0.0.0:1", "advertise": "p.example.com:2" } },
        })
    }

    /// Variables in texts of every form. Cargo sets this one.
    fn variables() -> Value {
        let name = "${CARGO_PKG_NAME}";
        json!({
            "advertise": name, "upstream": format!("mongodb://{name}:{name}@a/"), "otlp": format!("http://{name}"),
            "admin_token": format!("0123456789{name}"), "rules": [name], "hand_over": format!("{name}.sock"),
            "tls": { "certificate": name },
            "members": { "a:27017": { "listen": "0.0.0.0:1", "advertise": format!("{name}:2") } },
        })
    }

    /// Keys that cannot be used with others.
    fn excluded() -> [(&'static str, Value, &'static str); 4] {
        [
            ("listen", json!("127.0.0.1:1"), "members"),
            ("upstream_file", json!("uri"), "upstream"),
            ("service_file", json!("uri"), "service"),
            ("admin_token_file", json!("token"), "admin_token"),
        ]
    }

    /// Files with one value or key of `file` changed, in mappings of any depth.
    fn changed(file: &Value) -> Vec<Value> {
        let mut all = Vec::new();
        let entries = file.as_object().into_iter().flatten();
        for (key, value) in entries {
            let mut with = |value: Value| {
                let mut file = file.clone();
                file[key] = value;
                all.push(file);
            };
            for wrong in [json!(null), json!(7.5), json!({ "unknown": 1 }), json!([[1]]), json!(""), json!(-1)] {
                with(wrong);
            }
            changed(value).into_iter().for_each(with);
        }
        if let Some(entries) = file.as_object() {
            let mut more = entries.clone();
            more.insert("unknown".into(), json!(1));
            all.push(more.into());
        }
        all
    }

    /// The keys at which `file` is not `full`.
    fn difference(file: &Value, full: &Value) -> String {
        let keys = file.as_object().into_iter().flatten().filter(|(key, value)| full.get(key) != Some(value));
        keys.map(|(key, value)| format!("{key}: {value}")).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn the_schema_and_the_reader_accept_the_same_files() {
        let schema: Value = serde_json::from_str(CONFIG).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let properties = schema["properties"].as_object().unwrap();
        let full = full();
        let is_excluded = |key: &str| excluded().iter().any(|(one, ..)| *one == key);
        let unused: Vec<_> = properties.keys().filter(|key| full.get(*key).is_none() && !is_excluded(key)).collect();
        assert!(unused.is_empty(), "{unused:?}");
        let mut accepted = vec![
            full.clone(),
            json!({ "rules": "rules/" }),
            json!({ "proxy_protocol": "10.0.0.7" }),
            json!({}),
            variables(),
        ];
        accepted.extend(excluded().map(|(key, value, _)| json!({ key: value })));
        accepted.push(json!({ "tls": { "certificate": "a.pem", "key_password_file": "token" } }));
        accepted.extend(full.as_object().unwrap().iter().map(|(key, value)| json!({ key: value })));
        for file in &accepted {
            assert!(validator.is_valid(file), "the schema rejects {file}");
            assert_eq!(reads(file), Ok(()), "{file}");
        }
        let all = changed(&full);
        assert!(all.len() > 150, "{}", all.len());
        let differs = |file: &&Value| reads(file).is_ok() != validator.is_valid(file);
        let differing: Vec<String> = all.iter().filter(differs).map(|file| difference(file, &full)).collect();
        assert!(differing.is_empty(), "the reader and the schema differ: {differing:?}");
        for (key, value, other) in excluded() {
            let both = json!({ key: value, other: full[other] });
            assert!(!validator.is_valid(&both) && reads(&both).is_err(), "{both}");
        }
        let mut both = full["tls"].clone();
        both["key_password_file"] = json!("token");
        let both = json!({ "tls": both });
        assert!(!validator.is_valid(&both) && reads(&both).is_err(), "{both}");
    }
}
