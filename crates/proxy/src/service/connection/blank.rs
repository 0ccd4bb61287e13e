//! Removes secrets from connection strings, for messages.
//!
//! If the parts of a string are ambiguous, nothing of it is kept: a password with an unescaped `@`, `/` or `?` may
//! look like a host, a path or an option.

use std::fmt::Write as _;

use crate::secret::HIDDEN;

/// For a string whose only errors are in its secret parts.
pub(super) const MALFORMED: &str = "its user name, its password or an option's value is malformed; percent-encode \
                                    special characters: @ as %40, : as %3A, / as %2F, ? as %3F, % as %25";
const SCHEMES: [&str; 2] = ["mongodb://", "mongodb+srv://"];
const NO_SCHEME: &str = "it must begin with mongodb:// or mongodb+srv://";
/// Why `hosts` cannot be read. Contains no scheme: what follows one, up to an `@`, is hidden when a message is printed.
fn unreadable(hosts: &str) -> String {
    format!(
        "{hosts} cannot be read: write HOST or HOST:PORT, with a port from 1 to 65535; in the user name and the password \
         percent-encode special characters: @ as %40, : as %3A, / as %2F, ? as %3F, % as %25"
    )
}

/// Options whose values are shown in messages: they cannot contain secrets.
const PUBLIC_OPTIONS: [&str; 33] = [
    "authmechanism",
    "compressors",
    "connecttimeoutms",
    "directconnection",
    "heartbeatfrequencyms",
    "journal",
    "loadbalanced",
    "localthresholdms",
    "maxconnecting",
    "maxidletimems",
    "maxpoolsize",
    "maxstalenessseconds",
    "minpoolsize",
    "readconcernlevel",
    "readpreference",
    "readpreferencetags",
    "replicaset",
    "retryreads",
    "retrywrites",
    "servermonitoringmode",
    "serverselectiontimeoutms",
    "serverselectiontryonce",
    "sockettimeoutms",
    "srvmaxhosts",
    "ssl",
    "tls",
    "tlsallowinvalidcertificates",
    "tlsinsecure",
    "uuidrepresentation",
    "w",
    "waitqueuetimeoutms",
    "wtimeoutms",
    "zlibcompressionlevel",
];

/// The parts of a connection string, split as the driver does.
struct ConnectionStringParts<'u> {
    scheme: &'static str,
    /// Without the `@`.
    credentials: Option<&'u str>,
    hosts: &'u str,
    path: &'u str,
    options: Option<&'u str>,
}

/// Replaces all parts that may be secret with placeholders.
///
/// # Errors
/// Why its parts cannot be split.
pub(super) fn without_secrets(uri: &str) -> Result<String, String> {
    let ConnectionStringParts { scheme, credentials, hosts, path, options } = ConnectionStringParts::parse(uri)?;
    let credentials = match credentials {
        None => "",
        Some(credentials) if credentials.contains(':') => "user:password@",
        Some(_) => "user@",
    };
    let path = if is_name(path) { path } else { "database" };
    let mut blank = format!("{scheme}{credentials}{hosts}/{path}");
    let options = options.into_iter().flat_map(|options| options.split('&'));
    for (at, option) in options.enumerate() {
        let separator = if at == 0 { '?' } else { '&' };
        let _ = match option.split_once('=') {
            Some((name, _)) if !is_name(name) => write!(blank, "{separator}{HIDDEN}={HIDDEN}"),
            Some((name, value)) if is_public(name) && is_name(value) => write!(blank, "{separator}{name}={value}"),
            Some((name, _)) => write!(blank, "{separator}{name}=***:***"),
            None if option.is_empty() => write!(blank, "{separator}"),
            None => write!(blank, "{separator}{HIDDEN}"),
        };
    }
    Ok(blank)
}

/// The scheme and hosts.
pub(super) fn hosts(uri: &str) -> String {
    match ConnectionStringParts::parse(uri) {
        Ok(ConnectionStringParts { scheme, hosts, .. }) => format!("{scheme}{hosts}/"),
        Err(_) => HIDDEN.to_owned(),
    }
}

