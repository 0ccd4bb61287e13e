//! `docward.yaml`: the flags of `serve` as keys in a file. A flag takes precedence over the file.
//!
//! The functions in [`super::values`] parse the values of both flags and keys. A mistake is reported at its location in
//! the file, together with all others.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use ipnet::IpNet;

use super::LogFormat;
use super::logging::LogLevel;
use super::machine;
use super::pool::PoolKeys;
use super::values::{self, AdminAddress, MemberEntry};
use crate::admin;
use crate::config::{
    Code, Diagnostic, Located, MapReader, MappingKey, Node, NodeValue, Report, SettingsErrors, path_hint, read_file,
    read_settings,
};
use crate::otlp::Endpoint;
use crate::proxy::{LimitSettings, ListenerFiles, Upstream};
use crate::secret::Secret;
use crate::service::connection::ConnectionError;
use crate::service::{ConnectionString, MongoService};

/// The largest file with a secret, in bytes.
const MAX_SECRET_FILE: usize = 64 << 10;

const TOPOLOGIES: [(&str, ShownTopology); 2] = [("members", ShownTopology::Members), ("router", ShownTopology::Router)];
const LOG_FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];

/// The keys whose values diagnostics may show. The value of any other key, including a misspelled one, may be a
/// password.
const PUBLIC_KEYS: [&str; 20] = [
    "listen",
    "topology",
    "advertise",
    "members",
    "query_listen",
    "proxy_protocol",
    "drain_timeout",
    "hand_over",
    "log_format",
    "log_level",
    "log_documents",
    "resolver",
    "admin",
    "admin_token_file",
    "upstream_file",
    "service_file",
    "tls",
    "limits",
    "pool",
    "rules",
];

/// The content of the file; every key is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ConfigFile {
    pub(super) listen: Option<SocketAddr>,
    pub(super) topology: Option<ShownTopology>,
    pub(super) advertise: Option<String>,
    /// Members by their names in the replica set configuration. If empty, members take consecutive ports.
    pub(super) members: BTreeMap<String, MemberEntry>,
    pub(super) query_listen: Option<SocketAddr>,
    /// The addresses of balancers that name their clients in a header.
    pub(super) proxy_protocol: Vec<IpNet>,
    pub(super) drain_timeout: Option<Duration>,
    pub(super) hand_over: Option<PathBuf>,
    pub(super) log_format: Option<LogFormat>,
    /// `None`: that of RUST_LOG.
    pub(super) log_level: Option<LogLevel>,
    pub(super) log_documents: bool,
    /// The collector for spans.
    pub(super) otlp: Option<Endpoint>,
    pub(super) upstream: Option<ConnectionString>,
    pub(super) service: Option<ConnectionString>,
    /// The name server for mongodb+srv.
    pub(super) resolver: Option<SocketAddr>,
    pub(super) admin: AdminKeys,
    pub(super) tls: TlsKeys,
    pub(super) limits: LimitKeys,
    pub(super) pool: PoolKeys,
    pub(super) rules: Vec<PathBuf>,
    pub(super) secrets: SecretPlaces,
}

/// `topology:`, what clients see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ShownTopology {
    /// The members, each at a listener of its own.
    Members,
    /// One server, which sends each request to the member that it asks for.
    Router,
}

/// Where the secrets of the file are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SecretPlaces {
    /// The file itself contains one.
    pub(super) in_file: bool,
    /// The files that keys such as `service_file` name.
    pub(super) files: Vec<PathBuf>,
}

/// `admin:`, `admin_token:`, `admin_token_file:`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AdminKeys {
    pub(super) address: Option<AdminAddress>,
    pub(super) token: Option<Secret>,
    /// Of the flag; that of the key has been read.
    pub(super) token_file: Option<PathBuf>,
}

/// `tls:`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TlsKeys {
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) key_password: Option<Secret>,
    pub(super) client_ca: Option<PathBuf>,
}

/// `limits:`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LimitKeys {
    pub(super) connections: Option<usize>,
    pub(super) connections_per_address: Option<usize>,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) max_lifetime: Option<Duration>,
    pub(super) handshake_timeout: Option<Duration>,
    /// In bytes.
    pub(super) memory: Option<usize>,
}

