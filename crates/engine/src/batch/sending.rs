//! How the statements of a batch are sent when nothing else must come first.

use smallvec::SmallVec;

use super::super::merge;
use super::super::outcome::RuleOutcomes;
use super::super::port::{Flow, Port};
use super::super::step::Step;
use super::BatchJob;
use crate::command::{Reply, WriteForm};

/// What is sent for a batch.
pub(crate) enum Sending<'f> {
    /// The final step.
    Last(Step),
    /// This message, whose reply shows the effect of its statements and is the client's.
    Once(Box<BatchJob<'f>>, Vec<u8>),
    /// Several commands.
    Groups(Box<BatchJob<'f>>),
}

impl<'f> BatchJob<'f> {
    /// Returns how the statements are sent.
    pub(crate) fn sending(mut self: Box<Self>, outcomes: &mut RuleOutcomes) -> Sending<'f> {
        match self.plan_groups(outcomes) {
            Flow::Break(step) => match self.watched_message(step) {
                Ok(message) => Sending::Once(self, message),
                Err(step) => Sending::Last(step),
            },
            Flow::Continue(()) => Sending::Groups(self),
        }
    }

    /// Returns the message to send for the last step of a plan whose reply a rule needs, to count statements without
    /// effect or to explain errors; or the step.
    fn watched_message(&self, last: Step) -> Result<Vec<u8>, Step> {
        if !self.evaluated.iter().any(|evaluated| !evaluated.watched.is_empty() || evaluated.has_own_errors()) {
            return Err(last);
        }
        match last {
            Step::Forward { message, expects_reply: true } => Ok(message),
            Step::ForwardOriginal { expects_reply: true } => {
                let statements = self.evaluated.iter().map(|evaluated| &evaluated.statement);
                Ok(self.batch.encode(&self.command, statements))
            }
            last => Err(last),
        }
    }

    /// Takes the reply to a message with all statements, and passes it on, unless a rule explains an error in it.
    pub(crate) fn take_only_reply(&mut self, frame: Vec<u8>, outcomes: &mut RuleOutcomes) -> Step {
        let Ok(reply) = Reply::parse(&frame) else {
            return Step::Close("the server's reply to a write cannot be parsed".to_owned());
        };
        let (form, all) = (self.batch.form, SmallVec::<[usize; 1]>::from_iter(0..self.evaluated.len()));
        self.without_effect.note(&reply, &self.batch, &self.evaluated, &all);
        self.without_effect.settle(&self.batch, outcomes);
        if !merge::errors_of(&reply, form).iter().any(|(index, error)| self.is_explained(*index, *error)) {
            drop(reply);
            return Step::Reply(frame);
        }
        if let Flow::Break(closed) = merge::errors_of_sent(&reply, form, all.len()) {
            return closed;
        }
        match form {
            WriteForm::FindAndModify => self.merged.add_error(reply.body),
            _ => self.merged.add(&reply, form, &all),
        }
        self.explain_errors(outcomes);
        self.finish()
    }
}

impl Sending<'_> {
    pub(crate) fn sends(&self) -> bool {
        match self {
            Self::Last(step) => step.sends(),
            Self::Once(..) | Self::Groups(_) => true,
        }
    }

    /// Carries it out, and returns the last step.
    pub(crate) async fn carry_out(self, port: Port) -> Flow<Step> {
        match self {
            Self::Last(step) => Flow::Continue(step),
            Self::Once(mut job, message) => {
                let reply = port.exchange(message).await;
                Flow::Continue(port.outcomes(|outcomes| job.take_only_reply(reply, outcomes)))
            }
            Self::Groups(job) => job.send(port).await,
        }
    }
}
