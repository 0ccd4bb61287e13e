//! Streams decisions as server-sent events: first the recent ones, then new ones.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::slots::ConnectionSlot;
use super::{ResponseData, error};
use crate::proxy::Decision;

/// How often a comment is sent without decisions, so that both sides detect a dead connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Streams events. `decision` has one decision as JSON, with its number as the id. `missed` has the number of
/// decisions that this reader was too slow for.
pub(super) async fn follow(
    State(data): State<ResponseData>,
    Extension(connection): Extension<Arc<ConnectionSlot>>,
) -> Response {
    if !connection.enter_stream() {
        return error(StatusCode::SERVICE_UNAVAILABLE, "too many clients read decisions; try again later");
    }
    let (recent, live) = data.observer.decisions();
    let recent = stream::iter(recent).map(|decision| decision_event(&decision));
    let events = recent.chain(live_events(live)).map(Ok::<_, Infallible>);
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// The new decisions until the proxy ends.
fn live_events(live: Receiver<Arc<Decision>>) -> impl Stream<Item = Event> {
    stream::unfold(live, async |mut live| {
        let event = match live.recv().await {
            Ok(decision) => decision_event(&decision),
            Err(RecvError::Lagged(count)) => Event::default().event("missed").data(count.to_string()),
            Err(RecvError::Closed) => return None,
        };
        Some((event, live))
    })
}

fn decision_event(decision: &Decision) -> Event {
    // serde_json escapes line breaks, so that a name cannot start another event.
    let data = serde_json::to_string(decision).unwrap_or_default();
    Event::default().event("decision").id(decision.number.to_string()).data(data)
}
