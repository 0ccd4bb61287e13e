//! The example configurations: one per topology, the package's and the image's.

use std::path::PathBuf;

use super::{assert_loads, read, repository};
use support::certificates::Authority;

fn examples() -> Vec<PathBuf> {
    let files = std::fs::read_dir(repository("deploy/examples")).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// Creates the files that the examples name: `rules/`, and certificates in `tls/`.
#[test]
fn the_example_of_every_topology_loads() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(repository("rules"), folder.path().join("rules")).unwrap();
    let tls = folder.path().join("tls");
    std::fs::create_dir(&tls).unwrap();
    let certificate = Authority::new(&tls, "clients").sign("server", &["proxy.example.com"]);
    for file in ["server.key", "mongodb.pem", "docward.pem"] {
        std::fs::copy(&certificate, tls.join(file)).unwrap();
    }
    let examples = examples();
    for example in &examples {
        let copy = folder.path().join(example.file_name().unwrap());
        // Those in connection strings are named with their whole paths.
        let text = read(example).replace("/etc/docward/tls", tls.to_str().unwrap());
        std::fs::write(&copy, text).unwrap();
        assert_loads(&copy);
    }
    assert_eq!(examples.len(), 8);
}

#[test]
fn every_example_documents_how_clients_connect() {
    for example in examples() {
        let text = read(&example);
        assert!(
            text.lines().any(|line| line.starts_with('#') && line.contains(": mongodb://")),
            "{}",
            example.display()
        );
    }
}

#[test]
fn the_configurations_of_the_package_and_the_image_load() {
    for configuration in ["deploy/debian/docward.yaml", "deploy/docker/docward.yaml"] {
        assert_loads(&repository(configuration));
    }
}
