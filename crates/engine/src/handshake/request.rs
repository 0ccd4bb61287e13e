//! Reads the hello of a client, and removes what docward does not support: compressors, and logins by certificate.

use super::HandshakeError;
use super::negotiation::Negotiation;
use crate::document::{self, CowDocument, Document, Kind, Value};
use crate::wire::op_msg::Message;
use crate::wire::op_query::Query;
use crate::wire::{Header, OpCode};
use crate::{ClientState, authentication};

/// Rewrites a hello: offers only the compressors that docward supports, and removes a login by certificate (see
/// [`authentication`]). Other bytes are unchanged. Returns `None` when there is nothing to change. Stores the
/// application's name in `client_state`, which forgets its users if the hello has a login.
///
/// # Errors
/// [`HandshakeError`]: the frame must not be forwarded.
pub fn rewrite_request(
    frame: &[u8],
    client_state: &mut ClientState,
    negotiation: &mut Negotiation,
) -> Result<Option<Vec<u8>>, HandshakeError> {
    match Header::of_frame(frame)?.op_code {
        OpCode::Msg => {
            let message = Message::parse(frame)?;
            let hello = Document::parse(message.body)?;
            store_client(hello, client_state);
            Ok(supported_hello(hello, negotiation).map(|body| message.with_body(|out| out.extend_from_slice(&body))))
        }
        OpCode::Query => {
            let query = Query::parse(frame)?;
            let outer = Document::parse(query.document)?;
            let hello = unwrapped(outer);
            store_client(hello, client_state);
            Ok(supported_hello(hello, negotiation)
                .map(|inner| query.with_document(&if hello == outer { inner } else { rewrapped(outer, &inner) })))
        }
        other => Err(HandshakeError::OpCode(other)),
    }
}

/// Records a hello that docward answers itself, in `client_state` as [`rewrite_request`] does, and the compressors.
///
/// # Errors
/// [`HandshakeError`]: the frame is not a hello.
pub fn note_client_hello(
    frame: &[u8],
    client_state: &mut ClientState,
    negotiation: &mut Negotiation,
) -> Result<(), HandshakeError> {
    let body = match Header::of_frame(frame)?.op_code {
        OpCode::Msg => Message::parse(frame)?.body,
        OpCode::Query => Query::parse(frame)?.document,
        other => return Err(HandshakeError::OpCode(other)),
    };
    let hello = unwrapped(Document::parse(body)?);
    store_client(hello, client_state);
    negotiation.agree_with_client(hello);
    Ok(())
}

/// Returns the hello without the unsupported parts; `None` when there are none.
fn supported_hello(hello: Document<'_>, negotiation: &mut Negotiation) -> Option<Vec<u8>> {
    if !hello.elements().any(authentication::is_speculative) {
        return negotiation.offer(hello);
    }
    let rest = CowDocument::build(|w| {
        hello.elements().filter(|field| !authentication::is_speculative(*field)).for_each(|field| w.element(field));
    });
    let offered = negotiation.offer(rest.as_document());
    Some(offered.unwrap_or_else(|| rest.as_document().as_bytes().to_vec()))
}

/// Returns whether a hello waits for topology changes instead of an immediate reply. Only drivers' monitors send
/// these.
pub fn is_awaitable(frame: &[u8]) -> bool {
    let hello = Message::parse(frame).ok().and_then(|message| Document::parse(message.body).ok());
    hello.is_some_and(|hello| hello.get("topologyVersion").is_some())
}

/// Old drivers wrap a command to add a read preference: `{$query: {isMaster: 1}, ...}`.
pub(crate) const WRAPPERS: [&[u8]; 2] = [b"$query", b"query"];

pub(super) fn unwrapped(outer: Document<'_>) -> Document<'_> {
    let first = outer.first().filter(|first| WRAPPERS.contains(&first.key));
    first.and_then(|first| first.value.as_document()).unwrap_or(outer)
}

fn rewrapped(outer: Document<'_>, inner: &[u8]) -> Vec<u8> {
    document::document(|w| {
        for (index, mut element) in outer.elements().enumerate() {
            if index == 0 {
                element.value = Value { kind: Kind::Document, bytes: inner };
            }
            w.element(element);
        }
    })
}

/// The server's limits on client metadata and on the application name in it (mongod's
/// `src/mongo/rpc/metadata/client_metadata.cpp`, `kMaxMongoDMetadataDocumentByteLength` and
/// `kMaxApplicationNameByteLength`). A hello that exceeds them gets an error; mongos refuses more than 512 bytes of
/// metadata.
const MAX_METADATA_LENGTH: usize = 1024;
const MAX_APP_NAME_LENGTH: usize = 128;

fn store_client(hello: Document<'_>, client_state: &mut ClientState) {
    let client = hello.get("client").and_then(Value::as_document);
    let client = client.filter(|client| client.as_bytes().len() <= MAX_METADATA_LENGTH);
    let application = client.and_then(|client| client.get("application")).and_then(Value::as_document);
    let name = application.and_then(|application| application.get("name")).and_then(Value::as_str);
    // The server accepts only the first name of a connection.
    if let Some(name) = name.filter(|name| name.len() <= MAX_APP_NAME_LENGTH)
        && client_state.app_name().is_none()
    {
        client_state.app_name = Some(name.into());
        client_state.app_name_is_claimed = true;
    }
    // "2", or true by the specification's first version.
    if let Some(backpressure) = hello.get("backpressure") {
        client_state.retries_overload = backpressure.as_str().is_some() || backpressure.as_flag() == Some(true);
    }
    if hello.get("speculativeAuthenticate").is_some() {
        client_state.forget_users();
    }
}
