//! The commands of the quick start in docs/tls.md make certificates that docward accepts.

use std::path::Path;
use std::process::Command;

use super::{blocks, docward, output_text, root};

fn run(script: &str, folder: &Path) {
    let done = Command::new("sh").args(["-e", "-c", script]).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "{script}\n{}", output_text(&done));
}

#[test]
fn the_quick_start_of_tls_works() {
    let page = std::fs::read_to_string(root().join("docs/tls.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let script = |(_, block): (usize, Vec<&str>)| {
        let commands = block.into_iter().filter(|line| !line.starts_with("docward ") && !line.starts_with("mongosh "));
        commands.collect::<Vec<_>>().join("\n")
    };
    for script in blocks(&page, "sh").into_iter().map(script) {
        run(&script, folder.path());
    }
    run("openssl verify -CAfile ca.pem server.pem client.pem", folder.path());
    let configuration = blocks(&page, "yaml").remove(0).1.join("\n").replace(" }", ", client_ca: ca.pem }");
    assert!(configuration.contains("client_ca"), "{configuration}");
    std::fs::write(folder.path().join("docward.yaml"), configuration).unwrap();
    let done = docward(&["check", "--config", "docward.yaml"], folder.path());
    assert!(done.status.success(), "{}", output_text(&done));
}
