//! The metrics of this process that Prometheus's client libraries export for every process, by their standard names.

use std::fmt;
use std::fs::{read_dir, read_to_string};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::openmetrics::MetricsWriter;

/// Reads `/proc` at each scrape. A value that cannot be read has no series.
#[derive(Debug)]
pub(super) struct Process;

/// Fields of `/proc/self/stat` after the program's name, which may contain spaces; see proc(5).
struct Stat(Vec<u64>);

impl Stat {
    fn read_proc() -> Option<Self> {
        let text = read_to_string("/proc/self/stat").ok()?;
        let (_, fields) = text.rsplit_once(')')?;
        // The first one is a letter.
        Some(Self(fields.split_whitespace().skip(1).map(|field| field.parse().unwrap_or(0)).collect()))
    }

    /// A field by its number in proc(5).
    fn field(&self, number: usize) -> Option<u64> {
        self.0.get(number.checked_sub(4)?).copied()
    }

    /// Seconds of processor time, of the user and of the system.
    fn cpu_seconds(&self) -> Option<f64> {
        Some((self.field(14)? + self.field(15)?) as f64 / ticks_per_second())
    }

    /// Seconds since 1970 UTC.
    fn started(&self) -> Option<f64> {
        let booted = read_to_string("/proc/stat").ok()?;
        let booted: u64 = booted.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
        Some(booted as f64 + self.field(22)? as f64 / ticks_per_second())
    }
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

fn page_size() -> u64 {
    u64::try_from(rustix::param::page_size()).unwrap_or(4096)
}

/// The number of open file descriptors, without the one that reads them.
fn open_files() -> Option<usize> {
    read_dir("/proc/self/fd").ok().map(|files| files.count().saturating_sub(1))
}

impl Collector for Process {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut metrics = MetricsWriter(encoder);
        let stat = Stat::read_proc();
        if let Some(seconds) = stat.as_ref().and_then(Stat::cpu_seconds) {
            let name = ("process_cpu", "Processor time of the user and the system", Some(&Unit::Seconds));
            metrics.family(name, MetricType::Counter, |family| {
                family.encode_counter::<prometheus_client::encoding::NoLabelSet, _, f64>(&seconds, None)
            })?;
        }
        let memory = [
            ("process_virtual_memory", "Virtual memory", stat.as_ref().and_then(|stat| stat.field(23))),
            (
                "process_resident_memory",
                "Resident memory",
                stat.as_ref().and_then(|stat| stat.field(24)).map(|pages| pages * page_size()),
            ),
        ];
        for (name, help, bytes) in memory {
            if let Some(bytes) = bytes {
                let name = (name, help, Some(&Unit::Bytes));
                metrics.family(name, MetricType::Gauge, |family| family.encode_gauge(&(bytes as f64)))?;
            }
        }
        if let Some(started) = stat.as_ref().and_then(Stat::started) {
            let name = ("process_start_time", "When the process started", Some(&Unit::Seconds));
            metrics.family(name, MetricType::Gauge, |family| family.encode_gauge(&started))?;
        }
        if let Some(open) = open_files() {
            metrics.gauge("process_open_fds", "Open file descriptors", open as f64)?;
        }
        if let Ok((limit, _)) = rlimit::Resource::NOFILE.get() {
            metrics.gauge("process_max_fds", "Limit of open file descriptors", limit as f64)?;
        }
        Ok(())
    }
}
