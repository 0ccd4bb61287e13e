//! Warnings of `serve` and `check` about valid settings that are rarely intended: no rules, credentials and options that are
//! not used, secrets that every user of the machine can read.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::config_file::{ConfigFile, LimitKeys};
use crate::rules::reads::max_staleness;
use crate::rules::{Mode, RuleSet, misnamed_rule_files, skipped_rule_files};

/// The permission bit that lets every user read a file.
const OTHERS_READ: u32 = 0o004;

/// Returns one sentence for each such setting. `config`: the configuration file, if there is one.
pub(super) fn notices(settings: &ConfigFile, rules: &RuleSet, config: Option<&Path>) -> Vec<String> {
    let mut found = Vec::new();
    if rules.rules().is_empty() {
        found.push(
            "there are no rules: docward forwards everything unchanged; name rule files with --rules (rules: in \
             docward.yaml)"
                .to_owned(),
        );
    } else if rules.rules().iter().all(|rule| rule.mode == Mode::Disabled) {
        found.push("every rule is disabled: docward forwards everything unchanged".to_owned());
    }
    match (max_staleness(rules), settings.query_listen) {
        (Some(_), None) if !settings.is_router() => found.push(
            "the `reads` rules have no effect: there is no query listener (--query-listen, or query_listen: in \
             docward.yaml), and no router (topology: router)"
                .to_owned(),
        ),
        (None, Some(_)) => found.push(
            "the query listener rejects every read: no enforced `reads` rule names a collection that it may read"
                .to_owned(),
        ),
        _ => {}
    }
    if settings.upstream.as_ref().is_some_and(|uri| uri.has_credentials()) {
        found.push(
            "the credentials in --upstream (upstream: in docward.yaml) are not used: clients log in themselves, and \
             docward's own user is given by --service (service: in docward.yaml); remove them"
                .to_owned(),
        );
    }
    let folder = settings.hand_over.as_deref().and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        let folder = folder.display();
        found.push(format!("the folder of `hand_over`, {folder}, does not exist: it must exist when docward starts"));
    }
    if let Some(folder) = settings.hand_over.as_deref().filter(|path| path.is_dir()) {
        found.push(format!("`hand_over`, {}, is a folder: name a socket in it", folder.display()));
    }
    for (flag, uri) in [("upstream", &settings.upstream), ("service", &settings.service)] {
        let without_effect = uri.iter().flat_map(|uri| uri.without_effect());
        found.extend(without_effect.map(|(option, why)| format!("{option} in `{flag}` has no effect: {why}")));
    }
    let whose = if settings.service.is_some() { "`service`" } else { "it" };
    let own = settings.upstream.iter().flat_map(|uri| uri.of_own_operations());
    found.extend(own.map(|option| {
        format!(
            "{option} in `upstream` has no effect on clients: their own decide; docward's own operations use {whose}"
        )
    }));
    let LimitKeys { connections, connections_per_address, .. } = settings.limits;
    if connections.is_some_and(|connections| connections_per_address > Some(connections)) {
        found.push("`connections_per_address` has no effect: it is more than `connections`".to_owned());
    }
    found.extend(readable_secrets(settings, config));
    found.extend(skipped_rules(&settings.rules));
    found
}

/// Sentences about files in these folders that look like rule files, and that docward does not read as such.
pub(super) fn skipped_rules(paths: &[PathBuf]) -> impl Iterator<Item = String> {
    let skipped = (
        skipped_rule_files(paths),
        "not read",
        "rule files end with .yaml or .yml and test files with .test.yaml or .test.yml, in small letters, and hidden \
         files and folders are skipped",
    );
    let misnamed = (
        misnamed_rule_files(paths),
        "not read as rules",
        "*.test.yaml and *.test.yml are names of test files; give a rule file another name",
    );
    [skipped, misnamed].into_iter().filter(|(files, ..)| !files.is_empty()).map(|(files, what, why)| {
        let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        format!("{what}: {}: {why}", names.join(", "))
    })
}

