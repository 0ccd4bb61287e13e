//! A command carried out without a server: what rules make of it, for `explain`, `test` and whoever else wants
//! to know beforehand.
//!
//! The same [`Plan`] runs as in the proxy. Where it asks for something, the answer is made up and the question
//! noted as a [`Need`]: numbers begin with the first there can be, everything sent succeeds, nobody is
//! authenticated, and the client has all privileges. Only where stored documents decide does a dry_run end
//! without a verdict.

use std::time::Duration;

use super::lookup::{Found, Lease, Lookup, LookupError, Maximum};
use super::outcome::{OutcomeKind, RuleOutcome};
use super::plan::{Input, Plan, Step};
use super::triage::{Triage, triage};
use super::{Now, Privileges, Session};
use crate::command::{Class, Form, Reply, classify, code};
use crate::document::{CowDocument, Document, Value, Writer};
use crate::patterns::RuleSet;
use crate::shell::is_same;
use crate::wire::op_msg::{self, Message};

/// What came of it.
#[derive(Debug)]
pub struct DryRun {
    pub outcome: Outcome,
    /// What rules said, by phase.
    pub outcomes: Vec<RuleOutcome>,
    /// What rules of later phases said of a command that is rejected as a whole: nothing comes of it.
    pub void: Vec<RuleOutcome>,
    /// What docward would have asked for on the way.
    pub needs: Vec<Need>,
}

