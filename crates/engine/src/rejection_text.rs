//! A rejection with its rule, and its error: text for people, `errInfo` for programs.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use crate::command::code;
use crate::document::{Document, Writer};
use crate::patterns::Rejection;
use crate::rules::Rule;

/// The end of the hint for what no rule can analyse. Who sends it cannot always change the program, or only runs a tool.
pub(super) const FOR_THE_DBA: &str =
    "(For the DBA: `unsupported: allow` in the rule lets it pass, `except` exempts an application.)";

#[derive(Debug, Clone)]
pub(super) struct RejectedBy<'r> {
    pub(super) rule: &'r Rule,
    /// Statements of a batch share it if it is the same.
    pub(super) rejection: Arc<Rejection>,
    /// Of an overload error: in what time there will probably be room.
    pub(super) room_in: Option<Duration>,
}

impl<'r> RejectedBy<'r> {
    pub(super) fn new(rule: &'r Rule, rejection: Rejection) -> Self {
        Self { rule, rejection: Arc::new(rejection), room_in: None }
    }

    /// Whether the rejection is a version conflict rather than an invalid statement.
    pub(super) fn is_conflict(&self) -> bool {
        self.rejection.code == code::WRITE_CONFLICT
    }
}

/// Returns the `errmsg`: the rule, the reason, and what to do instead. `target` is the namespace or the database.
pub(super) fn message(rejected: &RejectedBy<'_>, what: &str, target: impl Display) -> String {
    message_about(rejected, format_args!("{what} on {target}"))
}

/// The same for a whole object of the sentence: `insert on shop.books`.
pub(super) fn message_about(rejected: &RejectedBy<'_>, object: impl Display) -> String {
    let RejectedBy { rule, rejection, .. } = rejected;
    let verb = if rejection.code == code::WRITE_CONFLICT { "reports a conflict for" } else { "rejects" };
    let mut text = format!("docward rule '{}' {verb} this {object}: {}.", rule.name.value, rejection.reason);
    if let Some(why) = &rule.why {
        text.push_str(" Why: ");
        text.push_str(why.trim_end());
        if !why.trim_end().ends_with(['.', '!', '?']) {
            text.push('.');
        }
    }
    text.push_str(" What to do: ");
    text.push_str(&rejection.hint);
    text
}

/// Writes `errInfo: {docward: {rule, pattern, reason, hint}}`; `others` are the server's fields in it.
pub(super) fn write_error_info(w: &mut Writer<'_>, rejected: &RejectedBy<'_>, others: Document<'_>) {
    w.nested("errInfo", |w| {
        w.nested("docward", |w| {
            w.string("rule", &*rejected.rule.name.value);
            w.string("pattern", rejected.rule.pattern.name());
            w.string("reason", &rejected.rejection.reason);
            w.string("hint", &rejected.rejection.hint);
        });
        w.elements(others);
    });
}