/// Whether the address of a server is certainly that of a listener.
fn is_here(host: &str, port: u16, listener: SocketAddr) -> bool {
    let (own, is_any) = (listener.ip(), listener.ip().is_unspecified());
    let is_own = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(ip) => ip == own || is_any && ip.is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost") && (is_any || own.is_loopback()),
    };
    port == listener.port() && is_own
}

impl ConfigFile {
    /// Reads the file at `path`. Paths in it are relative to its folder.
    ///
    /// # Errors
    /// Every mistake in the file, with its location.
    pub(super) fn read_file(path: &Path) -> Result<Self, Report> {
        // A flag may name the address of the listener.
        Self::read_in_part(path, |file, reader| file.check_addresses(None, reader)).map_err(|errors| errors.report)
    }

    /// Reads the file at `path` as `read_file` does. `check` may report further mistakes.
    ///
    /// # Errors
    /// Every mistake in the file, and what could be read in spite of them.
    pub(super) fn read_in_part(
        path: &Path,
        check: impl FnOnce(&Self, &mut MapReader<'_, '_, '_>),
    ) -> Result<Self, SettingsErrors<Self>> {
        let folder = path.parent().unwrap_or(Path::new(""));
        read_settings(
            path,
            &PUBLIC_KEYS,
            |name| std::env::var(name),
            |reader| {
                let file = Self::from_reader(reader, folder);
                check(&file, reader);
                file
            },
        )
    }

    /// Reads the log format in the file at `path`, whatever else is wrong in it.
    pub(super) fn log_format_of(path: &Path) -> Option<LogFormat> {
        match Self::read_in_part(path, |_, _| {}) {
            Ok(file) => file.log_format,
            Err(errors) => errors.partial?.log_format,
        }
    }

    /// The keys with other values in `other` that a reload does not change.
    pub(super) fn keys_for_restart(&self, other: &Self) -> Vec<&'static str> {
        let service_tls = |file: &Self| file.service.as_ref().map(|uri| uri.tls_files().is_some());
        let keys = [
            ("listen", self.listen != other.listen),
            ("topology", self.topology != other.topology),
            ("members", self.members.is_empty() != other.members.is_empty()),
            ("query_listen", self.query_listen != other.query_listen),
            ("proxy_protocol", self.proxy_protocol != other.proxy_protocol),
            ("upstream", self.upstream != other.upstream),
            // Whether there is a connection, and whether it uses TLS.
            ("service", service_tls(self) != service_tls(other)),
            ("resolver", self.resolver != other.resolver),
            ("tls", self.tls.certificate.is_some() != other.tls.certificate.is_some()),
            ("pool", self.pool != other.pool),
            ("admin", self.admin.address != other.admin.address),
            ("drain_timeout", self.drain_timeout != other.drain_timeout),
            ("hand_over", self.hand_over != other.hand_over),
            ("log_format", self.log_format != other.log_format),
            ("log_documents", self.log_documents != other.log_documents),
            ("otlp", self.otlp != other.otlp),
        ];
        keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }

    /// Reports each key with the address of a listener of another key.
    pub(super) fn check_addresses(&self, default: Option<SocketAddr>, reader: &mut MapReader<'_, '_, '_>) {
        for (key, message) in self.shared_addresses(default) {
            let span = reader.node(key).map_or(reader.span(), |node| node.span);
            reader.context().error(Code::ConflictingSettings, span, message);
        }
    }

