//! `docward health`: queries the admin address of a running docward. For health checks and probes in containers whose
//! image has no shell or HTTP client.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::admin_client::{self, AdminRequest, HttpReply};
use super::config_file::ConfigFile;
use super::output::print;
use super::{fail, values};

/// The command line.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The configuration file of the running docward, with its admin address.
    #[arg(long, value_name = "FILE", required_unless_present = "admin")]
    config: Option<PathBuf>,
    /// The admin address, instead of the one in the file.
    #[arg(long, value_name = "ADDR", value_parser = values::address)]
    admin: Option<SocketAddr>,
    /// Check only that the process is alive, not that it is ready for clients.
    #[arg(long)]
    live: bool,
}

/// Exits with 0 if docward is healthy; with 1 if not, or without a reply.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let address = match admin_address(arguments) {
        Ok(address) => address,
        Err(reason) => return fail(&reason, 1),
    };
    let path = if arguments.live { "/healthz" } else { "/readyz" };
    match admin_client::send(address, &AdminRequest { path, ..AdminRequest::default() }) {
        Ok(HttpReply { status: 200, .. }) => print(b"ok\n").into(),
        Ok(HttpReply { status, body }) => fail(&format!("{path} returned {status}: {}", body.trim()), 1),
        Err(reason) => fail(&reason, 1),
    }
}

fn admin_address(arguments: &Arguments) -> Result<SocketAddr, String> {
    if let Some(address) = arguments.admin {
        return Ok(address);
    }
    let path = arguments.config.as_deref().unwrap_or_else(|| "docward.yaml".as_ref());
    let file = ConfigFile::read_file(path).map_err(|report| report.to_string())?;
    file.admin
        .address
        .map(|admin| admin.address)
        .ok_or_else(|| format!("{}: there is no `admin:` address", path.display()))
}
