//! Serves the console's files in `console/`: a page, its styles and its scripts. The files contain no data of this
//! process. The page requests the data itself, with the token that the user enters, in a header: there are no cookies to
//! protect. Decisions are read by `fetch`, because EventSource cannot send a header.

use axum::Router;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::routing::get;

/// Allows only files of this origin: no inline scripts, no external resources, no text as markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

struct File {
    path: &'static str,
    content_type: &'static str,
    text: &'static str,
}

macro_rules! file {
    ($name:literal, $content_type:expr) => {
        file!(concat!("/console/", $name), $name, $content_type)
    };
    ($path:expr, $name:literal, $content_type:expr) => {
        File { path: $path, content_type: $content_type, text: include_str!(concat!("console/", $name)) }
    };
}

const FILES: [File; 21] = [
    file!("/", "index.html", HTML),
    file!("all.js", SCRIPT),
    file!("api.js", SCRIPT),
    file!("application.js", SCRIPT),
    file!("capture.js", SCRIPT),
    file!("confirm.js", SCRIPT),
    file!("connections.js", SCRIPT),
    file!("console.css", CSS),
    file!("console.js", SCRIPT),
    file!("dom.js", SCRIPT),
    file!("icon.svg", IMAGE),
    file!("mode.js", SCRIPT),
    file!("pieces.js", SCRIPT),
    file!("playground.js", SCRIPT),
    file!("plot.js", SCRIPT),
    file!("rule.js", SCRIPT),
    file!("rules.js", SCRIPT),
    file!("slowest.js", SCRIPT),
    file!("status.js", SCRIPT),
    file!("tail.js", SCRIPT),
    file!("text.js", SCRIPT),
];

/// A route for each file.
pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, file| router.route(file.path, get(async || response(file))))
}

/// Whether one of the files is at this path.
pub(super) fn has(path: &str) -> bool {
    FILES.iter().any(|file| file.path == path)
}

fn response(file: &'static File) -> ([(axum::http::HeaderName, &'static str); 2], &'static str) {
    ([(CONTENT_TYPE, file.content_type), (CONTENT_SECURITY_POLICY, POLICY)], file.text)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::FILES;

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/admin/console");
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut there: Vec<String> =
            names.map(|name| if name == "index.html" { "/".to_owned() } else { format!("/console/{name}") }).collect();
        there.sort();
        assert_eq!(FILES.map(|file| file.path.to_owned()).to_vec(), there);
    }
}
