//! What a server answered to a command, as far as a replay compares it: errors, counts, and the cursor that it opened.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value as JsonValue;

use crate::command::Reply;
use crate::document::{Document, Value, Writer};

/// Failed statements whose codes are kept of one reply.
const MAX_ERRORS: usize = 100;

/// The result of one command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplySummary {
    /// The code of the command's error.
    pub code: Option<i32>,
    /// The codes of failed statements, in the order of the reply.
    pub write_errors: Vec<i32>,
    /// `n`: documents that statements matched, inserted or deleted, or the result of a count.
    pub n: Option<i64>,
    /// `nModified`
    pub modified: Option<i64>,
    /// The documents of `n` that upserts inserted.
    pub upserted: i64,
    /// Documents in the batch of a cursor.
    pub returned: Option<i64>,
    /// The cursor that stays open; 0 if there is none.
    pub cursor: i64,
    /// The rules of docward that rejected statements or the command, with the number of statements.
    pub rules: BTreeMap<String, u64>,
}

impl ReplySummary {
    /// Reads a reply; `None` if it is malformed.
    #[must_use]
    pub fn of_reply(frame: &[u8]) -> Option<Self> {
        Reply::parse(frame).ok().map(|reply| Self::from(&reply))
    }

    /// Whether neither the command nor a statement failed.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.code.is_none() && self.write_errors.is_empty()
    }

    /// Whether the filters of all the command's updates or deletes matched nothing.
    pub(super) fn shows_no_match(&self, statements: usize) -> bool {
        let all = i64::try_from(statements) == Ok(self.upserted);
        self.is_ok() && self.n == Some(self.upserted) && (self.upserted == 0 || all)
    }

    /// Writes the fields of a capture's `reply`.
    pub fn write(&self, w: &mut Writer<'_>) {
        if let Some(code) = self.code {
            w.int32("code", code);
        }
        if !self.write_errors.is_empty() {
            w.array("errors", |a| self.write_errors.iter().for_each(|code| a.int32(*code)));
        }
        for (name, count) in [("n", self.n), ("nModified", self.modified), ("returned", self.returned)] {
            count.into_iter().for_each(|count| w.integer(name, count));
        }
        if self.upserted != 0 {
            w.integer("upserted", self.upserted);
        }
        if self.cursor != 0 {
            w.slot("cursor").int64(self.cursor);
        }
    }

    /// Reads the fields of a capture's `reply`.
    #[must_use]
    pub fn from_record(reply: Document<'_>) -> Self {
        let number = |name| reply.get(name).and_then(Value::as_integer);
        let errors = reply.get("errors").and_then(Value::as_array).unwrap_or(Document::EMPTY);
        Self {
            code: reply.get("code").and_then(Value::as_i32),
            write_errors: errors.values().filter_map(Value::as_i32).collect(),
            n: number("n"),
            modified: number("nModified"),
            upserted: number("upserted").unwrap_or_default(),
            returned: number("returned"),
            cursor: number("cursor").unwrap_or_default(),
            rules: BTreeMap::new(),
        }
    }
}

impl From<&Reply<'_>> for ReplySummary {
    fn from(reply: &Reply<'_>) -> Self {
        let number = |name| reply.body.get(name).and_then(Value::as_integer);
        // bulkWrite has its errors among the results.
        let results = number("nErrors").and_then(|_| reply.first_batch()).unwrap_or(Document::EMPTY);
        let failed = |result: &Document<'_>| result.get("code").is_some();
        let failed = results.values().filter_map(Value::as_document).filter(failed);
        let errors: Vec<Document<'_>> =
            reply.write_errors().values().filter_map(Value::as_document).chain(failed).collect();
        let mut rules = BTreeMap::new();
        for rule in errors.iter().copied().chain([reply.body]).filter_map(rule) {
            *rules.entry(rule).or_default() += 1;
        }
        // findAndModify has its count in there.
        let last_error = reply.body.get("lastErrorObject").and_then(Value::as_document);
        let of_find_and_modify = || last_error?.get("n")?.as_integer();
        let of_bulk_write = || {
            let counts = ["nInserted", "nMatched", "nUpserted", "nDeleted"].into_iter().filter_map(number);
            counts.reduce(i64::saturating_add)
        };
        let inserted = last_error.is_some_and(|last_error| last_error.get("upserted").is_some());
        let upserted = i64::try_from(reply.upserted().values().count()).unwrap_or(i64::MAX);
        Self {
            code: (!reply.is_ok()).then(|| reply.code().unwrap_or_default()),
            write_errors: errors
                .iter()
                .take(MAX_ERRORS)
                .map(|error| error.get("code").and_then(Value::as_i32).unwrap_or_default())
                .collect(),
            n: number("n").or_else(of_find_and_modify).or_else(of_bulk_write),
            modified: number("nModified"),
            upserted: upserted.saturating_add(number("nUpserted").unwrap_or_default()).saturating_add(inserted.into()),
            returned: reply.batch().and_then(|batch| i64::try_from(batch.values().count()).ok()),
            cursor: reply.cursor_id().unwrap_or_default(),
            rules,
        }
    }
}