    /// Each key whose listener has the address of an earlier one, and each that names such an address as a server, with a
    /// message for the user. Port 0 is any free port. `default`: the address without `listen` and `members`.
    pub(super) fn shared_addresses(&self, default: Option<SocketAddr>) -> Vec<(&'static str, String)> {
        let of_members =
            self.members.iter().map(|(name, member)| ("members", format!("`members.{name}`"), member.listen));
        let default = default.filter(|_| self.listen.is_none() && self.members.is_empty());
        let default = default.map(|address| ("listen", "`listen`, by default,".to_owned(), address));
        let of_key = |key: &'static str, address: Option<SocketAddr>| Some((key, format!("`{key}`"), address?));
        let admin = self.admin.address.as_ref().map(|admin| admin.address);
        let others = [of_key("listen", self.listen), of_key("query_listen", self.query_listen), of_key("admin", admin)];
        let all = of_members.chain(default).chain(others.into_iter().flatten());
        let all: Vec<_> = all.filter(|(.., address)| address.port() != 0).collect();
        let is_shared = |one: &SocketAddr, other: &SocketAddr| {
            let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
            one.port() == other.port() && (one.ip() == other.ip() || is_any)
        };
        let shared = all.iter().enumerate().filter_map(|(at, (key, name, address))| {
            let (_, earlier, _) = all.iter().take(at).find(|(.., other)| is_shared(address, other))?;
            Some((*key, format!("{name} and {earlier} listen on one address, {address}; give each its own port")))
        });
        let here = self.servers().filter_map(|(key, host, port)| {
            let (_, listener, address) = all.iter().find(|(.., address)| is_here(&host, port, *address))?;
            let message = format!("`{key}` names docward itself: {listener} is {address}; name the servers of MongoDB");
            Some((key, message))
        });
        shared.chain(here).collect()
    }

    /// The host and port of each server that a key names.
    fn servers(&self) -> impl Iterator<Item = (&'static str, String, u16)> {
        let of_key = |(key, uri): (&'static str, &Option<ConnectionString>)| {
            let addresses = uri.as_ref().map(ConnectionString::addresses).unwrap_or_default();
            addresses.into_iter().map(move |(host, port)| (key, host, port))
        };
        let members = self.members.keys().filter_map(|name| {
            let (host, port) = name.rsplit_once(':')?;
            Some(("members", host.to_owned(), port.parse().ok()?))
        });
        [("upstream", &self.upstream), ("service", &self.service)].into_iter().flat_map(of_key).chain(members)
    }

    /// Whether clients see one server.
    pub(super) fn is_router(&self) -> bool {
        self.topology == Some(ShownTopology::Router)
    }

    pub(super) fn upstream(&self) -> ConnectionString {
        self.upstream.clone().unwrap_or_default()
    }

    /// A tool's client for the deployment, as the user of `upstream` unless there is a `service`; it connects on first use.
    ///
    /// # Errors
    /// A message for the user: what is wrong with the connection string, as far as the servers answer.
    pub(super) async fn connect(&self) -> Result<MongoService> {
        self.connect_with(MongoService::parse(&self.upstream(), self.resolver)).await
    }

    /// Like [`Self::connect`] for `serve`, whose rules never act as the user of `upstream`: who may use docward's own user is
    /// decided by `service` alone.
    pub(super) async fn connect_to_serve(&self) -> Result<MongoService> {
        self.connect_with(MongoService::parse_without_credentials(&self.upstream(), self.resolver)).await
    }

    async fn connect_with(
        &self,
        upstream: impl Future<Output = Result<MongoService, ConnectionError>>,
    ) -> Result<MongoService> {
        let (flag, parsed) = match &self.service {
            Some(uri) => ("--service", MongoService::parse(uri, self.resolver).await),
            None => ("--upstream", upstream.await),
        };
        let service = parsed.context(flag)?;
        if let Some(other) = service.other_set().await {
            bail!("{flag}: {other}");
        }
        if let (Some(upstream), Some(service)) = (&self.upstream, &self.service) {
            let upstream = Upstream::parse(upstream, self.resolver).await.context("--upstream")?;
            let service = Upstream::parse(service, self.resolver).await.context("--service")?;
            if let Some(other) = upstream.other_deployment(&service).await {
                bail!("--service: {other}");
            }
        }
        Ok(service)
    }