/// Secrets in files that every user of the machine can read.
fn readable_secrets(settings: &ConfigFile, config: Option<&Path>) -> Vec<String> {
    let uris = [&settings.upstream, &settings.service];
    let [upstream_key, service_key] = uris.map(|uri| uri.as_ref()?.tls_files()?.certificate_key);
    // Without `key`, the private key is in the file of the certificate.
    let key = settings.tls.key.as_deref().or(settings.tls.certificate.as_deref());
    let files = [
        (config.filter(|_| settings.secrets.in_file), "a password or token"),
        (settings.admin.token_file.as_deref(), "the token of the admin address"),
        (key, "the private key of the listeners"),
        (upstream_key.as_deref(), "the private key of `upstream`"),
        (service_key.as_deref(), "the private key of `service`"),
    ];
    let warning = |(path, secret): (Option<&Path>, &str)| {
        let path = path?;
        // A file that cannot be read is reported where it is used.
        let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o7777;
        let name = path.display();
        (mode & OTHERS_READ != 0).then(|| {
            format!("every user of this machine can read {secret} in {name} (mode {mode:04o}): chmod o-rwx {name}")
        })
    };
    let secrets = settings.secrets.files.iter().map(|path| (Some(&**path), "the secret"));
    files.into_iter().chain(secrets).filter_map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::config_file::SecretPlaces;
    use crate::cli::config_file::ShownTopology;
    use crate::config::SourceFile;
    use crate::service::ConnectionString;

    fn rules(text: &str) -> RuleSet {
        RuleSet::from_sources(vec![SourceFile { name: "r.yaml".into(), text: text.into() }]).unwrap()
    }

    fn found(settings: &ConfigFile, rules: &RuleSet, config: Option<&Path>) -> String {
        notices(settings, rules, config).join("\n")
    }

    #[test]
    fn settings_that_are_rarely_meant_are_named() {
        let one = |mode: &str| {
            rules(&format!(
                "version: 1\nrules: [{{name: r, namespace: d.c, mode: {mode}, deny: {{operations: [delete], when: {{filter: empty}}}}}}]\n"
            ))
        };
        let uri = |text: &str| ConnectionString::parse(text).ok();
        let plain = ConfigFile { upstream: uri("mongodb://h/?replicaSet=rs"), ..ConfigFile::default() };
        assert_eq!(found(&plain, &one("shadow"), None), "");
        assert!(found(&plain, &one("disabled"), None).starts_with("every rule is disabled"));
        assert!(found(&plain, &RuleSet::default(), None).starts_with("there are no rules"));
        let odd = "mongodb://h/?timeoutMS=5&uuidRepresentation=standard&W=1&maxPoolSize=5&retrywrites=true";
        let limits = LimitKeys { connections: Some(5), connections_per_address: Some(6), ..LimitKeys::default() };
        let odd =
            ConfigFile { upstream: uri(odd), hand_over: Some("/none/a.sock".into()), limits, ..ConfigFile::default() };
        let printed = found(&odd, &one("enforce"), None);
        for expected in [
            "timeoutMS in `upstream` has no effect",
            "uuidRepresentation in",
            "w in `upstream` has no effect",
            "maxPoolSize in `upstream` has no effect on clients: their own decide; docward's own operations use it",
            "retryWrites in",
            "`connections_per_address` has no effect",
            "`hand_over`, /none, does not",
        ] {
            assert!(printed.contains(expected), "{printed}");
        }
        let reads = rules("version: 1\nrules: [{name: r, namespace: d.c, reads: {}}]\n");
        assert!(found(&plain, &reads, None).starts_with("the `reads` rules have no effect"));
        let routed = ConfigFile { topology: Some(ShownTopology::Router), ..plain.clone() };
        assert_eq!(found(&routed, &reads, None), "");
        let queried = ConfigFile { query_listen: "127.0.0.1:1".parse().ok(), ..plain.clone() };
        assert_eq!(found(&queried, &reads, None), "");
        assert!(found(&queried, &one("enforce"), None).starts_with("the query listener rejects every read"));
        let handed = ConfigFile { hand_over: Some("/tmp".into()), ..plain.clone() };
        assert!(found(&handed, &one("enforce"), None).contains("`hand_over`, /tmp, is a folder"));
        let with_user = ConfigFile { upstream: uri("mongodb://u:p@h/"), ..ConfigFile::default() };
        assert!(found(&with_user, &one("enforce"), None).starts_with("the credentials in --upstream"));
    }

    #[test]
    fn secrets_that_every_user_can_read_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("docward.yaml");
        std::fs::write(&path, "").unwrap();
        let rules = rules(
            "version: 1\nrules: [{name: r, namespace: d.c, deny: {operations: [delete], when: {filter: empty}}}]\n",
        );
        let mut settings = ConfigFile::default();
        for (mode, with_secret, expected) in
            [(0o644, false, false), (0o644, true, true), (0o640, true, false), (0o604, true, true)]
        {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            settings.secrets = SecretPlaces { in_file: with_secret, files: Vec::new() };
            let printed = found(&settings, &rules, Some(&path));
            assert_eq!(printed.contains(&format!("(mode {mode:04o}): chmod o-rwx")), expected, "{mode:o} {printed}");
            settings.secrets = SecretPlaces { in_file: false, files: vec![path.clone()] };
            let printed = found(&settings, &rules, None);
            assert_eq!(printed.contains("read the secret in"), mode & 0o4 != 0, "{mode:o} {printed}");
            let uri = format!("mongodb://h/?tls=true&tlsCertificateKeyFile={}", path.display());
            let keyed = ConfigFile { service: Some(ConnectionString::parse(&uri).unwrap()), ..ConfigFile::default() };
            let printed = found(&keyed, &rules, None);
            assert_eq!(printed.contains("the private key of `service`"), mode & 0o4 != 0, "{mode:o} {printed}");
        }
    }
}
