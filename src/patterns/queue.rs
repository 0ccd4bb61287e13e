//! `queue`: a collection worked as a queue, with a lease.
//!
//! A worker takes a job, stalls past its lease, a second one takes it over, and then the first completes it:
//! the job is done twice. Each claim counts the attempts up, and every later word on the job must name the
//! attempt it speaks for (a fencing token), so that the first worker's completion finds nothing.
//!
//! claim: `findOneAndUpdate({kind: "mail", locked: false}, {$set: {locked: true, by: "w1"}})` becomes
//! `findOneAndUpdate({kind: "mail", $or: [{locked: {$ne: true}}, {$expr: LEASE_OVER}]},
//! {$set: {locked: true, by: "w1"}, $currentDate: {tlocked: true}, $inc: {try: 1}})`, with LEASE_OVER =
//! `{$lt: ["$tlocked", {$subtract: ["$$NOW", LEASE]}]}`: the server's clock decides.

use std::time::Duration;

use super::filter::remade;
use super::{Concern, Context, Judge, Phase, Rejection, Verdict, concern_for_content, read_path};
use crate::command::{Delete, Insert, Modification, Namespace, Operation, Statement, StatementKind, Update};
use crate::document::{CowDocument, Document, Kind, Lookup, OwnedValue, Path, Value, Writer, edit};
use crate::effect::{Touch, equality, touch, touched};
use crate::rules::{Code, Laxity, MapReader};

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Queue {
    locked: Path,
    /// When the job was claimed.
    since: Path,
    /// How often it was claimed: the fencing token.
    attempts: Path,
    lease: Duration,
    max_attempts: Option<i64>,
}

impl Judge for Queue {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn phase(&self) -> Phase {
        Phase::Queue
    }

    fn rewriting(&self) -> &'static str {
        "the fields of the lease are kept, and a claim finds free jobs only"
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn laxities(&self) -> Vec<Laxity> {
        let endless = Laxity { what: "gives up no job, however often it fails", setting: "max_attempts" };
        if self.max_attempts.is_none() { vec![endless] } else { Vec::new() }
    }

    fn concern(&self, kind: StatementKind, _: Namespace<'_>) -> Concern {
        match kind {
            StatementKind::Delete => Concern::Each,
            _ => concern_for_content(kind),
        }
    }

    fn judge<'a>(&self, statement: &Statement<'a>, context: &Context<'_>) -> Verdict<'a> {
        match &statement.operation {
            Operation::Insert(insert) => self.insert(insert, context),
            Operation::Delete(Delete { filter, .. }) => self.fenced(filter.as_document()),
            Operation::Update(update) => match &update.modification {
                Modification::Operators(operators) if self.claims(operators.as_document()) => {
                    self.claim(update, operators.as_document())
                }
                Modification::Operators(operators) => self.update(update, operators.as_document()),
                Modification::Replacement(document) => self.replacement(update, document.as_document()),
                Modification::ClientPipeline(_) | Modification::Pipeline(_) => Verdict::client_pipeline(),
            },
        }
    }
}

