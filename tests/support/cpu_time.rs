//! The CPU cost of a computation or a process, which does not depend on other load on the machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Measures the CPU time of the thread that created it.
pub struct CpuTimer(Duration);

impl CpuTimer {
    pub fn start() -> Self {
        Self(now())
    }

    pub fn elapsed(&self) -> Duration {
        now() - self.0
    }
}

fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// CPU time of the process, user and system, with that of threads that have ended: mongod has one for each connection.
/// In ticks of 10 ms, so only for long times. Panics if the process does not exist.
pub fn of_process(pid: u32) -> Duration {
    const TICK: Duration = Duration::from_millis(10);
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The fields after the name, which is in brackets, begin with the third; utime and stime are the 14th and 15th.
    let (_, fields) = text.rsplit_once(')').unwrap();
    TICK * fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u32>().unwrap()).sum::<u32>()
}
