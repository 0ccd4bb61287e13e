//! `docward serve`: configuration valid before anything listens, every address printed, then traffic until
//! a signal asks to drain.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use arc_swap::ArcSwap;
use clap::Args;
use listenfd::ListenFd;
use sd_notify::NotifyState;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::config::{AdminKeys, ConfigFile, LimitKeys, MemberEntry};
use super::connection::{Connection, exit_code, start};
use super::listening::Listening;
use super::reload::{Certificates, Part, Reload, Rules};
use super::telemetry::TelemetryConfig;
use super::typed::Unquoted;
use super::values::{self, AdminAddress};
use super::{EXIT_USAGE, LogFormat, fail, logging};
use crate::otlp::Endpoint;
use crate::patterns::RuleSet;
use crate::proxy::{Advertised, Config, Interceptor, ListenerTls, Mapped, Placement, Proxy, Upstream, UpstreamTls};
use crate::rules::Report;
use crate::secret::Secret;
use crate::service::access::{self, Access};
use crate::service::{MongoService, copies};

/// Where to listen when neither a flag nor the configuration file says.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 27018);
/// What drivers' own timeouts leave room for, and what service managers wait before they kill.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// What a service manager is to wait beyond the drain: the last spans and lines of the log.
const END_AFTER_DRAIN: Duration = Duration::from_secs(10);

/// As typed.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    listening: Listening,
    /// Address of one member's listener, and what clients call it if that is something else; the member's name as
    /// rs.conf() shows it. Members that are not mentioned are hidden. May be given several times.
    #[arg(long = "member", value_name = "MEMBER=ADDR[,NAME]", value_parser = values::member)]
    members: Vec<(String, MemberEntry)>,
    /// Address for an application's queries, answered by a secondary; see the `reads` rules.
    #[arg(long, value_name = "ADDR", value_parser = values::address)]
    query_listen: Option<SocketAddr>,
    /// How long open transactions and busy connections may take to finish when docward ends [default: 10s].
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    drain_timeout: Option<Duration>,
    /// Log what rules decide with the documents it is about; whoever reads the log then reads the data.
    #[arg(long)]
    log_documents: bool,
    /// Collector of OpenTelemetry that spans go to, by OTLP over HTTP, such as http://127.0.0.1:4318 [default: none].
    #[arg(long, value_name = "URL", value_parser = Unquoted(Endpoint::parse))]
    otlp: Option<Endpoint>,
    /// Unix socket through which the next docward takes over the ports.
    #[arg(long, value_name = "PATH")]
    hand_over: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    admin: AdminArguments,
    #[command(flatten)]
    limits: LimitArguments,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Metrics, health and console")]
struct AdminArguments {
    /// Address for metrics, health and the console, by HTTP [default: none].
    #[arg(long, value_name = "ADDR", value_parser = values::admin_address)]
    admin: Option<AdminAddress>,
    /// Token that whoever asks there must show; everybody here sees it in the list of processes.
    #[arg(long, value_name = "TOKEN", value_parser = Unquoted(values::token))]
    admin_token: Option<Secret>,
    /// File with that token; needed for an address that other machines reach.
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
struct LimitArguments {
    /// Clients' connections in all [default: no limit].
    #[arg(long, value_name = "COUNT", value_parser = values::count)]
    connections: Option<usize>,
    /// Clients' connections from one address [default: no limit].
    #[arg(long, value_name = "COUNT", value_parser = values::count)]
    connections_per_address: Option<usize>,
    /// Close connections that nobody used for so long, such as 30m [default: no limit].
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    idle_timeout: Option<Duration>,
    /// Close connections without a first message, or without a login where the server demands one, within this time
    /// [default: 10s].
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    handshake_timeout: Option<Duration>,
    /// Memory for large messages while they are collected and evaluated, such as 256MiB [default: a quarter of the
    /// container's or machine's].
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory: Option<usize>,
}

pub(super) fn run(arguments: Arguments, log_format: Option<LogFormat>) -> ExitCode {
    let connection = arguments.connection.clone();
    let settings = settings(arguments);
    let said = settings.as_ref().ok().and_then(|settings| settings.log_format);
    logging::start(log_format.or(said).unwrap_or_default());
    start(settings, Builder::new_multi_thread(), async |settings, rules| {
        let configured =
            async { Ok::<_, anyhow::Error>((TelemetryConfig::of(&settings)?, configure(settings).await?)) };
        let (telemetry, (mut config, service)) = match configured.await {
            Ok(configured) => configured,
            Err(error) => return fail(&format!("{error:#}"), exit_code(&error)),
        };
        if let Err(refused) = check_access(&service, &rules).await {
            return fail(&refused, EXIT_USAGE);
        }
        let files = raise_file_limit(config.limits.connections);
        config.limits.unauthenticated = unauthenticated(config.limits.connections, files);
        let (rules, service) = (Arc::new(ArcSwap::new(rules)), Arc::new(service));
        let mut parts: Vec<Box<dyn Part>> = vec![Box::new(Rules::new(connection, rules.clone()))];
        match certificates(&config, &service) {
            Ok(certificates) => parts.extend(certificates),
            Err(error) => return fail(&format!("{error:#}"), EXIT_USAGE),
        }
        match serve(config, telemetry, rules, service, Reload::new(parts)).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&format!("{error:#}"), 1),
        }
    })
}

