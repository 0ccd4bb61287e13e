//! The admin address: health, metrics, and what the console shows, by HTTP.
//!
//! It reads only. It runs on a thread of its own, so that whoever asks, however often, takes nothing from the
//! connections but a share of a processor. Start reading at [`server`]; who may ask is decided in [`guard`], what
//! there is to ask for is listed in [`routes`]. The page for people, [`console`], asks for the same.

mod console;
mod decisions;
mod explain;
mod guard;
mod health;
mod metrics;
mod places;
mod routes;
mod rules;
mod server;
mod settings;
mod stalled;
mod status;

use std::sync::Arc;
use std::time::SystemTime;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;
use tokio::sync::Semaphore;

pub use explain::Asked;
pub use server::{Admin, Listener};
pub use settings::Settings;

use crate::patterns::RuleSet;
use crate::proxy::Observer;

/// What is told here and known above.
pub trait AdminContext: Send + Sync + 'static {
    fn loads(&self) -> Loads;

    /// What became of spans.
    fn spans(&self) -> SpanCounts;

    /// What rules make of a command, as `docward explain --format json` prints it.
    ///
    /// # Errors
    /// The command cannot be read; a list of diagnostics.
    fn explain(&self, asked: &Asked) -> Result<Value, Value>;
}

/// Spans for a collector of OpenTelemetry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// The collector took them.
    pub sent: u64,
    /// They were lost on the way.
    pub failed: u64,
    /// Nobody took them in time.
    pub dropped: u64,
}

/// What loading rules and certificates anew came to.
#[derive(Debug, Clone)]
pub struct Loads {
    /// Since the start, which is not counted.
    pub loaded: u64,
    pub refused: u64,
    /// When what is in force was loaded.
    pub loaded_at: SystemTime,
    /// When something was loaded last, whatever came of it.
    pub tried_at: SystemTime,
    /// What is wrong with what was refused last; `None` when the last load went well.
    pub last_error: Option<String>,
}

/// What all answers are made from.
#[derive(Clone)]
struct Sources {
    observer: Arc<Observer<RuleSet>>,
    admin_context: Arc<dyn AdminContext>,
    started: SystemTime,
    settings: Arc<Settings>,
    /// Places for those who look on.
    telemetry: Arc<Semaphore>,
    /// Turns of those who have something explained, and how many requests for that are read.
    explaining: Arc<Semaphore>,
    questions: Arc<Semaphore>,
    /// Turns of answers that take long to make.
    making: Arc<Semaphore>,
}

impl Sources {
    fn new(settings: Settings, observer: Arc<Observer<RuleSet>>, admin_context: Arc<dyn AdminContext>) -> Self {
        Self {
            observer,
            admin_context,
            started: SystemTime::now(),
            settings: Arc::new(settings),
            telemetry: Arc::new(Semaphore::new(decisions::ONLOOKERS)),
            explaining: Arc::new(Semaphore::new(explain::AT_A_TIME)),
            questions: Arc::new(Semaphore::new(explain::QUESTIONS)),
            making: Arc::new(Semaphore::new(1)),
        }
    }

    /// Makes an answer that takes long on another thread, one after the other: health is answered meanwhile.
    async fn make(self, answer: fn(&Self) -> Response) -> Response {
        in_turn(self.making.clone(), move || answer(&self)).await.unwrap_or_else(|| {
            guard::error(StatusCode::INTERNAL_SERVER_ERROR, "docward failed on this request; please report it")
        })
    }
}

/// What `work` gives, on another thread when a turn is free. The turn lasts as long as the work, even if nobody waits for
/// it any more. `None`: it panicked.
async fn in_turn<T: Send + 'static>(turns: Arc<Semaphore>, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let turn = turns.acquire_owned().await;
    let work = move || {
        let _turn = turn;
        work()
    };
    tokio::task::spawn_blocking(work).await.ok()
}

/// Milliseconds since 1970 UTC, as all times in answers are.
fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
