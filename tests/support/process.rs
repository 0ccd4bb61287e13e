//! Child processes that never outlive the test: their watchdog, their output, free ports. `mongod` and `proxy` use
//! it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::MutexGuard;

/// Long enough for a machine that gives a test a tenth of a core; anything slower is an error.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// The limit for a program that works for a while, such as a shell with its script. One that hangs is killed then, so that
/// its test fails and does not hang too.
const LONG: Duration = Duration::from_secs(300);

/// The limit for immediate effects on such a machine. Shorter than docward's own timeouts: `proxy` starts it with
/// long timeouts for a first message.
pub const SOON: Duration = Duration::from_secs(30);

/// A lock for tests of one process that must not run concurrently, because they measure or load the machine.
pub async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    ALONE.lock().await
}

/// A path inside the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../").join(path)
}

/// The docward that is tested: the one of cargo's build, or `DOCWARD_BIN`, such as a released one.
pub fn docward_executable() -> PathBuf {
    // Test programs are in `deps`, beside the executable.
    let built = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("docward"));
    std::env::var_os("DOCWARD_BIN").map(PathBuf::from).or_else(built).expect("the path of the test program is unknown")
}

/// The mongosh of `MONGOSH`, or else the one that `scripts/mongosh.sh` finds or downloads.
pub fn mongosh() -> PathBuf {
    if let Some(path) = std::env::var_os("MONGOSH") {
        return path.into();
    }
    let output = Command::new(repository("scripts/mongosh.sh")).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "scripts/mongosh.sh found no mongosh, see above");
    String::from_utf8(output.stdout).unwrap().trim_end().into()
}

/// Runs docward to its end.
pub fn docward(arguments: &[&str]) -> Output {
    docward_with_input(arguments, "")
}

/// Runs docward to its end, with this standard input.
pub fn docward_with_input(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(docward_executable());
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    within(LONG, child)
}

/// Waits for a child's end, and kills it after this time.
fn within(limit: Duration, child: Child) -> Output {
    let pid = child.id();
    let (ended, waits) = channel::<()>();
    let guard = std::thread::spawn(move || {
        if waits.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            kill(pid, "KILL");
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(ended);
    guard.join().unwrap();
    output
}

/// Runs a command to its end; panics if it takes longer than docward and shells may.
pub fn run(command: &mut Command) -> ExitStatus {
    within(LONG, command.spawn().unwrap()).status
}

/// Sends a signal by its name without SIG.
fn kill(pid: u32, name: &str) {
    let kill = format!("kill -{name} {pid}");
    let status = Command::new("sh").arg("-c").arg(&kill).status().unwrap();
    assert!(status.success(), "{kill} failed");
}

/// A TCP port of the loopback interface that is and stays free: it is below the range that systems use for outgoing
/// connections and for port 0, and no other test gets it while this process lives.
pub fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 10_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Other test processes start at another offset.
    let begin = std::process::id().wrapping_mul(131);
    let next = || FIRST + begin.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % COUNT;
    let mut candidates = (0..COUNT).map(|_| next() as u16);
    let is_free = |port: &u16| is_reserved(*port) && TcpListener::bind(("127.0.0.1", *port)).is_ok();
    candidates.find(is_free).expect("no port is free")
}

/// Reserves a port for this process among all test processes: between the check and its use, another could get it.
fn is_reserved(port: u16) -> bool {
    let folder = std::env::temp_dir().join("docward-test-ports");
    std::fs::create_dir_all(&folder).unwrap();
    let file = File::options().create(true).append(true).open(folder.join(port.to_string())).unwrap();
    // The lock ends with the process.
    file.try_lock().is_ok() && {
        std::mem::forget(file);
        true
    }
}

/// Resident memory of a process in bytes, from /proc.
pub struct Resident {
    pub now: usize,
    /// The maximum so far.
    pub most: usize,
}

impl Resident {
    /// Panics if the process does not exist.
    pub fn of(pid: u32) -> Resident {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            1024 * line.split_whitespace().next().unwrap().parse::<usize>().unwrap()
        };
        Resident { now: field("VmRSS:"), most: field("VmHWM:") }
    }
}

/// The local TCP ports of a process, from /proc (IPv4 only).
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

/// Repeats a system call after EINTR. Linux interrupts calls with a timeout when the machine was suspended, and does
/// not restart them.
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Calls `probe` every few milliseconds until it returns a value or the time is over.
pub fn poll<T>(timeout: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(reply) = probe() {
            return Some(reply);
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A running child that is killed when this is dropped, and also when the test process dies in any way:
/// `scripts/watchdog.sh` waits for the end of a pipe that this process holds. The watchdog is needed for statics,
/// which are never dropped, and for Ctrl-C.
pub struct ChildGuard {
    child: Child,
    watchdog: Child,
    leash: Option<ChildStdin>,
}

impl ChildGuard {
    /// Starts `command` in its own process group, so that a Ctrl-C in the terminal reaches only the tests. The
    /// watchdog removes `folder` if it has to act.
    pub fn spawn(command: &mut Command, folder: &Path) -> ChildGuard {
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
        ChildGuard { child, watchdog, leash }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal by its name without SIG: `TERM`, `HUP`, `STOP`, `CONT`.
    pub fn signal(&self, name: &str) {
        kill(self.pid(), name);
        if name == "STOP" {
            // `kill` does not wait: on a busy machine threads go on for a while.
            let stopped = poll(TIMEOUT, || self.threads().iter().all(|state| "TtZX".contains(*state)).then_some(()));
            stopped.unwrap_or_else(|| panic!("process {} does not stop", self.pid()));
        }
    }

    /// The state of each thread, as in proc(5): `R`, `S`, `D`, `T`.
    fn threads(&self) -> Vec<char> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid()));
        tasks.into_iter().flatten().flatten().filter_map(|task| state(&task.path().join("stat"))).collect()
    }

    /// The exit status once the process has ended; `None` while it runs.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for the process to end by itself; panics if it does not.
    pub fn wait(&mut self) -> ExitStatus {
        poll(TIMEOUT, || self.exited()).unwrap_or_else(|| panic!("process {} does not end", self.pid()))
    }

    /// Whether it can act: it has neither ended nor been stopped by a signal.
    pub fn is_awake(&self) -> bool {
        state(&PathBuf::from(format!("/proc/{}/stat", self.pid()))).is_some_and(|state| !"TtZX".contains(state))
    }

    /// SIGKILL; waits for the end.
    pub fn kill(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The state in a `stat` file of proc(5).
fn state(file: &Path) -> Option<char> {
    let status = std::fs::read_to_string(file).ok()?;
    // The state follows the name, which is in brackets and may contain anything.
    status.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next())
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        self.kill();
        if let Some(mut leash) = self.leash.take() {
            let _ = leash.write_all(b"stand down\n");
        }
        let _ = self.watchdog.wait();
    }
}

/// The lines of a child's output, collected by a thread as they arrive.
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

    /// The first `count` lines that contain `needle`; fewer if the output ends or the time is over.
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