    /// Reports rule files and folders that do not exist, at their lines.
    pub(super) fn check_rules(&self, reader: &mut MapReader<'_, '_, '_>) {
        let Some(node) = reader.node("rules") else { return };
        let items = if let NodeValue::List(items) = &node.value { items } else { std::slice::from_ref(node) };
        // After a mistake in the list it is not known which path is whose.
        if items.len() != self.rules.len() {
            return;
        }
        for (path, item) in self.rules.iter().zip(items).filter(|(path, _)| !path.exists()) {
            let message = format!("`rules`: no such file or folder{}", path_hint(path));
            reader.context().error(Code::Unreadable, item.span, message);
        }
    }

    fn from_reader(reader: &mut MapReader<'_, '_, '_>, folder: &Path) -> Self {
        let mut secrets = SecretPlaces::default();
        let mut uri =
            |keys| secrets.read_secret(reader, keys, folder, values::connection_string, ConnectionString::has_secret);
        let (upstream, service) = (uri(["upstream", "upstream_file"]), uri(["service", "service_file"]));
        let topology = reader.choice("topology", &TOPOLOGIES).map(|topology| topology.value);
        let pool = reader.map("pool").map(PoolKeys::from_reader).unwrap_or_default();
        check_router(reader, topology, pool);
        let token = secrets.read_secret(reader, ["admin_token", "admin_token_file"], folder, values::token, |_| true);
        Self {
            listen: checked(reader, "listen", values::address),
            topology,
            advertise: checked(reader, "advertise", values::host_name),
            members: read_members(reader),
            query_listen: checked(reader, "query_listen", values::address),
            proxy_protocol: read_networks(reader, "proxy_protocol"),
            drain_timeout: reader.duration("drain_timeout").map(|time| time.value),
            hand_over: checked(reader, "hand_over", |path| values::socket(folder.join(path))),
            log_format: reader.choice("log_format", &LOG_FORMATS).map(|format| format.value),
            log_level: checked(reader, "log_level", LogLevel::parse),
            log_documents: reader.boolean("log_documents").is_some_and(|documents| documents.value),
            otlp: checked(reader, "otlp", Endpoint::parse),
            upstream,
            service,
            resolver: checked(reader, "resolver", values::address),
            admin: AdminKeys { address: checked(reader, "admin", values::admin_address), token, token_file: None },
            tls: reader.map("tls").map(|tls| TlsKeys::from_reader(tls, folder, &mut secrets)).unwrap_or_default(),
            limits: reader.map("limits").map(LimitKeys::from_reader).unwrap_or_default(),
            pool,
            rules: read_rules(reader, folder),
            secrets,
        }
    }
}

impl SecretPlaces {
    /// The secret that is the value of the first key, or the content of the file that the second one names. `is_secret`:
    /// whether a value is one.
    fn read_secret<T>(
        &mut self,
        reader: &mut MapReader<'_, '_, '_>,
        [key, file_key]: [&'static str; 2],
        folder: &Path,
        check: fn(&str) -> Result<T, String>,
        is_secret: fn(&T) -> bool,
    ) -> Option<T> {
        let (node, named) = (reader.node(key), reader.text(file_key));
        let Some(named) = named else {
            let value = checked(reader, key, check)?;
            self.in_file |= is_secret(&value) && node.is_some_and(|node| !reader.context().is_replaced(node.span));
            return Some(value);
        };
        if let Some(node) = node {
            let mistake = Diagnostic::error(
                Code::ConflictingSettings,
                named.span,
                format!("`{file_key}` cannot be used with `{key}`; remove one of them"),
            );
            reader.context().push(mistake.label(node.span, "here is the value itself"));
            return None;
        }
        let path = folder.join(&named.value);
        let read = read_secret_file(&path, check);
        self.files.push(path);
        let mistake = |error: anyhow::Error| {
            let code = if error.root_cause().is::<io::Error>() { Code::Unreadable } else { Code::InvalidValue };
            reader.context().error(code, named.span, format!("`{file_key}`: {error:#}"));
        };
        read.map_err(mistake).ok()
    }
}

impl AdminKeys {
    /// The settings of the admin address; `None` if there is none.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn settings(&self) -> Result<Option<admin::Settings>> {
        let token = match (&self.token, &self.token_file) {
            (Some(_), Some(_)) => bail!("set --admin-token or --admin-token-file, not both"),
            (Some(token), None) => Some(token.clone()),
            (None, Some(path)) => Some(read_secret_file(path, values::token).context("--admin-token-file")?),
            (None, None) => None,
        };
        let Some(AdminAddress { address, name }) = self.address.clone() else {
            ensure!(token.is_none(), "--admin-token requires --admin");
            return Ok(None);
        };
        ensure!(
            address.ip().is_loopback() || token.is_some(),
            "other machines can reach --admin {address}: set --admin-token-file, or listen on 127.0.0.1"
        );
        Ok(Some(admin::Settings { address, name, token }))
    }
}

