//! The CPU cost of a computation, which does not depend on other load on the machine.

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
