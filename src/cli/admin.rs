//! What the admin address tells that is not the proxy's own: what reloads came to, and what `explain` says.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::Value;

use super::explain::{Question, milliseconds_now};
use super::reload::Status;
use crate::admin::{Asked, Loads};
use crate::patterns::RuleSet;
use crate::proxy::Observer;

/// See [`crate::admin::Desk`].
pub(super) struct Desk {
    pub(super) observer: Arc<Observer<RuleSet>>,
    pub(super) status: Arc<ArcSwap<Status>>,
}

impl crate::admin::Desk for Desk {
    fn loads(&self) -> Loads {
        let Status { loaded, refused, loaded_at, tried_at, last_error } = Status::clone(&self.status.load());
        Loads { loaded, refused, loaded_at, tried_at, last_error }
    }

    fn explain(&self, asked: &Asked) -> Result<Value, Value> {
        let question = Question {
            text: &asked.command,
            database: &asked.database,
            app: asked.app.as_deref(),
            user: asked.user.as_deref(),
            at: milliseconds_now(),
        };
        question.answer_json(&self.observer.rules())
    }
}