/// What becomes of a command.
#[derive(Debug)]
pub enum Outcome {
    /// It goes on as it is.
    Unchanged,
    /// These are sent instead, one after the other, their statements in their bodies.
    Rewritten(Vec<CowDocument<'static>>),
    /// The client hears this; of a batch the statements in these commands are sent all the same.
    Rejected { message: String, sent: Vec<CowDocument<'static>> },
    /// It depends on documents that are looked up first, see [`DryRun::needs`].
    Undecided,
}

/// A question, to which a dry_run makes up the answer.
#[derive(Debug)]
pub enum Need {
    /// Who is authenticated: taken for nobody.
    Users,
    /// Numbers of a sequence: taken for the first ones.
    Numbers(Lease),
    /// The largest number there is: taken for none.
    Maximum(Maximum),
    /// What this find finds, on the client's connection: taken for nothing, unless the outcome is
    /// [`Outcome::Undecided`].
    Documents(CowDocument<'static>),
    /// What this find finds for a statement whose own filter must match nothing: taken for a document.
    Match(CowDocument<'static>),
}

/// More steps than any plan with made-up answers takes for the largest batch.
const MAX_STEPS: usize = 1_000_000;

/// Runs `command`, a body with `$db` and its statements in it, through `rules`.
#[must_use]
pub fn dry_run(command: Document<'_>, rules: &RuleSet, now: Now, session: &mut Session) -> DryRun {
    let frame = frame(command);
    let mut dry_run_plan = DryRunPlan { command, rules, sent: Vec::new(), needs: Vec::new() };
    if !matches!(triage(&frame, rules), Triage::Evaluate | Triage::More) {
        let (outcomes, void, needs) = (Vec::new(), Vec::new(), Vec::new());
        return DryRun { outcome: Outcome::Unchanged, outcomes, void, needs };
    }
    session.privileges = Privileges::all();
    let mut plan = Plan::new(&frame, rules, now).thoroughly();
    let mut outcomes = Vec::new();
    let mut step = plan.next(Input::Start, session);
    for _ in 0..MAX_STEPS {
        outcomes.extend(plan.take_outcomes());
        step = match step {
            // A document that a rule protects is there.
            Step::Exchange(message) if plan.looks() => {
                let found = dry_run_plan.found(&message);
                plan.next(Input::Reply(&found), session)
            }
            // Nothing was sent before.
            Step::Exchange(_) if plan.asks_for_record() => {
                plan.next(Input::Reply(&reply(|w| w.int32("n", 0))), session)
            }
            Step::Exchange(message) => match dry_run_plan.exchange(&message) {
                Some(reply) => plan.next(Input::Reply(&reply), session),
                None => return dry_run_plan.end(Outcome::Undecided, outcomes),
            },
            Step::Lookup(lookup) => {
                let found = dry_run_plan.look_up(lookup);
                plan.next(Input::Found(found), session)
            }
            Step::Yield => plan.next(Input::Resumed, session),
            Step::Pause(_) => plan.next(Input::Paused { elapsed: Duration::ZERO }, session),
            last => {
                let outcome = dry_run_plan.conclude(last);
                return dry_run_plan.end(outcome, outcomes);
            }
        };
    }
    let message = "it takes too many steps to be evaluated_dry".to_owned();
    dry_run_plan.end(Outcome::Rejected { message, sent: Vec::new() }, outcomes)
}

/// By phase, as the rules see statements; and apart, of what is rejected as a whole, what would come later.
fn in_order(
    mut outcomes: Vec<RuleOutcome>,
    outcome: &Outcome,
    rules: &RuleSet,
) -> (Vec<RuleOutcome>, Vec<RuleOutcome>) {
    outcomes.sort_by_key(|outcome| rules.rule(outcome.rule).pattern.phase());
    let last = outcomes.iter().rposition(|outcome| outcome.said == OutcomeKind::Reject);
    let void = match (outcome, last) {
        (Outcome::Rejected { sent, .. }, Some(last)) if sent.is_empty() => outcomes.split_off(last + 1),
        _ => Vec::new(),
    };
    (outcomes, void)
}

/// The command once for each of its statements, if it has several.
#[must_use]
pub fn statements(command: Document<'_>) -> Vec<CowDocument<'static>> {
    let form = command.first().and_then(|first| Form::of(classify(first.key)));
    let Some(list) = form.and_then(Form::list) else { return Vec::new() };
    let Some(all) = command.get(list).and_then(Value::as_array).filter(|all| all.values().nth(1).is_some()) else {
        return Vec::new();
    };
    let one = |statement: Value<'_>| {
        CowDocument::build(|w| {
            for element in command.elements() {
                if element.key == list.as_bytes() {
                    w.array(list, |a| a.value(statement));
                } else {
                    w.element(element);
                }
            }
        })
    };
    all.values().map(one).collect()
}

/// The way of one command.
struct DryRunPlan<'c> {
    command: Document<'c>,
    rules: &'c RuleSet,
    sent: Vec<CowDocument<'static>>,
    needs: Vec<Need>,
}

impl DryRunPlan<'_> {
    fn end(self, outcome: Outcome, outcomes: Vec<RuleOutcome>) -> DryRun {
        let as_it_came = |sent: &[CowDocument<'_>]| matches!(sent, [one] if is_same(one.as_document(), self.command));
        let outcome = match outcome {
            Outcome::Rewritten(sent) if as_it_came(&sent) => Outcome::Unchanged,
            outcome => outcome,
        };
        let (outcomes, void) = in_order(outcomes, &outcome, self.rules);
        DryRun { outcome, outcomes, void, needs: self.needs }
    }

    /// The reply to what the plan sends; `None` when only stored documents tell.
    fn exchange(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let sent = command_of_frame(message)?;
        let writes = self.command.first().is_some_and(|first| Form::of(classify(first.key)).is_some());
        let name = sent.as_document().first().map(|first| first.key.to_vec()).unwrap_or_default();
        match classify(&name) {
            _ if name == b"connectionStatus" => {
                self.needs.push(Need::Users);
                Some(reply(|w| w.nested("authInfo", |w| w.array("authenticatedUsers", |_| {}))))
            }
            Class::Find => {
                self.needs.push(Need::Documents(question(sent.as_document())));
                // A question about a read has an answer for when nothing is found; a procedure has none.
                let nothing = |w: &mut Writer<'_>| {
                    w.nested("cursor", |w| {
                        w.slot("id").int64(0);
                        w.array("firstBatch", |_| {});
                    });
                };
                (!writes).then(|| reply(nothing))
            }
            class => {
                let reply = success(Form::of(class), sent.as_document());
                // Not the end of a transaction that a rejection makes of it.
                let of_client = self.command.first().is_some_and(|first| first.key == name);
                self.sent.extend(of_client.then_some(sent));
                Some(reply)
            }
        }
    }

    /// The reply to a look at what statements' own filters match.
    fn found(&mut self, message: &[u8]) -> Vec<u8> {
        let sent = command_of_frame(message);
        if let Some(looks) = sent.as_ref().and_then(|sent| sent.as_document().get("updates")?.as_array()) {
            return self.found_all(sent.as_ref().map_or(Document::EMPTY, CowDocument::as_document), looks);
        }
        if let Some(sent) = sent {
            self.needs.push(Need::Match(question(sent.as_document())));
        }
        reply(|w| {
            w.nested("cursor", |w| {
                w.slot("id").int64(0);
                w.array("firstBatch", |a| a.nested(|w| w.null("_id")));
            });
        })
    }

    /// The same for several statements in one.
    fn found_all(&mut self, sent: Document<'_>, looks: Document<'_>) -> Vec<u8> {
        let count = looks
            .values()
            .filter_map(Value::as_document)
            .map(|look| self.needs.push(Need::Match(as_find(sent, look))))
            .count();
        reply(|w| {
            w.int32("n", 0);
            w.array("writeErrors", |a| {
                for index in 0..count {
                    a.nested(|w| {
                        w.integer("index", index as i64);
                        w.int32("code", code::IMMUTABLE_FIELD);
                    });
                }
            });
        })
    }

    fn look_up(&mut self, lookup: Lookup) -> Result<Found, LookupError> {
        Ok(match lookup {
            Lookup::Lease(lease) => {
                let first = lease.beginning.least(&lease.counter.database);
                let free = (first..).filter(|number| !lease.brought.contains(number));
                let numbers = free.take(lease.count as usize).collect();
                if lease.count > 0 {
                    self.needs.push(Need::Numbers(lease));
                }
                Found::Numbers(numbers)
            }
            Lookup::Maximum(maximum) => {
                self.needs.push(Need::Maximum(maximum));
                Found::Maximum(None)
            }
        })
    }

    fn conclude(&mut self, last: Step) -> Outcome {
        let mut sent = std::mem::take(&mut self.sent);
        match last {
            Step::Forward { message, .. } => {
                sent.extend(command_of_frame(&message));
                Outcome::Rewritten(sent)
            }
            Step::Reply(reply) => match refusal(&reply) {
                Some(message) => Outcome::Rejected { message, sent },
                None => Outcome::Rewritten(sent),
            },
            Step::Close(message) => Outcome::Rejected { message, sent },
            Step::Silent => Outcome::Rejected { message: "it is dropped".to_owned(), sent },
            Step::ForwardOriginal { .. } | Step::Exchange(_) | Step::Lookup(_) | Step::Pause(_) | Step::Yield => {
                Outcome::Unchanged
            }
        }
    }
}

/// What the client is told, unless all went well.
fn refusal(reply: &[u8]) -> Option<String> {
    let reply = Reply::parse(reply).ok()?;
    let text = |of: Document<'_>| of.get("errmsg").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !reply.is_ok() {
        return Some(text(reply.body));
    }
    let cursor = reply.body.get("cursor").and_then(Value::as_document);
    let results = cursor.and_then(|cursor| cursor.get("firstBatch")).and_then(Value::as_array);
    let failed = |result: &Document<'_>| result.get("errmsg").is_some();
    let errors = reply.body.get("writeErrors").and_then(Value::as_array).or(results)?;
    errors.values().filter_map(Value::as_document).find(failed).map(text)
}

/// The command in a message: its body, with its document sequences as arrays in it.
#[must_use]
pub fn command_of_frame(message: &[u8]) -> Option<CowDocument<'static>> {
    let message = Message::parse(message).ok()?;
    let body = Document::parse(message.body).ok()?;
    Some(CowDocument::build(|w| {
        body.elements().filter(|element| element.key != b"$db").for_each(|element| w.element(element));
        for sequence in &message.sequences {
            w.array(sequence.identifier, |a| {
                for document in sequence.documents() {
                    a.document(|out| out.extend_from_slice(document));
                }
            });
        }
        body.elements().filter(|element| element.key == b"$db").for_each(|element| w.element(element));
    }))
}

