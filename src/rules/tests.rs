//! What rule files say wrong, and what is said about it: one table of all diagnostics.
//!
//! Each case is a file as a user might write it and the report as it is printed. Lookup and
//! loading at scale are tested below, with rules that are right.
