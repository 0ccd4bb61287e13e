//! Recorded traffic, without I/O: [`audit`] evaluates it against rules, [`replay`] turns it into commands that are sent
//! again, and counts what comes back.

pub mod audit;
pub mod plot;
pub mod replay;

use docward_engine as engine;
use docward_protocol::{command, document, effect, fnv, text, wire};
use docward_rules::{config, patterns, rules, shell};
