//! How the statements of a batch are sent when nothing else must come first.

use super::super::outcome::RuleOutcomes;
use super::super::port::{Flow, Port};
use super::super::step::Step;
use super::BatchJob;

/// What is sent for a batch.
pub(in crate::engine) enum Sending<'f> {
    /// The final step.
    Last(Step),
    /// This message, whose reply shows the effect of its statements and is the client's.
    Once(Box<BatchJob<'f>>, Vec<u8>),
    /// Several commands.
    Groups(Box<BatchJob<'f>>),
}

impl<'f> BatchJob<'f> {
    /// Returns how the statements are sent.
    pub(in crate::engine) fn sending(mut self: Box<Self>, outcomes: &mut RuleOutcomes) -> Sending<'f> {
        match self.plan_groups(outcomes) {
            Flow::Break(step) => match self.watched_message(step) {
                Ok(message) => Sending::Once(self, message),
                Err(step) => Sending::Last(step),
            },
            Flow::Continue(()) => Sending::Groups(self),
        }
    }
}

impl Sending<'_> {
    pub(in crate::engine) fn sends(&self) -> bool {
        match self {
            Self::Last(step) => step.sends(),
            Self::Once(..) | Self::Groups(_) => true,
        }
    }

    /// Carries it out, and returns the last step.
    pub(in crate::engine) async fn carry_out(self, port: Port) -> Flow<Step> {
        match self {
            Self::Last(step) => Flow::Continue(step),
            Self::Once(job, message) => job.send_once(message, port).await,
            Self::Groups(job) => job.send(port).await,
        }
    }
}