/// Reads a file with one secret, which `check` parses. Line breaks at its end are no part of it.
///
/// # Errors
/// A message for the user.
pub(super) fn read_secret_file<T>(path: &Path, check: fn(&str) -> Result<T, String>) -> Result<T> {
    let read = || {
        let bytes = read_file(path, MAX_SECRET_FILE)?;
        let text = str::from_utf8(&bytes).ok().context("it is not UTF-8")?.trim_end_matches(['\r', '\n']);
        ensure!(!text.is_empty(), "the file is empty");
        check(text).map_err(anyhow::Error::msg)
    };
    read().with_context(|| path.display().to_string())
}

impl TlsKeys {
    fn from_reader(mut reader: MapReader<'_, '_, '_>, folder: &Path, secrets: &mut SecretPlaces) -> Self {
        let path = |text: Located<String>| folder.join(text.value);
        let certificate = reader.required_text("certificate").map(path);
        let (key, client_ca) = (reader.text("key").map(path), reader.text("client_ca").map(path));
        let password_keys = ["key_password", "key_password_file"];
        let key_password =
            secrets.read_secret(&mut reader, password_keys, folder, |text| Ok(Secret::new(text)), |_| true);
        reader.finish();
        Self { certificate, key, key_password, client_ca }
    }

    /// The files of the listeners' certificate; `None` if clients connect without TLS.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn files(self) -> Result<Option<ListenerFiles>> {
        match self {
            Self { certificate: Some(certificate), key, key_password, client_ca } => {
                Ok(Some(ListenerFiles { certificate, key, key_password, client_ca }))
            }
            Self { certificate: None, key: None, client_ca: None, .. } => Ok(None),
            _ => bail!("--tls-key and --tls-client-ca require --tls-certificate"),
        }
    }
}

impl LimitKeys {
    fn from_reader(mut reader: MapReader<'_, '_, '_>) -> Self {
        let mut count = |key| {
            let found: Option<Located<i64>> = reader.integer_in(key, 1..=i64::MAX);
            found.and_then(|count| usize::try_from(count.value).ok())
        };
        let (connections, connections_per_address) = (count("connections"), count("connections_per_address"));
        let mut duration = |key| reader.duration(key).map(|duration| duration.value);
        let (idle_timeout, max_lifetime) = (duration("idle_timeout"), duration("max_lifetime"));
        let handshake_timeout = duration("handshake_timeout");
        let memory = checked(&mut reader, "memory", values::size);
        reader.finish();
        Self { connections, connections_per_address, idle_timeout, max_lifetime, handshake_timeout, memory }
    }

    pub(super) fn settings(self) -> LimitSettings {
        let default = LimitSettings::default();
        LimitSettings {
            connections: self.connections.or(default.connections),
            connections_per_address: self.connections_per_address.or(default.connections_per_address),
            idle_timeout: self.idle_timeout.or(default.idle_timeout),
            max_lifetime: self.max_lifetime.or(default.max_lifetime),
            handshake_timeout: self.handshake_timeout.unwrap_or(default.handshake_timeout),
            unauthenticated: None,
            memory: self.memory.or_else(|| machine::memory().map(|all| all / 4)).unwrap_or(default.memory),
        }
    }
}

