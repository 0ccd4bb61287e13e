//! Random cases: stored documents, filters with equalities in every form, updates of every kind, in every command
//! that carries them.

mod commands;
mod documents;
mod filters;
mod updates;

use bson::{Bson, Document, doc};

use super::case::{Case, End, Session, Step, first};
use super::dice::Dice;
use super::race::Race;
use super::rules::{Rule, Set, load};
use super::values::{PATHS, at, fitting, related, small_number};

/// One to three rules that docward loads together, sometimes with a unique index on another field.
pub(super) fn set(dice: &mut Dice) -> Set {
    let unique = dice.percent(20).then_some(UNIQUE);
    // A number that is added later can break the limit of the whole document.
    let is_numbered = dice.percent(6);
    loop {
        let count = dice.pick(&[1, 1, 1, 2, 2, 3]);
        let mut rules: Vec<Rule> = if is_numbered { Rule::numbered(dice) } else { vec![Rule::random(dice)] };
        while rules.len() < count {
            // Rules on the same fields, because one may undo what another has checked.
            let tries = if dice.percent(40) { RELATED_TRIES } else { 1 };
            let drawn: Vec<Rule> = (0..tries).map(|_| Rule::random(dice)).collect();
            let fits = drawn.iter().find(|other| shares_field(other, &rules)).or(drawn.first());
            rules.extend(fits.cloned());
        }
        if load(&rules) {
            return Set { rules, unique };
        }
    }
}

/// The field of the index; statements write values there that other documents have.
pub(super) const UNIQUE: &str = "sku";

/// An array of which filters select an element.
const TAGS: &str = "tags";

/// Rules that are drawn to find one on the same field.
const RELATED_TRIES: usize = 12;

fn shares_field(rule: &Rule, others: &[Rule]) -> bool {
    // The length of a document depends on every field.
    let is_bounded = |rule: &Rule| matches!(rule, Rule::Limits(rule) if rule.document.is_some());
    if is_bounded(rule) || others.iter().any(is_bounded) {
        return true;
    }
    let fields = rule.fields();
    let mut known = others.iter().flat_map(|other| other.fields());
    known.any(|known| fields.iter().any(|field| related(field, &known)))
}

pub(super) fn case(dice: &mut Dice, set: &Set) -> Case {
    let mut generator = Generator::new(dice, set);
    let mut stored: Vec<Document> = generator.stored();
    generator.known.clone_from(&stored);
    // The document of the other client is the last one, which the rules allow beside the others.
    generator.raced = if generator.dice.percent(RACED_PERCENT) { stored.pop() } else { None };
    let count = generator.dice.pick(&[1, 1, 1, 1, 2, 3]);
    let mut steps: Vec<Step> = Vec::new();
    for _ in 0..count {
        // Several workers claim in turn, and devices send every write twice.
        let again = steps.last().filter(|_| generator.dice.percent(25)).cloned();
        let again = again.map(|step| Step { race: None, ..step });
        let step = again.unwrap_or_else(|| generator.step());
        if step.session.in_transaction() {
            steps.extend(generator.transaction(step));
        } else {
            steps.push(step);
        }
    }
    Case { rules: set.rules.clone(), unique: set.unique, stored, steps }
}

/// Documents that statements may insert; many break a rule of the set.
pub(super) fn documents(dice: &mut Dice, set: &Set, count: usize) -> Vec<Document> {
    let mut generator = Generator::new(dice, set);
    let document = |_| {
        let mut document = generator.written_document();
        generator.disturb(&mut document);
        document.remove("_id");
        document
    };
    (0..count).map(document).collect()
}

/// Cases whose first statement meets another client. Each takes several times as long as one without.
const RACED_PERCENT: usize = 8;

struct Generator<'a> {
    dice: &'a mut Dice,
    rules: &'a [Rule],
    unique: Option<&'static str>,
    /// Paths to write and to query, mostly those of the rules.
    paths: Vec<String>,
    known: Vec<Document>,
    /// The document that another client inserts during the first statement.
    raced: Option<Document>,
    with_let: bool,
    identifiers: Vec<String>,
    /// Whether documents have tags, of which statements select one.
    with_tags: bool,
}

