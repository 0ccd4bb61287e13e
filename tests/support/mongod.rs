//! A real mongod in a temporary folder: `Mongod::shared()` for most tests, `Mongod::start` for those that kill or
//! reconfigure it. Failpoints are enabled. Connects to the server by `raw`, so that it needs no async runtime and can
//! be a static.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use bson::{Document, doc};
use tempfile::TempDir;

use super::process::{ChildGuard, TIMEOUT, free_port, poll, repository};
use super::raw;

/// mongod's option for access control.
const ACCESS_CONTROL: &str = "--auth";

/// What kind of deployment a mongod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Standalone,
    /// A replica set named `rs0` with this one member, which is a writable primary.
    ReplicaSet,
}

/// A running mongod; dropping it kills the process and removes its folder.
pub struct Mongod {
    process: ChildGuard,
    folder: TempDir,
    kind: Kind,
    arguments: Vec<String>,
    port: u16,
}

impl Mongod {
    /// Starts a separate mongod for one test; takes one to two seconds.
    pub fn start(kind: Kind) -> Mongod {
        Mongod::start_with(kind, &[])
    }

    /// The same with more arguments. A replica set must accept connections without TLS while it is initiated.
    pub fn start_with(kind: Kind, arguments: &[&str]) -> Mongod {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        // Another process may take the port before mongod binds it.
        let launched = (0..5).find_map(|_| Mongod::launch(kind, &arguments));
        let mut mongod = launched.expect("mongod did not start five times");
        if kind == Kind::ReplicaSet {
            mongod.initiate();
        }
        mongod
    }

    /// Starts a separate mongod with access control; `root` with the password `secret` has all privileges.
    pub fn start_with_access_control(kind: Kind) -> Mongod {
        let mongod = Mongod::start_with(kind, &[ACCESS_CONTROL]);
        let root = doc! { "createUser": "root", "pwd": "secret", "roles": ["root"] };
        assert_eq!(mongod.command("admin", root).get_f64("ok").unwrap(), 1.0);
        mongod
    }

    /// Starts a mongod for a replica set named `rs0` that is not in its configuration yet; see `replica_set`.
    pub fn start_member() -> Mongod {
        (0..5).find_map(|_| Mongod::launch(Kind::ReplicaSet, &[])).expect("mongod did not start five times")
    }