impl ReplySummary {
    /// What mongod's log and profile have of the reply to one statement; `None` if an entry has none of it.
    pub(super) fn of_counts([matched, upserted, deleted, modified, code]: [Option<ExtendedNumber>; 5]) -> Option<Self> {
        let of = |count: Option<ExtendedNumber>| count.and_then(|count| count.0);
        let n = of(matched).map(|matched| matched.saturating_add(of(upserted).unwrap_or_default())).or(of(deleted));
        let code = of(code).map(|code| i32::try_from(code).unwrap_or_default());
        let reply = Self { code, n, modified: of(modified), ..Self::default() };
        (reply != Self::default()).then_some(reply)
    }
}

/// A number in any form of Extended JSON; `None` if it is none.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExtendedNumber(pub(super) Option<i64>);

impl<'d> Deserialize<'d> for ExtendedNumber {
    fn deserialize<D: Deserializer<'d>>(value: D) -> Result<Self, D::Error> {
        let value = JsonValue::deserialize(value)?;
        let wrapped = |key| value.get(key).and_then(JsonValue::as_str).and_then(|text| text.parse().ok());
        Ok(Self(value.as_i64().or_else(|| wrapped("$numberInt")).or_else(|| wrapped("$numberLong"))))
    }
}

impl ExtendedNumber {
    pub(super) fn unsigned(self) -> Option<u64> {
        self.0.and_then(|number| u64::try_from(number).ok())
    }
}

/// The rule that an error of docward names.
fn rule(error: Document<'_>) -> Option<String> {
    let info = error.get("errInfo").and_then(Value::as_document)?;
    let docward = info.get("docward").and_then(Value::as_document)?;
    docward.get("rule").and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, doc};

    use super::*;
    use crate::document::document;
    use crate::wire::op_msg;

    fn answer(body: &bson::Document) -> ReplySummary {
        let mut writer = op_msg::MessageWriter::new(1, 2, 0, 0);
        writer.body(|out| out.extend_from_slice(RawDocumentBuf::try_from(body).unwrap().as_bytes()));
        ReplySummary::of_reply(&writer.finish()).unwrap()
    }

    #[test]
    fn a_reply_is_summarised_and_kept_in_a_capture() {
        let rejected = doc! {"index": 1, "code": 121, "errInfo": {"docward": {"rule": "no-replace"}}};
        let errors = vec![doc! {"index": 0, "code": 11000}, rejected];
        let written = answer(&doc! {"n": 1, "nModified": 1, "writeErrors": errors, "ok": 1.0});
        assert_eq!(
            (written.write_errors.as_slice(), &written.rules),
            (&[11000, 121][..], &BTreeMap::from([("no-replace".to_owned(), 1)]))
        );
        assert!(!written.is_ok());
        let found = answer(&doc! {"cursor": {"firstBatch": [{}, {}], "id": 7_i64, "ns": "a.b"}, "ok": 1.0});
        assert_eq!((found.returned, found.cursor, found.is_ok()), (Some(2), 7, true));
        let failed = answer(&doc! {"ok": 0.0, "code": 26, "errmsg": "no"});
        assert_eq!((failed.code, failed.is_ok()), (Some(26), false));
        let taken = answer(&doc! {"lastErrorObject": {"n": 0, "updatedExisting": false}, "value": null, "ok": 1.0});
        assert_eq!(taken.n, Some(0));
        assert!(taken.shows_no_match(1) && !failed.shows_no_match(1) && !written.shows_no_match(2));
        let upserted = vec![doc! {"index": 0, "_id": 1}];
        let upserted = answer(&doc! {"n": 1, "nModified": 0, "upserted": upserted, "ok": 1.0});
        assert!(upserted.shows_no_match(1) && !upserted.shows_no_match(2));
        let results = vec![doc! {"ok": 1.0, "idx": 0, "n": 1}, doc! {"ok": 0.0, "idx": 1, "code": 11000, "n": 0}];
        let cursor = doc! {"id": 0_i64, "firstBatch": results, "ns": "admin.$cmd.bulkWrite"};
        let counts = doc! {"nErrors": 1, "nInserted": 2, "nMatched": 3, "nModified": 1, "nUpserted": 1, "nDeleted": 4};
        let bulk = answer(&doc! {"cursor": cursor, "ok": 1.0}.into_iter().chain(counts).collect());
        assert_eq!((bulk.n, bulk.upserted, bulk.modified), (Some(10), 1, Some(1)));
        assert_eq!(bulk.write_errors, [11000]);
        for one in [written, found, failed, taken, upserted, bulk] {
            let bytes = document(|w| one.write(w));
            let read = ReplySummary::from_record(Document::parse(&bytes).unwrap());
            assert_eq!(read, ReplySummary { rules: BTreeMap::new(), ..one });
        }
    }
}
