//! Detects which transactions continue and end in forwarded messages, so that a draining proxy can wait for them.
//!
//! Best effort: a field that is not in the first bytes is missed. It runs on every message, so it searches bytes
//! before it parses fields, and allocates nothing.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::document::{Value, peek};
use crate::wire::header::{Header, OpCode};
use crate::wire::op_msg::body_of_head;

/// The identity of a transaction on the server: its session and transaction number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransactionId {
    session: [u8; 16],
    number: i64,
}

/// The effect of a message on a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionChange {
    /// The message belongs to the transaction, which may have started through another process.
    Continues(TransactionId),
    Ends(TransactionId),
}

/// Offset of the first field's name, after the document's length and the field's type.
const NAME_AT: usize = 5;
/// Bytes of the body that are searched. Documents to write follow the body in sequences, so bodies are shorter in
/// practice.
pub(super) const SEARCHED: usize = 4096;

/// Present in every message of a transaction and in no other.
static AUTOCOMMIT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\x08autocommit\0"));

/// Returns the effect on a transaction of the message that starts with `head`, from its header on; `None` for others.
pub fn transaction(head: &[u8]) -> Option<TransactionChange> {
    let header = Header::parse(head).ok().flatten()?;
    let body = body_of_head(head).filter(|_| header.op_code == OpCode::Msg)?;
    let name = body.get(NAME_AT..)?;
    let ends = name.starts_with(b"commitTransaction\0") || name.starts_with(b"abortTransaction\0");
    if !ends && !continues(body) {
        return None;
    }
    let value = |key: &[u8]| peek(body).find(|field| field.key == key).map(|field| field.value);
    let session = peek(value(b"lsid")?.bytes).find(|field| field.key == b"id")?.value.as_uuid()?;
    let number = value(b"txnNumber").and_then(Value::as_integer)?;
    let id = TransactionId { session, number };
    Some(if ends { TransactionChange::Ends(id) } else { TransactionChange::Continues(id) })
}

/// Whether the body is that of a statement in a transaction.
fn continues(body: &[u8]) -> bool {
    let length = body.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
    let searched = body.get(..length.min(body.len()).min(SEARCHED)).unwrap_or_default();
    AUTOCOMMIT.find(searched).is_some() && peek(body).any(|field| field.key == b"autocommit")
}

#[cfg(test)]
mod tests {
    use bson::{Binary, doc, spec::BinarySubtype};

    use super::*;
    use crate::wire::op_msg::MessageWriter;

    fn transaction_of(body: &bson::Document) -> Option<TransactionChange> {
        let mut writer = MessageWriter::new(1, 0, 0, 0);
        writer.body(|out| out.extend_from_slice(bson::RawDocumentBuf::try_from(body).unwrap().as_bytes()));
        transaction(&writer.finish())
    }

    #[test]
    fn only_messages_of_transactions_are_detected() {
        let lsid = doc! {"id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] }};
        let id = TransactionId { session: [7; 16], number: 3 };
        let insert = doc! {"insert": "c", "lsid": &lsid, "txnNumber": 3_i64, "autocommit": false, "$db": "d"};
        let mut begin = insert.clone();
        begin.insert("startTransaction", true);
        for message in [&begin, &insert] {
            assert_eq!(transaction_of(message), Some(TransactionChange::Continues(id)));
        }
        for end in ["commitTransaction", "abortTransaction"] {
            let mut body = doc! {end: 1};
            body.extend(doc! {"lsid": &lsid, "txnNumber": 3_i64, "autocommit": false, "$db": "admin"});
            assert_eq!(transaction_of(&body), Some(TransactionChange::Ends(id)));
        }
        let retryable = doc! {"insert": "c", "lsid": &lsid, "txnNumber": 3_i64, "$db": "d"};
        for other in [retryable, doc! {"insert": "c", "documents": [{"autocommit": false}], "$db": "d"}] {
            assert_eq!(transaction_of(&other), None, "{other}");
        }
        assert_eq!(transaction(&[0; 30]), None);
    }
}
