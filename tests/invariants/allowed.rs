//! What docward's pages say that it rejects, or answers otherwise, although the statement at hand would have done no
//! harm. Everything else of that kind is a finding.

use super::rules::Rule;

/// Pattern, and a piece of the reason that stays the same.
const REJECTIONS: [(&str, &str); 2] = [
    // Limits: `unguarded: reject`.
    ("bounds", "without the condition that keeps it in range"),
    // Pipelines that compute are not analysed by any pattern.
    ("*", "pipeline"),
];

pub(super) fn rejects(pattern: &str, reason: &str) -> bool {
    REJECTIONS.iter().any(|(allowed, piece)| (*allowed == pattern || *allowed == "*") && reason.contains(piece))
}

/// Errors through docward, and directly, that may differ.
pub(super) fn fails(_rules: &[Rule], _through: &[(i32, i32)], _direct: &[(i32, i32)]) -> bool {
    false
}
