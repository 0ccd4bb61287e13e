//! The vocabulary of ARCHITECTURE.md holds: words that stood for docward's own ideas before, and that no reader could
//! know, occur neither in the code nor in its docs, rules and console.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Words that occur nowhere, in no form listed, each with what is written instead.
///
/// Not in the list, because they are terms of the field: a refusal (of a connection), a session (of MongoDB or TLS), a
/// write concern, a `MutexGuard`, the pattern `throttle`, a side (client side, server side), a register (CRDT).
const REPLACED: &[(&[&str], &str)] = &[
    (&["speak", "speaks", "speaking", "spoke", "spoken", "speaker", "speakers"], "matches, applies"),
    (&["say", "says", "saying"], "a file or reply has, contains, shows; a rule requires; a program prints, reports"),
    (&["tells", "likes", "wants", "hear", "hears", "heard"], "what the code does: sends, reports, shows, needs"),
    (&["judge", "judges", "judged", "judging", "judgement", "judgements", "stance"], "evaluate, verdict"),
    (&["door", "doors", "lobby", "reception", "entrance", "census"], "listener, accept, admission"),
    (&["sighting", "sightings", "sighted"], "reply of a member"),
    (
        &["retire", "retires", "retired", "retirement", "bustle", "calm", "parting", "goodbye", "leaving"],
        "drain, hand-over",
    ),
    (&["doze", "dozes", "dozing", "dozer"], "idle, quiescent"),
    (&["patience", "patient", "patiently"], "timeout, deadline"),
    (&["road", "roads"], "indirect write"),
    (&["unguardable", "unguarded", "guarded", "guards", "guarding"], "unsupported, unprotected, protected"),
    (&["mend", "mends", "mended", "mending", "mender"], "repair"),
    (&["stamp", "stamps", "stamped", "stamping"], "timestamp"),
    (&["rehearse", "rehearses", "rehearsed", "rehearsal", "rehearsals", "rehearsing"], "dry run"),
    (&["rivalry", "rivalries"], "conflict"),
    (&["outbox", "owed", "owes", "owe"], "buffer, pending reply"),
    (&["heed", "heeds", "heeded", "stirs", "stirred"], "what the code does"),
    (&["whoever", "whomever", "nobody", "whom"], "the client, the process; no client, no process"),
    (&["told", "untold"], "sent, reported, logged"),
    (&["objection", "objections"], "rejection"),
    (&["laxity", "laxities"], "weaker setting"),
    (&["trial", "trials"], "rule test"),
    (&["said"], "printed, logged, reported"),
    (&["observation", "observations"], "decision; reply of a member"),
    (&["greeting", "greetings"], "hello, handshake state"),
    (&["concerned", "concerning"], "a rule applies to; about"),
    (&["anew"], "again; reload"),
    (&["wanting"], "missing, insufficient"),
];

/// Words that are private only as a name of a type or file, where each has a term of the field instead. In texts they
/// have their ordinary meaning: order of arrival, `Math.floor`, a server in front of or behind another, a stock of books.
const NO_NAMES: &[&str] = &[
    "Asked",
    "Written",
    "Ran",
    "Quiet",
    "Follow",
    "Way",
    "Behind",
    "Face",
    "Place",
    "Told",
    "Said",
    "Word",
    "Bench",
    "Observation",
    "Alive",
    "Greeting",
    "Register",
    "Past",
    "Stock",
    "Wanting",
    "Arrival",
    "Leaving",
    "Floor",
    "Board",
    "Memo",
    "Desk",
    "Onlookers",
    "Seat",
];

/// Phrases in which a word has not the meaning of the vocabulary, each with what is written instead.
const PHRASES: &[(&str, &str)] = &[
    ("namespace pattern", "namespace glob: a pattern is that of a rule"),
    ("server refuses", "the server rejects: connections and logins are refused"),
    ("mongod refuses", "mongod rejects: connections and logins are refused"),
    ("left out", "omitted; suppressed, if a rate limit is the reason"),
    ("way around", "indirect write"),
    ("read again", "reload"),
    ("make true", "repair"),
    ("made true", "repair"),
    ("stands still", "is idle"),
    ("stand still", "are idle"),
    ("knows no ", "does not know"),
    ("knows neither", "does not know"),
    ("none but", "only"),
    ("rule concerns", "rule applies to"),
    ("may concern", "may apply to"),
    ("pattern concerns", "pattern applies to"),
    ("that concerns", "that applies to"),
    ("leases numbers", "reserves numbers: a lease ends by itself"),
    ("leases a number", "reserves a number: a lease ends by itself"),
    ("leased numbers", "reserved numbers: a lease ends by itself"),
];

