//! `docward serve`: validates the configuration, opens the listeners, prints every address, and serves traffic until
//! a signal starts the drain.

use std::cell::Cell;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use listenfd::ListenFd;
use sd_notify::NotifyState;
use serde_json::json;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};

use super::active_rules::ActiveRules;
use super::application_string::ApplicationString;
use super::config_file::{AdminKeys, ConfigFile, LimitKeys, ShownTopology};
use super::connection::{ConnectionOptions, exit_code, start};
use super::explain::milliseconds_now;
use super::file_limit::limits;
use super::listening::{LISTEN, ListenOptions, placement};
use super::live_report;
use super::logging::LogLevel;
use super::notices::notices;
use super::pool::PoolArguments;
use super::reload::{Certificates, Expiry, Reload, ReloadTargets, Reloadable, SettingsReload};
use super::telemetry::TelemetryConfig;
use super::typed::Unquoted;
use super::values::{self, AdminAddress, MemberEntry};
use super::{EXIT_USAGE, LogFormat, fail, logging};
use crate::config::Report;
use crate::otlp::Endpoint;
use crate::proxy::{ListenerTls, Proxy, ProxyConfig, Upstream, UpstreamTls};
use crate::rules::RuleSet;
use crate::secret::Secret;
use crate::service::access::{self, ServiceAccess};
use crate::service::{MongoService, requirements, worker};
use crate::shell::iso;

/// The default drain timeout; shorter than the usual timeouts of drivers and service managers.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the service manager should wait after the drain, for the last spans and log lines.
const END_AFTER_DRAIN: Duration = Duration::from_secs(10);

/// The command line.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    #[command(flatten)]
    listening: ListenOptions,
    /// Address of one member's listener, and optionally the name that clients use for it. MEMBER is the name in
    /// rs.conf(). Members without this flag are hidden. Can be repeated.
    #[arg(long = "member", value_name = "MEMBER=ADDR[,NAME]", value_parser = values::member)]
    members: Vec<(String, MemberEntry)>,
    /// What clients see: the members of a replica set, each at a listener of its own, or one server (router) [default:
    /// members].
    #[arg(long, value_name = "TOPOLOGY", conflicts_with_all = ["members", "advertise"])]
    topology: Option<ShownTopology>,
    /// Address for queries on secondaries; see the `reads` rules.
    #[arg(long, value_name = "ADDR", value_parser = values::address)]
    query_listen: Option<SocketAddr>,
    /// How long a shutdown waits for busy connections [default: 10s].
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    drain_timeout: Option<Duration>,
    /// Levels and modules of the log, such as warn or info,docward_proxy=debug [default: RUST_LOG, or info].
    #[arg(long, value_name = "LEVEL", value_parser = LogLevel::parse)]
    log_level: Option<LogLevel>,
    /// Include documents in the log of decisions; readers of the log then see the data.
    #[arg(long)]
    log_documents: bool,
    /// OpenTelemetry collector for spans, with OTLP over HTTP, such as http://127.0.0.1:4318 [default: none].
    #[arg(long, value_name = "URL", value_parser = Unquoted(Endpoint::parse))]
    otlp: Option<Endpoint>,
    /// Unix socket for the hand-over of the listeners to the next docward.
    #[arg(long, value_name = "PATH", value_parser = |path: &str| values::socket(path))]
    hand_over: Option<PathBuf>,
    #[command(flatten)]
    connection: ConnectionOptions,
    #[command(flatten)]
    admin: AdminArguments,
    #[command(flatten)]
    limits: LimitArguments,
    #[command(flatten)]
    pool: PoolArguments,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Metrics, health and console")]