/// Reports keys that mean nothing for a router.
fn check_router(reader: &mut MapReader<'_, '_, '_>, topology: Option<ShownTopology>, pool: PoolKeys) {
    if topology != Some(ShownTopology::Router) {
        return;
    }
    if let Some(node) = reader.node("pool").filter(|_| !pool.keeps_credentials()) {
        let message =
            "`credentials: forget` cannot be used with `topology: router`: docward logs in at several members";
        reader.context().error(Code::ConflictingSettings, node.span, message);
    }
    for key in ["members", "advertise"] {
        if let Some((name, _)) = reader.entry(key) {
            let message =
                format!("`{key}` cannot be used with `topology: router`: clients see one server, at `listen`");
            reader.context().error(Code::ConflictingSettings, name.span, message);
        }
    }
}

/// `members: { NAME: { listen, advertise } }`
fn read_members(reader: &mut MapReader<'_, '_, '_>) -> BTreeMap<String, MemberEntry> {
    let Some(node) = reader.node("members") else { return BTreeMap::new() };
    let NodeValue::Map(entries) = &node.value else {
        let message = "`members` must be a mapping from member names, as in rs.conf(), to listeners";
        reader.context().error(Code::WrongType, node.span, message);
        return BTreeMap::new();
    };
    if let Some((listen, _)) = reader.entry("listen") {
        let message = "`listen` cannot be used with `members`: every member has its own address";
        reader.context().error(Code::ConflictingSettings, listen.span, message);
    }
    let read = |(name, entry): &(MappingKey, Node)| {
        if let Err(message) = values::member_name(&name.text) {
            reader.context().error(Code::InvalidValue, name.span, message);
        }
        if !matches!(entry.value, NodeValue::Map(_)) {
            let message = format!("`{}` must be a mapping: `{{ listen: 0.0.0.0:27018 }}`", name.text);
            reader.context().error(Code::WrongType, entry.span, message);
            return None;
        }
        let mut entry = reader.context().map(entry)?;
        let listen = entry.required("listen", |entry, key| checked(entry, key, values::address));
        let advertise = checked(&mut entry, "advertise", values::advertised);
        entry.finish();
        Some((name.text.clone(), MemberEntry { listen: listen?, advertise }))
    };
    entries.iter().filter_map(read).collect()
}

/// Addresses or networks, each at its place.
fn read_networks(reader: &mut MapReader<'_, '_, '_>, key: &'static str) -> Vec<IpNet> {
    let texts = reader.texts(key).unwrap_or_default();
    let parse = |text: Located<String>| {
        let mistake = |error| reader.context().error(Code::InvalidValue, text.span, format!("`{key}`: {error}"));
        values::network(&text.value).map_err(mistake).ok()
    };
    texts.into_iter().filter_map(parse).collect()
}

/// The paths of rule files.
fn read_rules(reader: &mut MapReader<'_, '_, '_>, folder: &Path) -> Vec<PathBuf> {
    if let Some(NodeValue::List(items)) = reader.node("rules").map(|node| &node.value)
        && let Some(rule) = items.iter().find(|item| matches!(item.value, NodeValue::Map(_)))
    {
        let mistake = Diagnostic::error(Code::WrongType, rule.span, "`rules` must list files or folders of rules");
        reader.context().push(
            mistake.help("a rule file is named by --rules; to name it here, write the rules to a file of their own"),
        );
        return Vec::new();
    }
    reader.texts("rules").into_iter().flatten().map(|path| folder.join(path.value)).collect()
}

