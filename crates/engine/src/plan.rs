//! Carries out one message, step by step.
//!
//! [`Plan::next`] returns the next step; the caller performs it and passes the result to the next call. Most messages
//! are planned at once (`message_plan.rs`), or after the numbers that they need. For the others async functions ask for
//! their steps through a port (`port.rs`).

use super::batch::{BatchJob, Sending};
use super::lookup::Lookup;
use super::message_plan::{Incoming, MessagePlan, carry_out};
use super::outcome::{RuleOutcome, RuleOutcomes};
use super::port::{CommandPurpose, Coroutine, Flow, Port};
use super::step::{Input, Step};
use super::{ClientState, Now};
use crate::command::MAX_STATEMENTS;
use crate::document::{Kind, peek};
use crate::rules::RuleSet;
use crate::wire::op_msg::Message;

/// The plan for one message.
pub struct Plan<'f> {
    state: PlanState<'f>,
    outcomes: RuleOutcomes,
}

enum PlanState<'f> {
    Fresh(Incoming<'f>),
    CarryingOut(Coroutine<'f>),
    /// The service has been asked for numbers.
    Numbering(Box<BatchJob<'f>>),
    /// The command has been sent. Its reply is the client's.
    Sent(Box<BatchJob<'f>>),
    Done,
}

/// Bytes of a parsed statement with the verdicts of its rules.
const NOTED_LENGTH: usize = 700;
/// The largest result of [`evaluation_length`].
pub const MAX_EVALUATION_LENGTH: usize = MAX_STATEMENTS * NOTED_LENGTH;

/// Returns an estimate of the bytes that evaluating a message takes, besides the message itself and what is sent
/// instead. Returns 0 for short messages.
#[must_use]
pub fn evaluation_length(frame: &[u8]) -> usize {
    const SHORT: usize = 4096;
    let Some(message) = (frame.len() > SHORT).then(|| Message::parse(frame).ok()).flatten() else { return 0 };
    let in_sequences: usize = message.sequences.iter().map(|sequence| sequence.count()).sum();
    let lists = peek(message.body).filter(|element| element.value.kind == Kind::Array);
    let in_body = lists.map(|list| peek(list.value.bytes).count()).max().unwrap_or(0);
    (in_sequences + in_body).min(MAX_STATEMENTS) * NOTED_LENGTH
}

impl<'f> Plan<'f> {
    /// Creates the plan for `frame`, one complete message.
    pub fn new(frame: &'f [u8], rules: &'f RuleSet, now: Now) -> Self {
        Self { state: PlanState::Fresh(Incoming::new(frame, rules, now)), outcomes: RuleOutcomes::default() }
    }

    /// For a dry run: also notes routine outcomes, and sends checked statements as they are applied.
    pub(super) fn for_dry_run(mut self) -> Self {
        self.outcomes.include_routine();
        if let PlanState::Fresh(incoming) = &mut self.state {
            incoming.is_dry_run = true;
        }
        self
    }

    /// Returns the rules' outcomes since the last call, as far as they are final.
    pub fn take_outcomes(&mut self) -> Vec<RuleOutcome> {
        match &self.state {
            PlanState::CarryingOut(functions) => functions.take_outcomes(),
            PlanState::Numbering(_) | PlanState::Sent(_) => self.outcomes.take_final(),
            PlanState::Fresh(_) | PlanState::Done => self.outcomes.take(),
        }
    }

    /// Returns the other outcomes of a plan that cannot be continued.
    pub fn take_rest(&mut self) -> Vec<RuleOutcome> {
        match &self.state {
            PlanState::CarryingOut(functions) => functions.take_all_outcomes(),
            PlanState::Numbering(_) | PlanState::Sent(_) | PlanState::Fresh(_) | PlanState::Done => {
                self.outcomes.take()
            }
        }
    }

    /// Returns whether docward has an open transaction on the server. Then run the plan to its end even if the client
    /// disconnects: otherwise its locks are held until the server's timeout.
    pub fn must_finish(&self) -> bool {
        matches!(&self.state, PlanState::CarryingOut(functions) if functions.holds_transaction())
    }

    /// Whether the plan waits for a check of what a statement's own filter matches.
    pub(super) fn awaits_match_check(&self) -> bool {
        self.awaits_reply_for(CommandPurpose::MatchCheck)
    }

    /// Whether the plan waits for the server's record of an earlier send of the same write.
    pub(super) fn awaits_record(&self) -> bool {
        self.awaits_reply_for(CommandPurpose::Record)
    }

    fn awaits_reply_for(&self, purpose: CommandPurpose) -> bool {
        matches!(&self.state, PlanState::CarryingOut(functions) if functions.purpose() == purpose)
    }

    /// Takes the result of the last step and returns the next one. Stores the users and privileges in `client_state`.
    pub fn next(&mut self, input: Input, client_state: &mut ClientState) -> Step {
        let step = match &mut self.state {
            PlanState::Fresh(incoming) => {
                let message_plan = incoming.plan(client_state, &mut self.outcomes);
                let needs_permits = incoming.needs_permits() && message_plan.sends();
                match message_plan {
                    MessagePlan::Send(sending) if !needs_permits => self.send(sending, client_state),
                    MessagePlan::Numbers(job) if !needs_permits => self.number(job, client_state),
                    message_plan => {
                        let incoming = incoming.clone();
                        self.start(client_state, |port| carry_out(incoming, message_plan, port))
                    }
                }
            }
            PlanState::CarryingOut(functions) => functions.resume(input, client_state),
            PlanState::Numbering(_) => self.take_numbers(input, client_state),
            PlanState::Sent(job) => {
                let step = match input {
                    Input::Reply(reply) => job.take_only_reply(reply, &mut self.outcomes),
                    // No caller does this: each passes the result of the step that it got.
                    _ => Step::Close("internal error: the plan waits for a reply".to_owned()),
                };
                self.state = PlanState::Done;
                return step;
            }
            // No caller does this: each ends with a final step.
            PlanState::Done => Step::Close("internal error: the plan has ended".to_owned()),
        };
        if step.is_final()
            && let PlanState::CarryingOut(functions) = std::mem::replace(&mut self.state, PlanState::Done)
        {
            self.outcomes = functions.into_outcomes();
        }
        step
    }

    /// Requests the next numbers, or sends the statements.
    fn number(&mut self, mut job: Box<BatchJob<'f>>, client_state: &mut ClientState) -> Step {
        match job.next_request() {
            Some(request) => {
                self.state = PlanState::Numbering(job);
                Step::Lookup(Lookup::Numbers(Box::new(request)))
            }
            None => {
                let sending = job.sending(&mut self.outcomes);
                self.send(sending, client_state)
            }
        }
    }

    fn take_numbers(&mut self, input: Input, client_state: &mut ClientState) -> Step {
        match (std::mem::replace(&mut self.state, PlanState::Done), input) {
            (PlanState::Numbering(mut job), Input::Found(found)) => match job.take_numbers(found, &mut self.outcomes) {
                Flow::Break(last) => last,
                Flow::Continue(()) => self.number(job, client_state),
            },
            // No caller does this: each passes the result of the step that it got.
            _ => Step::Close("internal error: the plan waits for numbers".to_owned()),
        }
    }

    fn send(&mut self, sending: Sending<'f>, client_state: &mut ClientState) -> Step {
        match sending {
            Sending::Last(step) => step,
            Sending::Once(job, message) => {
                self.state = PlanState::Sent(job);
                Step::Exchange(message)
            }
            Sending::Groups(job) => self.start(client_state, |port| job.send(port)),
        }
    }

    /// Starts the functions that carry out the message.
    fn start<F: Future<Output = Flow<Step>> + Send + 'f>(
        &mut self,
        client_state: &mut ClientState,
        functions: impl FnOnce(Port) -> F,
    ) -> Step {
        let mut functions = Coroutine::new(std::mem::take(&mut self.outcomes), functions);
        let step = functions.resume(Input::Start, client_state);
        self.state = PlanState::CarryingOut(functions);
        step
    }
}
