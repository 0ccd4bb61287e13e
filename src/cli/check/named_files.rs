//! Reports addresses, rules and certificates that a configuration file names and that cannot be used, at their keys: also if the
//! file has mistakes elsewhere.

use crate::cli::config_file::{AdminKeys, ConfigFile, TlsKeys};
use crate::cli::listening::LISTEN;
use crate::config::{Code, MapReader, NodeValue, Span};
use crate::proxy::{ListenerTls, TlsError, UpstreamTls};
use crate::service::ConnectionString;

/// Reports the mistakes of `file`, which was read with `reader`.
pub(super) fn check(file: &ConfigFile, reader: &mut MapReader<'_, '_, '_>) {
    file.check_addresses(Some(LISTEN), reader);
    file.check_rules(reader);
    check_certificates(&file.tls, reader);
    check_connection(["upstream", "upstream_file"], file.upstream.as_ref(), reader);
    check_connection(["service", "service_file"], file.service.as_ref(), reader);
    check_admin(&file.admin, reader);
}

fn check_certificates(keys: &TlsKeys, reader: &mut MapReader<'_, '_, '_>) {
    // A missing `certificate` is reported by the reader.
    let Some(files) = keys.clone().files().ok().flatten() else { return };
    for error in ListenerTls::mistakes(files) {
        let is = |path: &Option<_>| path.is_some() && path.as_deref() == error.file();
        let key = match (is(&keys.certificate), is(&keys.key), is(&keys.client_ca)) {
            (false, true, _) => "key",
            (false, false, true) => "client_ca",
            _ => "certificate",
        };
        if let Some(span) = reader.node("tls").and_then(|tls| value_span(&tls.value, key)) {
            report(reader, span, key, &error);
        }
    }
}

/// The TLS files of a connection string.
fn check_connection(keys: [&'static str; 2], uri: Option<&ConnectionString>, reader: &mut MapReader<'_, '_, '_>) {
    let Some(files) = uri.and_then(ConnectionString::tls_files) else { return };
    let Some((key, node)) = keys.into_iter().find_map(|key| Some((key, reader.node(key)?))) else { return };
    UpstreamTls::mistakes(files).iter().for_each(|error| report(reader, node.span, key, error));
}

fn report(reader: &mut MapReader<'_, '_, '_>, span: Span, key: &str, error: &TlsError) {
    let code = if matches!(error, TlsError::Unreadable(..)) { Code::Unreadable } else { Code::InvalidValue };
    reader.context().error(code, span, format!("`{key}`: {error}"));
}

fn value_span(mapping: &NodeValue, key: &str) -> Option<Span> {
    let NodeValue::Map(entries) = mapping else { return None };
    entries.iter().find(|(found, _)| found.text == key).map(|(_, node)| node.span)
}

fn check_admin(keys: &AdminKeys, reader: &mut MapReader<'_, '_, '_>) {
    // If a key has a mistake of its own, it is not known whether the keys fit.
    let token = ["admin_token_file", "admin_token"].into_iter().find_map(|key| Some((key, reader.node(key)?)));
    let address = reader.node("admin").map(|node| ("admin", node));
    if keys.address.is_none() && address.is_some() || keys.token.is_none() && token.is_some() {
        return;
    }
    if let (Err(error), Some((key, node))) = (keys.settings(), token.or(address)) {
        reader.context().error(Code::InvalidValue, node.span, format!("`{key}`: {error:#}"));
    }
}