impl Queue {
    pub(super) fn read(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let mut field = |key: &'static str, default: &str| match reader.entry(key) {
            Some(_) => read_path(reader, key).map(|path| path.value),
            None => Path::parse(default),
        };
        let (locked, since, attempts) =
            (field("locked", "locked"), field("since", "tlocked"), field("attempts", "try"));
        let lease = reader.required("lease", MapReader::duration);
        let max_attempts = reader.integer_in("max_attempts", 1..=i64::from(i32::MAX));
        let place = reader.place();
        let (locked, since, attempts) = (locked?, since?, attempts?);
        let fields = [&locked, &since, &attempts];
        let nested = fields.iter().find(|field| !field.is_top_level() || field.as_str() == "_id");
        if let Some(field) = nested {
            let message = format!("`{field}` must be a top-level field other than _id");
            reader.context().error(Code::InvalidValue, place, message);
            return None;
        }
        if locked == since || locked == attempts || since == attempts {
            let message = "`locked`, `since` and `attempts` must be three fields";
            reader.context().error(Code::ConflictingSettings, place, message);
            return None;
        }
        Some(Self {
            locked,
            since,
            attempts,
            lease: lease?.value,
            max_attempts: max_attempts.map(|number| number.value),
        })
    }

    /// A new job gets the fields it lacks: unlocked, now, never claimed.
    fn insert<'a>(&self, insert: &Insert<'a>, context: &Context<'_>) -> Verdict<'a> {
        let document = insert.document.as_document();
        let lacks = |field: &Path| field.lookup(document) == Lookup::Missing;
        if ![&self.locked, &self.since, &self.attempts].into_iter().any(lacks) {
            return Verdict::Forward;
        }
        let document = edit::append(document, |w| {
            if lacks(&self.locked) {
                w.boolean(self.locked.as_str(), false);
            }
            if lacks(&self.since) {
                w.value(self.since.as_str(), OwnedValue::date(context.now).as_value());
            }
            if lacks(&self.attempts) {
                w.int32(self.attempts.as_str(), 0);
            }
        });
        Verdict::rewrite(Operation::Insert(Insert { document: CowDocument::from_writer(document) }))
    }

    /// A claim sets `locked: true`.
    fn claims(&self, operators: Document<'_>) -> bool {
        let set = operators.get("$set").and_then(Value::as_document);
        set.and_then(|set| set.get(self.locked.as_str())).and_then(Value::as_flag) == Some(true)
    }

    fn claim<'a>(&self, update: &Update<'a>, operators: Document<'_>) -> Verdict<'a> {
        if update.multi {
            return Verdict::reject("it would claim several jobs at once", "Claim one job at a time.");
        }
        if update.upsert {
            return Verdict::reject(
                "as an upsert it could insert a job that is claimed already",
                "Insert jobs by insert.",
            );
        }
        let own =
            |path: &[u8]| [&self.since, &self.attempts].into_iter().any(|field| touch(field, path) != Touch::Apart);
        let positional = touched(operators).any(|(_, path, _)| touch(&self.locked, path) == Touch::Positional);
        if positional {
            return Verdict::unguardable("it reaches the lock by position", "Set the lock by its own path.");
        }
        let filter = CowDocument::build(|w| self.write_claim_filter(w, update.filter.as_document()));
        let operators = CowDocument::build(|w| self.write_claim_operators(w, operators, own));
        Verdict::rewrite(remade(update, filter, Modification::Operators(operators), false))
    }

    /// The client's conditions, but for the one on the lock, which would leave jobs out whose lease is over.
    fn write_claim_filter(&self, w: &mut Writer<'_>, filter: Document<'_>) {
        let others = || filter.elements().filter(|element| element.key != self.locked.as_str().as_bytes());
        if self.max_attempts.is_none() && filter.get("$or").is_none() {
            others().for_each(|element| w.element(element));
            return self.write_free(w);
        }
        w.array("$and", |a| {
            a.nested(|w| others().for_each(|element| w.element(element)));
            a.nested(|w| self.write_free(w));
            if let Some(max) = self.max_attempts {
                a.nested(|w| w.nested(self.attempts.as_str(), |w| w.integer("$lt", max)));
            }
        });
    }

    /// Unlocked, never locked, or locked for longer than the lease.
    fn write_free(&self, w: &mut Writer<'_>) {
        let locked = self.locked.as_str();
        let lease = i64::try_from(self.lease.as_millis()).unwrap_or(i64::MAX);
        w.array("$or", |a| {
            a.nested(|w| w.nested(locked, |w| w.boolean("$ne", true)));
            a.nested(|w| {
                w.nested("$expr", |w| {
                    w.array("$lt", |a| {
                        a.string(format!("${}", self.since));
                        a.nested(|w| {
                            w.array("$subtract", |a| {
                                a.string("$$NOW");
                                a.slot().int64(lease);
                            });
                        });
                    });
                });
            });
        });
    }

    /// The client's operators without its own bookkeeping, then ours.
    fn write_claim_operators(&self, w: &mut Writer<'_>, operators: Document<'_>, own: impl Fn(&[u8]) -> bool) {
        let ours = [("$currentDate", &self.since), ("$inc", &self.attempts)];
        let mut write = |name: &[u8], fields: Document<'_>| {
            let kept = || fields.elements().filter(|field| !own(field.key));
            let added = ours.iter().find(|(operator, _)| operator.as_bytes() == name).map(|(_, field)| *field);
            if kept().next().is_none() && added.is_none() {
                return;
            }
            w.nested(name, |w| {
                kept().for_each(|field| w.element(field));
                if let Some(field) = added {
                    if field == &self.since { w.boolean(field.as_str(), true) } else { w.int32(field.as_str(), 1) }
                }
            });
        };
        for operator in operators.elements() {
            write(operator.key, operator.value.as_document().unwrap_or(Document::EMPTY));
        }
        for (name, _) in ours.iter().filter(|(name, _)| operators.get(name).is_none()) {
            write(name.as_bytes(), Document::EMPTY);
        }
    }

    fn update<'a>(&self, update: &Update<'_>, operators: Document<'_>) -> Verdict<'a> {
        if update.upsert {
            return Verdict::reject("as an upsert it could insert a job without its lock", "Insert jobs by insert.");
        }
        if let Some((operator, ..)) =
            touched(operators).find(|(_, path, _)| touch(&self.attempts, path) != Touch::Apart)
        {
            return Verdict::reject(
                format!(
                    "{} changes '{}', which only a claim counts up",
                    String::from_utf8_lossy(operator),
                    self.attempts
                ),
                format!("Leave '{}' as it is.", self.attempts),
            );
        }
        // Renames, positional paths and odd operators on the lock could lock without claiming.
        let odd = touched(operators).find(|(operator, path, value)| match touch(&self.locked, path) {
            Touch::Apart => false,
            Touch::Exact => *operator != b"$set" || value.as_flag() != Some(false),
            Touch::Inside | Touch::Around | Touch::Positional => true,
        });
        if let Some((operator, ..)) = odd {
            return Verdict::unguardable(
                format!("{} on '{}' is neither a claim nor a release", String::from_utf8_lossy(operator), self.locked),
                format!("Claim with $set: {{{0}: true}}, release with $set: {{{0}: false}}.", self.locked),
            );
        }
        self.fenced(update.filter.as_document())
    }

    fn replacement<'a>(&self, update: &Update<'_>, document: Document<'_>) -> Verdict<'a> {
        let filter = update.filter.as_document();
        let token = equality(filter, self.attempts.as_str());
        let kept = |field: &Path| matches!(field.lookup(document), Lookup::Found(_));
        let same_token = match (token.and_then(Value::as_integer), self.attempts.lookup(document)) {
            (Some(token), Lookup::Found(value)) => value.as_integer() == Some(token),
            _ => false,
        };
        if update.upsert || !same_token || !kept(&self.locked) || !kept(&self.since) {
            return Verdict::Reject(Rejection::new(
                format!(
                    "it replaces a job without the '{}' it was claimed with, in filter and document",
                    self.attempts
                ),
                "Use updateOne with $set, and the attempt number in the filter.",
            ));
        }
        Verdict::Forward
    }

    /// Only whoever holds the job's attempt number may speak for it; an unlocked job is nobody's.
    fn fenced<'a>(&self, filter: Document<'_>) -> Verdict<'a> {
        let token = equality(filter, self.attempts.as_str());
        let unlocked = equality(filter, self.locked.as_str()).is_some_and(|value| value.as_bool() == Some(false));
        if unlocked || token.is_some_and(|token| !matches!(token.kind, Kind::Null | Kind::Undefined)) {
            return Verdict::Forward;
        }
        Verdict::reject(
            format!("its filter has neither the job's '{}' nor {}: false", self.attempts, self.locked),
            format!("Put the '{}' that the claim returned into the filter.", self.attempts),
        )
    }
}
