//! `docward serve`: configuration valid before anything listens, every address printed, then traffic until
//! a signal asks to drain.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use arc_swap::ArcSwap;
use clap::Args;
use listenfd::ListenFd;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::config::ConfigFile;
use super::connection::{Connection, start};
use super::reload::Reload;
use super::{EXIT_USAGE, fail};
use crate::patterns::RuleSet;
use crate::proxy::{Advertised, Config, Mapped, Placement, Proxy, Upstream};
use crate::rules::parse_duration;
use crate::service::{MongoService, copies};

/// Where to listen when neither a flag nor the configuration file says.
const LISTEN: &str = "127.0.0.1:27018";
/// What drivers' own timeouts leave room for, and what service managers wait before they kill.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// As typed.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Address for the first member's listener; further members take the following ports [default: 127.0.0.1:27018].
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Host name that hello answers name instead of the address listened on.
    #[arg(long, value_name = "NAME")]
    advertise: Option<String>,
    /// Address for an application's queries, answered by a secondary; see the `reads` rules.
    #[arg(long, value_name = "ADDR")]
    query_listen: Option<String>,
    /// How long open transactions and busy connections may take to finish when docward ends [default: 10s].
    #[arg(long, value_name = "TIME")]
    drain_timeout: Option<String>,
    /// Unix socket through which the next docward takes over the ports.
    #[arg(long, value_name = "PATH")]
    hand_over: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
}

pub(super) fn run(arguments: Arguments) -> ExitCode {
    let connection = arguments.connection.clone();
    start(settings(arguments), Builder::new_multi_thread(), async |settings, rules| {
        let rules = Arc::new(ArcSwap::new(rules));
        let reload = Reload::new(connection, rules.clone());
        let (config, service) = match configure(&settings).await {
            Ok(configured) => configured,
            Err(error) => return fail(&format!("{error:#}"), EXIT_USAGE),
        };
        match serve(config, rules, service, reload).await {
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
        query_listen: arguments.query_listen.or(file.query_listen),
        drain_timeout: arguments.drain_timeout.or(file.drain_timeout),
        hand_over: arguments.hand_over.or(file.hand_over),
        ..file
    })
}

async fn configure(settings: &ConfigFile) -> Result<(Config, MongoService)> {
    let upstream = Upstream::parse(settings.upstream()).await.context("--upstream")?;
    let config = Config {
        placement: placement(settings)?,
        query_listen: settings.query_listen.as_deref().map(|address| resolve("--query-listen", address)).transpose()?,
        upstream,
        drain_timeout: settings.drain_timeout.as_deref().map_or(Ok(DRAIN_TIMEOUT), drain_timeout)?,
        hand_over: settings.hand_over.clone(),
    };
    Ok((config, settings.connect().await?))
}

/// Where the members' listeners are to be.
fn placement(settings: &ConfigFile) -> Result<Placement> {
    let advertise = settings.advertise.as_deref().map(host_name).transpose()?;
    let advertise = advertise.map(|host| Advertised { host, port: None });
    if settings.members.is_empty() {
        let first = resolve("--listen", settings.listen.as_deref().unwrap_or(LISTEN))?;
        return Ok(Placement::Following { first, advertise });
    }
    ensure!(
        settings.listen.is_none(),
        "`listen` and `members` contradict each other: with `members` every member has an address of its own"
    );
    let mapped = settings.members.iter().map(|(member, entry)| {
        ensure!(
            member.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()),
            "members.{member}: write the member's HOST:PORT, as rs.conf() shows it"
        );
        let key = format!("members.{member}.listen");
        let named = entry.advertise.as_deref().map(advertised).transpose()?;
        let listen = resolve(&key, &entry.listen)?;
        Ok(Mapped { member: member.clone(), listen, advertise: named.or_else(|| advertise.clone()) })
    });
    mapped.collect::<Result<_>>().map(Placement::Mapped)
}

fn resolve(key: &str, listen: &str) -> Result<SocketAddr> {
    let addresses = listen.to_socket_addrs();
    let mut addresses =
        addresses.with_context(|| format!("{key} {listen}: write HOST:PORT, for example 127.0.0.1:27018"))?;
    match addresses.next() {
        Some(address) => Ok(address),
        None => bail!("{key} {listen}: the name has no address; write an IP address instead"),
    }
}

fn drain_timeout(text: &str) -> Result<Duration> {
    let time = parse_duration(text);
    time.with_context(|| format!("--drain-timeout {text}: write a number and a unit (ms, s, m, h), for example 10s"))
}

