//! docward: a MongoDB wire-protocol proxy that enforces data-modelling patterns.

pub mod rules;