/// The flags over the file.
fn settings(arguments: Arguments) -> Result<ConfigFile, Report> {
    let Arguments {
        listening,
        members,
        query_listen,
        drain_timeout,
        log_documents,
        otlp,
        hand_over,
        connection,
        admin,
        limits,
    } = arguments;
    let file = listening.over(connection.settings()?);
    Ok(ConfigFile {
        members: if members.is_empty() { file.members } else { members.into_iter().collect() },
        admin: AdminKeys {
            address: admin.admin.or(file.admin.address),
            token: admin.admin_token.or(file.admin.token),
            token_file: admin.admin_token_file.or(file.admin.token_file),
        },
        limits: LimitKeys {
            connections: limits.connections.or(file.limits.connections),
            connections_per_address: limits.connections_per_address.or(file.limits.connections_per_address),
            idle_timeout: limits.idle_timeout.or(file.limits.idle_timeout),
            handshake_timeout: limits.handshake_timeout.or(file.limits.handshake_timeout),
            memory: limits.memory.or(file.limits.memory),
        },
        query_listen: query_listen.or(file.query_listen),
        drain_timeout: drain_timeout.or(file.drain_timeout),
        log_documents: log_documents || file.log_documents,
        otlp: otlp.or(file.otlp),
        hand_over: hand_over.or(file.hand_over),
        ..file
    })
}

pub(super) async fn configure(settings: ConfigFile) -> Result<(Config, MongoService)> {
    let upstream = Upstream::parse(&settings.upstream(), settings.resolver).await.context("--upstream")?;
    let service = settings.connect().await?;
    let placement = placement(&settings)?;
    let tls = settings.tls.files()?.map(ListenerTls::load).transpose().context("--tls-certificate")?;
    let config = Config {
        placement,
        query_listen: settings.query_listen,
        upstream,
        tls: tls.map(Arc::new),
        limits: settings.limits.settings(),
        drain_timeout: settings.drain_timeout.unwrap_or(DRAIN_TIMEOUT),
        log_documents: settings.log_documents,
        tracer: None,
        measured: false,
        hand_over: settings.hand_over,
    };
    Ok((config, service))
}

/// Where the members' listeners are to be.
///
/// # Errors
/// Text for people.
fn placement(settings: &ConfigFile) -> Result<Placement> {
    let advertise = settings.advertise.clone().map(|host| Advertised { host, port: None });
    if settings.members.is_empty() {
        return Ok(Placement::Following { first: settings.listen.unwrap_or(LISTEN), advertise });
    }
    ensure!(
        settings.listen.is_none(),
        "--listen and --member (`members`) contradict each other: every member has its own address"
    );
    let mapped = settings.members.iter().map(|(member, entry)| Mapped {
        member: member.clone(),
        listen: entry.listen,
        advertise: entry.advertise.clone().or_else(|| advertise.clone()),
    });
    Ok(Placement::Mapped(mapped.collect()))
}

/// Whether docward's own user can do what the rules need it for. A server that is down is asked again later.
///
/// # Errors
/// Text for people: the login fails, or privileges are missing.
async fn check_access(service: &MongoService, rules: &RuleSet) -> Result<(), String> {
    match access::check(service, rules).await {
        Access::Granted => Ok(()),
        Access::Refused(reason) => Err(reason),
        Access::Unknown(reason) => {
            tracing::warn!("whether rules can do their own work at the upstream is not known yet: {reason}");
            Ok(())
        }
    }
}

/// What handshakes are made with, on every side that applies TLS.
///
/// # Errors
/// Text for people: the service's connection string names files that cannot be used.
fn certificates(config: &Config, service: &Arc<MongoService>) -> Result<Vec<Box<dyn Part>>> {
    let mut parts: Vec<Box<dyn Part>> = Vec::new();
    if let Some(tls) = &config.tls {
        parts.push(Certificates::new("listeners", tls.clone(), || {}));
    }
    if let Some(tls) = &config.upstream.tls {
        parts.push(Certificates::new("upstream", tls.clone(), || {}));
    }
    if let Some(files) = service.tls_files() {
        // The driver reads them by itself, once; these only tell when they are other ones, and good.
        let (tls, service) = (UpstreamTls::load(files).context("--service")?, service.clone());
        parts.push(Certificates::new("service", Arc::new(tls), move || service.reconnect()));
    }
    Ok(parts)
}

