//! Which requests a driver sends again by itself if its connection closes in place of a reply (driver specifications
//! "Retryable Writes", "Retryable Reads", "Transactions"). A draining proxy closes connections at these, so that
//! applications see no error.

use crate::request_head::RequestHead;
use crate::triage::names_any;
use crate::wire::op_msg::EXHAUST_ALLOWED;

/// How certain it is that the driver sends the request again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retried {
    /// A retryable write, or the end of a transaction.
    Always,
    /// A read outside of transactions, unless the application has switched retries off.
    ByDefault,
}

/// Returns how certain it is that a driver repeats the request that begins with `head`; `None` if it does not, or if
/// the whole body is not here.
#[must_use]
pub fn retried(head: &RequestHead<'_>) -> Option<Retried> {
    let body = head.whole_body()?;
    match head.name()? {
        b"commitTransaction" | b"abortTransaction" => Some(Retried::Always),
        _ if head.fields().has_autocommit => None,
        _ if head.fields().transaction_number.is_some() => Some(Retried::Always),
        b"find" | b"aggregate" | b"count" | b"distinct" | b"listDatabases" | b"listCollections" | b"listIndexes" => {
            let reads_once = !head.has_flags(EXHAUST_ALLOWED) && !names_any(body, &[b"$out\0", b"$merge\0"]);
            reads_once.then_some(Retried::ByDefault)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;
    use crate::wire::op_msg::MessageWriter;

    fn message(flags: u32, body: &bson::Document) -> Vec<u8> {
        let mut writer = MessageWriter::new(1, 0, flags, 0);
        writer.body(|out| out.extend_from_slice(bson::RawDocumentBuf::try_from(body).unwrap().as_bytes()));
        writer.finish()
    }

    #[test]
    fn drivers_repeat_retryable_writes_ends_of_transactions_and_reads() {
        let in_transaction = doc! {"lsid": {}, "txnNumber": 3_i64, "autocommit": false};
        let with = |mut command: bson::Document, more: bson::Document| {
            command.extend(more);
            command
        };
        let numbered = doc! {"lsid": {}, "txnNumber": 3_i64, "$db": "d"};
        for (body, expected) in [
            (with(doc! {"insert": "c"}, numbered.clone()), Some(Retried::Always)),
            (with(doc! {"findAndModify": "c"}, numbered.clone()), Some(Retried::Always)),
            (with(doc! {"commitTransaction": 1}, in_transaction.clone()), Some(Retried::Always)),
            (with(doc! {"abortTransaction": 1}, in_transaction.clone()), Some(Retried::Always)),
            (with(doc! {"insert": "c"}, in_transaction.clone()), None),
            (with(doc! {"find": "c"}, in_transaction), None),
            (doc! {"find": "c", "lsid": {}}, Some(Retried::ByDefault)),
            (doc! {"aggregate": "c", "pipeline": [{"$match": {}}]}, Some(Retried::ByDefault)),
            (doc! {"aggregate": "c", "pipeline": [{"$out": "b"}]}, None),
            (doc! {"aggregate": "c", "pipeline": [{"$merge": {"into": "b"}}]}, None),
            (doc! {"update": "c", "updates": [{"multi": true}], "lsid": {}}, None),
            (doc! {"getMore": 7_i64, "lsid": {}}, None),
            (doc! {"createIndexes": "c"}, None),
            (doc! {"ping": 1}, None),
        ] {
            let whole = message(0, &body);
            assert_eq!(retried(&RequestHead::new(&whole)), expected, "{body}");
            assert_eq!(retried(&RequestHead::new(&whole[..whole.len() - 1])), None, "a part of {body}");
        }
        assert_eq!(retried(&RequestHead::new(&message(EXHAUST_ALLOWED, &doc! {"find": "c"}))), None);
        assert_eq!(retried(&RequestHead::new(&[0; 30])), None);
    }
}
