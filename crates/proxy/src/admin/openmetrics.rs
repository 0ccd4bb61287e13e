//! Writes metric families as OpenMetrics text.

use std::fmt;
use std::time::SystemTime;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::histogram::{BOUNDS, HistogramSnapshot};

const NANOSECONDS: f64 = 1e9;

/// Writes one metric family after the other.
pub(super) struct MetricsWriter<'e>(pub(super) DescriptorEncoder<'e>);

impl MetricsWriter<'_> {
    pub(super) fn family(
        &mut self,
        (name, help, unit): (&str, &str, Option<&Unit>),
        kind: MetricType,
        write: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        write(&mut self.0.encode_descriptor(name, help, unit, kind)?)
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.family((name, help, None), MetricType::Gauge, |family| family.encode_gauge(&value))
    }

    /// `name` is without `_timestamp_seconds`.
    pub(super) fn time(&mut self, name: &str, help: &str, at: SystemTime) -> fmt::Result {
        let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let name = format!("{name}_timestamp");
        self.family((&name, help, Some(&Unit::Seconds)), MetricType::Gauge, |family| family.encode_gauge(&since))
    }

    pub(super) fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        self.family((name, help, None), MetricType::Gauge, |family| {
            values
                .into_iter()
                .try_for_each(|(labels, value)| family.encode_family(&labels)?.encode_gauge(&(value as f64)))
        })
    }

    /// Gauges of durations; `name` is without `_seconds`.
    pub(super) fn seconds<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, f64)>,
    ) -> fmt::Result {
        self.family((name, help, Some(&Unit::Seconds)), MetricType::Gauge, |family| {
            values.into_iter().try_for_each(|(labels, value)| family.encode_family(&labels)?.encode_gauge(&value))
        })
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, count: u64) -> fmt::Result {
        self.family((name, help, None), MetricType::Counter, |family| write_count(family, count))
    }

    pub(super) fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        counts: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        self.family((name, help, None), MetricType::Counter, |family| {
            counts.into_iter().try_for_each(|(labels, count)| write_count(&mut family.encode_family(&labels)?, count))
        })
    }

    /// `name` is without `_seconds`.
    pub(super) fn duration(&mut self, name: &str, help: &str, snapshot: &HistogramSnapshot) -> fmt::Result {
        self.family((name, help, Some(&Unit::Seconds)), MetricType::Histogram, |family| {
            write_histogram(family, snapshot)
        })
    }

    /// `name` is without `_seconds`.
    pub(super) fn durations<'r, L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        snapshots: impl IntoIterator<Item = (L, &'r HistogramSnapshot)>,
    ) -> fmt::Result {
        self.family((name, help, Some(&Unit::Seconds)), MetricType::Histogram, |family| {
            let mut snapshots = snapshots.into_iter();
            snapshots.try_for_each(|(labels, snapshot)| write_histogram(&mut family.encode_family(&labels)?, snapshot))
        })
    }
}

pub(super) fn write_count(out: &mut MetricEncoder<'_>, count: u64) -> fmt::Result {
    out.encode_counter::<NoLabelSet, _, f64>(&count, None)
}

fn write_histogram(out: &mut MetricEncoder<'_>, snapshot: &HistogramSnapshot) -> fmt::Result {
    let bounds = BOUNDS.iter().map(|bound| *bound as f64 / NANOSECONDS).chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(snapshot.buckets).collect();
    out.encode_histogram::<NoLabelSet>(snapshot.sum as f64 / NANOSECONDS, snapshot.count(), &buckets, None)
}
