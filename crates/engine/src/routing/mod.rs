//! Where a router sends a request: which kind of member it asks for ([`destination`]), and which members fit
//! ([`selection`]). Both are pure functions of the request and of what monitors have seen.

mod destination;
mod selection;

pub use destination::{Destination, ReadMode, ReadPreference, destination};
pub use selection::{MIN_STALENESS, RoutedRole, Selectable, eligible};