impl<'a> Generator<'a> {
    fn new(dice: &'a mut Dice, Set { rules, unique }: &'a Set) -> Generator<'a> {
        let unique = *unique;
        let own: Vec<String> = rules.iter().flat_map(|rule| rule.fields()).chain(unique.map(str::to_owned)).collect();
        let mut paths: Vec<String> = own.iter().flat_map(|path| vec![path.clone(); 6]).collect();
        let outer = own.iter().filter(|path| path.contains('.'));
        paths.extend(outer.map(|path| first(path).to_owned()));
        paths.extend(own.iter().map(|path| format!("{path}.x")));
        let with_tags = dice.percent(15);
        if with_tags {
            paths.extend(vec![TAGS.to_owned(); 4]);
        }
        let others = own.len() * 3 + 3;
        paths.extend((0..others).map(|_| dice.pick(&PATHS).to_owned()));
        Generator {
            dice,
            rules,
            unique,
            paths,
            known: Vec::new(),
            raced: None,
            with_let: false,
            identifiers: Vec::new(),
            with_tags,
        }
    }

    fn path(&mut self) -> String {
        self.dice.pick(&self.paths)
    }

    /// A path to write to; some have a position or an arrayFilters identifier.
    fn target(&mut self) -> String {
        let path = self.path();
        match self.dice.below(40) {
            0 => format!("{path}.0"),
            1 => format!("{path}.$"),
            2 => format!("{path}.$[]"),
            3 => {
                self.identifiers.push("e".to_owned());
                format!("{path}.$[e]")
            }
            4 => match path.split_once('.') {
                Some((outer, rest)) => format!("{outer}.{}.{rest}", self.dice.pick(&["0", "0", "1", "$", "$[]"])),
                None => path,
            },
            _ => path,
        }
    }

    /// A value to write or to query.
    fn value(&mut self, path: &str) -> Bson {
        if self.unique == Some(path) && !self.known.is_empty() && self.dice.percent(40) {
            return at(&self.dice.pick(&self.known), path).cloned().unwrap_or("x".into());
        }
        fitting(self.dice, path)
    }

    fn step(&mut self) -> Step {
        let race = self.raced.take();
        if race.is_some() {
            return self.raced_step(race);
        }
        self.with_let = false;
        self.identifiers.clear();
        let mut command = match self.dice.below(10) {
            0 | 1 => self.insert(),
            2 => self.delete(),
            3 | 4 => self.find_and_modify(),
            _ => self.update(),
        };
        if self.with_let {
            command.insert("let", doc! { "x": small_number(self.dice) });
        }
        if self.dice.percent(4) {
            command.insert("comment", "generated");
        }
        if self.dice.percent(3) {
            command.insert("maxTimeMS", 60_000);
        }
        let session = match self.dice.below(24) {
            0 => Session::Retryable,
            1 | 2 => Session::Resent,
            3..6 => Session::Transaction(End::Commit),
            _ => Session::None,
        };
        let mut step = Step { command, session, race: None };
        // The server answers a retried findAndModify without its projection.
        if session == Session::Resent && step.command.contains_key("fields") {
            step.session = Session::None;
        }
        // Drivers send no transaction number with statements on many documents.
        if session.is_retryable() && step.statements().iter().any(|statement| statement.multi) {
            step.session = Session::None;
        }
        step
    }

    /// A single statement, mostly an upsert, that may match another client's document.
    fn raced_step(&mut self, race: Option<Document>) -> Step {
        let mut plain = || loop {
            let step = self.step();
            let is_upsert = step.upserts() || self.dice.percent(10);
            if step.session == Session::None && step.statements().len() == 1 && is_upsert {
                return step;
            }
        };
        let mut step = plain();
        let id = race.as_ref().and_then(|document| document.get("_id")).cloned();
        if let Some((id, filter)) = id.filter(|_| self.dice.percent(70)).zip(step.filter_mut()) {
            filter.insert("_id", id);
        }
        step.race = race.map(|document| Race { document, after_find: self.dice.percent(60) });
        step
    }

    /// One to three commands in one transaction.
    fn transaction(&mut self, first: Step) -> Vec<Step> {
        let others = self.dice.pick(&[0, 0, 1, 1, 2]);
        let mut steps = vec![first];
        steps.extend((0..others).map(|_| self.step()));
        steps.iter_mut().for_each(|step| step.session = Session::Transaction(End::More));
        let end = if self.dice.percent(25) { End::Abort } else { End::Commit };
        steps[others].session = Session::Transaction(end);
        steps
    }
}