/// Gives the limit of open files. Each client takes two descriptors; the usual soft limit of 1024 is for programs that use select().
pub(super) fn raise_file_limit(connections: Option<usize>) -> Option<u64> {
    const OTHER_FILES: u64 = 100;
    let needed = connections.map(|count| 2 * count as u64 + OTHER_FILES);
    let limit = rlimit::increase_nofile_limit(rlimit::INFINITY);
    match &limit {
        Ok(limit) if needed.is_some_and(|needed| *limit < needed) => tracing::warn!(
            limit,
            needed,
            "the limit of open files is reached before limits: connections is; raise it (ulimit -n, LimitNOFILE=)"
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!("the limit of open files cannot be raised: {error}"),
    }
    limit.ok()
}

/// How many connections may be without a login where one is demanded: half of those that there may be at all.
fn unauthenticated(connections: Option<usize>, files: Option<u64>) -> Option<usize> {
    let by_files = || files.and_then(|files| usize::try_from(files / 2).ok());
    connections.or_else(by_files).map(|all| all.div_ceil(2))
}

async fn serve(
    mut config: Config,
    telemetry: TelemetryConfig,
    rules: Arc<ArcSwap<RuleSet>>,
    service: Arc<MongoService>,
    reload: Reload,
) -> Result<()> {
    // Before anything listens: a signal that comes early must not be lost.
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let mut asked = signal(SignalKind::user_defined1()).context("cannot wait for SIGUSR1")?;
    let hang_up = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
    let telemetry = telemetry.prepare(&mut config)?;
    let drain_timeout = config.drain_timeout;
    let opening = Proxy::open(config, passed_sockets()?, rules.clone(), service.clone());
    let proxy = tokio::select! {
        proxy = opening => proxy?,
        () = ended(&mut terminate, &mut interrupt, "ending before it listens") => return Ok(()),
    };
    let observer = proxy.observer();
    let telemetry = telemetry.look_at(&observer, reload.status())?;
    announce(&proxy, telemetry.address())?;
    tell_manager(&[NotifyState::Ready]);
    let reports = async {
        while asked.recv().await.is_some() {
            observer.log();
        }
        std::future::pending().await
    };
    let (draining, drained) = oneshot::channel::<()>();
    let shutdown = async {
        ended(&mut terminate, &mut interrupt, "draining").await;
        // systemd's own timeouts (TimeoutStopSec) need not be known then.
        let timeouts = u32::try_from((drain_timeout + END_AFTER_DRAIN).as_micros()).unwrap_or(u32::MAX);
        tell_manager(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(timeouts)]);
    };
    // Another process goes on with the copies at once, while connections here still drain.
    let copies = copies::keep(&service, rules.clone(), async { _ = drained.await });
    let serving = async { tokio::join!(proxy.serve(shutdown, move || drop(draining)), copies) };
    tokio::select! {
        _ = serving => {}
        () = reload.keep(hang_up) => {}
        () = access::watch(&service, &rules) => {}
        () = reports => {}
    }
    telemetry.end().await;
    Ok(())
}

/// Waits for a signal to end, and logs what follows.
async fn ended(terminate: &mut Signal, interrupt: &mut Signal, what: &str) {
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: {what}"),
        _ = interrupt.recv() => tracing::info!("SIGINT: {what}"),
    }
}

/// Sockets that systemd, or another manager that applies its protocol, has opened for us.
fn passed_sockets() -> Result<Vec<TcpListener>> {
    let mut passed = ListenFd::from_env();
    let taken = (0..passed.len()).filter_map(|index| passed.take_tcp_listener(index).transpose());
    taken.collect::<std::io::Result<_>>().context("a socket that was passed (LISTEN_FDS) is no listening TCP socket")
}

/// systemd, or another service manager that applies its protocol (`NOTIFY_SOCKET`); without one nobody is told.
fn tell_manager(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("the service manager cannot be told (NOTIFY_SOCKET): {error}");
    }
}

/// One line for each listener: who waits for them knows that clients can come.
pub(super) fn announce<P: Interceptor>(proxy: &Proxy<P>, admin: Option<SocketAddr>) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    for address in proxy.addresses() {
        writeln!(stdout, "listening on {address}").context("cannot print to stdout")?;
    }
    if let Some(address) = proxy.query_address() {
        writeln!(stdout, "listening on {address} for queries").context("cannot print to stdout")?;
    }
    if let Some(address) = admin {
        writeln!(stdout, "listening on {address} for administration").context("cannot print to stdout")?;
    }
    stdout.flush().context("cannot print to stdout")
}
