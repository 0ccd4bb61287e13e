//! The page of each pattern has the same parts in the same order, so that a reader finds them without reading it all.

use docward::patterns::{AnyPattern, StateCondition};
use docward::rules::RuleSet;

use super::{blocks, expect, root};

/// The sections, each with words that it contains.
const SECTIONS: [(&str, &[&str]); 5] = [
    ("Before and after", &["| statement | becomes |"]),
    ("What the application sees", &["| case | reply |"]),
    (
        "What you need",
        &[
            "| server |",
            "| indexes |",
            "| stored documents |",
            "| docward's own user (`--service`) |",
            "| the application's user |",
        ],
    ),
    ("Limits", &["- "]),
    ("Adopt it, and go back", &["](../adopt.md)", "To go back, "]),
];

/// The most sentences of the problem.
const MAX_SENTENCES: usize = 2;

/// The first part, from the title to the first section, and the sections with their headings.
fn parts(page: &str) -> (&str, Vec<(&str, &str)>) {
    let mut parts = page.split("\n## ");
    let first = parts.next().unwrap();
    (first, parts.map(|part| part.split_once('\n').unwrap()).collect())
}

fn faults(name: &str, page: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let (first, sections) = parts(page);
    let Some(problem) = first.strip_prefix(&format!("# {name}\n\n**The problem.** ")) else {
        return vec!["it does not begin with its name and the problem".to_owned()];
    };
    let problem = problem.split("\n\n").next().unwrap();
    let sentences = problem.split_whitespace().filter(|word| word.ends_with('.')).count();
    if sentences > MAX_SENTENCES {
        faults.push(format!("the problem has {sentences} sentences"));
    }
    let is_rule = |block: &[&str]| {
        let key = format!("{name}:");
        block.first() == Some(&"version: 1") && block.iter().any(|line| line.trim_start().starts_with(&key))
    };
    if !blocks(first, "yaml").iter().any(|(_, block)| is_rule(block)) {
        faults.push("no complete rule stands before the first section".to_owned());
    }
    for link in [format!("(../reference/keys.md#{name})"), format!("(../reference/{name}.md)")] {
        if !first.contains(&link) {
            faults.push(format!("no link to {link} stands before the first section"));
        }
    }
    let headings: Vec<_> = sections.iter().map(|(heading, _)| *heading).collect();
    let expected = SECTIONS.map(|(heading, _)| heading);
    if headings != expected {
        faults.push(format!("the sections are {headings:?}, not {expected:?}"));
    }
    for ((heading, text), (_, needed)) in sections.iter().zip(SECTIONS) {
        let missing = needed.iter().filter(|word| !text.contains(**word));
        faults.extend(missing.map(|word| format!("'{heading}' does not mention {word}")));
    }
    faults
}

#[test]
fn every_page_of_a_pattern_has_the_same_sections() {
    let mut found = Vec::new();
    for name in AnyPattern::NAMES {
        let page = root().join(format!("docs/patterns/{name}.md"));
        let text = std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        found.extend(faults(name, &text).into_iter().map(|fault| format!("{name}: {fault}")));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_pages_name_the_releases_of_the_supported_servers() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let supported = read("docs/supported.md");
    let release = |name: &str| {
        let start = format!("| `{name}`");
        let row = supported.lines().find(|line| line.starts_with(&start));
        row.and_then(|row| row.split('|').nth(3)).map_or("3.6", str::trim).to_owned()
    };
    // It needs no release, but other things.
    for name in AnyPattern::NAMES.iter().filter(|name| **name != "reads") {
        let (page, release) = (read(&format!("docs/patterns/{name}.md")), release(name));
        let row = page.lines().find(|line| line.starts_with("| server |")).unwrap();
        assert!(row.contains(&format!("MongoDB {release} or later")), "{name}: {release}, and the page has {row}");
    }
}

#[test]
fn a_page_with_other_sections_is_found() {
    let page = std::fs::read_to_string(root().join("docs/patterns/together.md")).unwrap();
    assert!(faults("together", &page).is_empty());
    for (part, instead) in [
        ("## Limits", "## Restrictions"),
        ("**The problem.**", "**Purpose.**"),
        ("| case | reply |", "| reply |"),
        ("    together: [", "    tigether: ["),
        ("(../reference/keys.md#together)", "(../keys.md)"),
        ("(../adopt.md)", "(../rules.md)"),
        ("To go back, ", "Then "),
        ("has one. ", "has one. So. It. Is. "),
    ] {
        assert!(page.contains(part), "{part}");
        assert_eq!(faults("together", &page.replacen(part, instead, 1)).len(), 1, "{part}");
    }
}

/// docs/validators.md has what holds past docward, for the rules in `rules/`.
#[test]
fn the_page_of_validators_has_what_holds_past_docward() {
    const OPENING: &str = "<!-- past docward -->\n";
    const CLOSING: &str = "<!-- end of past docward -->\n";
    let row = |name: &&str| {
        let rules = RuleSet::load(&[root().join(format!("rules/{name}.yaml"))]).unwrap();
        let mut of_pattern = rules.rules().iter().map(|rule| &rule.pattern).filter(|pattern| pattern.name() == *name);
        let shown =
            of_pattern.clone().find(|pattern| !pattern.stored_state().is_empty()).or(of_pattern.next()).unwrap();
        let meaning = |one: StateCondition| one.meaning + if one.is_settled { " (without `--enforce`)" } else { "" };
        let held: Vec<String> = shown.stored_state().into_iter().map(meaning).collect();
        let not_held = shown.not_in_documents();
        format!("| [{name}](patterns/{name}.md) | {} | {not_held} |\n", held.join("; "))
    };
    let rows: String = AnyPattern::NAMES.iter().map(row).collect();
    expect([root().join("docs/validators.md")], |_, shown| {
        let (before, rest) = shown.split_once(OPENING).unwrap();
        let (_, after) = rest.split_once(CLOSING).unwrap();
        format!(
            "{before}{OPENING}| pattern | holds for each document | a document does not show |\n|---|---|---|\n{rows}{CLOSING}{after}"
        )
    });
}

/// docs/mode.md has what no longer holds while no rule of a pattern is enforced.
#[test]
fn the_page_of_modes_has_what_no_longer_holds() {
    const OPENING: &str = "<!-- when off -->\n";
    const CLOSING: &str = "<!-- end of when off -->\n";
    expect([root().join("docs/mode.md")], |_, shown| {
        let (before, rest) = shown.split_once(OPENING).unwrap();
        let (_, after) = rest.split_once(CLOSING).unwrap();
        let rows = AnyPattern::all_when_off().iter().map(|(name, text)| {
            assert!(text.ends_with('.'), "{name}");
            format!("| [{name}](patterns/{name}.md) | {text} |\n")
        });
        format!(
            "{before}{OPENING}| pattern | what no longer holds |\n|---|---|\n{}{CLOSING}{after}",
            rows.collect::<String>()
        )
    });
}
