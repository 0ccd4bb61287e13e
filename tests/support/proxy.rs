//! A running docward: `Docward::start(&mongod, rules)` for most tests, `Docward::before` for those that set flags.
//! Its log is printed if the test fails.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use tempfile::TempDir;

use super::mongod::Mongod;
use super::process::{ChildGuard, Lines, TIMEOUT, docward_executable};

/// For tests that need any rule: replacements in every collection `orders` are checked or rejected.
pub const ORDERS_PROTECTED: &str = r#"
version: 1
rules:
  - name: no-blind-replace
    namespace: "*.orders"
    replacement: { policy: reject, version: version }
"#;

/// A running docward; dropping it kills the process.
pub struct Docward {
    process: ChildGuard,
    folder: TempDir,
    log: Lines,
    output: Lines,
    addresses: Vec<String>,
    query_address: Option<String>,
    admin_address: Option<String>,
}

/// The settings of a docward that is to be started.
pub struct Builder {
    subcommand: String,
    upstream: String,
    rules: Vec<PathBuf>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    listen: Option<String>,
    listeners: usize,
    /// The limit of open files; the system's if it is not set.
    file_limit: Option<u32>,
    passed: Option<TcpListener>,
    ignores_test_pool: bool,
    folder: TempDir,
}

impl Docward {
    /// Starts docward in front of `mongod` with one rule file of this content; without rules if it is empty.
    pub fn start(mongod: &Mongod, rules_yaml: &str) -> Docward {
        Docward::before(&mongod.uri()).rules(rules_yaml).start()
    }

    /// Settings for a docward in front of the upstream with this connection string.
    pub fn before(upstream: &str) -> Builder {
        Builder {
            subcommand: "serve".to_owned(),
            upstream: upstream.to_owned(),
            rules: Vec::new(),
            arguments: Vec::new(),
            environment: Vec::new(),
            listen: Some("127.0.0.1:0".to_owned()),
            listeners: 1,
            file_limit: None,
            passed: None,
            ignores_test_pool: false,
            folder: tempfile::Builder::new().prefix("docward-test-").tempdir().unwrap(),
        }
    }

    /// `HOST:PORT` of the first listener.
    pub fn address(&self) -> String {
        self.addresses[0].clone()
    }

    /// `HOST:PORT` of every listener, in the order of docward's output.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// `HOST:PORT` of the query listener; panics without one.
    pub fn query_address(&self) -> String {
        self.query_address.clone().expect("this docward has no query listener")
    }

    /// `HOST:PORT` of the admin address; panics without one.
    pub fn admin_address(&self) -> String {
        self.admin_address.clone().expect("this docward has no admin address")
    }

    /// The connection string that an application would use: only an address.
    pub fn uri(&self) -> String {
        format!("mongodb://{}/", self.address())
    }

    /// A driver connected through this docward.
    pub async fn client(&self) -> mongodb::Client {
        mongodb::Client::with_uri_str(self.uri()).await.unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The rule file of `Builder::rules`, which a test can change for a reload.
    pub fn rules_file(&self) -> PathBuf {
        self.folder.path().join("rules.yaml")
    }

    /// Replaces that file's content atomically.
    pub fn rewrite_rules(&self, yaml: &str) {
        let new = self.folder.path().join(".rules.yaml.new");
        std::fs::write(&new, yaml).unwrap();
        std::fs::rename(&new, self.rules_file()).unwrap();
    }

    /// All lines of its output (stdout) so far.
    pub fn output(&self) -> Vec<String> {
        self.output.all()
    }

    /// All lines of its log (stderr) so far.
    pub fn log(&self) -> Vec<String> {
        self.log.all()
    }

    /// The first log line that contains `needle`; panics if none appears.
    pub fn wait_for_log(&self, needle: &str) -> String {
        let mut found = self.log.wait_for(needle, 1, TIMEOUT);
        found.pop().unwrap_or_else(|| panic!("docward logged no line with {needle:?}"))
    }

    /// Sends a signal by its name without SIG, such as `HUP`.
    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// SIGKILL, like a machine failure.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait()
    }

    /// SIGTERM; waits until it has ended by itself.
    pub fn terminate(&mut self) -> ExitStatus {
        self.process.signal("TERM");
        self.process.wait()
    }

    /// The exit status if it has ended; a test that sends malformed input asserts `None`.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.process.exited()
    }
}

impl Drop for Docward {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let end = &log[log.len().saturating_sub(50)..];
            eprintln!("end of the log of docward at {}:\n{}", self.address(), end.join("\n"));
        }
    }
}

impl Builder {
    /// A rule file with this content; no rule file if it is empty.
    #[must_use]
    pub fn rules(mut self, yaml: &str) -> Builder {
        if !yaml.is_empty() {
            let file = self.folder.path().join("rules.yaml");
            std::fs::write(&file, yaml).unwrap();
            self.rules.push(file);
        }
        self
    }

    /// An existing rule file or folder.
    #[must_use]
    pub fn rules_path(mut self, path: impl AsRef<Path>) -> Builder {
        self.rules.push(path.as_ref().to_owned());
        self
    }

    /// Runs another subcommand that listens.
    #[must_use]
    pub fn subcommand(mut self, name: &str) -> Builder {
        name.clone_into(&mut self.subcommand);
        self
    }

