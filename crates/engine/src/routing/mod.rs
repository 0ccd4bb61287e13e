//! Where a router sends a request: which kind of member it asks for ([`destination`]), and which members fit
//! ([`selection`]), and whether it is sent again when that member is lost ([`repetition`]). All are pure functions of the
//! request and of what servers have replied.

mod cursors;
mod destination;
mod everywhere;
mod reads;
mod repetition;
mod selection;
mod transaction;

pub use cursors::{KilledCursors, MissingCursor};
pub use destination::{Destination, DestinationKind, MIN_STALENESS, ReadMode, ReadPreference, destination};
pub use everywhere::for_other_members;
pub use reads::{PreferredRead, preferred, triage};
pub use repetition::{AfterLoss, InTransaction, Repetition, is_to_be_repeated, without_state_change};
pub use selection::{RoutedRole, Selectable, eligible, mongos_of};
pub use transaction::{OpenTransaction, TransactionStep, ends_transaction};
