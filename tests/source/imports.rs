//! Which file of the sources imports which, as far as their text shows it, and the circles of these imports.
//!
//! A module that only re-exports names is no importer: `crate::command::Statement` is an import of the file that defines
//! `Statement`. Nor is one that calls functions of its own submodules by their path: it is above them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The path of a module below the crate, as `["proxy", "server"]`.
type Module = Vec<String>;

/// Returns all files below a folder.
pub(crate) fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// Returns the code of a file without comments and tests.
pub(crate) fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let before_tests = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    before_tests.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Whether a file contains only tests.
pub(crate) fn is_test(path: &Path) -> bool {
    path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests")
}

/// What one file imports.
#[derive(Default)]
struct Imports {
    paths: Vec<Module>,
    /// By the name under which other files find them here.
    re_exports: BTreeMap<String, Module>,
}

/// Returns the groups of files below `root` that import each other in a circle: paths below `root`, sorted.
pub(crate) fn circles(root: &Path) -> Vec<Vec<String>> {
    let below = |path: &Path| path.strip_prefix(root).unwrap().to_path_buf();
    let rust = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "rs") && !is_test(&below(path));
    let files: BTreeMap<Module, PathBuf> =
        sources(root).into_iter().filter(rust).map(|path| (module_of(&below(&path)), path)).collect();
    let imports: BTreeMap<&Module, Imports> =
        files.iter().map(|(module, path)| (module, imports(module, &code(path), &files))).collect();
    let resolved: BTreeMap<&Module, BTreeSet<&Module>> = imports
        .iter()
        .map(|(module, found)| {
            let targets = found.paths.iter().filter_map(|path| resolve(path.clone(), &imports));
            (*module, targets.filter(|target| target != module && !target.is_empty()).collect())
        })
        .collect();
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        resolved.keys().map(|module| (*module, reachable(module, &resolved))).collect();
    let mut found = BTreeSet::new();
    for (module, from_here) in &reached {
        let circle = from_here.iter().filter(|other| reached[**other].contains(module));
        let mut circle: Vec<String> = circle.map(|other| below(&files[*other]).display().to_string()).collect();
        circle.sort();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

fn module_of(path: &Path) -> Module {
    let path = path.with_extension("");
    let mut parts: Module = path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod") || parts == ["lib"] {
        parts.pop();
    }
    parts
}

fn imports(module: &Module, code: &str, files: &BTreeMap<Module, PathBuf>) -> Imports {
    let mut found = Imports::default();
    let mut rest = String::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        let is_public = trimmed.starts_with("pub") && trimmed.contains(" use ");
        if !is_public && !trimmed.starts_with("use ") {
            rest.push_str(line);
            rest.push('\n');
            continue;
        }
        let mut import = trimmed.split_once("use ").unwrap().1.to_owned();
        while !import.contains(';') {
            import.push_str(lines.next().unwrap().trim());
        }
        for path in single_paths(import.split(';').next().unwrap()) {
            let (path, name) = path.split_once(" as ").map_or((&*path, None), |(path, name)| (path, Some(name)));
            let Some(mut path) = absolute(module, path, files) else { continue };
            if path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            match (is_public, name.or(path.last().map(String::as_str))) {
                (true, Some(name)) => drop(found.re_exports.insert(name.to_owned(), path)),
                _ => found.paths.push(path),
            }
        }
    }
    let is_path = |at: char| at.is_alphanumeric() || at == '_' || at == ':';
    // `pub(in crate::proxy)` imports nothing.
    let rest = rest.replace("(in crate::", "(in ");
    let starts = ["crate::", "super::", "self::"];
    let written = rest.split(|at| !is_path(at)).filter(|word| starts.iter().any(|start| word.starts_with(start)));
    found.paths.extend(written.filter_map(|path| absolute(module, path, files)));
    found
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`.
fn single_paths(import: &str) -> Vec<String> {
    let Some((before, rest)) = import.split_once('{') else { return vec![import.trim().to_owned()] };
    let inner = rest.rsplit_once('}').unwrap().0;
    let mut depth = 0;
    let parts = inner.split(|at| {
        depth += i32::from(at == '{') - i32::from(at == '}');
        at == ',' && depth == 0
    });
    let parts = parts.filter(|part| !part.trim().is_empty()).flat_map(single_paths);
    parts.map(|part| format!("{}{part}", before.trim())).collect()
}

/// The path from the root of the crate; `None`: it names another crate, or nothing that is a file here.
fn absolute(module: &Module, path: &str, files: &BTreeMap<Module, PathBuf>) -> Option<Module> {
    let mut parts: Module = path.split("::").map(|part| part.trim().to_owned()).collect();
    let mut base = module.clone();
    match parts.first()?.as_str() {
        "crate" => base.clear(),
        "self" => {}
        "super" => {
            while parts.get(1).is_some_and(|next| next == "super") {
                parts.remove(0);
                base.pop();
            }
            base.pop();
        }
        child => {
            let child = [&base[..], &[child.to_owned()]].concat();
            return files.contains_key(&child).then(|| [base, parts].concat());
        }
    }
    base.extend(parts.into_iter().skip(1));
    Some(base)
}

/// The file that defines what a path names.
fn resolve<'m>(mut path: Module, imports: &BTreeMap<&'m Module, Imports>) -> Option<&'m Module> {
    // More re-exports than this one through another do not occur.
    for _ in 0..8 {
        let length = (0..=path.len()).rev().find(|length| imports.contains_key(&path[..*length].to_vec()))?;
        let (module, found) = imports.get_key_value(&path[..length].to_vec())?;
        match path.get(length).and_then(|name| found.re_exports.get(name)) {
            Some(target) => path = [target, &path[length + 1..]].concat(),
            None => return Some(module),
        }
    }
    None
}

/// Everything that `module` imports, also through others.
fn reachable<'m>(module: &Module, edges: &BTreeMap<&'m Module, BTreeSet<&'m Module>>) -> BTreeSet<&'m Module> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&Module> = edges[module].iter().copied().collect();
    while let Some(next) = open.pop() {
        if found.insert(*edges.get_key_value(next).unwrap().0) {
            open.extend(&edges[next]);
        }
    }
    found
}

#[test]
fn circles_are_found_through_re_exports() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("lib.rs", "mod a;\nmod b;\n");
    write("a/mod.rs", "mod deep;\nmod other;\npub use deep::{Thing, More as Most};\n");
    write("a/deep.rs", "use crate::b;\n");
    write("a/other.rs", "use super::Thing;\n\npub(in crate::b) struct Other;\n");
    write("b.rs", "use crate::a::{\n    other::Other,\n    Most,\n};\n");
    assert_eq!(circles(root.path()), [["a/deep.rs", "a/other.rs", "b.rs"]]);
    write("b.rs", "pub struct B;\n");
    assert_eq!(circles(root.path()), Vec::<Vec<String>>::new());
}
