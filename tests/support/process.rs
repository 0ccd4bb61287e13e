//! Child processes that never outlive the test: their watchdog, their output, free ports.
//! Knows nothing of what the processes are; `mongod` and `proxy` do.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::MutexGuard;

/// Long enough for a machine that gives a test a tenth of a core; what is slower than this is broken.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// What is meant to happen at once, on such a machine. Less than what docward does by itself later: `proxy` starts it
/// with timeouts for a first message.
pub const SOON: Duration = Duration::from_secs(30);

/// Held by tests of one process that must not run side by side, because they measure or fill the machine.
pub async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    ALONE.lock().await
}

/// A path inside the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A TCP port of the loopback interface that is free and stays so: systems give higher ones to connections and to who
/// listens on any port, and no other test of this process gets it.
pub fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 10_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Other test processes begin elsewhere.
    let begin = std::process::id().wrapping_mul(131);
    let next = || FIRST + begin.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % COUNT;
    let mut candidates = (0..COUNT).map(|_| next() as u16);
    candidates.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("no port is free")
}

/// Memory of a process that is in RAM, in bytes, as Linux tells it.
pub struct Resident {
    pub now: usize,
    /// The most there ever was.
    pub most: usize,
}

impl Resident {
    /// Panics when there is no such process.
    pub fn of(pid: u32) -> Resident {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            1024 * line.split_whitespace().next().unwrap().parse::<usize>().unwrap()
        };
        Resident { now: field("VmRSS:"), most: field("VmHWM:") }
    }
}

/// The local TCP ports of a process, as Linux tells them (IPv4 only).
pub fn local_ports(pid: u32) -> Vec<u16> {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    let inode = |link: PathBuf| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
    let inodes: Vec<String> = links.filter_map(inode).collect();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = |row: &str| {
        let columns: Vec<&str> = row.split_whitespace().collect();
        let ours = inodes.iter().any(|inode| inode == columns[9]);
        ours.then(|| u16::from_str_radix(columns[1].rsplit_once(':').unwrap().1, 16).unwrap())
    };
    table.lines().skip(1).filter_map(port).collect()
}

/// What a system call gives in the end. Linux interrupts one that has a timeout when the machine stands still for a
/// while, and does not begin it again.
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Asks `probe` every few milliseconds until it gives an answer or time is up.
pub fn poll<T>(timeout: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(answer) = probe() {
            return Some(answer);
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A running child that is killed when this is dropped, and also when the test process
/// dies in whatever way: `scripts/watchdog.sh` waits for the end of a pipe we hold.
/// The second way matters for statics, which are never dropped, and for Ctrl-C.
pub struct Protected {
    child: Child,
    watchdog: Child,
    leash: Option<ChildStdin>,
}

impl Protected {
    /// Starts `command` in a process group of its own, so that a Ctrl-C in the terminal
    /// reaches the tests only. `folder` is removed if the watchdog has to act.
    pub fn spawn(command: &mut Command, folder: &Path) -> Protected {
        let child =
            command.process_group(0).spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let mut watchdog = Command::new(repository("scripts/watchdog.sh"))
            .arg(child.id().to_string())
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let leash = watchdog.stdin.take();
        Protected { child, watchdog, leash }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal by its name without SIG: `TERM`, `HUP`, `STOP`, `CONT`.
    pub fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.pid());
        let status = Command::new("sh").arg("-c").arg(kill).status().unwrap();
        assert!(status.success(), "kill -{name} {} failed", self.pid());
    }

    /// The exit status once the process has ended; `None` while it runs.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for the process to end by itself; panics when it does not.
    pub fn wait(&mut self) -> ExitStatus {
        poll(TIMEOUT, || self.exited()).unwrap_or_else(|| panic!("process {} does not end", self.pid()))
    }

    /// Whether it could do anything: it has neither ended nor been stopped by a signal.
    pub fn is_awake(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        // The state follows the name, which is in brackets and may hold anything.
        let state = status.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        state.is_some_and(|state| !"TtZX".contains(state))
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        // An error says that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Protected {
    fn drop(&mut self) {
        self.kill();
        if let Some(mut leash) = self.leash.take() {
            let _ = leash.write_all(b"stand down\n");
        }
        let _ = self.watchdog.wait();
    }
}

/// The lines of a child's output, collected by a thread as they come.
#[derive(Clone, Default)]
pub struct Lines(Arc<(Mutex<Collected>, Condvar)>);

#[derive(Default)]
struct Collected {
    lines: Vec<String>,
    ended: bool,
}

impl Lines {
    pub fn collect(output: impl Read + Send + 'static) -> Lines {
        let lines = Lines::default();
        let sink = lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                sink.change(|collected| collected.lines.push(line));
            }
            sink.change(|collected| collected.ended = true);
        });
        lines
    }

    fn change(&self, change: impl FnOnce(&mut Collected)) {
        change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
    }

    /// All lines so far.
    pub fn all(&self) -> Vec<String> {
        self.0.0.lock().unwrap().lines.clone()
    }

    /// The first `count` lines that contain `needle`; fewer when the output ends or time is up.
    pub fn wait_for(&self, needle: &str, count: usize, timeout: Duration) -> Vec<String> {
        let deadline = Instant::now() + timeout;
        let mut collected = self.0.0.lock().unwrap();
        loop {
            let found: Vec<String> =
                collected.lines.iter().filter(|line| line.contains(needle)).take(count).cloned().collect();
            let left = deadline.saturating_duration_since(Instant::now());
            if found.len() == count || collected.ended || left.is_zero() {
                return found;
            }
            collected = self.0.1.wait_timeout(collected, left).unwrap().0;
        }
    }
}
