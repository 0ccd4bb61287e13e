//! The report as JSON for programs.

use serde_json::{Map, Value, json};

use super::{ReplayReport, ReportedRules, code_name};
use crate::replay::{Comparison, Latencies};

/// Returns the report as JSON.
#[must_use]
pub fn to_json(report: &ReplayReport) -> Value {
    let recorded = &report.recorded;
    let reasons = report.not_sent.iter().map(|(reason, count)| json!({"reason": reason.reason(), "commands": count}));
    let targets = report.played.iter().map(|played| {
        let tally = &played.tally;
        let commands = tally.commands.iter().map(|(name, command)| {
            let mut entry = latencies(&command.played);
            entry["failed"] = command.failed.into();
            ((*name).to_owned(), entry)
        });
        let errors =
            tally.errors.iter().map(|(code, count)| json!({"code": code, "name": code_name(*code), "count": count}));
        let rejections = tally.rejections.iter().map(|(rule, count)| (rule.clone(), Value::from(*count)));
        json!({
            "target": played.target,
            "seconds": played.seconds,
            "commands": tally.count(),
            "statements": tally.statements,
            "failed": tally.failed(),
            "without_reply": tally.without_reply,
            "without_cursor": tally.without_cursor,
            "late": tally.late,
            "latest_micros": tally.latest,
            "latencies": commands.collect::<Map<_, _>>(),
            "errors": errors.collect::<Vec<_>>(),
            "rejected_by_rule": rejections.collect::<Map<_, _>>(),
        })
    });
    let recorded_latencies = recorded.latencies.iter().map(|(name, of)| ((*name).to_owned(), latencies(of)));
    json!({
        "sentence": report.sentence(),
        "files": report.files,
        "began": report.began,
        "rules": report.rules.as_ref().map(rules),
        "speed": report.speed.to_string(),
        "connections": report.connections,
        "recorded": {
            "commands": recorded.commands,
            "connections": recorded.connections,
            "span": recorded.span,
            "seconds": recorded.seconds(),
            "latencies": recorded_latencies.collect::<Map<_, _>>(),
        },
        "not_sent": reasons.collect::<Vec<_>>(),
        "targets": targets.collect::<Vec<_>>(),
        "comparison": report.comparison.as_ref().map(comparison),
        "stopped": report.stopped,
    })
}

fn rules(rules: &ReportedRules) -> Value {
    let ReportedRules { files, count, hash } = rules;
    json!({"files": files, "count": count, "hash": hash})
}

fn latencies(latencies: &Latencies) -> Value {
    json!({
        "count": latencies.count(),
        "mean_micros": latencies.mean(),
        "p50_micros": latencies.percentile(0.5),
        "p95_micros": latencies.percentile(0.95),
        "p99_micros": latencies.percentile(0.99),
        "max_micros": latencies.longest(),
    })
}

fn comparison(comparison: &Comparison) -> Value {
    let differences = comparison.differences.iter().map(|((name, namespace, what), difference)| {
        json!({
            "command": name,
            "namespace": namespace,
            "what": what,
            "count": difference.count,
            "example": difference.example,
        })
    });
    let stored = comparison.stored.iter().map(|stored| {
        json!({
            "namespace": stored.namespace,
            "equal": stored.is_equal(),
            "counts": stored.counts,
            "only": stored.only,
            "different": stored.different,
            "fields": stored.fields,
            "examples": stored.examples,
            "note": stored.note,
        })
    });
    json!({
        "compared": comparison.compared,
        "equal": comparison.equal,
        "differences": differences.collect::<Vec<_>>(),
        "more_differences": comparison.more,
        "stored": stored.collect::<Vec<_>>(),
    })
}
