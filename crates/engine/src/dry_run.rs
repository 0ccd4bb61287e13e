//! Carries out a command without a server and returns what the rules do to it, for `explain`, `test` and others.
//!
//! It runs the same [`Plan`] as the proxy, with made-up replies; each request is recorded as a [`AssumedLookup`]. Numbers
//! start at the lowest possible one, every sent command succeeds ([`AssumedDocuments`]), no user is authenticated, and the
//! client has all privileges. The dry run has no verdict only if it depends on stored documents.

use std::time::Duration;

use super::lookup::{Lookup, LookupError, LookupResult, Maximum, NumberRequest};
use super::outcome::{OutcomeKind, RuleOutcome};
use super::plan::Plan;
use super::request_head::RequestHead;
use super::step::PermitRequest;
use super::step::{Input, Step};
use super::triage::{Triage, triage};
use super::{ClientState, Now, Privileges};
use crate::command::{CommandClass, Reply, WriteForm, classify, code, without_repeated_name_checks};
use crate::document::{CowDocument, Document, Element, Value, Writer};
use crate::rules::RuleSet;
use crate::shell::is_same;
use crate::wire::op_msg::{self, Message};

/// The result of a dry run.
#[derive(Debug)]
pub struct DryRun {
    pub outcome: DryRunOutcome,
    /// The rules' outcomes, in the order of evaluation.
    pub outcomes: Vec<RuleOutcome>,
    /// Outcomes of rules after the one that rejects, for a command that is rejected as a whole; they have no effect.
    pub without_effect: Vec<RuleOutcome>,
    /// The lookups that docward would have made.
    pub needs: Vec<AssumedLookup>,
    /// What it does next depends on the reply to a statement: see [`AssumedDocuments`].
    pub depends_on_replies: bool,
}

/// What the replies show that a dry run makes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssumedDocuments {
    /// Each statement matches a document, also with the conditions that rules add.
    Matching,
    /// Each statement's own filter matches a document, but not with the conditions that rules add.
    Excluded,
    /// The filter of no statement matches a document.
    Nothing,
}

