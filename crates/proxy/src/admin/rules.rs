//! Every rule with its text and its counts, as JSON.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::{ResponseData, milliseconds};
use crate::audit::{Example, OutcomeCounts};
use crate::proxy::{ClientPermits, LiveRule, MINUTES, MinuteOutcomes, PermitStatus};

/// The most applications listed for one rule, the busiest first: all that are counted by name.
const APPS: usize = 101;
/// The most clients listed for one rule that limits them, those who wait most first.
const CLIENTS: usize = 20;
const MILLISECONDS_PER_MINUTE: u64 = 60_000;

/// docs/reference/admin-api.md documents the fields.
pub(super) async fn rules(State(data): State<ResponseData>) -> Response {
    data.make(list).await
}

fn list(data: &ResponseData) -> Response {
    let (set, report) = data.observer.report();
    let now = milliseconds(SystemTime::now());
    let permits: HashMap<String, PermitStatus> =
        data.observer.permits(CLIENTS).into_iter().map(|status| (status.rule.clone(), status)).collect();
    let rules: Vec<Value> = report.iter().map(|rule| to_json(rule, permits.get(&rule.label.name), now)).collect();
    Json(json!({
        "set": { "hash": set.hash().to_string() },
        "now": now,
        "minutes": MINUTES,
        "rules": rules,
    }))
    .into_response()
}

/// `permits`: of a rule that limits clients.
fn to_json(rule: &LiveRule, permits: Option<&PermitStatus>, now: u64) -> Value {
    let minute = |(minute, counts): (u64, MinuteOutcomes)| {
        with(json!({"at": minute * MILLISECONDS_PER_MINUTE, "shadow": shadow_json(counts.shadow)}), counts.all)
    };
    let history: Vec<Value> = rule.counts.history.since(now / MILLISECONDS_PER_MINUTE).map(minute).collect();
    let tally = rule.counts.of_all_modes();
    let (apps, done) = (tally.apps(), rule.counts.tally.apps());
    let app = |(app, counts): &(&str, OutcomeCounts)| {
        // Not those of the shadow tally, which may have other names before it counts the rest together.
        let done = done.iter().find(|(name, _)| name == app).map(|(_, counts)| *counts).unwrap_or_default();
        let shadow = OutcomeCounts {
            reject: counts.reject - done.reject,
            rewrite: counts.rewrite - done.rewrite,
            check: counts.check - done.check,
            ..OutcomeCounts::default()
        };
        with(json!({"app": app, "shadow": shadow_json(shadow)}), *counts)
    };
    let listed: Vec<Value> = apps.iter().take(APPS).map(app).collect();
    let example = |(outcome, example): (String, &Example)| {
        let mut value = json!(example);
        value["outcome"] = outcome.into();
        value
    };
    json!({
        "name": rule.label.name,
        "fingerprint": format!("{:016x}", rule.label.fingerprint),
        "loaded": rule.loaded,
        "written": *rule.written,
        "since": milliseconds(rule.since),
        "last": rule.counts.last.map(milliseconds),
        "outcomes": rule.counts.outcomes,
        "counts": tally.counts,
        "history": history,
        "apps": listed,
        "more_apps": apps.len().saturating_sub(APPS),
        "examples": rule.counts.examples().map(example).collect::<Vec<_>>(),
        "permits": permits.filter(|_| rule.loaded).map(permits_json),
    })
}

/// The outcomes that shadow mode has.
fn shadow_json(OutcomeCounts { reject, rewrite, check, .. }: OutcomeCounts) -> Value {
    json!({"reject": reject, "rewrite": rewrite, "check": check})
}

fn permits_json(status: &PermitStatus) -> Value {
    let PermitStatus { held, waiting, oldest_wait, waited, rejected, clients, more_clients, .. } = status;
    let by_mode = |counts: &[(&str, u64)]| -> Map<String, Value> {
        counts.iter().map(|(mode, count)| ((*mode).to_owned(), (*count).into())).collect()
    };
    let clients: Vec<Value> = clients
        .iter()
        .map(|ClientPermits { name, per, held, waiting, oldest_wait }| {
            let oldest_wait = in_milliseconds(*oldest_wait);
            json!({"name": &**name, "per": per, "held": held, "waiting": waiting, "oldest_wait": oldest_wait})
        })
        .collect();
    json!({
        "held": held,
        "waiting": waiting,
        "oldest_wait": in_milliseconds(*oldest_wait),
        "waited": by_mode(waited),
        "rejected": by_mode(rejected),
        "clients": clients,
        "more_clients": more_clients,
    })
}

fn in_milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Adds the counts to the fields of an object.
fn with(mut object: Value, counts: OutcomeCounts) -> Value {
    if let (Value::Object(fields), Ok(Value::Object(counts))) = (&mut object, serde_json::to_value(counts)) {
        fields.extend(counts);
    }
    object
}
