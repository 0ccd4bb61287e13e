//! The listener flags of the subcommands that accept clients, and where their listeners are opened.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use ipnet::IpNet;

use super::config_file::{ConfigFile, TlsKeys};
use super::values;
use crate::proxy::{Advertised, ListenerPlacement, Mapped};

/// The default address of the first listener.
pub(super) const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 27018);
/// The heading of the TLS flags in the help.
const TLS: &str = "TLS";

/// The command line.
#[derive(Debug, Clone, Args)]
pub(super) struct ListenOptions {
    /// Address for the first member's listener; further members take the following ports [default: 127.0.0.1:27018].
    #[arg(long, value_name = "ADDR", value_parser = values::address)]
    listen: Option<SocketAddr>,
    /// Host name for replies to hello, instead of the listener's address.
    #[arg(long, value_name = "NAME", value_parser = values::host_name)]
    advertise: Option<String>,
    /// IP address, or network, of a load balancer that sends a header of the PROXY protocol (version 1 or 2) with the
    /// client's address. Can be repeated.
    #[arg(long, value_name = "ADDR", value_parser = values::network)]
    proxy_protocol: Vec<IpNet>,
    #[command(flatten)]
    tls: Tls,
}

/// TLS of the listeners; the connection string has the settings for the upstream.
#[derive(Debug, Clone, Args)]
struct Tls {
    /// PEM file with the listeners' certificate and its chain; clients must then use TLS.
    #[arg(long, value_name = "FILE", help_heading = TLS)]
    tls_certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key [default: the certificate's file].
    #[arg(long, value_name = "FILE", help_heading = TLS)]
    tls_key: Option<PathBuf>,
    /// PEM file of certificate authorities; clients without a certificate signed by one of them are refused.
    #[arg(long, value_name = "FILE", help_heading = TLS)]
    tls_client_ca: Option<PathBuf>,
}

impl ListenOptions {
    /// Combines the flags with `file`; flags take precedence.
    pub(super) fn with_defaults_from(self, file: ConfigFile) -> ConfigFile {
        let Self { listen, advertise, proxy_protocol, tls: Tls { tls_certificate, tls_key, tls_client_ca } } = self;
        ConfigFile {
            listen: listen.or(file.listen),
            advertise: advertise.or(file.advertise),
            proxy_protocol: if proxy_protocol.is_empty() { file.proxy_protocol } else { proxy_protocol },
            tls: TlsKeys {
                // It is that of the file's key.
                key_password: file.tls.key_password.filter(|_| tls_key.is_none() && tls_certificate.is_none()),
                certificate: tls_certificate.or(file.tls.certificate),
                key: tls_key.or(file.tls.key),
                client_ca: tls_client_ca.or(file.tls.client_ca),
            },
            ..file
        }
    }
}

/// The addresses of the members' listeners.
///
/// # Errors
/// A message for the user.
pub(super) fn placement(settings: &ConfigFile) -> Result<ListenerPlacement> {
    let advertise = settings.advertise.clone().map(|host| Advertised { host, port: None });
    if settings.members.is_empty() {
        return Ok(ListenerPlacement::Following { first: settings.listen.unwrap_or(LISTEN), advertise });
    }
    ensure!(
        settings.listen.is_none(),
        "--listen cannot be used with --member (`members`): every member has its own address"
    );
    let mapped = settings.members.iter().map(|(member, entry)| Mapped {
        member: member.clone(),
        listen: entry.listen,
        advertise: entry.advertise.clone().or_else(|| advertise.clone()),
    });
    Ok(ListenerPlacement::Mapped(mapped.collect()))
}
