//! The metrics for Prometheus, as OpenMetrics text.
//!
//! This file stores nothing: each scrape reads the proxy's counters. Label values are names of rules, members and
//! known commands, and fixed words, so that clients cannot create new series.

use std::collections::BTreeMap;
use std::fmt;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::openmetrics::{MetricsWriter, write_count};
use super::process::Process;
use super::{ReloadStatus, ResponseData, SpanCounts, error, health};
use crate::proxy::{LiveRule, MemoryUse, PermitStatus, PoolStatus, ProcessPhase, RouterStatus};
use crate::rules::Mode;
use crate::service::{WorkerState, WorkerStatus};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const MILLISECONDS: f64 = 1e3;

const ENDED: &str = "Accepted connections that ended. Normal: `client_closed`, `upstream_closed`, `drained`, `expired` \
    (`max_lifetime`), `idle`. In the console: `operator`. Network errors: `client_error`, `upstream_error`. By the client: \
    `handshake_timeout` (it sent no message), `login_timeout`, `displaced`, `client_message`, `client_handshake`, `client_tls`, \
    `client_too_long_before_login`, `client_stalled`. In a pool, the client must log in again: `login_needed`. By the server: \
    `unreachable` (it could not be dialled at the client's first message), `upstream_message`, `upstream_handshake`. \
    `unprocessable`: a message that docward can neither send nor answer";

/// The response to a scrape.
pub(super) async fn metrics(State(data): State<ResponseData>) -> Response {
    data.make(scrape).await
}

fn scrape(data: &ResponseData) -> Response {
    let mut registry = Registry::default();
    registry.sub_registry_with_prefix("docward").register_collector(Box::new(data.clone()));
    registry.register_collector(Box::new(Process));
    let mut out = String::new();
    match text::encode(&mut out, &registry) {
        Ok(()) => ([(CONTENT_TYPE, OPEN_METRICS)], out).into_response(),
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "cannot encode the metrics"),
    }
}

impl fmt::Debug for ResponseData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceFiles").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Collector for ResponseData {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut metrics = MetricsWriter(encoder);
        self.process(&mut metrics)?;
        self.rules(&mut metrics)?;
        self.reloads(&mut metrics)?;
        self.certificates(&mut metrics)?;
        self.members(&mut metrics)?;
        self.connections(&mut metrics)?;
        self.pools(&mut metrics)?;
        self.router(&mut metrics)?;
        self.permits(&mut metrics)?;
        self.messages(&mut metrics)?;
        self.lookups(&mut metrics)?;
        self.workers(&mut metrics)?;
        self.spans(&mut metrics)
    }
}

