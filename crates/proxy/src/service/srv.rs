//! Resolves `mongodb+srv://` names: looks up the seed list in DNS.
//!
//! It follows the specification "Initial DNS Seedlist Discovery". The driver parses such strings, but its own lookup cannot
//! be used: it asks only the system's name servers, and some deployments (for example with Consul) use another one; and its
//! errors do not show whether there is no seed list or no reply, after which a service manager tries again.

use std::hash::{BuildHasher, Hash, RandomState};
use std::net::SocketAddr;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use mongodb::options::{ConnectionString, HostInfo, ServerAddress};

/// Why a name cannot be resolved to a seed list.
#[derive(Debug, thiserror::Error)]
pub enum SrvError {
    #[error("the DNS lookup of {0} failed: {1}")]
    Lookup(String, String),
    #[error("there is no SRV record {0}; check the name and the name server")]
    NoRecords(String),
    #[error("{0} refers to {1}, which is not in the same domain; MongoDB drivers do not permit that either")]
    ForeignHost(String, String),
    #[error("{0} must have at most one TXT record, with no options but authSource, replicaSet and loadBalanced")]
    Text(String),
}

/// Replaces the name in a connection string, if it has one, by its servers, and adds the options of its TXT record.
///
/// # Errors
/// [`SrvError`]: DNS has no valid seed list, or does not reply.
pub(super) async fn resolve(parsed: &mut ConnectionString, resolver: Option<SocketAddr>) -> Result<(), SrvError> {
    let HostInfo::DnsRecord(name) = parsed.host_info.clone() else { return Ok(()) };
    let names = NameServers::new(resolver).map_err(|error| SrvError::Lookup(name.clone(), error.to_string()))?;
    let mut hosts = names.hosts(&name, parsed.srv_service_name.as_deref().unwrap_or("mongodb")).await?;
    limit(&mut hosts, parsed.srv_max_hosts);
    let text = names.text(&name).await?;
    parsed.host_info = HostInfo::HostIdentifiers(hosts);
    add_options(parsed, &text).ok_or(SrvError::Text(name))
}

/// Keeps `most` hosts chosen at random, so that the mongos of a deployment share its clients. 0: all.
fn limit(hosts: &mut Vec<impl Hash>, most: Option<u32>) {
    let most = most.and_then(|most| usize::try_from(most).ok()).filter(|most| *most > 0);
    if let Some(most) = most.filter(|most| *most < hosts.len()) {
        // Every `RandomState` hashes differently, so this order is random.
        let random = RandomState::new();
        hosts.sort_by_key(|host| random.hash_one(host));
        hosts.truncate(most);
    }
}

/// Adds the options of a TXT record that the string does not have; `None` if the record has others than it may have.
fn add_options(parsed: &mut ConnectionString, text: &str) -> Option<()> {
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').filter(|(_, value)| !value.is_empty())?;
        match key.to_ascii_lowercase().as_str() {
            "authsource" => {
                let source = parsed.credential.as_mut().map(|credential| &mut credential.source);
                source.into_iter().for_each(|source| _ = source.get_or_insert_with(|| value.to_owned()));
            }
            "replicaset" => _ = parsed.replica_set.get_or_insert_with(|| value.to_owned()),
            "loadbalanced" => _ = parsed.load_balanced.get_or_insert(value.parse().ok()?),
            _ => return None,
        }
    }
    Some(())
}

/// The name servers.
struct NameServers(TokioResolver);

