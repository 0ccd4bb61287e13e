//! The end of a process: what a drain waits for, and the hand-over of the listeners.

pub(super) mod activity;
pub(super) mod hand_over;
