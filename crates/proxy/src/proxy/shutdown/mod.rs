//! The end of a process: what a drain waits for, the hand-over of the listeners, and the drains of other processes.

pub(super) mod activity;
pub(super) mod hand_over;
pub(super) mod other_drains;
