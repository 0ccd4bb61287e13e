//! What one hostile or broken client costs the other clients. Attackers and a well-behaved client (the bystander)
//! connect to a docward with a small memory budget. Under each attack the bystander's 99th percentile must stay below
//! three times its unloaded value plus 20 ms, docward's memory below its budget plus 64 MiB, and its log below 1 MB
//! per second; some seconds later its memory is what it was before. `SECURITY.md` promises these limits.
//!
//! `make attack` runs every attack for `DOCWARD_ATTACK_SECONDS` on an optimised build. As part of the tests each
//! attack takes some seconds and the latency limit is higher, because the build is slow and other tests run at the
//! same time.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod attackers;
mod bystander;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bystander::Bystander;
use support::mongod::Mongod;
use support::process::{Resident, alone, poll};
use support::proxy::Docward;

const MEGABYTE: usize = 1 << 20;
/// docward's budget for large messages.
const BUDGET: usize = 64 * MEGABYTE;
/// Memory beyond the budget and the memory without load.
const MEMORY_MARGIN: usize = 64 * MEGABYTE;
/// Memory beyond the memory without load some seconds after the attack.
const SETTLED_MARGIN: usize = 32 * MEGABYTE;
/// Bytes of log per second.
const MAX_LOG: f64 = 1e6;

/// Rules with a long reason, as operators write them, and some in shadow mode.
fn rules() -> String {
    let why = "Orders are changed by forty services at once. ".repeat(40);
    let mut rules = format!(
        "version: 1\nrules:\n  - name: no-blind-replace\n    namespace: \"*.orders\"\n    why: \"{why}\"\n    \
         replacement: {{ policy: reject, version: version }}\n"
    );
    for number in 0..20 {
        rules += &format!(
            "  - name: tried-{number}\n    namespace: \"*.tried\"\n    mode: shadow\n    \
             bounds: {{ field: n{number}, min: 0 }}\n"
        );
    }
    rules
}

/// The duration of an attack.
fn duration() -> Duration {
    let seconds = std::env::var("DOCWARD_ATTACK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(1.0))
}

/// Whether this is an optimised build alone on its machine, to which the limits apply.
fn is_measured() -> bool {
    std::env::var_os("DOCWARD_ATTACK_SECONDS").is_some()
}

/// A server without access control.
fn open() -> &'static Mongod {
    Mongod::shared()
}

/// With access control; `root` has all privileges.
fn locked() -> &'static Mongod {
    Mongod::shared_with_access_control()
}

/// The target of an attack.
pub(crate) struct Target {
    docward: Docward,
    over: Arc<AtomicBool>,
}

impl Target {
    pub(crate) fn address(&self) -> String {
        self.docward.address()
    }

    /// Runs `attacker` on separate threads until the attack is over.
    fn attack(&self, count: usize, attacker: fn(&str, &AtomicBool)) -> Vec<thread::JoinHandle<()>> {
        let attack = |_| {
            let (address, over) = (self.address(), self.over.clone());
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    attacker(&address, &over);
                }
            })
        };
        (0..count).map(attack).collect()
    }

    fn memory(&self) -> usize {
        Resident::of(self.docward.pid()).now
    }

    fn logged(&self) -> usize {
        self.docward.log().iter().map(|line| line.len() + 1).sum()
    }
}

/// Runs one attack with this many threads on a docward in front of `mongod`, and checks the limits; `logs_in`: the
/// bystander must log in.
fn assert_survives(name: &str, mongod: &Mongod, logs_in: bool, threads: usize, attacker: fn(&str, &AtomicBool)) {
    let builder = Docward::before(&mongod.uri()).rules(&rules()).admin();
    let builder = builder.argument("--memory").argument(format!("{}MiB", BUDGET / MEGABYTE));
    let docward = builder.argument("--handshake-timeout").argument("2s").start();
    let target = Target { docward, over: Arc::default() };
    let bystander = Bystander::start(&target.address(), logs_in);
    let quiet = bystander.measure(duration().min(Duration::from_secs(5)));
    let (memory, logged, began) = (target.memory(), target.logged(), Instant::now());
    let attackers = target.attack(threads, attacker);
    let sampled = {
        let over = target.over.clone();
        let pid = target.docward.pid();
        thread::spawn(move || most_memory(pid, &over))
    };
    let attacked = bystander.measure(duration());
    let lines = (target.logged() - logged) as f64 / began.elapsed().as_secs_f64();
    target.over.store(true, Ordering::Relaxed);
    let most = sampled.join().unwrap();
    attackers.into_iter().for_each(|attacker| attacker.join().unwrap());
    let settled = poll(Duration::from_secs(10), || (target.memory() <= memory + SETTLED_MARGIN).then_some(()));
    let after = target.memory();
    let mb = |bytes: usize| bytes / MEGABYTE;
    println!(
        "{name}: the bystander's p99 {:.1?}, without load {:.1?} ({} and {} operations); memory {} MiB at most, {} before, {} \
         after; log {:.0} kB/s",
        attacked.p99,
        quiet.p99,
        attacked.operations,
        quiet.operations,
        mb(most),
        mb(memory),
        mb(after),
        lines / 1e3
    );
    // A build without optimisation takes ten times as long per step, on a machine with other load.
    let allowed = 3 * quiet.p99 + Duration::from_millis(if is_measured() { 20 } else { 500 });
    assert!(attacked.p99 <= allowed, "{name}: {:?} are more than {allowed:?}", attacked.p99);
    assert!(most <= memory + BUDGET + MEMORY_MARGIN, "{name}: at most {} MiB, {} without load", mb(most), mb(memory));
    assert!(settled.is_some(), "{name}: {} MiB stay, there were {}", mb(after), mb(memory));
    assert!(lines <= MAX_LOG, "{name}: {lines:.0} bytes of log a second");
    assert!(!target.docward.log().iter().any(|line| line.contains("panicked")), "{name}");
}

/// The maximum memory of the process until the attack is over.
fn most_memory(pid: u32, over: &AtomicBool) -> usize {
    let mut most = 0;
    while !over.load(Ordering::Relaxed) {
        most = most.max(Resident::of(pid).now);
        thread::sleep(Duration::from_millis(20));
    }
    most
}

macro_rules! attacks {
    ($($name:ident: $mongod:ident, $threads:literal, $attacker:path;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let _alone = alone().await;
                let logs_in = stringify!($mongod) == "locked";
                let assert_survives = move || assert_survives(stringify!($name), $mongod(), logs_in, $threads, $attacker);
                tokio::task::spawn_blocking(assert_survives).await.unwrap();
            }
        )*
    };
}

attacks! {
    half_an_insert_before_a_login: locked, 8, attackers::half_inserts;
    half_an_insert: open, 8, attackers::half_inserts;
    a_message_that_dribbles_in_before_a_login: locked, 8, attackers::dribbles;
    a_message_that_dribbles_in: open, 8, attackers::dribbles;
    long_application_names: open, 4, attackers::long_names;
    short_messages_of_many_rejections: open, 4, attackers::packed_rejections;
    large_replies_that_are_never_read: open, 1, attackers::unread_replies;
    malformed_messages_one_after_the_other: open, 4, attackers::malformed;
    long_words_in_what_is_rejected: open, 4, attackers::long_words;
}