impl NameServers {
    fn new(server: Option<SocketAddr>) -> Result<Self, NetError> {
        let Some(server) = server else { return TokioResolver::builder_tokio()?.build().map(Self) };
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
            connection.port = server.port();
            connection
        });
        let server = NameServerConfig::new(server.ip(), true, connections.to_vec());
        let config = ResolverConfig::from_name_servers(vec![server]);
        TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()).build().map(Self)
    }

    /// Returns the host and port of every SRV record.
    async fn hosts(&self, host: &str, service: &str) -> Result<Vec<ServerAddress>, SrvError> {
        let name = format!("_{service}._tcp.{host}");
        let found = match self.0.srv_lookup(format!("{name}.")).await {
            Ok(found) => found,
            Err(error) if error.is_no_records_found() => return Err(SrvError::NoRecords(name)),
            Err(error) => return Err(SrvError::Lookup(name, error.to_string())),
        };
        let records = found.answers().iter().filter_map(|record| match &record.data {
            RData::SRV(srv) => Some((srv.target.to_utf8(), srv.port)),
            _ => None,
        });
        let mut hosts = Vec::new();
        for (target, port) in records {
            let target = target.trim_end_matches('.');
            if !is_of_same_domain(host, target) {
                return Err(SrvError::ForeignHost(name, target.to_owned()));
            }
            // As the driver writes the hosts that servers report.
            hosts.push(ServerAddress::Tcp { host: target.to_ascii_lowercase(), port: Some(port) });
        }
        if hosts.is_empty() { Err(SrvError::NoRecords(name)) } else { Ok(hosts) }
    }

    /// The options in the TXT record; empty if there is none.
    async fn text(&self, host: &str) -> Result<String, SrvError> {
        let found = match self.0.txt_lookup(format!("{host}.")).await {
            Ok(found) => found,
            Err(error) if error.is_no_records_found() => return Ok(String::new()),
            Err(error) => return Err(SrvError::Lookup(host.to_owned(), error.to_string())),
        };
        let mut records = found.answers().iter().filter_map(|record| match &record.data {
            RData::TXT(text) => Some(text.to_string()),
            _ => None,
        });
        let text = records.next().unwrap_or_default();
        if records.next().is_none() { Ok(text) } else { Err(SrvError::Text(host.to_owned())) }
    }
}

/// The specification's rule: the target shares everything after the first label of the name, or the whole name if it
/// has fewer than three labels.
fn is_of_same_domain(host: &str, target: &str) -> bool {
    let (host, target) = (host.to_ascii_lowercase(), target.to_ascii_lowercase());
    let domain = match host.split('.').count() {
        0..=2 => host.as_str(),
        _ => host.split_once('.').map_or(host.as_str(), |(_, domain)| domain),
    };
    target.split_once('.').is_some_and(|(_, rest)| rest == domain || rest.ends_with(&format!(".{domain}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(rest: &str) -> ConnectionString {
        ConnectionString::parse(format!("mongodb+srv://{rest}")).unwrap()
    }

    #[test]
    fn options_of_the_string_override_those_of_dns() {
        for (rest, text, source, set) in [
            ("x.b.c", "", None, None),
            ("u:p%40@x.b.c/db?tls=false", "", None, None),
            ("u:p@x.b.c/?authSource=one&w=2", "authSource=two&replicaSet=rs", Some("one"), Some("rs")),
            ("u:p@x.b.c/?replicaSet=own", "authSource=two&replicaSet=rs", Some("two"), Some("own")),
            ("x.b.c/?srvServiceName=m&SSL=true", "authSource=two", None, None),
        ] {
            let mut parsed = parsed(rest);
            add_options(&mut parsed, text).unwrap();
            let found = parsed.credential.and_then(|credential| credential.source);
            assert_eq!((found.as_deref(), parsed.replica_set.as_deref()), (source, set), "{rest}");
        }
        for text in ["w=majority", "replicaSet", "loadBalanced=maybe"] {
            assert!(add_options(&mut parsed("x.b.c"), text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_string_has_one_name_without_a_port() {
        for rest in ["", "/", "a:27017/", "a,b/", "u:p@/"] {
            assert!(ConnectionString::parse(format!("mongodb+srv://{rest}")).is_err(), "{rest}");
        }
    }

    #[test]
    fn srv_max_hosts_selects_hosts_at_random() {
        let hosts = ["a:1", "b:1", "c:1"];
        let limited = |options: &str| {
            let mut left = hosts.to_vec();
            limit(&mut left, parsed(&format!("x.b.c/?{options}")).srv_max_hosts);
            left
        };
        for all in ["", "srvMaxHosts=0", "srvMaxHosts=3", "srvMaxHosts=9"] {
            assert_eq!(limited(all), hosts, "{all}");
        }
        let mut seen: Vec<Vec<&str>> = (0..500).map(|_| limited("srvMaxHosts=2")).collect();
        assert!(seen.iter().all(|left| left.len() == 2 && left[0] != left[1]));
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 6, "each host can be selected at each position");
    }

    #[test]
    fn targets_must_be_in_the_domain_of_the_name() {
        for (host, target, expected) in [
            ("x.b.c", "a.b.c", true),
            ("x.b.c", "a.z.b.c", true),
            ("x.b.c", "a.evil.c", false),
            ("x.b.c", "b.c", false),
            ("x.b.c", "a.evilb.c", false),
            ("b.c", "a.b.c", true),
            ("b.c", "b.c", false),
            ("X.B.c", "a.b.C", true),
        ] {
            assert_eq!(is_of_same_domain(host, target), expected, "{host} {target}");
        }
    }
}