impl<'u> ConnectionStringParts<'u> {
    fn parse(uri: &'u str) -> Result<Self, String> {
        let scheme = SCHEMES.into_iter().find(|scheme| uri.starts_with(scheme)).ok_or(NO_SCHEME)?;
        let rest = uri.strip_prefix(scheme).unwrap_or_default();
        let (address, options) =
            rest.split_once('?').map_or((rest, None), |(address, options)| (address, Some(options)));
        let (credentials, hosts) = address.rsplit_once('@').map_or((None, address), |(a, b)| (Some(a), b));
        let (hosts, path) = hosts.split_once('/').unwrap_or((hosts, ""));
        // What looks like an option may be the end of a password.
        if options.is_some_and(|options| options.contains('@')) {
            return Err(unreadable("its hosts"));
        }
        if path.contains(['&', '=']) {
            return Err("the options begin with `?`: mongodb://HOST/?replicaSet=NAME".to_owned());
        }
        let is_empty = |option: &str| option.eq_ignore_ascii_case("replicaSet=");
        if options.is_some_and(|options| options.split('&').any(is_empty)) {
            return Err("replicaSet has no value; write the name of the set, or remove the option".to_owned());
        }
        match hosts.split(',').position(|host| !is_host(host)) {
            None => {}
            Some(0) if !hosts.contains(',') => return Err(unreadable("its host")),
            // The text may be a part of the password, so only its position is shown.
            Some(wrong) => {
                return Err(unreadable(&format!("host {} of {}", wrong + 1, hosts.split(',').count())));
            }
        }
        Ok(Self { scheme, credentials, hosts, path, options })
    }
}

/// A host name, an address in brackets or a percent-encoded socket, optionally with a port.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.rfind(']') {
        Some(end) => text.split_at(end + 1),
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let is_name = match inner {
        Some(inner) => inner.bytes().all(|b| b.is_ascii_hexdigit() || b":.".contains(&b)),
        None => name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.%".contains(&b)),
    };
    is_name && is_port
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Whether the text may be the name or public value of an option.
fn is_name(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_,.:".contains(&b))
}

fn is_public(option: &str) -> bool {
    PUBLIC_OPTIONS.iter().any(|public| public.eq_ignore_ascii_case(option))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_replaced_by_placeholders() {
        for (uri, blank) in [
            ("mongodb://h", "mongodb://h/"),
            ("mongodb://u:p@a:1,[::1]:2/db?tls=true&w=", "mongodb://user:password@a:1,[::1]:2/db?tls=true&w="),
            ("mongodb+srv://u@a.b.c/?x=y&zz", "mongodb+srv://user@a.b.c/?x=***:***&***"),
            ("mongodb://u:p@%2Ftmp%2Fa.sock/?", "mongodb://user:password@%2Ftmp%2Fa.sock/?"),
            ("mongodb://u:p@q:r/s@h/?tls=p w", "mongodb://user:password@h/?tls=***:***"),
            ("mongodb://h/?authMechanismProperties=T:p&a b=c", "mongodb://h/?authMechanismProperties=***:***&***=***"),
        ] {
            assert_eq!(without_secrets(uri).unwrap(), blank, "{uri}");
        }
        for (uri, reason) in [
            ("", NO_SCHEME.to_owned()),
            ("mongodb:/u:p@h", NO_SCHEME.to_owned()),
            ("mongodb://u:ph", unreadable("its host")),
            ("mongodb://u:p?q@h", unreadable("its hosts")),
            ("mongodb://h/?appName=a@b", unreadable("its hosts")),
            ("mongodb://u:p@h h/", unreadable("its host")),
            ("mongodb://u:p@a:1,b:x,c:2/", unreadable("host 2 of 3")),
            ("mongodb://u:p@a:1,b:0/", unreadable("host 2 of 2")),
            ("mongodb://u:p@a:65536,b:1/", unreadable("host 1 of 2")),
        ] {
            assert_eq!(without_secrets(uri), Err(reason), "{uri}");
        }
        assert_eq!(hosts("mongodb://u:p@a:1,b/db?x=y"), "mongodb://a:1,b/");
        assert_eq!(hosts("mongodb://h/?appName=a@b"), "***");
    }
}