    /// Adds one argument to the subcommand.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> Builder {
        self.arguments.push(argument.into());
        self
    }

    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Builder {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Without the pool of `DOCWARD_TEST_POOL`: the test needs more server connections at a time.
    #[must_use]
    pub fn without_test_pool(mut self) -> Builder {
        self.ignores_test_pool = true;
        self
    }

    /// The listening address, instead of a free port of 127.0.0.1.
    #[must_use]
    pub fn listen(mut self, address: &str) -> Builder {
        self.listen = Some(address.to_owned());
        self
    }

    /// Passes a listening socket as systemd does (`LISTEN_FDS`), which docward uses instead of a new one.
    #[must_use]
    pub fn passing(mut self, socket: &TcpListener) -> Builder {
        self.listen = Some(socket.local_addr().unwrap().to_string());
        self.passed = Some(socket.try_clone().unwrap());
        self
    }

    /// Without `--listen`: the addresses are in a configuration file.
    #[must_use]
    pub fn without_listen(mut self) -> Builder {
        self.listen = None;
        self
    }

    /// How many listeners to wait for, including the query listener; one by default.
    #[must_use]
    pub fn listeners(mut self, count: usize) -> Builder {
        self.listeners = count;
        self
    }

    /// The admin address, at a free port of 127.0.0.1.
    #[must_use]
    pub fn admin(self) -> Builder {
        self.admin_at("127.0.0.1:0")
    }

    #[must_use]
    pub fn admin_at(mut self, address: &str) -> Builder {
        self.listeners += 1;
        self.argument("--admin").argument(address)
    }

    /// The maximum number of open files and connections.
    #[must_use]
    pub fn file_limit(mut self, count: u32) -> Builder {
        self.file_limit = Some(count);
        self
    }

    /// Starts it and waits until it listens; panics with its log if it does not.
    pub fn start(self) -> Docward {
        self.try_start().unwrap_or_else(|log| panic!("docward did not start:\n{log}"))
    }

    /// Starts it and waits until it listens.
    ///
    /// # Errors
    /// All its stderr output, if it ends instead of listening.
    pub fn try_start(self) -> Result<Docward, String> {
        let mut process = ChildGuard::spawn(&mut self.command(), self.folder.path());
        let log = Lines::collect(process.child().stderr.take().unwrap());
        let output = Lines::collect(process.child().stdout.take().unwrap());
        let prefix = "listening on ";
        let lines = output.wait_for(prefix, self.listeners, TIMEOUT);
        if lines.len() < self.listeners {
            process.kill();
            log.wait_for("\0", 1, TIMEOUT); // no line contains it, so this waits for the end of the log
            return Err(log.all().join("\n"));
        }
        let (mut addresses, mut query_address, mut admin_address) = (Vec::new(), None, None);
        for line in lines {
            // In a JSON log it is the end of an object.
            let rest = line.split_once(prefix).map_or("", |(_, rest)| rest.trim_end_matches(['"', '}']));
            match rest.split_once(' ') {
                None => addresses.push(rest.to_owned()),
                Some((address, "for queries")) => query_address = Some(address.to_owned()),
                Some((address, _)) => admin_address = Some(address.to_owned()),
            }
        }
        Ok(Docward { process, folder: self.folder, log, output, addresses, query_address, admin_address })
    }

    /// A long timeout for a client's first message, unless the test is about that: on a slow machine a client may
    /// connect long before its first message is ready.
    fn handshake_timeout(&self) -> &'static [&'static str] {
        let is_set = self.arguments.iter().any(|argument| argument == "--handshake-timeout");
        if self.subcommand == "serve" && !is_set { &["--handshake-timeout", "10m"] } else { &[] }
    }

    /// The pool of `DOCWARD_TEST_POOL`, the number of connections: `make test-pool` runs tests of other subjects with one.
    fn pool(&self) -> Vec<String> {
        let is_set = self.ignores_test_pool || self.arguments.iter().any(|argument| argument == "--pool-size");
        let size = std::env::var("DOCWARD_TEST_POOL").ok().filter(|_| self.subcommand == "serve" && !is_set);
        size.map_or_else(Vec::new, |size| vec!["--pool-size".to_owned(), size])
    }

    fn command(&self) -> Command {
        let executable = docward_executable();
        let script = match (&self.passed, self.file_limit) {
            (None, None) => None,
            (Some(_), _) => Some("exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\"".to_owned()),
            (None, Some(count)) => Some(format!("ulimit -n {count} && exec \"$0\" \"$@\"")),
        };
        let mut command = match script {
            None => Command::new(executable),
            Some(script) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &script]).arg(executable);
                shell
            }
        };
        let stdin =
            self.passed.as_ref().map_or_else(Stdio::null, |socket| OwnedFd::from(socket.try_clone().unwrap()).into());
        command
            .arg(&self.subcommand)
            .args(self.listen.iter().flat_map(|address| ["--listen", address]))
            .args(["--upstream", &self.upstream])
            .args(self.handshake_timeout())
            .args(self.pool())
            .args(&self.arguments)
            .envs(self.environment.iter().cloned())
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for path in &self.rules {
            command.arg("--rules").arg(path);
        }
        command
    }
}
