//! What a process has used, as Linux tells it in /proc. Knows processes only by their number.

use std::time::Duration;

use anyhow::{Context, Result};

/// Length of a tick in /proc/PID/stat: `USER_HZ` is 100 on all architectures Linux runs on today.
const TICK: Duration = Duration::from_millis(10);

/// CPU time of all threads so far, user and system.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("CPU time of a process that is gone")?;
    // The name in the second field may hold anything, so counting starts behind its bracket: utime is 14, stime 15.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: u32 = fields.skip(11).take(2).filter_map(|field| field.parse::<u32>().ok()).sum();
    Ok(TICK * ticks)
}

/// Resident memory in bytes.
pub(crate) fn resident(pid: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).context("memory of a process that is gone")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS")?;
    Ok(kibibytes * 1024)
}
