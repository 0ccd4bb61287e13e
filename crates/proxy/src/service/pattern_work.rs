//! Which patterns the service has work for: the only place of the service that distinguishes patterns.

use crate::patterns::AnyPattern;
use crate::patterns::copies::Copies;
use crate::patterns::history::History;

/// The settings of a pattern for which the service works in the background, checks stored documents and repairs them.
#[derive(Debug, Clone, Copy)]
pub(super) enum PatternWork<'p> {
    Copies(&'p Copies),
    History(&'p History),
}

impl<'p> PatternWork<'p> {
    /// `None`: the service needs nothing but what the pattern declares.
    pub(super) fn for_pattern(pattern: &'p AnyPattern) -> Option<Self> {
        match pattern {
            AnyPattern::Copies(copies) => Some(Self::Copies(copies)),
            AnyPattern::History(history) => Some(Self::History(history)),
            _ => None,
        }
    }
}