struct AdminArguments {
    /// HTTP address for metrics, health and the console [default: none].
    #[arg(long, value_name = "ADDR", value_parser = values::admin_address)]
    admin: Option<AdminAddress>,
    /// Bearer token for the admin address. Visible in the process list; prefer --admin-token-file.
    #[arg(long, value_name = "TOKEN", value_parser = Unquoted(values::token))]
    admin_token: Option<Secret>,
    /// File with the token; required if other machines can reach the admin address.
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits")]
struct LimitArguments {
    /// Maximum number of client connections [default: no limit].
    #[arg(long, value_name = "COUNT", value_parser = values::count)]
    connections: Option<usize>,
    /// Maximum number of client connections from one address [default: no limit].
    #[arg(long, value_name = "COUNT", value_parser = values::count)]
    connections_per_address: Option<usize>,
    /// Close connections that were idle for this time, such as 30m [default: no limit].
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    idle_timeout: Option<Duration>,
    /// Make drivers replace connections that are older than this time, such as 1h, so that a load balancer distributes
    /// them again [default: no limit].
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    max_lifetime: Option<Duration>,
    /// Close connections that do not send a first message, or do not authenticate where the server requires it,
    /// within this time [default: 10s].
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    handshake_timeout: Option<Duration>,
    /// Memory for large messages while docward receives and evaluates them, such as 256MiB [default: a quarter of the
    /// container's or machine's memory].
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory: Option<usize>,
}

impl Arguments {
    /// The path of the configuration file.
    fn config(&self) -> Option<&Path> {
        self.connection.config()
    }
}

pub(super) fn run(arguments: Arguments, log_format: Option<LogFormat>) -> ExitCode {
    let settings = settings(arguments.clone());
    let (from_file, level) = match &settings {
        Ok(settings) => (settings.log_format, settings.log_level.as_ref()),
        // Its mistakes are reported in the format that it names.
        Err(_) => (arguments.config().and_then(ConfigFile::log_format_of), None),
    };
    logging::start(log_format.or(from_file).unwrap_or_default(), level);
    start(settings, Builder::new_multi_thread(), async |settings, rules| {
        // Overrides of modes are kept where docward has a connection of its own.
        let keeps_modes = settings.service.is_some();
        for notice in notices(&settings, &rules, arguments.config()) {
            tracing::warn!("{notice}");
        }
        let started = settings.clone();
        let configured =
            async { Ok::<_, anyhow::Error>((TelemetryConfig::from_config(&settings)?, configure(settings).await?)) };
        let (telemetry, (config, service)) = match configured.await {
            Ok(configured) => configured,
            Err(error) => return fail(&format!("{error:#}"), exit_code(&error)),
        };
        let service = Arc::new(service);
        let mode_store = keeps_modes.then(|| service.clone());
        let active = Arc::new(ActiveRules::new(rules.clone(), mode_store));
        let code = check_and_serve((arguments, started), config, telemetry, (active, &rules), service.clone()).await;
        service.close().await;
        code
    })
}

/// Checks what the rules and `config` need, and serves.
async fn check_and_serve(
    (arguments, started): (Arguments, ConfigFile),
    config: ProxyConfig,
    mut telemetry: TelemetryConfig,
    (active, rules): (Arc<ActiveRules>, &RuleSet),
    service: Arc<MongoService>,
) -> ExitCode {
    if let Err(reason) = check_access(&service, rules).await {
        return fail(&reason, EXIT_USAGE);
    }
    config.limits.send_replace(limits(&started));
    let applications = ApplicationString::of_settings(&started);
    active.start().await;
    // The driver reads the files itself, once. This only detects that they changed and are valid.
    let service_tls = match service.tls_files().map(UpstreamTls::load).transpose().context("--service") {
        Ok(tls) => tls.map(Arc::new),
        Err(error) => return fail(&format!("{error:#}"), EXIT_USAGE),
    };
    let targets = ReloadTargets {
        active: active.clone(),
        placement: config.placement.clone(),
        limits: config.limits.clone(),
        tls: config.tls.clone(),
        service: service.clone(),
        service_tls: service_tls.clone(),
        admin: telemetry.admin.clone(),
    };
    // The settings first: they may name other certificates.
    let config_file = arguments.config().map(Path::to_owned);
    let read_settings = move || settings(arguments.clone());
    let settings = SettingsReload::new(config_file, Box::new(read_settings), started, targets);
    let mut parts: Vec<Box<dyn Reloadable>> = vec![Box::new(settings)];
    let (certificates, expiry) = certificates(&config, &service, service_tls);
    parts.extend(certificates);
    telemetry.expiry = expiry;
    match serve(config, applications, telemetry, active, service, Reload::new(parts)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{error:#}"), 1),
    }
}

/// Combines the flags with the configuration file; flags take precedence.
fn settings(arguments: Arguments) -> Result<ConfigFile, Report> {
    let Arguments {
        listening,
        members,
        topology,
        query_listen,
        drain_timeout,
        log_level,
        log_documents,
        otlp,
        hand_over,
        connection,
        admin,
        limits,
        pool,
    } = arguments;
    let file = listening.with_defaults_from(connection.settings()?);
    Ok(ConfigFile {
        members: if members.is_empty() { file.members } else { members.into_iter().collect() },
        admin: AdminKeys {
            address: admin.admin.or(file.admin.address),
            token: admin.admin_token.or(file.admin.token.filter(|_| admin.admin_token_file.is_none())),
            token_file: admin.admin_token_file,
        },
        limits: LimitKeys {
            connections: limits.connections.or(file.limits.connections),
            connections_per_address: limits.connections_per_address.or(file.limits.connections_per_address),
            idle_timeout: limits.idle_timeout.or(file.limits.idle_timeout),
            max_lifetime: limits.max_lifetime.or(file.limits.max_lifetime),
            handshake_timeout: limits.handshake_timeout.or(file.limits.handshake_timeout),
            memory: limits.memory.or(file.limits.memory),
        },
        pool: pool.with_defaults_from(file.pool),
        topology: topology.or(file.topology),
        query_listen: query_listen.or(file.query_listen),
        drain_timeout: drain_timeout.or(file.drain_timeout),
        log_level: log_level.or(file.log_level),
        log_documents: log_documents || file.log_documents,
        otlp: otlp.or(file.otlp),
        hand_over: hand_over.or(file.hand_over),
        ..file
    })
}

pub(super) async fn configure(settings: ConfigFile) -> Result<(ProxyConfig, MongoService)> {
    let settings = ConfigFile { upstream: Some(settings.upstream()), ..settings };
    if let Some((_, shared)) = settings.shared_addresses(Some(LISTEN)).first() {
        bail!("{shared}");
    }
    let upstream = Upstream::parse(&settings.upstream(), settings.resolver).await.context("--upstream")?;
    if let Some(other) = upstream.other_set().await {
        bail!("--upstream: {other}");
    }
    let service = settings.connect_to_serve().await?;
    let placement = placement(&settings)?;
    let pool = settings.pool.for_topology(settings.is_router());
    if settings.is_router() {
        ensure!(settings.members.is_empty(), "--topology router: `members` cannot be used with it");
        ensure!(
            pool.keeps_credentials(),
            "--topology router: docward logs in at several members for each client; `pool: credentials` must be keep"
        );
    }
    let router = settings.is_router().then(|| settings.listen.unwrap_or(LISTEN));
    let tls = settings.tls.files()?.map(ListenerTls::load).transpose().context("--tls-certificate")?;
    let config = ProxyConfig {
        placement: Arc::new(watch::Sender::new(placement)),
        query_listen: settings.query_listen,
        upstream,
        balancers: settings.proxy_protocol.into(),
        tls: tls.map(Arc::new),
        limits: Arc::new(watch::Sender::new(settings.limits.settings())),
        router,
        pool: pool.settings()?,
        drain_timeout: settings.drain_timeout.unwrap_or(DRAIN_TIMEOUT),
        log_documents: settings.log_documents,
        tracer: None,
        measured: false,
        hand_over: settings.hand_over,
    };
    Ok((config, service))
}

/// Checks that docward's own user has the privileges that the rules need. Ignores a server that is down for now.
///
/// # Errors
/// A message for the user: the authentication fails, or privileges are missing.
async fn check_access(service: &MongoService, rules: &RuleSet) -> Result<(), String> {
    match access::check(service, rules).await {
        ServiceAccess::Granted => Ok(()),
        ServiceAccess::Refused(reason) => Err(reason),
        ServiceAccess::Unknown(reason) => {
            tracing::warn!(
                "the privileges of docward's own user are not checked yet: {reason}; retrying in {} s",
                access::RETRY_INTERVAL.as_secs()
            );
            Ok(())
        }
    }
}

/// The certificates of every connection type that uses TLS.
fn certificates(
    config: &ProxyConfig,
    service: &Arc<MongoService>,
    service_tls: Option<Arc<UpstreamTls>>,
) -> (Vec<Box<dyn Reloadable>>, Expiry) {
    let mut parts: Vec<Box<dyn Reloadable>> = Vec::new();
    let mut expiry = Expiry::default();
    if let Some(tls) = &config.tls {
        expiry.add("listeners", tls.clone());
        parts.push(Certificates::new("listeners", tls.clone(), || {}));
    }
    if let Some(tls) = &config.upstream.tls {
        expiry.add("upstream", tls.clone());
        parts.push(Certificates::new("upstream", tls.clone(), || {}));
    }
    if let Some(tls) = service_tls {
        let service = service.clone();
        expiry.add("service", tls.clone());
        parts.push(Certificates::new("service", tls, move || service.reconnect()));
    }
    (parts, expiry)
}

async fn serve(
    mut config: ProxyConfig,
    applications: ApplicationString,
    telemetry: TelemetryConfig,
    active: Arc<ActiveRules>,
    service: Arc<MongoService>,
    reload: Reload,
) -> Result<()> {
    // Before the listeners open, so that an early signal is not lost.
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let mut report_requests = signal(SignalKind::user_defined1()).context("cannot wait for SIGUSR1")?;
    let hang_up = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
    let rules = active.current();
    let telemetry = telemetry.prepare(&mut config)?;
    let drain_timeout = config.drain_timeout;
    let opening = Proxy::open(config, passed_sockets()?, rules.clone(), service.clone());
    let proxy = tokio::select! {
        proxy = opening => proxy?,
        () = wait_for_signal(&mut terminate, &mut interrupt, "exiting before the listeners opened") => return Ok(()),
    };
    let observer = proxy.observer();
    let telemetry = telemetry.start(&observer, reload.reload_status(), &active)?;
    announce(&proxy, telemetry.address())?;
    if let Some(first) = proxy.addresses().first() {
        tracing::info!("applications connect to {}", applications.at(*first));
    }
    notify_manager(&[NotifyState::Ready]);
    let reports = async {
        while report_requests.recv().await.is_some() {
            live_report::log(&observer.report().1);
        }
        std::future::pending().await
    };
    let counts = async {
        loop {
            observer.note_loaded();
            active.changed().await;
        }
    };
    let (draining, drained) = oneshot::channel::<()>();
    let shutdown = async {
        wait_for_signal(&mut terminate, &mut interrupt, "draining").await;
        // Extends systemd's own timeout (TimeoutStopSec), so that it need not match the drain timeout.
        let timeouts = u32::try_from((drain_timeout + END_AFTER_DRAIN).as_micros()).unwrap_or(u32::MAX);
        notify_manager(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(timeouts)]);
    };
    // Stops at the start of the drain, so that another process can continue with the work at once.
    let workers = worker::run(&service, rules.clone(), drain_timeout, async { _ = drained.await });
    let drain_deadline = Cell::new(None);
    let ending = async |deadline: tokio::time::Instant, addresses: Vec<String>| {
        drain_deadline.set(Some(deadline));
        drop(draining);
        active.announce_drain(&addresses, deadline.into_std()).await;
    };
    let noted = |addresses: &[String], at: Instant| observer.note_other_drain(addresses, at.into());
    let serving = async { tokio::join!(proxy.serve(shutdown, ending), workers) };
    tokio::select! {
        _ = serving => {}
        () = reload.run(hang_up) => {}
        () = active.follow(noted) => {}
        () = access::watch(&service, &rules) => {}
        () = requirements::watch(&service, &rules) => {}
        () = reports => {}
        () = counts => {}
    }
    live_report::log(&observer.report().1);
    telemetry.end(drain_deadline.get()).await;
    Ok(())
}

/// Waits for SIGTERM or SIGINT and logs `what` follows.
pub(super) async fn wait_for_signal(terminate: &mut Signal, interrupt: &mut Signal, what: &str) {
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: {what}"),
        _ = interrupt.recv() => tracing::info!("SIGINT: {what}"),
    }
}