/// What happens to a command.
#[derive(Debug)]
pub enum DryRunOutcome {
    /// It is sent unchanged.
    Unchanged,
    /// These commands are sent instead, one after the other, with their statements in their bodies.
    Rewritten(Vec<CowDocument<'static>>),
    /// The statements of these commands are executed. Checked ones are executed in a transaction, and the result depends
    /// on the documents before and after.
    Checked(Vec<CowDocument<'static>>),
    /// The client gets this error. Of a batch, the statements in `sent` are still sent.
    Rejected { message: String, sent: Vec<CowDocument<'static>> },
    /// It depends on stored documents, see [`DryRun::needs`].
    Undecided,
}

/// A lookup that the dry run answers itself.
#[derive(Debug)]
pub enum AssumedLookup {
    /// The authenticated users: assumed none.
    Users,
    /// Numbers of a sequence: assumed the first ones.
    Numbers(NumberRequest),
    /// The largest existing number: assumed none.
    Maximum(Maximum),
    /// The documents that this find returns: assumed none, unless the outcome is [`DryRunOutcome::Undecided`].
    Documents(CowDocument<'static>),
    /// A permit of a rule: assumed free.
    Permit(PermitRequest),
    /// The result of this find, which checks that a statement's filter matches nothing: assumed a document.
    Match(CowDocument<'static>),
}

/// More steps than any plan with made-up replies takes, for the largest batch.
const MAX_STEPS: usize = 1_000_000;

/// Applies `rules` to `command`, a body that contains `$db` and its statements. Assumes that each statement matches.
#[must_use]
pub fn dry_run(command: Document<'_>, rules: &RuleSet, now: Now, client_state: &mut ClientState) -> DryRun {
    dry_run_with(AssumedDocuments::Matching, command, rules, now, client_state)
}

/// The same with other stored documents.
#[must_use]
pub fn dry_run_with(
    stored: AssumedDocuments,
    command: Document<'_>,
    rules: &RuleSet,
    now: Now,
    client_state: &mut ClientState,
) -> DryRun {
    let frame = frame(command);
    let mut dry_run_plan =
        DryRunPlan { command, rules, stored, sent: Vec::new(), needs: Vec::new(), depends_on_replies: false };
    if !matches!(triage(&RequestHead::new(&frame), rules), Triage::Evaluate | Triage::More) {
        return dry_run_plan.end(DryRunOutcome::Unchanged, Vec::new());
    }
    client_state.privileges = Privileges::all();
    let mut plan = Plan::new(&frame, rules, now).for_dry_run();
    let mut outcomes = Vec::new();
    let mut step = plan.next(Input::Start, client_state);
    for _ in 0..MAX_STEPS {
        outcomes.extend(plan.take_outcomes());
        step = match step {
            Step::Exchange(message) if plan.awaits_match_check() => {
                let found = dry_run_plan.match_one(&message);
                plan.next(Input::Reply(found), client_state)
            }
            // Assume that the write was not sent before.
            Step::Exchange(_) if plan.awaits_record() => {
                plan.next(Input::Reply(reply(|w| w.int32("n", 0))), client_state)
            }
            Step::Exchange(message) => match dry_run_plan.exchange(&message) {
                Some(reply) => plan.next(Input::Reply(reply), client_state),
                None => {
                    outcomes.extend(plan.take_rest());
                    return dry_run_plan.end(DryRunOutcome::Undecided, outcomes);
                }
            },
            // Only what depends on the server's replies is sent so.
            Step::ExchangeAll(_) => {
                outcomes.extend(plan.take_rest());
                return dry_run_plan.end(DryRunOutcome::Undecided, outcomes);
            }
            Step::Lookup(lookup) => {
                let found = dry_run_plan.look_up(lookup);
                plan.next(Input::Found(found), client_state)
            }
            Step::Permits(requests) => {
                dry_run_plan.needs.extend(requests.into_iter().map(AssumedLookup::Permit));
                plan.next(Input::Permits(Ok(())), client_state)
            }
            Step::Yield => plan.next(Input::Resumed, client_state),
            Step::Pause(_) => plan.next(Input::Paused { elapsed: Duration::ZERO }, client_state),
            last => {
                let outcome = dry_run_plan.conclude(last);
                return dry_run_plan.end(outcome, outcomes);
            }
        };
    }
    let message = "it takes too many steps for a dry run".to_owned();
    dry_run_plan.end(DryRunOutcome::Rejected { message, sent: Vec::new() }, outcomes)
}

/// Sorts outcomes by the order of evaluation. If the command is rejected as a whole, returns those of later patterns
/// separately.
fn in_order(
    mut outcomes: Vec<RuleOutcome>,
    outcome: &DryRunOutcome,
    rules: &RuleSet,
) -> (Vec<RuleOutcome>, Vec<RuleOutcome>) {
    outcomes.sort_by_key(|outcome| rules.rule(outcome.rule).pattern.evaluation_order());
    let last = outcomes.iter().rposition(|outcome| outcome.kind == OutcomeKind::Reject);
    let without_effect = match (outcome, last) {
        (DryRunOutcome::Rejected { sent, .. }, Some(last)) if sent.is_empty() => outcomes.split_off(last + 1),
        _ => Vec::new(),
    };
    (outcomes, without_effect)
}

/// Returns one command for each statement, if there are several. Each is built when it is taken: together they may be
/// far longer than `command`.
pub fn statements(command: Document<'_>) -> impl Iterator<Item = CowDocument<'static>> {
    let form = WriteForm::of_command(command).filter(|form| form.statements(command).nth(1).is_some());
    let one = move |list: &str, statement: Document<'_>| {
        CowDocument::build(|w| {
            for element in command.elements() {
                if element.key == list.as_bytes() {
                    w.array(list, |a| a.value(Value::document(statement)));
                } else {
                    w.element(element);
                }
            }
        })
    };
    let with_list = form.and_then(|form| Some((form, form.list()?)));
    with_list.into_iter().flat_map(move |(form, list)| form.statements(command).map(move |each| one(list, each)))
}

/// Returns the number of statements of a command; 1 for a command that is not a batch.
#[must_use]
pub fn statement_count(command: Document<'_>) -> u64 {
    WriteForm::of_command(command).map_or(1, |form| form.statements(command).count() as u64)
}

/// The state of the dry run of one command.
struct DryRunPlan<'c> {
    command: Document<'c>,
    rules: &'c RuleSet,
    stored: AssumedDocuments,
    sent: Vec<CowDocument<'static>>,
    needs: Vec<AssumedLookup>,
    depends_on_replies: bool,
}

impl DryRunPlan<'_> {
    fn end(self, outcome: DryRunOutcome, outcomes: Vec<RuleOutcome>) -> DryRun {
        let as_it_came = |sent: &[CowDocument<'_>]| matches!(sent, [one] if is_same(one.as_document(), self.command));
        let outcome = match outcome {
            DryRunOutcome::Rewritten(sent) if as_it_came(&sent) => DryRunOutcome::Unchanged,
            DryRunOutcome::Rewritten(sent) => DryRunOutcome::Rewritten(without_checks(&sent)),
            DryRunOutcome::Rejected { message, sent } => {
                DryRunOutcome::Rejected { message, sent: without_checks(&sent) }
            }
            outcome => outcome,
        };
        let is_checked = outcomes.iter().any(|one| one.kind == OutcomeKind::Check);
        let outcome = match outcome {
            DryRunOutcome::Unchanged if is_checked => {
                DryRunOutcome::Checked(vec![CowDocument::from_writer(self.command.as_bytes().to_vec())])
            }
            DryRunOutcome::Rewritten(sent) if is_checked => DryRunOutcome::Checked(sent),
            outcome => outcome,
        };
        let (outcomes, without_effect) = in_order(outcomes, &outcome, self.rules);
        let Self { needs, depends_on_replies, .. } = self;
        DryRun { outcome, outcomes, without_effect, needs, depends_on_replies }
    }

    /// Returns the made-up reply to a command of the plan; `None` when it depends on stored documents.
    fn exchange(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let sent = command_of_frame(message)?;
        let writes = WriteForm::of_command(self.command).is_some();
        let name = sent.as_document().first().map(|first| first.key.to_vec()).unwrap_or_default();
        match classify(&name) {
            _ if name == b"connectionStatus" => {
                self.needs.push(AssumedLookup::Users);
                Some(reply(|w| w.nested("authInfo", |w| w.array("authenticatedUsers", |_| {}))))
            }
            CommandClass::Find => {
                self.needs.push(AssumedLookup::Documents(question(sent.as_document())));
                // For reads an empty result has a meaning; for procedures it has none.
                let nothing = |w: &mut Writer<'_>| {
                    w.nested("cursor", |w| {
                        w.slot("id").int64(0);
                        w.array("firstBatch", |_| {});
                    });
                };
                (!writes).then(|| reply(nothing))
            }
            class => {
                let reply = write_reply(WriteForm::for_class(class), sent.as_document(), self.stored);
                // Leave out the abort that a rejection causes in a transaction.
                let of_client = self.command.first().is_some_and(|first| first.key == name);
                self.depends_on_replies |= of_client;
                self.sent.extend(of_client.then_some(sent));
                Some(reply)
            }
        }
    }

    /// Returns the made-up reply to a check of what statements' own filters match.
    fn match_one(&mut self, message: &[u8]) -> Vec<u8> {
        let sent = command_of_frame(message);
        if let Some(checks) = sent.as_ref().and_then(|sent| sent.as_document().get("updates")?.as_array()) {
            return self.match_all(sent.as_ref().map_or(Document::EMPTY, CowDocument::as_document), checks);
        }
        if let Some(sent) = sent {
            self.needs.push(AssumedLookup::Match(question(sent.as_document())));
        }
        let finds = self.stored != AssumedDocuments::Nothing;
        reply(|w| {
            w.nested("cursor", |w| {
                w.slot("id").int64(0);
                w.array("firstBatch", |a| {
                    if finds {
                        a.nested(|w| w.null("_id"));
                    }
                });
            });
        })
    }

    /// The same for a check of several statements.
    fn match_all(&mut self, sent: Document<'_>, checks: Document<'_>) -> Vec<u8> {
        let count = checks
            .values()
            .filter_map(Value::as_document)
            .map(|check| self.needs.push(AssumedLookup::Match(as_find(sent, check))))
            .count();
        let matched = if self.stored == AssumedDocuments::Nothing { 0 } else { count };
        reply(|w| {
            w.int32("n", 0);
            w.array("writeErrors", |a| {
                for index in 0..matched {
                    a.nested(|w| {
                        w.integer("index", index as i64);
                        w.int32("code", code::IMMUTABLE_FIELD);
                    });
                }
            });
        })
    }

    fn look_up(&mut self, lookup: Lookup) -> Result<LookupResult, LookupError> {
        Ok(match lookup {
            Lookup::Numbers(request) => {
                let first = request.beginning.least(&request.counter.database);
                let free = (first..).filter(|number| !request.provided.contains(number));
                let numbers = free.take(request.count as usize).collect();
                if request.count > 0 {
                    self.needs.push(AssumedLookup::Numbers(*request));
                }
                LookupResult::Numbers(numbers)
            }
            Lookup::Maximum(maximum) => {
                self.needs.push(AssumedLookup::Maximum(*maximum));
                LookupResult::Maximum(None)
            }
        })
    }

    fn conclude(&mut self, last: Step) -> DryRunOutcome {
        let mut sent = std::mem::take(&mut self.sent);
        match last {
            Step::Forward { message, .. } => {
                sent.extend(command_of_frame(&message));
                DryRunOutcome::Rewritten(sent)
            }
            Step::Reply(reply) => match first_error(&reply) {
                Some(message) => DryRunOutcome::Rejected { message, sent },
                None => DryRunOutcome::Rewritten(sent),
            },
            Step::Close(message) => DryRunOutcome::Rejected { message, sent },
            Step::Silent => DryRunOutcome::Rejected { message: "docward drops it without a reply".to_owned(), sent },
            Step::ForwardOriginal { .. }
            | Step::Exchange(_)
            | Step::ExchangeAll(_)
            | Step::Lookup(_)
            | Step::Permits(_)
            | Step::Pause(_)
            | Step::Yield => DryRunOutcome::Unchanged,
        }
    }
}

fn without_checks(sent: &[CowDocument<'static>]) -> Vec<CowDocument<'static>> {
    sent.iter().map(|one| without_repeated_name_checks(one.as_document())).collect()
}

/// Returns the first error in a reply.
fn first_error(reply: &[u8]) -> Option<String> {
    let reply = Reply::parse(reply).ok()?;
    let text = |of: Document<'_>| of.get("errmsg").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !reply.is_ok() {
        return Some(text(reply.body));
    }
    let failed = |result: &Document<'_>| result.get("errmsg").is_some();
    let errors = reply.body.get("writeErrors").and_then(Value::as_array).or_else(|| reply.first_batch())?;
    errors.values().filter_map(Value::as_document).find(failed).map(text)
}

/// Returns the command in a message: the body, with the document sequences as arrays in it.
#[must_use]
pub fn command_of_frame(message: &[u8]) -> Option<CowDocument<'static>> {
    command_start(message, usize::MAX)
}

/// Returns the command in a message, as [`command_of_frame`], with at most about `length` bytes of each list, and at
/// least two of its elements.
#[must_use]
pub fn command_start(message: &[u8], length: usize) -> Option<CowDocument<'static>> {
    let message = Message::parse(message).ok()?;
    let body = Document::parse(message.body).ok()?;
    let is_database = |element: &Element<'_>| element.key == b"$db";
    Some(CowDocument::build(|w| {
        for element in body.elements().filter(|element| !is_database(element)) {
            match element.value.as_array() {
                Some(list) if list.as_bytes().len() > length => {
                    let values = list.values().map(|value| (value.bytes.len(), value));
                    w.array(element.key, |a| first(values, length).for_each(|value| a.value(value)));
                }
                _ => w.element(element),
            }
        }
        for sequence in &message.sequences {
            let documents = sequence.documents().map(|document| (document.len(), document));
            w.array(sequence.identifier, |a| {
                // The message may be one that docward has rejected because it is malformed.
                let documents = first(documents, length).filter(|document| Document::parse(document).is_ok());
                documents.for_each(|document| a.document(|out| out.extend_from_slice(document)));
            });
        }
        body.elements().filter(is_database).for_each(|element| w.element(element));
    }))
}

/// The first of some elements with their lengths: at least two, and until they have `length` bytes.
fn first<T>(elements: impl Iterator<Item = (usize, T)>, length: usize) -> impl Iterator<Item = T> {
    let mut before = 0;
    let kept = elements.enumerate().take_while(move |(number, (own, _))| {
        let is_kept = *number < 2 || before < length;
        before += own;
        is_kept
    });
    kept.map(|(_, (_, element))| element)
}

/// Returns the find that is equivalent to one statement of a match check.
fn as_find(sent: Document<'_>, check: Document<'_>) -> CowDocument<'static> {
    CowDocument::build(|w| {
        let fields = [("find", sent.get("update")), ("filter", check.get("q"))];
        fields.into_iter().for_each(|(name, value)| value.into_iter().for_each(|value| w.value(name, value)));
        w.nested("projection", |w| w.int32("_id", 1));
        w.int32("limit", 1);
        sent.get("$db").into_iter().for_each(|database| w.value("$db", database));
    })
}

/// Returns a find without the fields that only matter to its connection.
fn question(find: Document<'_>) -> CowDocument<'static> {
    const ESSENTIAL: [&[u8]; 6] = [b"find", b"filter", b"projection", b"sort", b"limit", b"$db"];
    let essential = find.elements().filter(|element| ESSENTIAL.contains(&element.key));
    CowDocument::build(|w| essential.for_each(|element| w.element(element)))
}

fn frame(command: Document<'_>) -> Vec<u8> {
    let mut writer = op_msg::MessageWriter::new(1, 0, 0, command.as_bytes().len() + 64);
    writer.body(|out| out.extend_from_slice(command.as_bytes()));
    writer.finish()
}

fn reply(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut writer = op_msg::MessageWriter::new(0, 1, 0, 128);
    writer.body(|out| {
        Writer::document(out, |w| {
            write(w);
            w.double("ok", 1.0);
        });
    });
    writer.finish()
}

/// Returns a reply in which every statement succeeded: it has matched one document, or none and inserts an upsert.
fn write_reply(form: Option<WriteForm>, sent: Document<'_>, stored: AssumedDocuments) -> Vec<u8> {
    let statements = || form.into_iter().flat_map(|form| form.statements(sent));
    let count = form.map_or(1, |form| form.statements(sent).count() as i64);
    let finds = stored == AssumedDocuments::Matching || form == Some(WriteForm::Insert);
    let inserts = |statement: &Document<'_>| !finds && statement.get("upsert").and_then(Value::as_flag) == Some(true);
    let upserted = || statements().enumerate().filter(|(_, one)| inserts(one)).map(|(index, _)| index as i64);
    let matched = if finds { count } else { 0 };
    reply(|w| match form {
        Some(WriteForm::FindAndModify) => {
            let upserts = inserts(&sent);
            w.nested("lastErrorObject", |w| {
                w.int32("n", i32::from(finds || upserts));
                w.boolean("updatedExisting", finds);
                if upserts {
                    w.null("upserted");
                }
            });
            w.null("value");
        }
        Some(WriteForm::BulkWrite) => {
            w.nested("cursor", |w| {
                w.slot("id").int64(0);
                w.array("firstBatch", |_| {});
            });
            w.integer("nMatched", matched);
            w.integer("nModified", matched);
            w.integer("nUpserted", upserted().count() as i64);
        }
        _ => {
            w.integer("n", matched + upserted().count() as i64);
            w.integer("nModified", matched);
            if upserted().next().is_some() {
                w.array("upserted", |a| {
                    for index in upserted() {
                        a.nested(|w| {
                            w.integer("index", index);
                            w.null("_id");
                        });
                    }
                });
            }
        }
    })
}

impl DryRun {
    /// Returns whether the statements are executed as they came, perhaps in a transaction.
    #[must_use]
    pub fn keeps(&self, original: &CowDocument<'_>) -> bool {
        match &self.outcome {
            DryRunOutcome::Unchanged => true,
            DryRunOutcome::Checked(sent) => {
                matches!(sent.as_slice(), [one] if is_same(one.as_document(), original.as_document()))
            }
            _ => false,
        }
    }

    /// Returns the commands that would be sent.
    #[must_use]
    pub fn sent<'r>(&'r self, original: &'r CowDocument<'static>) -> &'r [CowDocument<'static>] {
        match &self.outcome {
            DryRunOutcome::Unchanged => std::slice::from_ref(original),
            DryRunOutcome::Rewritten(sent) | DryRunOutcome::Checked(sent) | DryRunOutcome::Rejected { sent, .. } => {
                sent
            }
            DryRunOutcome::Undecided => &[],
        }
    }
}
