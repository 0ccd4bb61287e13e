//! `docward serve`: configuration valid before anything listens, every address printed, then traffic until
//! a signal asks to drain.

use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use arc_swap::ArcSwap;
use clap::Args;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::config::ConfigFile;
use super::connection::{Connection, start};
use super::{EXIT_USAGE, fail};
use crate::patterns::RuleSet;
use crate::proxy::{Config, Proxy, Upstream};
use crate::service::{MongoService, copies};

/// Where to listen when neither a flag nor the configuration file says.
const LISTEN: &str = "127.0.0.1:27018";

/// As typed.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Address for the first member's listener; further members take the following ports [default: 127.0.0.1:27018].
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Host name that hello answers name instead of the address listened on.
    #[arg(long, value_name = "NAME")]
    advertise: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

pub(super) fn run(arguments: Arguments) -> ExitCode {
    start(settings(arguments), Builder::new_multi_thread(), async |settings, rules| {
        let (config, service) = match configure(&settings).await {
            Ok(configured) => configured,
            Err(error) => return fail(&format!("{error:#}"), EXIT_USAGE),
        };
        match serve(config, rules, service).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&format!("{error:#}"), 1),
        }
    })
}

/// The flags over the file.
fn settings(arguments: Arguments) -> Result<ConfigFile> {
    let file = arguments.connection.settings()?;
    Ok(ConfigFile {
        listen: arguments.listen.or(file.listen),
        advertise: arguments.advertise.or(file.advertise),
        ..file
    })
}

async fn configure(settings: &ConfigFile) -> Result<(Config, MongoService)> {
    let upstream = Upstream::parse(settings.upstream()).await.context("--upstream")?;
    let config = Config {
        listen: resolve(settings.listen.as_deref().unwrap_or(LISTEN))?,
        advertise: settings.advertise.as_deref().map(host_name).transpose()?,
        upstream,
    };
    Ok((config, settings.connect().await?))
}

fn resolve(listen: &str) -> Result<SocketAddr> {
    let addresses = listen.to_socket_addrs();
    let mut addresses =
        addresses.with_context(|| format!("--listen {listen}: write HOST:PORT, for example 127.0.0.1:27018"))?;
    match addresses.next() {
        Some(address) => Ok(address),
        None => bail!("--listen {listen}: the name has no address; write an IP address instead"),
    }
}

fn host_name(advertise: &str) -> Result<String> {
    let bare = advertise.parse::<std::net::Ipv6Addr>().is_ok();
    let valid = bare || !(advertise.is_empty() || advertise.contains([':', '/', ',', '@', ' ']));
    ensure!(
        valid,
        "--advertise {advertise}: write the host name only, for example proxy.example.com; the ports are those listened on"
    );
    Ok(advertise.to_owned())
}

async fn serve(config: Config, rules: Arc<RuleSet>, service: MongoService) -> Result<()> {
    // Before anything listens: a signal that comes early must not be lost.
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let rules = Arc::new(ArcSwap::new(rules));
    let service = Arc::new(service);
    let proxy = Proxy::bind(config, rules.clone(), service.clone()).await?;
    let mut stdout = std::io::stdout().lock();
    for address in proxy.addresses() {
        writeln!(stdout, "listening on {address}").context("cannot print to stdout")?;
    }
    stdout.flush().context("cannot print to stdout")?;
    drop(stdout);
    let (draining, drained) = oneshot::channel::<()>();
    let shutdown = async {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: draining"),
            _ = interrupt.recv() => tracing::info!("SIGINT: draining"),
        }
        drop(draining);
    };
    // Another process goes on with the copies at once, while connections here still drain.
    let copies = copies::keep(&service, rules, async { _ = drained.await });
    tokio::join!(proxy.serve(shutdown), copies);
    Ok(())
}
