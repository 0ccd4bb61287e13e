//! `queue`: only a statement that names the attempt changes or deletes a locked job; a claim sets the time and
//! increments the attempts, which never decrease.

use bson::{Bson, Document, doc};

use super::super::case::{Kind, Statement};
use super::super::dice::Dice;
use super::super::rules::{Change, Promise};
use super::super::values::{FUTURE, PAST, as_number, date};

const LOCKED: &str = "locked";
const SINCE: &str = "tlocked";
pub(super) const ATTEMPTS: &str = "try";

/// Doubles below this number are exact to 1.
const MOST_ATTEMPTS: f64 = 9_007_199_254_740_992.0;

const FREE: &str = "QUEUED";
const CLAIMED: &str = "CONSUMED";

#[derive(Clone, Debug)]
pub(in super::super) struct Queue {
    pub(in super::super) max_attempts: Option<i32>,
    /// The lock is a word: free, claimed, or another one, which is neither.
    pub(in super::super) words: bool,
}

/// Later than every time that the generator uses as past: from a clock, or far ahead. A value that is no time does not
/// keep a lock.
fn lasts(since: &Bson) -> bool {
    let millis = match since {
        // The largest is not less than itself as a double.
        Bson::Int64(millis) => return *millis > PAST * 3 / 2,
        Bson::DateTime(date) => date.timestamp_millis() as f64,
        Bson::Timestamp(time) => f64::from(time.time) * 1000.0,
        other => as_number(other).unwrap_or(0.0),
    };
    // The server converts no larger number to a long.
    millis > PAST as f64 * 1.5 && millis < i64::MAX as f64
}

fn by_clock(since: Option<&Bson>) -> bool {
    let millis = match since {
        Some(Bson::DateTime(date)) => date.timestamp_millis(),
        // A client that claims with milliseconds as a number gets a number.
        Some(Bson::Int64(millis)) => *millis,
        Some(Bson::Double(millis)) => *millis as i64,
        _ => return false,
    };
    (PAST * 3 / 2..FUTURE - PAST / 10).contains(&millis)
}

fn attempts(job: &Document) -> Option<f64> {
    job.get(ATTEMPTS).and_then(as_number).filter(|number| !number.is_nan())
}

fn names_attempt(statement: &Statement, job: &Document) -> bool {
    let named = statement.equality(ATTEMPTS);
    named.is_some_and(|named| {
        Some(named) == job.get(ATTEMPTS) || as_number(named).is_some() && as_number(named) == attempts(job)
    })
}

impl Queue {
    pub(in super::super) fn random(dice: &mut Dice) -> Queue {
        Queue { max_attempts: dice.percent(30).then_some(3), words: dice.percent(30) }
    }

    fn free(&self) -> Bson {
        if self.words { FREE.into() } else { false.into() }
    }

    fn is_lock(&self, value: Option<&Bson>) -> bool {
        match value {
            value if self.words => value.and_then(Bson::as_str) == Some(CLAIMED),
            None | Some(Bson::Null | Bson::Boolean(false)) => false,
            Some(value) => as_number(value) != Some(0.0),
        }
    }

    /// Neither free nor claimed.
    fn has_ended(&self, job: &Document) -> bool {
        let is_free = |lock: &Bson| *lock == Bson::Null || *lock == self.free();
        self.words && !self.is_lock(job.get(LOCKED)) && !job.get(LOCKED).is_none_or(is_free)
    }

    /// Locked by a worker whose lease has not expired.
    fn is_held(&self, job: &Document) -> bool {
        let since = job.get(SINCE);
        let locked = match job.get(LOCKED) {
            lock if self.words => self.is_lock(lock),
            Some(Bson::Boolean(locked)) => *locked,
            // Only a claim under the rule makes such a lock.
            Some(other) => by_clock(since) && as_number(other).is_some_and(|number| number != 0.0),
            None => false,
        };
        locked && since.is_some_and(lasts)
    }

    /// Whether it claims under some rule.
    pub(super) fn may_claim(statement: &Statement) -> bool {
        [false, true].into_iter().any(|words| Queue { max_attempts: None, words }.claims(statement))
    }

