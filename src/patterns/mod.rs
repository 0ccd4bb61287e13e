//! Stand-in until the founder's patterns are merged.
/// Will be `crate::rules::RuleSet<Pattern>`: immutable, behind an `Arc`, swapped whole on reload.
#[derive(Debug, Default)]
pub struct RuleSet;