/// The find that stands for one statement's part of a look.
fn as_find(sent: Document<'_>, look: Document<'_>) -> CowDocument<'static> {
    CowDocument::build(|w| {
        let fields = [("find", sent.get("update")), ("filter", look.get("q"))];
        fields.into_iter().for_each(|(name, value)| value.into_iter().for_each(|value| w.value(name, value)));
        w.nested("projection", |w| w.int32("_id", 1));
        w.int32("limit", 1);
        sent.get("$db").into_iter().for_each(|database| w.value("$db", database));
    })
}

/// A find without what only matters to the connection it is sent on.
fn question(find: Document<'_>) -> CowDocument<'static> {
    const ESSENTIAL: [&[u8]; 6] = [b"find", b"filter", b"projection", b"sort", b"limit", b"$db"];
    let essential = find.elements().filter(|element| ESSENTIAL.contains(&element.key));
    CowDocument::build(|w| essential.for_each(|element| w.element(element)))
}

fn frame(command: Document<'_>) -> Vec<u8> {
    let mut writer = op_msg::Writer::new(1, 0, 0, command.as_bytes().len() + 64);
    writer.body(|out| out.extend_from_slice(command.as_bytes()));
    writer.finish()
}

fn reply(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut writer = op_msg::Writer::new(0, 1, 0, 128);
    writer.body(|out| {
        Writer::document(out, |w| {
            write(w);
            w.double("ok", 1.0);
        });
    });
    writer.finish()
}

/// Every statement does what it should.
fn success(form: Option<Form>, sent: Document<'_>) -> Vec<u8> {
    let list = form.and_then(Form::list).and_then(|list| sent.get(list)).and_then(Value::as_array);
    let count = list.map_or(1, |list| list.values().count() as i64);
    reply(|w| match form {
        Some(Form::FindAndModify) => {
            w.nested("lastErrorObject", |w| w.int32("n", 1));
            w.null("value");
        }
        Some(Form::BulkWrite) => {
            w.nested("cursor", |w| {
                w.slot("id").int64(0);
                w.array("firstBatch", |_| {});
            });
            w.integer("nMatched", count);
        }
        _ => {
            w.integer("n", count);
            w.integer("nModified", count);
        }
    })
}

impl DryRun {
    /// The commands that would be sent.
    #[must_use]
    pub fn sent<'r>(&'r self, original: &'r CowDocument<'static>) -> &'r [CowDocument<'static>] {
        match &self.outcome {
            Outcome::Unchanged => std::slice::from_ref(original),
            Outcome::Rewritten(sent) | Outcome::Rejected { sent, .. } => sent,
            Outcome::Undecided => &[],
        }
    }
}
