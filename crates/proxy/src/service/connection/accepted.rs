//! Options of connection strings that every driver accepts and docward's does not, or that have no effect here.
//!
//! People use one connection string for everything, so docward accepts all options of the specification "URI Options".

use std::borrow::Cow;

/// Options without effect, and why. Names are compared without regard to case.
const WITHOUT_EFFECT: [(&str, &str); 7] = [
    ("uuidRepresentation", "docward stores no UUIDs, and forwards those of clients unchanged"),
    ("socketTimeoutMS", OWN_LIMITS),
    ("timeoutMS", OWN_LIMITS),
    ("waitQueueTimeoutMS", OWN_LIMITS),
    ("serverSelectionTryOnce", "docward always tries until serverSelectionTimeoutMS"),
    ("tlsDisableOCSPEndpointCheck", NO_REVOCATION),
    ("tlsDisableCertificateRevocationCheck", NO_REVOCATION),
];
/// The same for options that the driver still checks.
const UNUSED: [(&str, &str); 7] = [
    ("readPreference", SENT_BY_CLIENTS),
    ("readPreferenceTags", SENT_BY_CLIENTS),
    ("maxStalenessSeconds", SENT_BY_CLIENTS),
    ("readConcernLevel", SENT_BY_CLIENTS),
    ("w", SENT_BY_CLIENTS),
    ("wTimeoutMS", SENT_BY_CLIENTS),
    ("journal", SENT_BY_CLIENTS),
];
const SENT_BY_CLIENTS: &str = "clients send their own, and docward's own operations state what they need";
/// Options that only docward's own operations use.
const OF_OWN_OPERATIONS: [&str; 15] = [
    "appName",
    "connectTimeoutMS",
    "enableOverloadRetargeting",
    "heartbeatFrequencyMS",
    "loadBalanced",
    "localThresholdMS",
    "maxAdaptiveRetries",
    "maxConnecting",
    "maxIdleTimeMS",
    "maxPoolSize",
    "minPoolSize",
    "retryReads",
    "retryWrites",
    "serverMonitoringMode",
    "serverSelectionTimeoutMS",
];
const OWN_LIMITS: &str = "docward's own operations have limits of their own, and clients set theirs";
const NO_REVOCATION: &str = "docward never asks whether a certificate is revoked";

/// Options that docward does not have, and what to do instead. Their values `false` and the empty one ask for nothing.
const UNSUPPORTED: [(&str, &str); 5] = [
    (
        "tlsAllowInvalidHostnames",
        "give the server a certificate for the host name in the connection string, or connect by a name in the \
         certificate",
    ),
    ("proxyHost", NO_PROXY),
    ("proxyPort", NO_PROXY),
    ("proxyUsername", NO_PROXY),
    ("proxyPassword", NO_PROXY),
];
const NO_PROXY: &str = "docward connects to the servers itself; run it where it can reach them";

/// What docward does with the options of a connection string.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Accepted<'u> {
    /// The string for the driver.
    pub(super) driver: Cow<'u, str>,
    /// The options without effect, and why.
    pub(super) without_effect: Vec<(&'static str, &'static str)>,
    pub(super) of_own_operations: Vec<&'static str>,
    /// An option that docward does not have, and what to do instead.
    pub(super) unsupported: Option<(&'static str, &'static str)>,
}

/// Removes the options that the driver need not know.
pub(super) fn accepted(uri: &str) -> Accepted<'_> {
    let mut accepted =
        Accepted { driver: uri.into(), without_effect: Vec::new(), of_own_operations: Vec::new(), unsupported: None };
    let Some((address, options)) = uri.split_once('?') else { return accepted };
    let named = |list: &[(&'static str, &'static str)], name: &str| {
        list.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).copied()
    };
    let needed = |option: &&str| {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        if let Some(found) = named(&WITHOUT_EFFECT, name) {
            accepted.without_effect.push(found);
            return false;
        }
        // `readPreferenceTags` can be repeated.
        let unused = named(&UNUSED, name).filter(|found| !accepted.without_effect.contains(found));
        accepted.without_effect.extend(unused);
        accepted.of_own_operations.extend(OF_OWN_OPERATIONS.iter().find(|known| known.eq_ignore_ascii_case(name)));
        if let Some(found) = named(&UNSUPPORTED, name) {
            let asks = !["", "false"].contains(&value);
            accepted.unsupported = accepted.unsupported.or(asks.then_some(found));
            return false;
        }
        // The mechanism that is negotiated anyway.
        !(option.is_empty() || name.eq_ignore_ascii_case("authMechanism") && value.eq_ignore_ascii_case("DEFAULT"))
    };
    let kept: Vec<&str> = options.split('&').filter(needed).collect();
    let kept = kept.join("&");
    if kept != options {
        accepted.driver = if kept.is_empty() { address.into() } else { format!("{address}?{kept}").into() };
    }
    accepted
}

#[cfg(test)]
mod tests {
    use super::accepted;

    #[test]
    fn options_that_the_driver_does_not_need_are_removed() {
        for (uri, driver, without_effect, unsupported) in [
            ("mongodb://h/", "mongodb://h/", 0, None),
            ("mongodb://h/?replicaSet=rs", "mongodb://h/?replicaSet=rs", 0, None),
            ("mongodb://h/?uuidrepresentation=standard", "mongodb://h/", 1, None),
            ("mongodb://h/?w=1&timeoutMS=5&&tls=true&", "mongodb://h/?w=1&tls=true", 2, None),
            ("mongodb://h/?authMechanism=DEFAULT", "mongodb://h/", 0, None),
            ("mongodb://h/?authMechanism=PLAIN", "mongodb://h/?authMechanism=PLAIN", 0, None),
            ("mongodb://h/?tlsAllowInvalidHostnames=false", "mongodb://h/", 0, None),
            ("mongodb://h/?tlsAllowInvalidHostnames=true", "mongodb://h/", 0, Some("tlsAllowInvalidHostnames")),
            ("mongodb://h/?proxyHost=p&proxyPort=1", "mongodb://h/", 0, Some("proxyHost")),
        ] {
            let found = accepted(uri);
            let found = (&*found.driver, found.without_effect.len(), found.unsupported.map(|(name, _)| name));
            assert_eq!(found, (driver, without_effect, unsupported), "{uri}");
        }
    }
}
