//! Resolves `mongodb+srv://` strings: looks up the seed list in DNS and writes it into a plain connection string.
//!
//! It follows the specification "Initial DNS Seedlist Discovery". The driver cannot be used for this, because it only
//! asks the system's name servers, and some deployments (for example with Consul) use another one.
//! [`super::connection`] creates `ClientOptions` from the result.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;

const SCHEME: &str = "mongodb+srv://";

/// Why a name cannot be resolved to a seed list.
#[derive(Debug, thiserror::Error)]
pub enum SrvError {
    #[error("a mongodb+srv:// connection string has one host name, without a port, and a path: mongodb+srv://HOST/")]
    Form,
    #[error("the DNS lookup of {0} failed: {1}")]
    Lookup(String, String),
    #[error("there is no SRV record {0}; check the name and the name server")]
    NoRecords(String),
    #[error("{0} refers to {1}, which is not in the same domain; MongoDB drivers do not permit that either")]
    ForeignHost(String, String),
    #[error("{0} must have at most one TXT record, with no options but authSource, replicaSet and loadBalanced")]
    Text(String),
}

/// The parts of a connection string that resolution needs.
struct SrvParts<'u> {
    /// `user:password@`, or empty.
    credentials: &'u str,
    host: &'u str,
    /// From the slash on, without the options.
    path: &'u str,
    options: &'u str,
}

/// Returns `uri` with its hosts resolved, or unchanged if it is a plain connection string.
///
/// # Errors
/// [`SrvError`]: the string is malformed, or DNS has no valid seed list.
pub(super) async fn resolve(uri: &str, resolver: Option<SocketAddr>) -> Result<Cow<'_, str>, SrvError> {
    let Some(rest) = uri.strip_prefix(SCHEME) else { return Ok(Cow::Borrowed(uri)) };
    let parts = SrvParts::parse(rest)?;
    let names =
        NameServers::new(resolver).map_err(|error| SrvError::Lookup(parts.host.to_owned(), error.to_string()))?;
    let mut hosts = names.hosts(parts.host, parts.option("srvServiceName").unwrap_or("mongodb")).await?;
    parts.limit(&mut hosts);
    let text = names.text(parts.host).await?;
    Ok(Cow::Owned(parts.plain(&hosts, &text)))
}

/// Returns `uri` with the SRV name as its host, so that it can be parsed without network access.
///
/// # Errors
/// [`SrvError::Form`]: the string is malformed.
pub(super) fn unresolved(uri: &str) -> Result<Cow<'_, str>, SrvError> {
    let Some(rest) = uri.strip_prefix(SCHEME) else { return Ok(Cow::Borrowed(uri)) };
    let parts = SrvParts::parse(rest)?;
    Ok(Cow::Owned(parts.plain(&[parts.host.to_owned()], "")))
}

impl<'u> SrvParts<'u> {
    fn parse(rest: &'u str) -> Result<Self, SrvError> {
        let (address, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = address.find('/').map_or((address, "/"), |at| address.split_at(at));
        let (credentials, host) = match authority.rfind('@') {
            Some(at) => authority.split_at(at + 1),
            None => ("", authority),
        };
        let valid = !host.is_empty() && !host.contains([':', ',']);
        if valid { Ok(Self { credentials, host, path, options }) } else { Err(SrvError::Form) }
    }

    /// Option names are case-insensitive.
    fn option(&self, name: &str) -> Option<&'u str> {
        let pairs = self.options.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next_back()
    }

    /// Keeps `srvMaxHosts` hosts chosen at random, so that the mongos of a deployment share its clients.
    fn limit(&self, hosts: &mut Vec<String>) {
        let most = self.option("srvMaxHosts").and_then(|count| count.parse().ok()).filter(|count| *count > 0);
        if let Some(most) = most.filter(|most| *most < hosts.len()) {
            // Every `RandomState` hashes differently, so this order is random.
            let random = RandomState::new();
            hosts.sort_by_key(|host| random.hash_one(host));
            hosts.truncate(most);
        }
    }

    /// TLS is on unless the string disables it; the string's options override the TXT record.
    fn plain(&self, hosts: &[String], text: &str) -> String {
        let own = self.options.split('&').filter(|pair| !pair.is_empty());
        let own = own.filter(|pair| !pair.to_ascii_lowercase().starts_with("srv"));
        let tls = (self.option("tls").is_none() && self.option("ssl").is_none()).then_some("tls=true");
        let key = |pair: &str| pair.split('=').next().unwrap_or_default().to_owned();
        let added = text.split('&').filter(|pair| !pair.is_empty() && self.option(&key(pair)).is_none());
        let options: Vec<&str> = own.chain(tls).chain(added).collect();
        format!("mongodb://{}{}{}?{}", self.credentials, hosts.join(","), self.path, options.join("&"))
    }
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

    /// Returns "host:port" of every SRV record.
    async fn hosts(&self, host: &str, service: &str) -> Result<Vec<String>, SrvError> {
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
            hosts.push(format!("{target}:{port}"));
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
        let is_permitted = |pair: &str| {
            let key = pair.split('=').next().unwrap_or_default();
            ["authSource", "replicaSet", "loadBalanced"].iter().any(|known| known.eq_ignore_ascii_case(key))
        };
        let valid = records.next().is_none() && (text.is_empty() || text.split('&').all(is_permitted));
        if valid { Ok(text) } else { Err(SrvError::Text(host.to_owned())) }
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

    #[test]
    fn a_seed_list_makes_a_plain_connection_string() {
        let hosts = ["a.b.c:1".to_owned(), "d.b.c:2".to_owned()];
        for (rest, text, expected) in [
            ("x.b.c", "", "mongodb://a.b.c:1,d.b.c:2/?tls=true"),
            ("u:p%40@x.b.c/db?tls=false", "", "mongodb://u:p%40@a.b.c:1,d.b.c:2/db?tls=false"),
            (
                "x.b.c/?authSource=one&w=2",
                "authSource=two&replicaSet=rs",
                "mongodb://a.b.c:1,d.b.c:2/?authSource=one&w=2&tls=true&replicaSet=rs",
            ),
            ("x.b.c/?srvMaxHosts=1&srvServiceName=m&SSL=true", "", "mongodb://a.b.c:1,d.b.c:2/?SSL=true"),
        ] {
            assert_eq!(SrvParts::parse(rest).unwrap().plain(&hosts, text), expected, "{rest}");
        }
        for rest in ["", "/", "a:27017/", "a,b/", "u:p@/"] {
            assert!(SrvParts::parse(rest).is_err(), "{rest}");
        }
    }

    #[test]
    fn srv_max_hosts_selects_hosts_at_random() {
        let hosts = ["a:1", "b:1", "c:1"].map(str::to_owned);
        let limited = |options: &str| {
            let mut left = hosts.to_vec();
            SrvParts::parse(&format!("x.b.c/?{options}")).unwrap().limit(&mut left);
            left
        };
        for all in ["", "srvMaxHosts=0", "srvMaxHosts=3", "srvMaxHosts=9"] {
            assert_eq!(limited(all), hosts, "{all}");
        }
        let mut seen: Vec<Vec<String>> = (0..500).map(|_| limited("srvMaxHosts=2")).collect();
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
