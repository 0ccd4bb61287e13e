//! Modes that operators set at run time, beside the rule files.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::clients::ClientGlobs;
use crate::patterns::Mode;

/// Overrides by rule name.
pub type ModeOverrides = BTreeMap<String, Arc<ModeOverride>>;

/// Another mode for a rule, for a limited time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeOverride {
    /// The mode that applies instead of the one in the rule file.
    pub mode: Mode,
    /// The clients for which it applies; empty: all. For the others the mode in the rule file applies.
    pub only: ClientGlobs,
    /// When the mode in the rule file applies again, in milliseconds since 1970 UTC.
    pub until: u64,
    /// Why the operator set it.
    pub reason: String,
    /// Who set it, as `user@host`.
    pub by: String,
    /// Whether all docward processes of the deployment use it, or only this one.
    pub shared: bool,
}