/// The text of `key`, parsed by `check`; reports its error at the text.
fn checked<T>(
    reader: &mut MapReader<'_, '_, '_>,
    key: &'static str,
    check: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    let node = reader.node(key)?;
    // The check has the message for a number: quotes would not help.
    if let NodeValue::Integer(number) = node.value
        && let Err(error) = check(&number.to_string())
    {
        reader.context().error(Code::WrongType, node.span, format!("`{key}`: {error}"));
        return None;
    }
    let text = reader.text(key)?;
    match check(&text.value) {
        Ok(value) => Some(value),
        Err(error) => {
            reader.context().error(Code::InvalidValue, text.span, format!("`{key}`: {error}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConfigFile, Report> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("docward.yaml");
        std::fs::write(&path, text).unwrap();
        ConfigFile::read_file(&path).map(|file| ConfigFile {
            rules: file.rules.iter().map(|rules| rules.strip_prefix(folder.path()).unwrap().to_owned()).collect(),
            ..file
        })
    }

    #[test]
    fn keys_are_read_and_all_are_optional() {
        let file = parse(
            "listen: 127.0.0.1:1\nupstream: mongodb://a\nrules: [rules/, more.yaml]\n\
             limits: {connections: 20000, idle_timeout: 30m}\ntls: {certificate: /a.pem}\n\
             admin: localhost:9216\nlog_format: json\nlog_documents: true\n",
        );
        let file = file.unwrap();
        assert_eq!(file.listen, "127.0.0.1:1".parse().ok());
        assert_eq!(file.rules, [PathBuf::from("rules/"), PathBuf::from("more.yaml")]);
        assert_eq!(file.limits.clone().settings().connections, Some(20_000));
        assert_eq!(file.limits.settings().idle_timeout, Some(Duration::from_secs(1800)));
        assert_eq!(file.tls.files().unwrap().unwrap().certificate, PathBuf::from("/a.pem"));
        assert_eq!(file.admin.address.unwrap().name.as_deref(), Some("localhost"));
        assert_eq!((file.log_format, file.log_documents), (Some(LogFormat::Json), true));
        assert_eq!(parse("# nothing\n").unwrap(), ConfigFile::default());
    }

    #[test]
    fn a_secret_is_a_value_a_variable_or_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("docward.yaml");
        std::fs::write(folder.path().join("uri"), "mongodb://u:p@a/\r\n").unwrap();
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            ConfigFile::read_file(&path)
        };
        for (text, in_file, files) in [
            ("service: mongodb://u:p@a/\n", true, 0),
            ("service: mongodb://a/\n", false, 0),
            ("service: mongodb://u:${CARGO_PKG_NAME}@a/\n", false, 0),
            ("service_file: uri\n", false, 1),
            ("upstream_file: uri\nadmin_token: 0123456789abcdef\n", true, 1),
        ] {
            let file = read(text).unwrap();
            assert!(file.service.or(file.upstream).unwrap().addresses() == [("a".to_owned(), 27017)], "{text}");
            assert_eq!((file.secrets.in_file, file.secrets.files.len()), (in_file, files), "{text}");
        }
    }

    #[test]
    fn every_mistake_is_reported_at_its_place() {
        let report = parse(
            "listen: 127.0.0.1\nupstreem: mongodb://a\nservice: a:27017\nadvertise: 'http://x'\nrules: []\n\
             tls: {key: a, certficate: b}\nlimits: {connections: 0, idle_timeout: 30, handshake_timeout: 5x}\n",
        );
        let report = report.unwrap_err();
        let spans = report.to_json();
        let spans = spans.as_array().unwrap().iter();
        let spans: Vec<_> = spans.map(|one| (one["line"].as_u64().unwrap(), one["column"].as_u64().unwrap())).collect();
        let expected = [(1, 9), (2, 1), (3, 10), (4, 12), (5, 8), (6, 1), (6, 15), (7, 23), (7, 40), (7, 63)];
        assert_eq!(spans, expected, "{report}");
        let text = report.to_string();
        let report = parse("proxy_protocol: [10.0.0.1, 10.0.0.7/8,\n  balancer]\n").unwrap_err().to_string();
        assert!(report.contains("docward.yaml:1:28") && report.contains("docward.yaml:2:3"), "{report}");
        let report =
            parse("listen: 127.0.0.1:1\nmembers: {db: {listen: here}, 'a:1': {advertise: 'a:b'}}\n").unwrap_err();
        let second = report.to_string();
        for words in
            ["`listen` cannot be used", "HOST:PORT, as rs.conf()", "`listen` is missing", "the port is not a number"]
        {
            assert!(second.contains(words), "{words}: {second}");
        }
        for words in ["did you mean `upstream`?", "did you mean `certificate`?", "docward.yaml:1:9", "HOST:PORT"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(parse("listen: a\nlisten: b\n").unwrap_err().to_string().contains("docward.yaml:2:1"));
    }
}
