//! `docward serve`: configuration valid before anything listens, every address printed, then traffic until
//! a signal asks to drain.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use clap::Args;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::config::{ConfigFile, LimitKeys, TlsKeys};
use super::connection::{Connection, start};
use super::{EXIT_USAGE, fail, values};
use crate::patterns::RuleSet;
use crate::proxy::{Certificates, Config, ListenerTls, Policy, Proxy, Upstream};
use crate::rules::Report;
use crate::service::access::{self, Access};
use crate::service::{MongoService, copies};

/// Where to listen when neither a flag nor the configuration file says.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 27018);

/// As typed.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Address for the first member's listener; further members take the following ports [default: 127.0.0.1:27018].
    #[arg(long, value_name = "ADDR", value_parser = values::address)]
    listen: Option<SocketAddr>,
    /// Host name that hello answers name instead of the address listened on.
    #[arg(long, value_name = "NAME", value_parser = values::host_name)]
    advertise: Option<String>,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    tls: TlsArguments,
    #[command(flatten)]
    limits: LimitArguments,
}

/// The listeners' side; the upstream's is in its connection string.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(super) struct TlsArguments {
    /// PEM file with the listeners' certificate and its chain; clients must then speak TLS.
    #[arg(long, value_name = "FILE")]
    tls_certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key [default: the certificate's file].
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// PEM file of authorities; clients without a certificate signed by one of them are refused.
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
}

impl From<TlsArguments> for TlsKeys {
    fn from(typed: TlsArguments) -> Self {
        let TlsArguments { tls_certificate, tls_key, tls_client_ca } = typed;
        Self { certificate: tls_certificate, key: tls_key, client_ca: tls_client_ca }
    }
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
    /// Close connections without a first message within this time [default: 10s].
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    handshake_timeout: Option<Duration>,
}

pub(super) fn run(arguments: Arguments) -> ExitCode {
    start(settings(arguments), Builder::new_multi_thread(), async |settings, rules| {
        let (config, service) = match configure(settings).await {
            Ok(configured) => configured,
            Err(error) => return fail(&format!("{error:#}"), EXIT_USAGE),
        };
        if let Err(refused) = check_access(&service, &rules).await {
            return fail(&refused, EXIT_USAGE);
        }
        raise_file_limit(config.limits.connections);
        match serve(config, rules, service).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&format!("{error:#}"), 1),
        }
    })
}

/// The flags over the file.
fn settings(arguments: Arguments) -> Result<ConfigFile, Report> {
    let Arguments { listen, advertise, connection, tls, limits } = arguments;
    let file = connection.settings()?;
    Ok(ConfigFile {
        listen: listen.or(file.listen),
        advertise: advertise.or(file.advertise),
        tls: TlsKeys {
            certificate: tls.tls_certificate.or(file.tls.certificate),
            key: tls.tls_key.or(file.tls.key),
            client_ca: tls.tls_client_ca.or(file.tls.client_ca),
        },
        limits: LimitKeys {
            connections: limits.connections.or(file.limits.connections),
            connections_per_address: limits.connections_per_address.or(file.limits.connections_per_address),
            idle_timeout: limits.idle_timeout.or(file.limits.idle_timeout),
            handshake_timeout: limits.handshake_timeout.or(file.limits.handshake_timeout),
        },
        ..file
    })
}

pub(super) async fn configure(settings: ConfigFile) -> Result<(Config, MongoService)> {
    let upstream = Upstream::parse(settings.upstream(), settings.resolver).await.context("--upstream")?;
    let service = settings.connect().await?;
    let tls = settings.tls.files()?.map(ListenerTls::load).transpose().context("--tls-certificate")?;
    let config = Config {
        listen: settings.listen.unwrap_or(LISTEN),
        advertise: settings.advertise,
        upstream,
        tls: tls.map(Arc::new),
        limits: settings.limits.settings(),
    };
    Ok((config, service))
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

/// Each client takes two descriptors; the usual soft limit of 1024 is for programs that use select().
pub(super) fn raise_file_limit(connections: Option<usize>) {
    const OTHER_FILES: u64 = 100;
    let needed = connections.map(|count| 2 * count as u64 + OTHER_FILES);
    match rlimit::increase_nofile_limit(rlimit::INFINITY) {
        Ok(limit) if needed.is_some_and(|needed| limit < needed) => tracing::warn!(
            limit,
            needed,
            "the limit of open files is reached before limits: connections is; raise it (ulimit -n, LimitNOFILE=)"
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!("the limit of open files cannot be raised: {error}"),
    }
}

async fn serve(config: Config, rules: Arc<RuleSet>, service: MongoService) -> Result<()> {
    // Before anything listens: a signal that comes early must not be lost.
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
    let mut asked = signal(SignalKind::user_defined1()).context("cannot wait for SIGUSR1")?;
    let rules = Arc::new(ArcSwap::new(rules));
    let service = Arc::new(service);
    let certificates = Certificates::new(config.tls.clone(), config.upstream.tls.clone(), service.clone());
    let certificates = certificates.context("--service")?;
    let proxy = Proxy::bind(config, rules.clone(), service.clone()).await?;
    announce(&proxy)?;
    let observer = proxy.observer();
    let reports = async {
        while asked.recv().await.is_some() {
            observer.log();
        }
        std::future::pending().await
    };
    let (draining, drained) = oneshot::channel::<()>();
    let shutdown = async {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: draining"),
            _ = interrupt.recv() => tracing::info!("SIGINT: draining"),
            () = certificates.follow(async || _ = hangup.recv().await) => {}
            () = access::watch(&service, &rules) => {}
            () = reports => {}
        }
        drop(draining);
    };
    // Another process goes on with the copies at once, while connections here still drain.
    let copies = copies::keep(&service, rules.clone(), async { _ = drained.await });
    tokio::join!(proxy.serve(shutdown), copies);
    Ok(())
}

/// One line for each listener: who waits for them knows that clients can come.
pub(super) fn announce<P: Policy>(proxy: &Proxy<P>) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    for address in proxy.addresses() {
        writeln!(stdout, "listening on {address}").context("cannot print to stdout")?;
    }
    stdout.flush().context("cannot print to stdout")
}