/// The sockets passed by systemd, or by another service manager with the same protocol.
fn passed_sockets() -> Result<Vec<TcpListener>> {
    let mut passed = ListenFd::from_env();
    let taken = (0..passed.len()).filter_map(|index| passed.take_tcp_listener(index).transpose());
    taken.collect::<std::io::Result<_>>().context("a socket passed in LISTEN_FDS is not a listening TCP socket")
}

/// Notifies systemd, or another service manager with the same protocol (`NOTIFY_SOCKET`), if there is one.
fn notify_manager(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("cannot notify the service manager (NOTIFY_SOCKET): {error}");
    }
}

/// Prints one line for each listener, after which clients can connect; an object with a JSON log, because containers
/// often collect both streams.
pub(super) fn announce(proxy: &Proxy, admin: Option<SocketAddr>) -> Result<()> {
    let mut lines: Vec<String> = proxy.addresses().iter().map(|address| format!("listening on {address}")).collect();
    lines.extend(proxy.query_address().map(|address| format!("listening on {address} for queries")));
    lines.extend(admin.map(|address| format!("listening on {address} for administration")));
    let mut stdout = std::io::stdout().lock();
    for message in lines {
        let line = match logging::is_json() {
            true => json!({"timestamp": iso(milliseconds_now()), "level": "INFO", "message": message}).to_string(),
            false => message,
        };
        writeln!(stdout, "{line}").context("cannot print to stdout")?;
    }
    stdout.flush().context("cannot print to stdout")
}
