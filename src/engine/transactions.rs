//! Which transactions go on and end in the messages that pass: what a draining proxy waits for.
//!
//! A hint, not a judgement: a field that is not among the first bytes is missed. Every message is asked, so bytes
//! are searched before fields are walked, and nothing is allocated.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::document::{Value, peek};
use crate::wire::header::{HEADER_LENGTH, Header, OpCode};

/// A transaction as the server tells them apart: its session and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransactionId {
    session: [u8; 16],
    number: i64,
}

/// What a message does to a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transaction {
    /// A message of it; it may have begun through another process.
    GoesOn(TransactionId),
    Ends(TransactionId),
}

/// Where the first field's name begins: behind the document's length and the field's type.
const NAME_AT: usize = 5;
/// Bytes of the body that are searched. Documents that are written come behind the body, so real ones are shorter.
const SEARCHED: usize = 4096;

/// In every message of a transaction, and in no other.
static AUTOCOMMIT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\x08autocommit\0"));

/// `head` are the frame's first bytes from its header on.
pub fn transaction(head: &[u8]) -> Option<Transaction> {
    let header = Header::parse(head).ok().flatten()?;
    // Backend the flags and the kind byte of the body's section.
    let body = head.get(HEADER_LENGTH + 5..).filter(|_| header.op_code == OpCode::Msg)?;
    let name = body.get(NAME_AT..)?;
    let ends = name.starts_with(b"commitTransaction\0") || name.starts_with(b"abortTransaction\0");
    if !ends && !goes_on(body) {
        return None;
    }
    let value = |key: &[u8]| peek(body).find(|field| field.key == key).map(|field| field.value);
    let session = peek(value(b"lsid")?.bytes).find(|field| field.key == b"id")?.value.as_uuid()?;
    let number = value(b"txnNumber").and_then(Value::as_integer)?;
    let id = TransactionId { session, number };
    Some(if ends { Transaction::Ends(id) } else { Transaction::GoesOn(id) })
}

fn goes_on(body: &[u8]) -> bool {
    let length = body.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
    let searched = body.get(..length.min(body.len()).min(SEARCHED)).unwrap_or_default();
    AUTOCOMMIT.find(searched).is_some() && peek(body).any(|field| field.key == b"autocommit")
}

#[cfg(test)]
mod tests {
    use bson::{Binary, doc, spec::BinarySubtype};

    use super::*;
    use crate::wire::op_msg::Writer;

    fn told(body: &bson::Document) -> Option<Transaction> {
        let mut writer = Writer::new(1, 0, 0, 0);
        writer.body(|out| out.extend_from_slice(bson::RawDocumentBuf::try_from(body).unwrap().as_bytes()));
        transaction(&writer.finish())
    }

    #[test]
    fn messages_of_transactions_are_told_from_all_else() {
        let lsid = doc! {"id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] }};
        let id = TransactionId { session: [7; 16], number: 3 };
        let insert = doc! {"insert": "c", "lsid": &lsid, "txnNumber": 3_i64, "autocommit": false, "$db": "d"};
        let mut begin = insert.clone();
        begin.insert("startTransaction", true);
        for message in [&begin, &insert] {
            assert_eq!(told(message), Some(Transaction::GoesOn(id)));
        }
        for end in ["commitTransaction", "abortTransaction"] {
            let mut body = doc! {end: 1};
            body.extend(doc! {"lsid": &lsid, "txnNumber": 3_i64, "autocommit": false, "$db": "admin"});
            assert_eq!(told(&body), Some(Transaction::Ends(id)));
        }
        let retryable = doc! {"insert": "c", "lsid": &lsid, "txnNumber": 3_i64, "$db": "d"};
        for other in [retryable, doc! {"insert": "c", "documents": [{"autocommit": false}], "$db": "d"}] {
            assert_eq!(told(&other), None, "{other}");
        }
        assert_eq!(transaction(&[0; 30]), None);
    }
}
