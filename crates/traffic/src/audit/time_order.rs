//! Puts the commands of one log or profile in the order of their times. A log shows commands of several connections
//! interleaved, and exports can have the newest entry first.

use std::collections::BTreeMap;

use super::recorded::{RecordedCommand, RecordedContent};

/// The most bytes held for all files that are read at the same time.
const MAX_HELD_BYTES: usize = 12 << 20;
/// How much older than an earlier command one may be, in milliseconds: connections are logged when their commands end.
const TOLERANCE: i64 = 10_000;

/// Holds commands until later ones fill its memory, then gives the oldest. So a small source is sorted completely.
#[derive(Debug)]
pub struct TimeOrder {
    /// By time, line, and number of the command.
    held: BTreeMap<(i64, i64, u64), Box<RecordedCommand>>,
    bytes: usize,
    limit: usize,
    /// The number of commands that were added.
    added: u64,
    /// The time of the last command that was added.
    last: Option<i64>,
    /// How many commands were newer than the one before, without those that were older.
    newer: i64,
    /// The time of the last command that was given.
    given: i64,
    /// Commands that came too late.
    late: u64,
}

impl TimeOrder {
    /// For one of this many files.
    #[must_use]
    pub fn for_one_of(files: usize) -> Self {
        let limit = MAX_HELD_BYTES / files.max(1);
        let (held, given) = (BTreeMap::new(), i64::MIN);
        Self { held, bytes: 0, limit, added: 0, last: None, newer: 0, given, late: 0 }
    }

    /// Adds a command, and what is now due to `out`. A command without a time keeps its place.
    pub fn add(&mut self, command: RecordedCommand, out: &mut impl Extend<RecordedCommand>) {
        let time = command.milliseconds.or(self.last).unwrap_or(i64::MIN);
        self.newer += self.last.map_or(0, |last| time.cmp(&last) as i64);
        self.last = Some(time);
        self.late += u64::from(time < self.given.saturating_sub(TOLERANCE));
        self.bytes += size(&command);
        self.held.insert((time, command.line, self.added), Box::new(command));
        self.added += 1;
        while self.bytes > self.limit {
            self.give(out);
        }
    }

    /// Adds all commands that are still held to `out`.
    pub fn finish(&mut self, out: &mut impl Extend<RecordedCommand>) {
        while !self.held.is_empty() {
            self.give(out);
        }
    }

    /// What is wrong with the order of the source.
    #[must_use]
    pub fn flaw(&self) -> Option<String> {
        let advice = "put the entries in the order of their times, oldest first; until then the result can be wrong";
        (self.late > 0).then(|| format!("{} commands are older than commands long before them: {advice}", self.late))
    }

    /// Gives the commands with the oldest time. In the same millisecond, the order of the lines decides.
    fn give(&mut self, out: &mut impl Extend<RecordedCommand>) {
        let Some(&(time, ..)) = self.held.keys().next() else { return };
        self.given = self.given.max(time);
        let mut oldest = Vec::new();
        while let Some(entry) = self.held.first_entry().filter(|entry| entry.key().0 == time) {
            oldest.push(*entry.remove());
        }
        self.bytes -= oldest.iter().map(size).sum::<usize>();
        if self.newer < 0 {
            oldest.reverse();
        }
        out.extend(oldest);
    }
}

/// Bytes of a command, roughly.
fn size(command: &RecordedCommand) -> usize {
    let document = match &command.content {
        RecordedContent::Command(command) => command.as_document().as_bytes().len(),
        RecordedContent::UnknownStatements(_) => 0,
    };
    size_of::<RecordedCommand>() + document + command.client.app.as_ref().map_or(0, String::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::recorded::Client;
    use crate::document::CowDocument;

    fn ordered(order: &mut TimeOrder, added: &[(i64, i64)]) -> Vec<(i64, i64)> {
        let mut out = Vec::new();
        for (time, line) in added {
            let content = RecordedContent::Command(CowDocument::build(|w| w.int32("ping", 1)));
            let (client, milliseconds, line) = (Client::default(), Some(*time), *line);
            let command =
                RecordedCommand { client, milliseconds, line, took: None, content, partial: false, reply: None };
            order.add(command, &mut out);
        }
        order.finish(&mut out);
        out.iter().map(|one| (one.milliseconds.unwrap_or_default(), one.line)).collect()
    }

    #[test]
    fn commands_of_one_millisecond_keep_the_order_of_the_log() {
        let expected = |lines: [i64; 4]| [1, 5, 5, 9].into_iter().zip(lines).collect::<Vec<_>>();
        let given = |lines: [(i64, i64); 4]| ordered(&mut TimeOrder::for_one_of(1), &lines);
        assert_eq!(given([(1, 1), (5, 3), (5, 2), (9, 4)]), expected([1, 2, 3, 4]));
        assert_eq!(given([(9, 1), (5, 2), (5, 3), (1, 4)]), expected([4, 3, 2, 1]), "newest first");
        assert_eq!(given([(5, 1), (5, 2), (9, 3), (1, 4)]), expected([4, 1, 2, 3]), "joined in the wrong order");
    }

    #[test]
    fn what_is_too_late_to_be_sorted_is_reported() {
        // So many files leave no memory for one of them.
        let flaw = |times: [i64; 3]| {
            let mut order = TimeOrder::for_one_of(usize::MAX);
            ordered(&mut order, &times.map(|time| (time, 0)));
            order.flaw()
        };
        assert_eq!(flaw([0, 20_000, 11_000]), None);
        assert!(flaw([20_000, 9_000, 8_000]).unwrap().starts_with("2 commands are older"));
    }
}
