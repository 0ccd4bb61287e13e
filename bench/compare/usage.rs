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

/// CPU time of the process, user and system, with that of threads that have ended: mongod has one for each connection.
/// In ticks of 10 ms, so only for long turns.
pub(crate) fn cpu_with_ended_threads(pid: u32) -> Result<Duration> {
    const TICK: Duration = Duration::from_millis(10);
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("CPU time of a process that is gone")?;
    // The fields after the name, which is in brackets, begin with the third; utime and stime are the 14th and 15th.
    let (_, fields) = text.rsplit_once(')').context("stat")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u32>);
    Ok(TICK * ticks.sum::<Result<u32, _>>().context("stat")?)
}

/// Resident memory in bytes.
pub(crate) fn resident(pid: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).context("memory of a process that is gone")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS")?;
    Ok(kibibytes * 1024)
}
