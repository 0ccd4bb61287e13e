//! `bucket`: messages pushed into documents of bounded size.

use bson::{Bson, Document, doc};

use super::writer::{Operation, Writer};
use super::{Stored, Workload, written_once};
use crate::verify::integer;

pub(super) struct Bucket;

const LIMIT: usize = 10;

impl Workload for Bucket {
    fn name(&self) -> &'static str {
        "bucket"
    }

    fn settings(&self, _block: usize) -> String {
        format!("bucket: {{ array: messages, count: count, limit: {LIMIT}, opened: time }}")
    }

    fn prepare(&self, writer: &mut Writer) {
        writer.create(self.name(), None);
    }

    fn step(&self, writer: &mut Writer) {
        let (token, owner) = (writer.token(), doc! { "owner": writer.below(2) as i32 });
        match writer.below(6) {
            0 => {
                let tokens = (0..3).map(|part| format!("{token}/{part}"));
                let pushed = doc! { "$push": { "messages": { "$each": tokens.clone().collect::<Vec<_>>() } } };
                writer.record("three", tokens, doc! {}, |writer| writer.upsert(owner, pushed));
            }
            // docward counts what is there.
            1 => {
                let miscounted = doc! { "$pull": { "messages": "none" }, "$set": { "count": 0 } };
                writer.record("miscount", [], doc! {}, |writer| writer.update(owner, miscounted));
            }
            2 if writer.is_protected => {
                let pushed = doc! { "$push": { "messages": &token } };
                writer.record("push", [token], doc! {}, |writer| writer.update(owner, pushed));
            }
            _ => {
                let pushed = doc! { "$push": { "messages": &token } };
                writer.record("upsert", [token], doc! {}, |writer| writer.upsert(owner, pushed));
            }
        }
    }

    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let buckets = stored.of(self.name());
        let messages = |bucket: &Document| bucket.get_array("messages").cloned().unwrap_or_default();
        let text = |message: Bson| message.as_str().unwrap_or_default().to_owned();
        let mut faults = written_once(history, buckets.iter().flat_map(messages).map(text));
        for bucket in buckets {
            let (size, count) = (messages(bucket).len(), bucket.get("count").and_then(integer));
            if size > LIMIT {
                faults.push(format!("{size} messages in a bucket of {LIMIT}"));
            }
            if count != Some(size as i64) {
                faults.push(format!("{size} messages are counted as {count:?}"));
            }
        }
        faults
    }

    fn anomaly(&self) -> &'static str {
        "messages in a bucket of"
    }
}