/// Names that several types share, and why.
const SHARED_TYPE_NAMES: &[(&str, &str)] =
    &[("Arguments", "the flags of a subcommand: each file of `cli` that has a subcommand has this one type")];

/// What stays, and why: the beginning of a path, a word, the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("tests/source/plain_words.rs", "*", "the list itself"),
    ("tests/shapes.jsonl", "*", "what other programs send"),
    ("crates/rules/src/config/renamed.rs", "*", "the keys of the first draft, which errors explain"),
    ("crates/rules/src/patterns/tests.rs", "unguardable", "a key of the first draft"),
    ("crates/rules/src/patterns/tests.rs", "unguarded", "a key of the first draft"),
    ("deploy/systemd/docward.service", "wants", "a key of systemd"),
];

#[test]
fn private_words_do_not_occur() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, text) in texts() {
        for (number, line) in text.lines().enumerate() {
            for word in words(line) {
                let Some((_, instead)) = REPLACED.iter().find(|(forms, _)| forms.contains(&word.as_str())) else {
                    continue;
                };
                if !is_exception(&name, &word) {
                    let place = format!("{name}:{}: {}", number + 1, line.trim());
                    found.entry(format!("{word} (write: {instead})")).or_default().push(place);
                }
            }
        }
    }
    let count: usize = found.values().map(Vec::len).sum();
    assert!(found.is_empty(), "{count} private words: {found:#?}");
}