    /// The replica set shared by all tests of this process. Use a `fresh_database`; do not kill it or leave
    /// failpoints enabled.
    pub fn shared() -> &'static Mongod {
        static SHARED: OnceLock<Mongod> = OnceLock::new();
        SHARED.get_or_init(|| Mongod::start(Kind::ReplicaSet))
    }

    /// The standalone server with access control shared by all tests of this process.
    pub fn shared_with_access_control() -> &'static Mongod {
        static SHARED: OnceLock<Mongod> = OnceLock::new();
        SHARED.get_or_init(|| Mongod::start_with_access_control(Kind::Standalone))
    }

    /// A database name no other test of this process uses.
    pub fn fresh_database(&self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed))
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The connection string, with the name of the replica set if it is one.
    pub fn uri(&self) -> String {
        match self.kind {
            Kind::Standalone => format!("mongodb://{}/", self.address()),
            Kind::ReplicaSet => format!("mongodb://{}/?replicaSet=rs0", self.address()),
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// A driver connected directly to this mongod.
    pub async fn client(&self) -> mongodb::Client {
        mongodb::Client::with_uri_str(self.uri()).await.unwrap()
    }

    /// Runs `command` on `database` and returns the reply, including errors.
    pub fn command(&self, database: &str, command: Document) -> Document {
        raw::Client::connect(&self.address()).command(database, command)
    }

    /// Sends a signal by its name without SIG: `STOP`, `CONT`.
    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Whether it can answer: it has neither ended nor been stopped by a signal.
    pub fn is_awake(&self) -> bool {
        self.process.is_awake()
    }

    /// SIGKILL, like a machine failure.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGTERM; waits for the clean shutdown.
    pub fn stop(&mut self) {
        self.process.signal("TERM");
        self.process.wait();
    }

    /// Restarts it with the same port and data after `kill` or `stop`.
    pub fn restart(&mut self) {
        self.restart_member();
        if self.kind == Kind::ReplicaSet {
            self.await_primary();
        }
    }

    /// The same for a member of a larger replica set, which need not become primary.
    pub fn restart_member(&mut self) {
        self.process.kill();
        self.process =
            ChildGuard::spawn(self.kind.command(self.port, &self.folder).args(&self.arguments), self.folder.path());
        assert!(self.answers(), "mongod did not start again:\n{}", self.log());
    }

    fn launch(kind: Kind, arguments: &[String]) -> Option<Mongod> {
        let folder = tempfile::Builder::new().prefix("docward-mongod-").tempdir().unwrap();
        let port = free_port();
        let mut arguments = arguments.to_vec();
        if kind == Kind::ReplicaSet && arguments.iter().any(|argument| argument == ACCESS_CONTROL) {
            arguments.extend(["--keyFile".to_owned(), key_file(&folder)]);
        }
        let process = ChildGuard::spawn(kind.command(port, &folder).args(&arguments), folder.path());
        let mut mongod = Mongod { process, folder, kind, arguments, port };
        if mongod.answers() {
            return Some(mongod);
        }
        eprintln!("mongod did not start:\n{}", mongod.log());
        None
    }

    /// Waits until it accepts connections; returns false if it has ended instead.
    fn answers(&mut self) -> bool {
        let address = self.address();
        poll(TIMEOUT, || match raw::Client::try_connect(&address) {
            Ok(_) => Some(true),
            Err(_) => self.process.exited().map(|_| false),
        })
        .unwrap_or(false)
    }

    fn initiate(&mut self) {
        let members = [doc! { "_id": 0, "host": self.address() }];
        let configuration = doc! { "_id": "rs0", "members": members };
        let reply = self.command("admin", doc! { "replSetInitiate": configuration });
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "replSetInitiate: {reply}");
        self.await_primary();
    }

    fn await_primary(&self) {
        let mut client = raw::Client::connect(&self.address());
        poll(TIMEOUT, || {
            let hello = client.command("admin", doc! { "hello": 1 });
            hello.get_bool("isWritablePrimary").unwrap_or(false).then_some(())
        })
        .unwrap_or_else(|| panic!("mongod did not become primary:\n{}", self.log()));
    }

    /// Its log file, which stays after a stop.
    pub fn log_file(&self) -> PathBuf {
        self.folder.path().join("mongod.log")
    }

    /// Its complete log as lines of JSON; mongod renames the previous log file at every start.
    pub fn whole_log(&self) -> String {
        let files = std::fs::read_dir(self.folder.path()).unwrap().map(|file| file.unwrap().path());
        let is_log = |file: &PathBuf| file.file_name().unwrap().to_string_lossy().starts_with("mongod.log");
        files.filter(is_log).map(|file| std::fs::read_to_string(file).unwrap()).collect()
    }

    /// The end of mongod's log.
    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.log_file()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Kind {
    fn command(self, port: u16, folder: &TempDir) -> Command {
        let mut command = Command::new(executable());
        command
            .args(["--bind_ip", "127.0.0.1", "--nounixsocket"])
            .args(["--port", &port.to_string()])
            .arg("--dbpath")
            .arg(folder.path())
            .arg("--logpath")
            .arg(folder.path().join("mongod.log"))
            // The cache size, of which mongod uses what it needs. The largest messages must fit even if the server
            // gets no time to write earlier ones to disk.
            .args(["--wiredTigerCacheSizeGB", "1"])
            .args(["--setParameter", "enableTestCommands=1"])
            .args(["--setParameter", "diagnosticDataCollectionEnabled=false"])
            // A primary repeats one read in a hundred at its secondaries, where tests count commands.
            .args(["--setParameter", "mirrorReads={samplingRate: 0.0}"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if self == Kind::ReplicaSet {
            command.args(["--replSet", "rs0", "--oplogSize", "256"]);
        }
        command
    }
}

/// The key by which the members of a replica set with access control know each other; mongod rejects one that others
/// may read.
fn key_file(folder: &TempDir) -> String {
    let key = folder.path().join("key");
    std::fs::write(&key, "docwardtestkey").unwrap();
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    key.to_str().unwrap().to_owned()
}

/// The executable that `scripts/mongod.sh` finds or downloads, looked up once per process.
fn executable() -> &'static PathBuf {
    static EXECUTABLE: OnceLock<PathBuf> = OnceLock::new();
    EXECUTABLE.get_or_init(|| {
        let output = Command::new(repository("scripts/mongod.sh")).stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "scripts/mongod.sh found no mongod, see above");
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
    })
}