/// HOST, or HOST:PORT where the port outside is another one.
fn advertised(text: &str) -> Result<Advertised> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.starts_with('[') => {
            let port = port.parse().with_context(|| format!("advertise {text}: the port is no number"))?;
            Ok(Advertised { host: host_name(host.trim_matches(['[', ']']))?, port: Some(port) })
        }
        _ => Ok(Advertised { host: host_name(text)?, port: None }),
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

async fn serve(config: Config, rules: Arc<ArcSwap<RuleSet>>, service: MongoService, reload: Reload) -> Result<()> {
    // Before anything listens: a signal that comes early must not be lost.
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let hang_up = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
    let service = Arc::new(service);
    let proxy = Proxy::open(config, passed_sockets()?, rules.clone(), service.clone()).await?;
    announce(&proxy).context("cannot print to stdout")?;
    let (draining, drained) = oneshot::channel::<()>();
    let shutdown = async {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: draining"),
            _ = interrupt.recv() => tracing::info!("SIGINT: draining"),
        }
    };
    // Another process goes on with the copies at once, while connections here still drain.
    let copies = copies::keep(&service, rules, async { _ = drained.await });
    let serving = async { tokio::join!(proxy.serve(shutdown, move || drop(draining)), copies) };
    tokio::select! {
        _ = serving => Ok(()),
        () = reload.keep(hang_up) => Ok(()),
    }
}

/// Sockets that systemd, or another manager that speaks its protocol, has opened for us.
fn passed_sockets() -> Result<Vec<TcpListener>> {
    let mut passed = ListenFd::from_env();
    let taken = (0..passed.len()).filter_map(|index| passed.take_tcp_listener(index).transpose());
    taken.collect::<std::io::Result<_>>().context("a socket that was passed (LISTEN_FDS) is no listening TCP socket")
}

fn announce(proxy: &Proxy<RuleSet>) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    for address in proxy.addresses() {
        writeln!(stdout, "listening on {address}")?;
    }
    if let Some(address) = proxy.query_address() {
        writeln!(stdout, "listening on {address} for queries")?;
    }
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::config::MemberEntry;

    fn mapped(member: &str, listen: &str, advertise: Option<&str>) -> Result<Placement> {
        let entry = MemberEntry { listen: listen.into(), advertise: advertise.map(str::to_owned) };
        let members = [(member.to_owned(), entry)].into();
        placement(&ConfigFile { advertise: Some("proxy".into()), members, ..ConfigFile::default() })
    }

    #[test]
    fn a_map_of_members_says_where_each_is_and_what_it_is_called() {
        for (advertise, host, port) in [
            (None, "proxy", None),
            (Some("other"), "other", None),
            (Some("other:7"), "other", Some(7)),
            (Some("::1"), "::1", None),
            (Some("[::1]:7"), "::1", Some(7)),
        ] {
            let Ok(Placement::Mapped(members)) = mapped("db:1", "127.0.0.1:5", advertise) else { panic!("a map") };
            let advertise = Some(Advertised { host: host.into(), port });
            let expected = Mapped { member: "db:1".into(), listen: ([127, 0, 0, 1], 5).into(), advertise };
            assert_eq!(members, [expected]);
        }
    }

    #[test]
    fn mistakes_in_a_map_are_named() {
        for (member, listen, advertise, expected) in [
            ("db", "127.0.0.1:5", None, "members.db: write the member's HOST:PORT"),
            ("db:1", "here", None, "members.db:1.listen here: write HOST:PORT"),
            ("db:1", "127.0.0.1:5", Some("a:b"), "advertise a:b: the port is no number"),
            ("db:1", "127.0.0.1:5", Some("a/b"), "write the host name only"),
        ] {
            let error = format!("{:#}", mapped(member, listen, advertise).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
        let both = ConfigFile {
            listen: Some("127.0.0.1:1".into()),
            members: [("a:1".to_owned(), MemberEntry { listen: "127.0.0.1:5".into(), advertise: None })].into(),
            ..ConfigFile::default()
        };
        assert!(placement(&both).unwrap_err().to_string().contains("contradict each other"));
        assert!(drain_timeout("ten").unwrap_err().to_string().contains("--drain-timeout ten"));
        assert_eq!(drain_timeout("1500ms").unwrap(), Duration::from_millis(1500));
    }
}
