//! `throttle`: slow updates of many writers, of which each docward lets one at a time reach the server. Its permits
//! survive reloads, and come back when docward or the server dies.

use bson::doc;

use super::writer::{Operation, Writer};
use super::{Stored, WRITERS, Workload, written_once};

pub(super) struct Throttle;

/// The time that each update takes before it writes.
const SLOW: u32 = 25;
/// The writes of two updates that ran one after the other are further apart.
const APART: i64 = 10;

impl Workload for Throttle {
    fn name(&self) -> &'static str {
        "throttle"
    }

    fn settings(&self, block: usize) -> String {
        format!("throttle: {{ concurrent: 1, per: app, wait: {}s }}", 40 + block % 7)
    }

    fn prepare(&self, writer: &mut Writer) {
        writer.insert(self.name(), (0..=WRITERS).map(|number| doc! { "_id": number as i32, "at": {} })).unwrap();
    }

    fn step(&self, writer: &mut Writer) {
        let token = writer.token();
        let filter = doc! { "_id": writer.number as i32, "$where": format!("sleep({SLOW}) || true") };
        let change = doc! { "$currentDate": { format!("at.{token}"): true } };
        writer.record("update", [token], doc! {}, |writer| writer.update(filter, change));
    }

    /// All permits have come back.
    fn finish(&self, writer: &mut Writer) {
        for _ in 0..3 {
            self.step(writer);
        }
        assert!(writer.history.iter().all(|operation| operation.reply.is_acknowledged()), "{:?}", writer.history);
    }

    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let documents = stored.of(self.name());
        let written = |document: &bson::Document| document.get_document("at").unwrap().clone();
        let mut faults =
            written_once(history, documents.iter().flat_map(|one| written(one).keys().cloned().collect::<Vec<_>>()));
        // Writers with even numbers share one docward, and those with odd numbers the other one.
        for side in 0..2 {
            let of_side = documents.iter().filter(|document| document.get_i32("_id").unwrap() % 2 == side);
            let mut times: Vec<i64> = of_side
                .flat_map(|document| {
                    written(document)
                        .iter()
                        .map(|(_, at)| at.as_datetime().unwrap().timestamp_millis())
                        .collect::<Vec<_>>()
                })
                .collect();
            times.sort_unstable();
            let close = times.windows(2).filter(|pair| pair[1] - pair[0] < APART).count();
            if close > 0 {
                faults.push(format!("{close} of {} updates ran at the same time as another one", times.len()));
            }
        }
        faults
    }

    fn anomaly(&self) -> &'static str {
        "ran at the same time"
    }
}
