//! The resource usage of a process, read from /proc.

use std::time::Duration;

use anyhow::{Context, Result};

/// CPU time of the process's current threads, user and system, from the scheduler's counters: /proc/PID/stat counts
/// ticks of 10 ms, which is too coarse for a turn of one second.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let mut total = Duration::ZERO;
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).context("CPU time of a process that is gone")? {
        // A thread may end while this reads.
        let Ok(text) = std::fs::read_to_string(task?.path().join("schedstat")) else { continue };
        let on_cpu = text.split_whitespace().next().context("schedstat")?;
        total += Duration::from_nanos(on_cpu.parse().context("schedstat")?);
    }
    Ok(total)
}

/// Resident memory in bytes.
pub(crate) fn resident(pid: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).context("memory of a process that is gone")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS")?;
    Ok(kibibytes * 1024)
}
