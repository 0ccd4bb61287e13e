//! The members of the deployment: their monitors, the topology, and which listener belongs to which member.

pub(super) mod closing;
pub(super) mod membership;
pub(super) mod monitor;
pub(super) mod placement;
pub(super) mod queries;
pub(super) mod status;
pub(super) mod topology;
