//! The fast path's one question: does any rule concern this frame? Answered from its first bytes.
//!
//! What is said here is only where a frame goes: it forwards what it is sure of and hands everything else
//! to [`Plan`](super::Plan), which reads strictly. Nothing is allocated.

use super::authentication::is_by_certificate;
use super::handshake::WRAPPERS;
use crate::command::{Class, classify};
use crate::document::{Kind, Value, peek};
use crate::patterns::RuleSet;
use crate::wire::header::{HEADER_LENGTH, Header, OpCode};
use crate::wire::op_msg::{CHECKSUM_PRESENT, MORE_TO_COME};

/// What is to be done with a client's frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Triage {
    /// Cannot be told yet: call again when more bytes of this frame are here. Never said of a whole frame.
    More,
    /// No rule concerns it: the bytes stream through as they come.
    Forward { expects_reply: bool },
    /// The same, but it may change who is authenticated: what is known of the user is to be forgotten.
    Authenticate { expects_reply: bool },
    /// hello by whichever name and opcode: collect it whole, rewrite it and every reply.
    Hello,
    /// A rule may concern it, or it must be refused properly: collect it whole, then [`Plan`](super::Plan).
    Evaluate,
}

/// Where the first section of an OP_MSG begins: header and flags.
const SECTIONS_AT: usize = HEADER_LENGTH + 4;
/// Where the collection name of an OP_QUERY begins: header and flags.
const QUERY_COLLECTION_AT: usize = HEADER_LENGTH + 4;

/// `head` are the frame's first bytes from its header on, possibly more than the frame.
pub fn triage(head: &[u8], rules: &RuleSet) -> Triage {
    let Ok(Some(header)) = Header::parse(head) else { return Triage::Evaluate };
    let here = head.get(..header.length.min(head.len())).unwrap_or(head);
    let whole = here.len() == header.length;
    let found = match header.op_code {
        OpCode::Msg => triage_msg(here, header.length, rules),
        OpCode::Query => triage_query(here),
        _ => Some(Triage::Evaluate),
    };
    match found {
        Some(triage) => triage,
        None if whole => Triage::Evaluate,
        None => Triage::More,
    }
}

/// What an OP_MSG's command is, from its first bytes. `None` where they do not tell, or another opcode came.
#[must_use]
pub fn class_of_head(head: &[u8]) -> Option<Class> {
    let header = Header::parse(head).ok().flatten()?;
    let body_first = header.op_code == OpCode::Msg && *head.get(SECTIONS_AT)? == 0;
    let first = peek(head.get(SECTIONS_AT + 1..)?).next().filter(|_| body_first)?;
    Some(classify(first.key))
}

/// `None`: the bytes that would tell are not here.
fn triage_msg(here: &[u8], message_length: usize, rules: &RuleSet) -> Option<Triage> {
    let flags = here.get(HEADER_LENGTH..SECTIONS_AT)?.first_chunk().map(|b| u32::from_le_bytes(*b))?;
    let expects_reply = flags & MORE_TO_COME == 0;
    let forward = Triage::Forward { expects_reply };
    // mongod's own test shell sends sequences before the body.
    if *here.get(SECTIONS_AT)? != 0 {
        return Some(Triage::Evaluate);
    }
    let body = here.get(SECTIONS_AT + 1..)?;
    let first = peek(body).next()?;
    let evaluate_if = |concerned: bool| if concerned { Triage::Evaluate } else { forward };
    Some(match classify(first.key) {
        Class::Hello => Triage::Hello,
        Class::Authenticate if is_by_certificate(peek(body)) => Triage::Evaluate,
        // The mechanism may still come.
        Class::Authenticate if !is_whole(body) => return None,
        Class::Authenticate => Triage::Authenticate { expects_reply },
        Class::Harmless => forward,
        _ if rules.is_empty() => forward,
        Class::Insert | Class::Update | Class::Delete | Class::FindAndModify => {
            evaluate_if(may_guard(body, first.value, rules))
        }
        // mongod also takes a UUID for a name.
        Class::Find | Class::Count | Class::Distinct => evaluate_if(may_guard(body, first.value, rules)),
        Class::Aggregate => {
            let body_length = claimed_length(body);
            match body.get(..body_length) {
                // Its pipeline may be what follows.
                Some(_) if SECTIONS_AT + 1 + body_length + checksum_length(flags) != message_length => Triage::Evaluate,
                Some(body) => {
                    let reads_guarded = first.value.as_name_bytes().is_some() && may_guard(body, first.value, rules);
                    evaluate_if(reads_guarded || writes_output(body))
                }
                None => Triage::Evaluate,
            }
        }
        Class::ApplyOps
        | Class::BulkWrite
        | Class::CloneCollection
        | Class::Explain
        | Class::MapReduce
        | Class::RenameCollection
        | Class::Unknown => Triage::Evaluate,
    })
}

/// What a document's own first bytes say.
fn claimed_length(document: &[u8]) -> usize {
    document.first_chunk().map_or(usize::MAX, |bytes| u32::from_le_bytes(*bytes) as usize)
}

fn is_whole(document: &[u8]) -> bool {
    document.len() >= claimed_length(document)
}

/// Bytes behind the last section.
fn checksum_length(flags: u32) -> usize {
    if flags & CHECKSUM_PRESENT == 0 { 0 } else { 4 }
}

/// Whether rules guard the collection that the first value names; yes when there is no telling.
fn may_guard(body: &[u8], target: Value<'_>, rules: &RuleSet) -> bool {
    let Some(collection) = target.as_name_bytes() else { return true };
    if !rules.may_concern_collection(collection) {
        return false;
    }
    let database = peek(body).find(|element| element.key == b"$db").and_then(|element| element.value.as_string_bytes());
    database.is_none_or(|database| rules.rules_for(database, collection).is_some())
}

/// Whether a pipeline could have `$out` or `$merge` anywhere: a field name is in the bytes as it is written.
/// May say yes without need, never no.
fn writes_output(body: &[u8]) -> bool {
    let dollars = body.iter().enumerate().filter(|(_, byte)| **byte == b'$');
    dollars
        .map(|(at, _)| body.get(at..).unwrap_or_default())
        .any(|rest| rest.starts_with(b"$out\0") || rest.starts_with(b"$merge\0"))
}

/// Only a hello may come by OP_QUERY.
fn triage_query(here: &[u8]) -> Option<Triage> {
    let rest = here.get(QUERY_COLLECTION_AT..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    // Backend the name's NUL: skip and limit.
    let document = rest.get(end + 1 + 8..)?;
    let mut first = peek(document).next()?;
    if WRAPPERS.contains(&first.key) && first.value.kind == Kind::Document {
        first = peek(first.value.bytes).next()?;
    }
    let command = rest.get(..end)?.ends_with(b".$cmd");
    Some(if command && classify(first.key) == Class::Hello { Triage::Hello } else { Triage::Evaluate })
}
