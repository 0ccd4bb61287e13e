//! The cost of an input: the bytes allocated and the CPU time are bounded by its length.

use std::time::Duration;

use allocation_counter::measure;
use support::cpu_time::CpuTimer;

use super::Target;

/// CPU time that any input may take.
const ANY_TIME: Duration = Duration::from_millis(250);
/// CPU time for each byte in an optimised build: a tenth of the unoptimised bound. A quadratic parser takes longer for
/// the longest inputs.
pub const OPTIMISED: Duration = Duration::from_micros(4);
/// In an unoptimised build.
pub const UNOPTIMISED: Duration = Duration::from_micros(40);
/// A time is measured again this often: an interrupt or a page fault may have made it longer.
const REPEATS: usize = 3;

/// Runs a target and returns its CPU time.
///
/// # Panics
/// The input costs more than its length allows.
pub fn run((name, target): Target, input: &[u8], time_per_byte: Duration) -> Duration {
    let mut took = Duration::MAX;
    let most_time = ANY_TIME + time_per_byte * u32::try_from(input.len()).unwrap();
    for _ in 0..REPEATS {
        let one = CpuTimer::start();
        let allocated = measure(|| target(input)).bytes_total;
        took = took.min(one.elapsed());
        let most = most_allocated(name, input.len());
        assert!(allocated <= most, "{name}: {allocated} bytes allocated, {most} are the most for {input:?}");
        if took <= most_time {
            return took;
        }
    }
    panic!("{name}: {took:?}, {most_time:?} are the most for {input:?}");
}

/// Upper bound of the bytes that a target may allocate in total for an input of this length: twice the maximum
/// measured, rounded. The targets do more with an input than docward does.
pub fn most_allocated(name: &str, length: usize) -> u64 {
    const ANY: usize = 1 << 20;
    let each = match name {
        "frame" => 8,
        // A parser reserves memory for the claimed length, up to the maximum message length; the proxy checks the
        // length beforehand.
        "compressed" => return 4 * 48_000_000,
        "document" | "command" | "proxy_header" => 60,
        "plan" | "rules" => 800,
        // Also evaluated with each rule that it gives a reason for, and with all of them.
        "traffic" => 2400,
        "shell" => 1200,
        other => panic!("target {other} has no bound"),
    };
    (ANY + each * length) as u64
}
