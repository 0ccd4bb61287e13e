//! The fast path: decides from a frame's first bytes whether a rule may apply to it.
//!
//! It only chooses a path. Frames that certainly need no rule are forwarded; all others go to [`Plan`](super::Plan),
//! which parses strictly. Allocates nothing.

use super::authentication::is_by_certificate;
use super::handshake::WRAPPERS;
use super::request_head::RequestHead;
use crate::command::{CommandClass, classify};
use crate::document::{Kind, Value, peek};
use crate::rules::RuleSet;
use crate::wire::header::{HEADER_LENGTH, OpCode};
use crate::wire::op_msg::MORE_TO_COME;

/// How to handle a client's frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Triage {
    /// Undecided: call again with more bytes of this frame. Never returned for a complete frame.
    More,
    /// No rule applies: stream the bytes as they arrive.
    Forward { expects_reply: bool },
    /// Stream the bytes too, but the message may change the authenticated users: forget the known ones.
    Authenticate { expects_reply: bool },
    /// A hello under any name and opcode: buffer it completely, rewrite it and every reply.
    Hello,
    /// A rule may apply, or the message needs an error reply: buffer it completely, then run [`Plan`](super::Plan).
    Evaluate,
}

/// Offset of the collection name of an OP_QUERY, after header and flags.
const QUERY_COLLECTION_AT: usize = HEADER_LENGTH + 4;

/// Returns how to handle the frame that starts with `head`.
pub fn triage(head: &RequestHead<'_>, rules: &RuleSet) -> Triage {
    let Some(header) = head.header else { return Triage::Evaluate };
    let found = match header.op_code {
        OpCode::Msg => triage_msg(head, rules),
        OpCode::Query => triage_query(head.bytes()),
        _ => Some(Triage::Evaluate),
    };
    match found {
        Some(triage) => triage,
        None if head.is_whole() => Triage::Evaluate,
        None => Triage::More,
    }
}

/// Returns `None` when more bytes are needed to decide.
fn triage_msg(head: &RequestHead<'_>, rules: &RuleSet) -> Option<Triage> {
    let flags = head.flags?;
    let expects_reply = flags & MORE_TO_COME == 0;
    let forward = Triage::Forward { expects_reply };
    if !head.body_is_first? {
        return Some(Triage::Evaluate);
    }
    let (first, class) = (head.first?, head.class()?);
    let body = head.body_and_rest();
    let evaluate_if = |evaluate: bool| if evaluate { Triage::Evaluate } else { forward };
    Some(match class {
        CommandClass::Hello => Triage::Hello,
        CommandClass::Authenticate if is_by_certificate(peek(body)) => Triage::Evaluate,
        // The mechanism may be in the bytes that are still missing.
        CommandClass::Authenticate if head.whole_body().is_none() => return None,
        CommandClass::Authenticate => Triage::Authenticate { expects_reply },
        CommandClass::Harmless => forward,
        _ if rules.is_empty() => forward,
        // It names no collection.
        CommandClass::DropDatabase => Triage::Evaluate,
        CommandClass::Insert | CommandClass::Update | CommandClass::Delete | CommandClass::FindAndModify => {
            evaluate_if(may_be_protected(head, first.value, rules) || is_in_doubt(head, first.value, rules))
        }
        CommandClass::CollMod
        | CommandClass::Create
        | CommandClass::CreateIndexes
        | CommandClass::Drop
        | CommandClass::DropIndexes => evaluate_if(may_be_protected(head, first.value, rules)),
        // mongod also accepts a UUID instead of a name.
        CommandClass::Find | CommandClass::Count | CommandClass::Distinct => {
            evaluate_if(may_be_protected(head, first.value, rules))
        }
        CommandClass::Aggregate => {
            match head.whole_body() {
                // The sections after the body may hold the pipeline.
                Some(_) if !head.ends_with_body() => Triage::Evaluate,
                Some(body) => {
                    let names_collection = first.value.as_name_bytes().is_some();
                    let reads_protected = names_collection && may_be_protected(head, first.value, rules);
                    let reads_others = rules.applies_to_inputs()
                        && names_any(body, &[b"$graphLookup\0", b"$lookup\0", b"$unionWith\0"]);
                    evaluate_if(reads_protected || reads_others || names_any(body, &[b"$out\0", b"$merge\0"]))
                }
                None => Triage::Evaluate,
            }
        }
        CommandClass::ApplyOps
        | CommandClass::BulkWrite
        | CommandClass::CloneCollection
        | CommandClass::Explain
        | CommandClass::MapReduce
        | CommandClass::RenameCollection
        | CommandClass::Unknown => Triage::Evaluate,
    })
}

/// Whether rules apply to the collection that the first value names; true when the value does not name one.
fn may_be_protected(head: &RequestHead<'_>, target: Value<'_>, rules: &RuleSet) -> bool {
    let Some(collection) = target.as_name_bytes() else { return true };
    if !rules.may_apply_to_collection(collection) {
        return false;
    }
    head.database().is_none_or(|database| rules.rules_for(database, collection).is_some())
}

/// Whether an earlier send of a write may have met other rules on its collection.
fn is_in_doubt(head: &RequestHead<'_>, target: Value<'_>, rules: &RuleSet) -> bool {
    let (Some(doubt), Some(collection)) = (rules.doubt(), target.as_name_bytes()) else { return false };
    head.database().is_none_or(|database| doubt.covers(database, collection))
}

/// Whether the pipeline may contain one of these stages at any depth. Searches the raw bytes for the field names, so
/// there are false positives but no false negatives.
pub(super) fn names_any(body: &[u8], stages: &[&[u8]]) -> bool {
    let dollars = body.iter().enumerate().filter(|(_, byte)| **byte == b'$');
    dollars
        .map(|(at, _)| body.get(at..).unwrap_or_default())
        .any(|rest| stages.iter().any(|stage| rest.starts_with(stage)))
}

/// Only a hello is accepted by OP_QUERY.
fn triage_query(here: &[u8]) -> Option<Triage> {
    let rest = here.get(QUERY_COLLECTION_AT..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    // After the name's NUL come skip and limit, 8 bytes.
    let document = rest.get(end + 1 + 8..)?;
    let mut first = peek(document).next()?;
    if WRAPPERS.contains(&first.key) && first.value.kind == Kind::Document {
        first = peek(first.value.bytes).next()?;
    }
    let command = rest.get(..end)?.ends_with(b".$cmd");
    Some(if command && classify(first.key) == CommandClass::Hello { Triage::Hello } else { Triage::Evaluate })
}