    fn claims(&self, statement: &Statement) -> bool {
        // A pipeline of constants is a claim; any other is rejected.
        if statement.is_pipeline() {
            return statement.touches(LOCKED);
        }
        match statement.replacement() {
            Some(document) => self.is_lock(document.get(LOCKED)),
            None => statement.writes().iter().any(|(operator, path, value)| {
                // Of these the server may store another value, which is free.
                !["$unset", "$rename", "$mul", "$min"].contains(&operator.as_str())
                    && path == LOCKED
                    && self.is_lock(Some(value))
            }),
        }
    }

    fn touched_without_attempt(&self, change: &Change<'_>) -> Option<String> {
        let held = |job: &&Document| self.is_held(job);
        let changed = change.changed().filter_map(|(before, _)| before).filter(held);
        let touched: Vec<&Document> = changed.chain(change.removed().filter(held)).collect();
        let unnamed =
            touched.iter().any(|job| !change.statements.iter().any(|statement| names_attempt(statement, job)));
        if unnamed {
            return Some("a locked job was changed without its attempt".to_owned());
        }
        let several = touched.len() > 1 && change.statements.len() == 1;
        several.then(|| "one statement changed the jobs of several workers".to_owned())
    }

    /// A wrong state of a changed job. A batch may claim and release a job several times; `is_saved`: the worker that has
    /// it may have changed it.
    fn wrong_state(
        &self,
        before: Option<&Document>,
        after: &Document,
        is_single: bool,
        is_saved: bool,
    ) -> Option<&'static str> {
        let Some(before) = before else {
            let complete = [LOCKED, SINCE, ATTEMPTS].iter().all(|field| after.contains_key(field));
            return (!complete).then_some("an inserted job lacks fields of the lease");
        };
        let (old, new) = (attempts(before), attempts(after));
        if old.is_some() && new.is_none_or(|new| Some(new) < old) {
            return Some("the attempts went back");
        }
        let claimed = !is_saved && self.is_lock(after.get(LOCKED)) && before.get(LOCKED) != after.get(LOCKED);
        if claimed && self.has_ended(before) {
            return Some("a job that has ended was claimed");
        }
        if claimed && !by_clock(after.get(SINCE)) {
            return Some("a job was locked without the time");
        }
        let counted = new == Some(old.unwrap_or(0.0) + 1.0) || !is_single && new > old;
        (claimed && !counted).then_some("a job was locked without counting the attempt")
    }
}

impl Promise for Queue {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn settings(&self) -> String {
        let most = self.max_attempts.map(|most| format!(", max_attempts: {most}")).unwrap_or_default();
        let fields = format!("locked: {LOCKED}, locked_at: {SINCE}, attempts: {ATTEMPTS}");
        let words = if self.words { format!(", free: [{FREE}], claimed: [{CLAIMED}]") } else { String::new() };
        format!("queue: {{ fields: {{ {fields} }}, lease: 5m{most}{words} }}")
    }

    fn fields(&self) -> Vec<String> {
        [LOCKED, SINCE, ATTEMPTS, "note"].map(str::to_owned).to_vec()
    }

    fn tidy(&self, dice: &mut Dice, document: &mut Document) {
        let locked = dice.percent(50);
        let word = if locked { CLAIMED } else { dice.pick(&[FREE, FREE, "DONE"]) };
        document.insert(LOCKED, if self.words { Bson::from(word) } else { locked.into() });
        let since = if locked && dice.percent(60) { FUTURE } else { PAST };
        let time = Bson::Timestamp(bson::Timestamp { time: (since / 1000) as u32, increment: 1 });
        document.insert(SINCE, if dice.percent(10) { time } else { date(since) });
        document.insert(ATTEMPTS, dice.below(3) as i32 + i32::from(locked));
        if dice.percent(20) {
            document.remove(dice.pick(&[LOCKED, SINCE, ATTEMPTS]));
        }
    }

