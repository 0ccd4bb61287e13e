//! The server's errors for a part of the client's command, or for a query on behalf of its statements.
//!
//! As long as nothing has been executed, the client gets the error as its command's, with the labels that let its
//! driver retry. From then on a retry of the whole must not execute a part twice. docward repeats the part while the
//! server is overloaded. If it still fails, the reply shows what was executed, and the error of the failed statement. Only
//! after a step-down a retryable write is retried by the driver: the next primary recognises what was executed.

use super::super::port::{CommandPurpose, Flow, Port};
use super::super::server_errors;
use super::super::step::Step;
use super::{BatchJob, Group};
use crate::command::{Reply, WriteForm, code, error_reply};

impl BatchJob<'_> {
    /// Sends a part of the command, or a query for it. `again` returns the same message for a repetition.
    pub(super) async fn exchange_part(
        &self,
        purpose: CommandPurpose,
        message: Vec<u8>,
        again: impl Fn() -> Vec<u8>,
        port: &Port,
    ) -> Vec<u8> {
        let frame = port.exchange_for(purpose, message).await;
        if !self.merged.has_effect() || self.gave_up || !server_errors::is_overload_frame(&frame) {
            return frame;
        }
        Box::pin(port.repeat_after_overload(frame, self.time_limit(), again)).await
    }

    /// Whether the client's driver may send the whole command again.
    pub(super) fn may_be_retried(&self) -> bool {
        !self.merged.has_effect() || self.command.session().is_retryable_write()
    }

    /// Takes the error of a command for the statements of a group.
    pub(super) fn take_command_error(&mut self, group: &Group, reply: &Reply<'_>) -> Flow {
        let session = self.command.session();
        let is_half_done = self.merged.has_effect();
        let is_passing = server_errors::is_passing(reply);
        // docward has repeated it, as the driver would.
        let is_overload = server_errors::is_overload(reply);
        let concerns_all = match group.statements.len() {
            _ if session.in_transaction => true,
            _ if is_half_done => is_passing && !is_overload && session.is_retryable_write(),
            1 => is_passing || self.evaluated.len() == 1 || self.batch.form == WriteForm::FindAndModify,
            _ => true,
        };
        if concerns_all {
            return Flow::Break(self.pass_on_error(reply, is_half_done));
        }
        self.gave_up |= is_overload;
        self.fail_group(group, reply);
        Flow::Continue(())
    }

    /// Reports the error as the one of the group's statements. An ordered batch ends with the first of them.
    fn fail_group(&mut self, group: &Group, reply: &Reply<'_>) {
        let count = group.statements.len();
        let before = match count > 1 && !server_errors::is_overload(reply) {
            true => format!(
                "docward sent this statement and others, {count} together, as one command, and the error does not show \
                 which of them were executed: "
            ),
            false => String::new(),
        };
        let reported = if self.stops_on_error() { 1 } else { count };
        for index in group.statements.iter().take(reported) {
            self.merged.fail(*index, reply.body, &before);
        }
        self.stopped |= self.stops_on_error();
    }

    /// Passes an error to the client, whose command ends with it. `is_half_done`: a part of it has been executed.
    pub(super) fn pass_on_error(&mut self, error: &Reply<'_>, is_half_done: bool) -> Step {
        self.must_abort = is_half_done && self.in_transaction();
        self.pass_on(server_errors::for_client(&self.command, error, is_half_done))
    }

    /// Ends the client's command because docward cannot know now what it needs for the rest of it. The text has the reason; the
    /// labels let a driver that has numbered the write send it again. `is_half_done`: a part of it has been executed.
    pub(super) fn unavailable(&mut self, text: &str, is_half_done: bool) -> Step {
        let error =
            error_reply(self.command.message.header, code::HOST_UNREACHABLE, &format!("docward: {text}"), |_| {});
        match Reply::parse(&error) {
            Ok(error) => self.pass_on_error(&error, is_half_done),
            Err(error) => Step::Close(error.to_string()),
        }
    }
}
