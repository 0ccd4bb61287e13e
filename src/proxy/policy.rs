//! What the relay asks the engine, as two traits, so that its state machine is tested with a scripted
//! policy and runs with [`RuleSet`]. The relay must not know what a rule is.

use crate::engine::{self, Input, Now, Observation, Session, Step, Triage};
use crate::patterns::RuleSet;

/// Judges a client's messages.
pub trait Policy: Send + Sync + 'static {
    /// How one judged message is carried out.
    type Plan<'p>: Steps + Send
    where
        Self: 'p;

    /// See [`engine::triage`].
    fn triage(&self, head: &[u8]) -> Triage;

    fn plan<'p>(&'p self, frame: &'p [u8], now: Now) -> Self::Plan<'p>;
}

/// See [`engine::Plan`].
pub trait Steps {
    fn next(&mut self, input: Input<'_>, session: &mut Session) -> Step;

    fn take_observations(&mut self) -> Vec<Observation>;

    /// See [`engine::Plan::must_finish`].
    fn must_finish(&self) -> bool;
}

impl Policy for RuleSet {
    type Plan<'p> = engine::Plan<'p>;

    fn triage(&self, head: &[u8]) -> Triage {
        engine::triage(head, self)
    }

    fn plan<'p>(&'p self, frame: &'p [u8], now: Now) -> engine::Plan<'p> {
        engine::Plan::new(frame, self, now)
    }
}

impl Steps for engine::Plan<'_> {
    fn next(&mut self, input: Input<'_>, session: &mut Session) -> Step {
        engine::Plan::next(self, input, session)
    }

    fn take_observations(&mut self) -> Vec<Observation> {
        engine::Plan::take_observations(self)
    }

    fn must_finish(&self) -> bool {
        engine::Plan::must_finish(self)
    }
}
