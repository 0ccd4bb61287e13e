//! The relay's interface to the engine, as two traits. The relay's state machine is tested with a scripted
//! implementation and runs with [`RuleSet`]. The relay must not know what a rule is.

use crate::engine::routing::PreferredRead;
use crate::engine::{
    self, ClientState, Input, ListenerKind, Now, QueryAdmission, RequestHead, RuleOutcome, Step, Triage,
};
use crate::rules::RuleSet;

/// Evaluates a client's messages.
pub(in crate::proxy) trait Interceptor: Send + Sync + 'static {
    /// The steps that carry out one evaluated message.
    type Plan<'p>: Steps + Send
    where
        Self: 'p;

    /// See [`engine::triage`], [`engine::queries::triage`] and [`engine::routing::triage`].
    fn triage(&self, head: &RequestHead<'_>, listener_kind: &ListenerKind) -> Triage;

    /// Whether this kind of listener accepts a message; see [`engine::queries::admit`].
    fn admit(&self, frame: &[u8], listener_kind: &ListenerKind) -> QueryAdmission;

    /// See [`engine::routing::preferred`].
    fn preferred(&self, frame: &[u8], client_state: &ClientState) -> Option<PreferredRead>;

    fn plan<'p>(&'p self, frame: &'p [u8], now: Now) -> Self::Plan<'p>;

    /// The rules that it applies.
    fn rules(&self) -> &RuleSet;
}

/// See [`engine::Plan`].
pub(in crate::proxy) trait Steps {
    fn next(&mut self, input: Input, client_state: &mut ClientState) -> Step;

    fn take_outcomes(&mut self) -> Vec<RuleOutcome>;

    /// See [`engine::Plan::take_rest`].
    fn take_rest(&mut self) -> Vec<RuleOutcome>;

    /// See [`engine::Plan::must_finish`].
    fn must_finish(&self) -> bool;
}

impl Interceptor for RuleSet {
    type Plan<'p> = engine::Plan<'p>;

    fn triage(&self, head: &RequestHead<'_>, listener_kind: &ListenerKind) -> Triage {
        match listener_kind {
            ListenerKind::Commands => engine::triage(head, self),
            ListenerKind::Queries { .. } => engine::queries::triage(head, self),
            ListenerKind::Router => engine::routing::triage(head, self),
        }
    }

    fn admit(&self, frame: &[u8], listener_kind: &ListenerKind) -> QueryAdmission {
        match listener_kind {
            ListenerKind::Commands | ListenerKind::Router => QueryAdmission::Original,
            ListenerKind::Queries { commands } => engine::queries::admit(frame, self, commands),
        }
    }

    fn preferred(&self, frame: &[u8], client_state: &ClientState) -> Option<PreferredRead> {
        match client_state.listener_kind {
            ListenerKind::Router => engine::routing::preferred(frame, self, client_state),
            ListenerKind::Commands | ListenerKind::Queries { .. } => None,
        }
    }

    fn plan<'p>(&'p self, frame: &'p [u8], now: Now) -> engine::Plan<'p> {
        engine::Plan::new(frame, self, now)
    }

    fn rules(&self) -> &RuleSet {
        self
    }
}

impl Steps for engine::Plan<'_> {
    fn next(&mut self, input: Input, client_state: &mut ClientState) -> Step {
        engine::Plan::next(self, input, client_state)
    }

    fn take_outcomes(&mut self) -> Vec<RuleOutcome> {
        engine::Plan::take_outcomes(self)
    }

    fn take_rest(&mut self) -> Vec<RuleOutcome> {
        engine::Plan::take_rest(self)
    }

    fn must_finish(&self) -> bool {
        engine::Plan::must_finish(self)
    }
}