#[test]
fn types_and_files_have_terms_of_the_field() {
    let mut found = Vec::new();
    for (name, text) in texts() {
        let stem = Path::new(&name).file_stem().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".rs") && NO_NAMES.iter().any(|word| word.eq_ignore_ascii_case(&stem)) {
            found.push(name.clone());
        }
        for line in text.lines().filter(|_| name.ends_with(".rs")) {
            if declared_type(line).is_some_and(|declared| NO_NAMES.contains(&declared)) {
                found.push(format!("{name}: {line}"));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// A reader who finds a name in a message, a log or a search must know which type it is.
#[test]
fn each_type_name_stands_for_one_type() {
    let mut declarations: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            if let Some(declared) = declared_type(line) {
                declarations.entry(declared.to_owned()).or_default().push(format!("{name}:{}", number + 1));
            }
        }
    }
    declarations.retain(|_, places| places.len() > 1);
    for (name, reason) in SHARED_TYPE_NAMES {
        assert!(declarations.remove(*name).is_some(), "only one type is named {name} now ({reason})");
    }
    assert!(declarations.is_empty(), "several types have one name: {declarations:#?}");
}

/// `modes::read` says less than `load_overrides`. The methods of traits keep their names: the trait says what is read.
#[test]
fn functions_say_what_they_read() {
    let mut found = Vec::new();
    for (name, text) in sources() {
        let mut in_trait = false;
        for (number, line) in text.lines().enumerate() {
            let (code, indent) = (line.trim_start(), line.len() - line.trim_start().len());
            if indent == 0 && !code.is_empty() && !matches!(code.as_bytes()[0], b'}' | b')' | b'/' | b'#') {
                let is_trait = code.contains("trait ") || code.starts_with("impl") && code.contains(" for ");
                in_trait = is_trait;
            }
            let function = code.split_once("fn ").filter(|(before, _)| !before.contains("//") && !before.contains('"'));
            let called = function.map(|(_, rest)| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next());
            if let Some(Some("read" | "of")) = called
                && !in_trait
            {
                found.push(format!("{name}:{}: {code}", number + 1));
            }
        }
    }
    assert!(found.is_empty(), "functions without an object: {found:#?}");
}

#[test]
fn words_keep_their_meaning() {
    let mut found = Vec::new();
    for (name, text) in texts() {
        for (number, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            let found_in_line =
                PHRASES.iter().filter(|(phrase, _)| lower.contains(phrase) && !is_exception(&name, phrase));
            for (phrase, instead) in found_in_line {
                found.push(format!("{name}:{}: '{phrase}' (write: {instead})", number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn exceptions_are_needed() {
    let texts = texts();
    for (path, word, reason) in EXCEPTIONS.iter().filter(|(path, ..)| !path.starts_with("tests/")) {
        let needed = texts.iter().filter(|(name, _)| name.starts_with(path)).any(|(_, text)| {
            let replaced = |found: &String| REPLACED.iter().any(|(forms, _)| forms.contains(&found.as_str()));
            words(text).iter().any(|found| if *word == "*" { replaced(found) } else { found == word })
        });
        assert!(needed, "{path} has no '{word}' any more ({reason})");
    }
}

/// A name in the vocabulary that the code no longer has misleads more than none.
#[test]
fn the_vocabulary_names_what_the_code_has() {
    let architecture = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md")).unwrap();
    let vocabulary = architecture.split("## Vocabulary").nth(1).unwrap().split("\n## ").next().unwrap();
    let quoted = vocabulary.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_type = |name: &&str| name.starts_with(char::is_uppercase) && name.chars().all(char::is_alphanumeric);
    let names: Vec<&str> = quoted.flat_map(|path| path.split("::")).filter(is_type).collect();
    assert!(names.len() > 10, "{names:?}");
    let code: Vec<String> = sources().into_iter().map(|(_, text)| text).collect();
    let has = |name: &str| code.iter().any(|text| text.split(|c: char| !c.is_alphanumeric()).any(|word| word == name));
    let missing: Vec<_> = names.into_iter().filter(|name| !has(name)).collect();
    assert!(missing.is_empty(), "not in the code: {missing:?}");
}

/// `OwedReplies::next_stamp` is `owed`, `replies`, `next`, `stamp`.
#[test]
fn names_are_split_into_words() {
    assert_eq!(words("OwedReplies::next_stamp"), ["owed", "replies", "next", "stamp"]);
    assert_eq!(words("Who is OLD"), ["who", "is", "old"]);
}

/// The name of the type that a line declares. Associated types are declared by their trait.
fn declared_type(line: &str) -> Option<&str> {
    let code = line.trim_start();
    let declaration = match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => code,
    };
    let kinds: &[&str] = if code.len() == line.len() {
        &["struct ", "enum ", "trait ", "type "]
    } else {
        &["struct ", "enum ", "trait "]
    };
    let rest = kinds.iter().find_map(|kind| declaration.strip_prefix(kind))?;
    let name = rest.split(|c: char| !c.is_alphanumeric()).next()?;
    name.starts_with(char::is_uppercase).then_some(name)
}

#[test]
fn declarations_of_types_are_found() {
    assert_eq!(declared_type("    pub(in crate::proxy) struct Pool<S> {"), Some("Pool"));
    assert_eq!(declared_type("type Names = Vec<String>;"), Some("Names"));
    assert_eq!(declared_type("    type Value = Duration;"), None);
    assert_eq!(declared_type("            struct $name;"), None);
}

fn is_exception(name: &str, word: &str) -> bool {
    EXCEPTIONS.iter().any(|(path, excepted, _)| name.starts_with(path) && (*excepted == "*" || *excepted == word))
}

/// The words of a text in lower case; names are split where a word begins.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut after_lower) = (String::new(), false);
    for character in text.chars().chain([' ']) {
        let begins = character.is_uppercase() && after_lower;
        if (begins || !character.is_alphabetic()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if character.is_alphabetic() {
            word.extend(character.to_lowercase());
        }
        after_lower = character.is_lowercase();
    }
    words
}

/// Every file of code, tests, docs, rules and the console, with its path from the project's folder.
fn texts() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts = Vec::new();
    for folder in ["src", "crates", "tests", "bench", "scripts", "deploy", "fuzz/targets", "docs", "rules"] {
        collect(&root.join(folder), root, &mut texts);
    }
    const FILES: [&str; 7] =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "Cargo.toml", "Makefile", ".ci/run"];
    for file in FILES {
        texts.push((file.to_owned(), std::fs::read_to_string(root.join(file)).unwrap()));
    }
    texts
}

/// The files of the product that are Rust.
fn sources() -> Vec<(String, String)> {
    let mut all = texts();
    all.retain(|(name, _)| (name.starts_with("src/") || name.starts_with("crates/")) && name.ends_with(".rs"));
    all
}

fn collect(folder: &Path, root: &Path, texts: &mut Vec<(String, String)>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, root, texts);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            texts.push((path.strip_prefix(root).unwrap().to_string_lossy().into_owned(), text));
        }
    }
}
