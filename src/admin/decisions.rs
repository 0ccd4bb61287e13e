//! Decisions as they are made, as server-sent events: the last ones first, then those to come.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::Sources;
use super::guard::error;
use super::places::{Place, Stage};
use crate::proxy::Decision;

/// Who looks on at a time; it leaves connections for health and metrics.
pub(super) const ONLOOKERS: usize = 16;
/// So often something is sent when there is no decision, so that neither side takes the other for dead.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Events named `decision`, whose data is one as JSON and whose id is its number, and `left_out`, whose data says how
/// many this reader was too slow for.
pub(super) async fn follow(State(sources): State<Sources>, Extension(connection): Extension<Arc<Place>>) -> Response {
    let Ok(place) = sources.telemetry.clone().try_acquire_owned() else {
        return error(StatusCode::SERVICE_UNAVAILABLE, "as many as may look on at a time do so already");
    };
    connection.enter(Stage::Stream);
    let (recent, news) = sources.observer.decisions();
    let recent = stream::iter(recent).map(|decision| decision_event(&decision));
    let events = recent.chain(coming(news, place)).map(Ok::<_, Infallible>);
    Sse::new(events).keep_alive(KeepAlive::new().interval(SIGN_OF_LIFE)).into_response()
}

/// Ends when the proxy does; `place` is held until the reader goes.
fn coming(news: Receiver<Arc<Decision>>, place: OwnedSemaphorePermit) -> impl Stream<Item = Event> {
    stream::unfold((news, place), async |(mut news, place)| {
        let event = match news.recv().await {
            Ok(decision) => decision_event(&decision),
            Err(RecvError::Lagged(count)) => Event::default().event("left_out").data(count.to_string()),
            Err(RecvError::Closed) => return None,
        };
        Some((event, (news, place)))
    })
}

fn decision_event(decision: &Decision) -> Event {
    // serde_json escapes line breaks, so that no name can begin an event of its own.
    let data = serde_json::to_string(decision).unwrap_or_default();
    Event::default().event("decision").id(decision.number.to_string()).data(data)
}