    fn idiom(&self, dice: &mut Dice) -> Option<(Document, Document)> {
        let id = 1 + dice.below(3) as i32;
        let flag = dice.pick(&[Bson::Boolean(true), Bson::Boolean(true), Bson::Boolean(true), 1.into()]);
        let (locked, released) =
            if self.words { (CLAIMED.into(), dice.pick(&["DONE", FREE]).into()) } else { (flag, Bson::from(false)) };
        let claim = doc! { "$set": { LOCKED: locked.clone(), "note": dice.below(100) as i32 } };
        let attempt = dice.below(4) as i32;
        Some(match dice.below(7) {
            0..3 => (doc! { "_id": id }, claim),
            3 => (doc! { LOCKED: self.free() }, claim),
            4 => (doc! {}, claim),
            5 => (doc! { "_id": id, ATTEMPTS: attempt }, doc! { "$set": { LOCKED: released, "note": "done" } }),
            _ => (
                doc! { "_id": id, ATTEMPTS: attempt },
                doc! { LOCKED: if dice.percent(50) { locked } else { released }, SINCE: date(PAST), ATTEMPTS: attempt, "note": "done" },
            ),
        })
    }

    /// Every job may be another worker's.
    fn alters(&self, statement: &Statement) -> bool {
        statement.kind != Kind::Insert
    }

    fn broken(&self, change: &Change<'_>) -> Option<String> {
        self.touched_without_attempt(change).or_else(|| {
            let is_single = change.statements.len() == 1;
            change.changed().find_map(|(before, after)| {
                // The worker that has the job may save it with a lock of another form.
                let names = |job: &Document| change.statements.iter().any(|statement| names_attempt(statement, job));
                let is_saved = before.is_some_and(|job| self.is_lock(job.get(LOCKED)) && names(job));
                let claims =
                    matches!(change.statements, [statement] if !statement.is_pipeline() && self.claims(statement));
                if claims && before.is_some() && !is_saved && !self.is_lock(after.get(LOCKED)) {
                    return Some("a claim changed a job and did not lock it".to_owned());
                }
                self.wrong_state(before, after, is_single, is_saved).map(str::to_owned)
            })
        })
    }

    fn harmless(&self, direct: &Change<'_>) -> bool {
        if self.touched_without_attempt(direct).is_some() {
            return false;
        }
        // A claim changes only numbers that are exact to 1.
        let is_countable = |attempts: &Bson| as_number(attempts).is_some_and(|number| number.abs() < MOST_ATTEMPTS);
        let usual = |job: &Document| {
            let countable = job.get(ATTEMPTS).is_none_or(is_countable);
            countable && !self.has_ended(job) && (!self.is_lock(job.get(LOCKED)) || !job.get(SINCE).is_some_and(lasts))
        };
        let free = |job: &Document| {
            usual(job) && self.max_attempts.is_none_or(|most| attempts(job).unwrap_or(0.0) < f64::from(most))
        };
        // A statement after a claim in the same batch cannot have the new attempt number.
        if direct.statements.len() > 1 && direct.statements.iter().any(|statement| self.claims(statement)) {
            return false;
        }
        direct.statements.iter().all(|statement| {
            let claims = self.claims(statement);
            // The job that it names can be claimed. A claim also takes a job whose lock the client's filter does not match:
            // a job without one, with another form of it, or with one that has expired.
            let demands_none = matches!(statement.filter.get(LOCKED),
                Some(Bson::Document(condition)) if condition.contains_key("$exists"));
            let is_matched =
                |job: &Document| !statement.queries(LOCKED) || job.get(LOCKED) == Some(&self.free()) && !demands_none;
            let named = statement.filter.get("_id").is_some_and(|id| {
                let job = direct.before.iter().find(|job| job.get("_id") == Some(id));
                job.is_some_and(|job| free(job) && is_matched(job))
            });
            let uncounted = direct.changed().all(|(before, after)| {
                let Some(before) = before else { return true };
                attempts(before) == attempts(after) && before.contains_key(ATTEMPTS) == after.contains_key(ATTEMPTS)
            });
            let unclear = statement.kind == Kind::Update && statement.touches(SINCE);
            uncounted && !unclear && (!claims || named)
        })
    }

    fn deciding(&self) -> Vec<String> {
        [LOCKED, SINCE, ATTEMPTS].map(str::to_owned).to_vec()
    }

    fn strip(&self, document: &mut Document) {
        document.remove(SINCE);
        document.remove(ATTEMPTS);
        if document.get(LOCKED) == Some(&self.free()) {
            document.remove(LOCKED);
        }
    }

    fn modifies(&self) -> bool {
        true
    }
}
