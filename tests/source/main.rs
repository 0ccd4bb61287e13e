//! The repository itself: words, the book, the parsers under random bytes, and the fixtures of the other tests.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod documentation;
mod evaluation_memory;
mod fixtures;
mod fuzz_targets;
mod plain_words;
