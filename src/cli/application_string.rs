//! The connection string that applications use: the first lines of `serve` and the last ones of `check` have it.

use std::net::SocketAddr;

use super::config_file::ConfigFile;
use super::listening::LISTEN;

/// What applications need to know besides the address of the first listener, which has those of the others.
pub(super) struct ApplicationString {
    host: Option<String>,
    port: Option<u16>,
    replica_set: Option<String>,
    uses_tls: bool,
}

impl ApplicationString {
    pub(super) fn of_settings(settings: &ConfigFile) -> Self {
        let of_member = settings.members.values().next().and_then(|entry| entry.advertise.clone());
        let (host, port) = match of_member {
            Some(advertised) => (Some(advertised.host), advertised.port),
            None => (settings.advertise.clone(), None),
        };
        // A driver removes a mongos from the servers of a connection string with `replicaSet`.
        let replica_set = settings.upstream().replica_set().filter(|_| !settings.is_router());
        Self { host, port, replica_set, uses_tls: settings.tls.certificate.is_some() }
    }

    /// The connection string for a listener at the address of the settings.
    pub(super) fn at_settings(settings: &ConfigFile) -> String {
        let of_member = settings.members.values().next().map(|entry| entry.listen);
        Self::of_settings(settings).at(of_member.or(settings.listen).unwrap_or(LISTEN))
    }

    /// The connection string if the first listener has this address.
    pub(super) fn at(&self, address: SocketAddr) -> String {
        let host = match (&self.host, address.ip()) {
            (Some(host), _) => host.clone(),
            (None, ip) if ip.is_unspecified() => "HOST".to_owned(),
            (None, _) if address.is_ipv6() => format!("[{}]", address.ip()),
            (None, ip) => ip.to_string(),
        };
        let port = self.port.unwrap_or(address.port());
        let set = self.replica_set.as_ref().map(|set| format!("replicaSet={set}"));
        let options: Vec<String> = set.into_iter().chain(self.uses_tls.then(|| "tls=true".to_owned())).collect();
        let mark = if options.is_empty() { "" } else { "?" };
        format!("mongodb://{host}:{port}/{mark}{}", options.join("&"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_what_a_driver_needs() {
        let of = |text: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            ApplicationString::at_settings(&ConfigFile::read_file(file.path()).unwrap())
        };
        let set = "upstream: 'mongodb://a,b/?replicaSet=rs0'\n";
        for (more, expected) in [
            ("", "mongodb://127.0.0.1:27018/?replicaSet=rs0"),
            ("topology: router\n", "mongodb://127.0.0.1:27018/"),
            ("listen: 0.0.0.0:1\n", "mongodb://HOST:1/?replicaSet=rs0"),
            ("listen: '[::1]:1'\n", "mongodb://[::1]:1/?replicaSet=rs0"),
            ("listen: 0.0.0.0:1\nadvertise: proxy\n", "mongodb://proxy:1/?replicaSet=rs0"),
            ("members: {'a:1': {listen: 0.0.0.0:2, advertise: 'proxy:3'}}\n", "mongodb://proxy:3/?replicaSet=rs0"),
        ] {
            assert_eq!(of(&format!("{set}{more}")), expected, "{more}");
        }
        assert_eq!(of("upstream: mongodb://a\n"), "mongodb://127.0.0.1:27018/");
    }
}
