//! Encodes spans as an ExportTraceServiceRequest in OTLP/JSON: ids in hexadecimal, 64-bit integers as strings, names
//! in camelCase. Attributes follow OpenTelemetry's semantic conventions for databases where they exist.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::proxy::{SpanDecision, TraceSpan};

/// `SPAN_KIND_SERVER`
const KIND: u8 = 2;
/// `STATUS_CODE_ERROR`
const ERROR: u8 = 2;

pub(super) fn request(spans: &[TraceSpan]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [text("service.name", "docward"), text("service.version", version)];
    let spans: Vec<Value> = spans.iter().map(span).collect();
    let scope = json!({"name": "docward", "version": version});
    json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{"scope": scope, "spans": spans}],
    }]})
    .to_string()
}

fn span(span: &TraceSpan) -> Value {
    let namespace = span.decisions.first().map(|decision| decision.namespace.as_str());
    let mut encoded = json!({
        "traceId": hex::encode(span.trace),
        "spanId": hex::encode(span.id),
        "name": namespace.map_or_else(|| span.command.to_owned(), |namespace| format!("{} {namespace}", span.command)),
        "kind": KIND,
        "startTimeUnixNano": nanoseconds(span.start),
        "endTimeUnixNano": nanoseconds(span.start + span.own + span.upstream),
        "attributes": attributes(span, namespace),
    });
    if let Some(parent) = span.parent {
        encoded["parentSpanId"] = hex::encode(parent).into();
    }
    if let Some(rejection) = span.decisions.iter().find(|decision| decision.rejects) {
        let message = format!("rule '{}': {}", rejection.rule, rejection.reason);
        encoded["status"] = json!({"code": ERROR, "message": message});
    }
    encoded
}

fn attributes(span: &TraceSpan, namespace: Option<&str>) -> Vec<Value> {
    let mut attributes = vec![
        text("db.system.name", "mongodb"),
        text("db.operation.name", span.command),
        json!({"key": "docward.evaluated", "value": {"boolValue": span.evaluated}}),
        seconds("docward.own_seconds", span.own),
        seconds("docward.upstream_seconds", span.upstream),
    ];
    if let Some((database, collection)) = namespace.and_then(|namespace| namespace.split_once('.')) {
        attributes.extend([text("db.namespace", database), text("db.collection.name", collection)]);
    }
    if !span.decisions.is_empty() {
        attributes.push(texts("docward.rules", span, |decision| &decision.rule));
        attributes.push(texts("docward.outcomes", span, |decision| decision.outcome));
    }
    attributes
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn texts<'s>(key: &str, span: &'s TraceSpan, of: impl Fn(&'s SpanDecision) -> &'s str) -> Value {
    let values: Vec<Value> = span.decisions.iter().map(|decision| json!({"stringValue": of(decision)})).collect();
    json!({"key": key, "value": {"arrayValue": {"values": values}}})
}

fn seconds(key: &str, duration: Duration) -> Value {
    json!({"key": key, "value": {"doubleValue": duration.as_secs_f64()}})
}

fn nanoseconds(time: SystemTime) -> String {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}