impl ResponseData {
    fn process(&self, metrics: &mut MetricsWriter<'_>) -> fmt::Result {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        metrics.family(("build", "The version of this process", None), MetricType::Info, |family| {
            family.encode_info(&version)
        })?;
        metrics.time("start", "When this process started", self.started)?;
        let ready = f64::from(u8::from(health::reasons(self).is_empty()));
        metrics.gauge("ready", "1 if clients can connect, as `/readyz` reports", ready)?;
        let draining = matches!(*self.observer.phase().borrow(), ProcessPhase::Draining | ProcessPhase::HandedOver);
        metrics.gauge("draining", "1 while this process drains", f64::from(u8::from(draining)))
    }

    fn rules(&self, metrics: &mut MetricsWriter<'_>) -> fmt::Result {
        let (set, report) = self.observer.report();
        let outcomes = outcomes(&report);
        let labelled =
            outcomes.iter().map(|((rule, outcome), count)| ([("rule", *rule), ("outcome", *outcome)], *count));
        metrics.counters("rule_statements", "Statements by outcome", labelled)?;
        let of_all_modes: Vec<_> =
            report.iter().map(|rule| (rule.label.name.as_str(), rule.counts.of_all_modes())).collect();
        let checked = of_all_modes.iter().flat_map(|(rule, tally)| {
            let apps = tally.apps().into_iter().filter(|(_, counts)| counts.check > 0);
            apps.map(|(app, counts)| ([("rule", *rule), ("app", app)], counts.check))
        });
        metrics.counters(
            "checked_statements",
            "Statements with the outcome `check`, of up to 100 applications by name, then `(others)`; also in shadow \
             mode",
            checked,
        )?;
        let mut modes: BTreeMap<&str, u64> = Mode::ALL.map(|mode| (mode.as_str(), 0)).into();
        for rule in report.iter().filter(|rule| rule.loaded) {
            *modes.entry(rule.written.mode).or_default() += 1;
        }
        metrics.gauges("rules", "Loaded rules", modes.into_iter().map(|(mode, count)| ([("mode", mode)], count)))?;
        let overridden = set.rules().iter().filter_map(|rule| {
            let found = rule.mode_override.as_ref()?;
            Some(([("rule", &*rule.name.value), ("mode", found.mode.as_str())], 1))
        });
        metrics.gauges("rule_mode_overrides", "1 for a rule whose mode is overridden", overridden)?;
        let hash = [("hash", set.hash().to_string())];
        metrics
            .family(("rule_set", "The rule set in force", None), MetricType::Info, |family| family.encode_info(&hash))
    }

    fn reloads(&self, metrics: &mut MetricsWriter<'_>) -> fmt::Result {
        let ReloadStatus { loaded, failed, loaded_at, tried_at, last_error } = &*self.admin_context.reload_status();
        let results = [([("result", "loaded")], *loaded), ([("result", "failed")], *failed)];
        metrics.counters("reloads", "Reloads of rules or certificates: `loaded`, `failed`", results)?;
        let successful = f64::from(u8::from(last_error.is_none()));
        metrics.gauge("last_reload_successful", "0 if the last reload failed", successful)?;
        metrics.time("last_reload", "When the last reload was tried, successful or not", *tried_at)?;
        metrics.time("rules_loaded", "When the rules in force were loaded", *loaded_at)
    }

    fn certificates(&self, metrics: &mut MetricsWriter<'_>) -> fmt::Result {
        let certificates = self.admin_context.certificates();
        let ends = certificates.iter().map(|(side, end)| ([("side", *side)], *end as f64));
        metrics.seconds(
            "certificate_expiry_timestamp",
            "When docward's own certificate expires: of the `listeners`, `upstream`, `service`",
            ends,
        )
    }

    fn members(&self, metrics: &mut MetricsWriter<'_>) -> fmt::Result {
        let members = self.observer.members();
        let up = members.iter().map(|member| ([("member", member.name.as_str())], u64::from(member.up)));
        metrics.gauges("member_up", "1 for a member that replies", up)?;
        // Several mongos have no primary, and miss none.
        let is_set = members.iter().all(|member| member.role != Some("standalone"));
        let primary = members
            .iter()
            .filter(|_| is_set)
            .map(|member| ([("member", member.name.as_str())], u64::from(member.role == Some("primary"))));
        metrics.gauges("member_primary", "1 for a member that reports itself as primary", primary)?;
        let lag = members
            .iter()
            .filter_map(|member| Some(([("member", member.name.as_str())], member.lag? as f64 / MILLISECONDS)));
        metrics.seconds(
            "member_lag",
            "How far a secondary was behind the primary at most ten seconds ago; without writes inexact by as much",
            lag,
        )?;
        // Clients of a router see no members.
        if self.observer.router().is_some() {
            return Ok(());
        }
        let seen =
            members.iter().map(|member| ([("member", member.name.as_str())], u64::from(member.listener.is_some())));
        metrics.gauges(
            "member_listener",
            "0 for a member that clients do not see, because `members` does not name it",
            seen,
        )?;
        let open = members.iter().map(|member| ([("member", member.name.as_str())], member.connections as u64));
        metrics.gauges(
            "member_connections",
            "Client connections through the member's listener, without those of the query listener",
            open,
        )
    }

    fn connections(&self, metrics: &mut MetricsWriter<'_>) -> fmt::Result {
        let counts = self.observer.connection_counts();
        metrics.gauge("connections_open", "Client connections", self.observer.connections() as f64)?;
        metrics.counter("connections_accepted", "Accepted client connections", counts.accepted)?;
        let by = |reasons: Vec<(&'static str, u64)>| {
            reasons.into_iter().map(|(reason, count)| ([("reason", reason)], count))
        };
        metrics.counters(
            "connections_refused",
            "Client connections that were not accepted: `limit`, `address_limit`, `tls`, `proxy_protocol`, `unreachable` (no \
             server was known to reply)",
            by(counts.refused),
        )?;
        metrics.counters("connections_ended", ENDED, by(counts.ended))?;
        let MemoryUse { limit, used, waits } = self.observer.memory();
        let bytes = [([("of", "limit")], limit as u64), ([("of", "use")], used as u64)];
        metrics.gauges(
            "large_messages_memory_bytes",
            "Memory for large messages: the `limit`, and what is in `use`",
            bytes,
        )?;
        metrics.counter("large_messages_waited", "Large messages that had to wait for memory", waits)
    }

    fn pools(&self, metrics: &mut MetricsWriter<'_>) -> fmt::Result {
        let pools = self.observer.pools();
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let connections = pools.iter().flat_map(|pool| {
            let shared = [("active", count(pool.active)), ("idle", count(pool.idle))].into_iter();
            shared.map(|(state, count)| ([("member", pool.member.as_str()), ("state", state)], count))
        });
        metrics.gauges(
            "pool_connections",
            "Server connections that clients share: `active` while a request uses them, or `idle`",
            connections,
        )?;
        let pinned = pools.iter().flat_map(|pool| {
            let by_reason = pool.pinned.iter();
            by_reason.map(|(reason, count)| ([("member", pool.member.as_str()), ("reason", *reason)], *count))
        });
        metrics.gauges(
            "pool_pinned_connections",
            "Server connections of one client each, beside the pools: `unknown_command`, `exhaust`, `load_balanced`, \
             `mechanism`",
            pinned,
        )?;
        let by_member = |value: fn(&PoolStatus) -> u64| {
            pools.iter().map(move |pool| ([("member", pool.member.as_str())], value(pool)))
        };
        let waiting = by_member(|pool| u64::try_from(pool.waiting).unwrap_or(u64::MAX));
        metrics.gauges("pool_waiting_requests", "Requests that wait for a server connection", waiting)?;
        let oldest = pools.iter().map(|pool| ([("member", pool.member.as_str())], pool.oldest_wait.as_secs_f64()));
        metrics.seconds("pool_oldest_wait", "How long the oldest of them has waited", oldest)?;
        metrics.counters("pool_opened", "Server connections opened for pools", by_member(|pool| pool.opened))?;
        metrics.counters("pool_closed", "Server connections that left their pools", by_member(|pool| pool.closed))?;
        let rejected = pools.iter().flat_map(|pool| {
            let by_cause = pool.rejected.iter();
            by_cause.map(|(cause, count)| ([("member", pool.member.as_str()), ("cause", *cause)], *count))
        });
        metrics.counters(
            "pool_rejected_requests",
            "Requests rejected with error 462: they waited longer than `max_wait`, or were `sent_away` because their \
             drivers send them again",
            rejected,
        )?;
        let logins = pools.iter().flat_map(|pool| {
            let by_result = pool.logins.iter();
            by_result.map(|(result, count)| ([("member", pool.member.as_str()), ("result", *result)], *count))
        });
        metrics.counters("pool_logins", "Logins: `relayed` for clients, `by_key` by docward itself, `failed`", logins)
    }

    fn router(&self, metrics: &mut MetricsWriter<'_>) -> fmt::Result {
        let Some(RouterStatus { waiting, waited, sent_again }) = self.observer.router() else { return Ok(()) };
        let pools = self.observer.pools();
        let routed = pools.iter().flat_map(|pool| {
            pool.routed.iter().map(|(role, count)| ([("member", pool.member.as_str()), ("role", *role)], *count))
        });
        metrics.counters(
            "router_requests",
            "Requests that the router has sent to a member, by its role then",
            routed,
        )?;
        let help = "Requests that wait for a member, for instance during an election";
        metrics.gauge("router_waiting_requests", help, waiting as f64)?;
        metrics.counter("router_waited_requests", "Requests that have waited for a member", waited)?;
        let help = "Requests sent again after their member was lost or stopped being primary, each time";
        metrics.counter("router_repeated_requests", help, sent_again)
    }

    fn permits(&self, metrics: &mut MetricsWriter<'_>) -> fmt::Result {
        let permits = self.observer.permits(0);
        let by_rule = |value: fn(&PermitStatus) -> u64| {
            permits.iter().map(move |one| ([("rule", one.rule.as_str())], value(one)))
        };
        metrics.gauges(
            "throttle_held_permits",
            "Commands in progress that hold a permit of a `throttle` rule",
            by_rule(|one| one.held),
        )?;
        metrics.gauges(
            "throttle_waiting",
            "Commands that wait for a permit; in shadow mode, that would wait",
            by_rule(|one| one.waiting),
        )?;
        let oldest = permits.iter().map(|one| ([("rule", one.rule.as_str())], one.oldest_wait.as_secs_f64()));
        metrics.seconds("throttle_oldest_wait", "How long the oldest of them has waited", oldest)?;
        let by_mode = |counts: fn(&PermitStatus) -> [(&'static str, u64); 2]| {
            permits.iter().flat_map(move |one| {
                counts(one).map(|(mode, count)| ([("rule", one.rule.as_str()), ("mode", mode)], count))
            })
        };
        metrics.counters(
            "throttle_waited",
            "Commands that waited for a permit, or in `shadow` mode would have",
            by_mode(|one| one.waited),
        )?;
        let rejected = by_mode(|one| one.rejected);
        metrics.counters(
            "throttle_rejected",
            "Commands rejected with error 462 because they waited longer than `wait`, or that in `shadow` mode would \
             have been",
            rejected,
        )
    }

    fn messages(&self, metrics: &mut MetricsWriter<'_>) -> fmt::Result {
        let measures = self.observer.measures().unwrap_or_default();
        let bytes = [([("from", "clients")], measures.from_clients), ([("from", "upstream")], measures.from_upstream)];
        metrics.family(
            ("received", "Bytes read from `clients` and `upstream`", Some(&Unit::Bytes)),
            MetricType::Counter,
            |family| {
                bytes.iter().try_for_each(|(labels, count)| write_count(&mut family.encode_family(labels)?, *count))
            },
        )?;
        let own = measures.commands.iter().map(|(command, measured)| ([("command", *command)], &measured.own));
        metrics.durations("command_own", "docward's own time for a command and its reply", own)?;
        let upstream =
            measures.commands.iter().map(|(command, measured)| ([("command", *command)], &measured.upstream));
        metrics.durations("command_upstream", "Time until the first byte of the server's reply to a command", upstream)
    }

    fn lookups(&self, metrics: &mut MetricsWriter<'_>) -> fmt::Result {
        let lookups = self.observer.measures().unwrap_or_default().lookups;
        let latencies = lookups.iter().map(|(kind, measured)| ([("kind", *kind)], &measured.latency));
        metrics.durations(
            "lookup",
            "Time that messages waited for lookups of rules: `numbers`, `maximum`",
            latencies,
        )?;
        let failures = lookups.iter().flat_map(|(kind, measured)| {
            let labels = |reason| [("kind", *kind), ("reason", reason)];
            [(labels("permanent"), measured.permanent), (labels("unavailable"), measured.unavailable)]
        });
        metrics.counters(
            "lookup_failures",
            "Lookups without a result: `permanent` (a retry fails too, such as a missing privilege), `unavailable` (no \
             server answered)",
            failures,
        )?;
        let reservations = self.observer.reservations();
        metrics.duration("reservation", "Round trips that reserve blocks of numbers", &reservations.latency)?;
        metrics.counter("reservation_failures", "Of these, the ones that returned no numbers", reservations.failed)?;
        metrics.counter("reserved_numbers", "Numbers reserved in counters", reservations.numbers)
    }

    fn workers(&self, metrics: &mut MetricsWriter<'_>) -> fmt::Result {
        let workers = self.observer.workers();
        let works = workers.iter().map(|worker| {
            let works = matches!(worker.state, WorkerState::Works { .. });
            ([("rule", worker.rule.as_str()), ("pattern", worker.pattern)], u64::from(works))
        });
        metrics.gauges(
            "worker",
            "1 if this process does the background work of the rule, 0 if another one may",
            works,
        )?;
        let lag = workers.iter().filter_map(|worker| match worker.state {
            WorkerState::Works { lag } => Some(([("rule", worker.rule.as_str())], lag.as_secs_f64())),
            WorkerState::Waits | WorkerState::Fails(_) => None,
        });
        metrics.seconds(
            "worker_lag",
            "Only of rules whose `docward_worker` is 1: time since the last processed change, or since the worker saw that there is none",
            lag,
        )?;
        let by_rule = |value: fn(&WorkerStatus) -> u64| {
            workers.iter().map(move |worker| ([("rule", worker.rule.as_str())], value(worker)))
        };
        metrics.counters(
            "worker_changes",
            "Changes that the worker of this process has processed",
            by_rule(|worker| worker.changes),
        )?;
        let unknown = workers.iter().filter_map(|worker| Some(([("rule", worker.rule.as_str())], worker.unknown?)));
        metrics.counters("history_unknown", "Changes of a `history` rule whose previous state is not known", unknown)
    }

    fn spans(&self, metrics: &mut MetricsWriter<'_>) -> fmt::Result {
        let SpanCounts { sent, failed, dropped } = self.admin_context.spans();
        let results = [("sent", sent), ("failed", failed), ("dropped", dropped)];
        let labelled = results.map(|(result, count)| ([("result", result)], count));
        metrics.counters(
            "spans",
            "Spans: `sent`, `failed` (the collector rejected them or did not reply), `dropped` (the collector is too \
             slow)",
            labelled,
        )
    }
}

/// Counts by rule and outcome. Outcomes of the rule's mode start at 0, so that the first one shows as an increase.
fn outcomes(report: &[LiveRule]) -> BTreeMap<(&str, &'static str), u64> {
    let mut outcomes = BTreeMap::new();
    for rule in report {
        let name = rule.label.name.as_str();
        let expected: &[&'static str] = match rule.written.mode {
            "enforce" => &["reject", "rewrite"],
            "shadow" => &["shadow-reject", "shadow-rewrite"],
            _ => &[],
        };
        let others = rule.written.other_outcomes.iter().filter(|_| rule.written.mode == "enforce");
        expected
            .iter()
            .chain(others)
            .filter(|_| rule.loaded)
            .for_each(|outcome| _ = outcomes.entry((name, *outcome)).or_default());
        // A changed rule has new counts; the metric adds the counts of all rules with its name.
        rule.counts
            .outcomes
            .iter()
            .for_each(|(outcome, count)| *outcomes.entry((name, *outcome)).or_default() += count);
    }
    outcomes
}
