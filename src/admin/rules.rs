//! Every rule with its text and its counts, as JSON.

use std::time::SystemTime;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::{ResponseData, milliseconds};
use crate::audit::EffectCounts;
use crate::proxy::{LiveRule, MINUTES};

/// The most applications listed for one rule, the busiest first: all that are counted by name.
const APPS: usize = 101;
const MILLISECONDS_PER_MINUTE: u64 = 60_000;

/// docs/observability.md documents the fields.
pub(super) async fn rules(State(sources): State<ResponseData>) -> Response {
    sources.make(list).await
}

fn list(sources: &ResponseData) -> Response {
    let (set, report) = sources.observer.report();
    let now = milliseconds(SystemTime::now());
    let rules: Vec<Value> = report.iter().map(|rule| to_json(rule, now)).collect();
    Json(json!({
        "set": set.hash().to_string(),
        "now": now,
        "minutes": MINUTES,
        "rules": rules,
    }))
    .into_response()
}

fn to_json(rule: &LiveRule, now: u64) -> Value {
    let minute = |(minute, counts): (u64, EffectCounts)| with(json!({"at": minute * MILLISECONDS_PER_MINUTE}), counts);
    let history: Vec<Value> = rule.counts.history.since(now / MILLISECONDS_PER_MINUTE).map(minute).collect();
    let apps = rule.counts.tally.apps();
    let listed: Vec<Value> = apps.iter().take(APPS).map(|(app, counts)| with(json!({"app": app}), *counts)).collect();
    json!({
        "name": rule.label.name,
        "fingerprint": format!("{:016x}", rule.label.fingerprint),
        "loaded": rule.loaded,
        "written": *rule.written,
        "since": milliseconds(rule.since),
        "last": rule.counts.last.map(milliseconds),
        "verdicts": rule.counts.verdicts,
        "counts": rule.counts.tally.counts,
        "history": history,
        "apps": listed,
        "more_apps": apps.len().saturating_sub(APPS),
        "examples": rule.counts.tally.examples(),
    })
}

/// Adds the counts to the fields of an object.
fn with(mut object: Value, counts: EffectCounts) -> Value {
    if let (Value::Object(fields), Ok(Value::Object(counts))) = (&mut object, serde_json::to_value(counts)) {
        fields.extend(counts);
    }
    object
}
