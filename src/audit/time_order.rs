//! Puts the commands of one log or profile in the order of their times. A log shows commands of several connections
//! interleaved, and exports can have the newest entry first.

use super::recorded::{RecordedCommand, RecordedContent};

/// The most bytes held for all files that are read at the same time.
const MAX_HELD_BYTES: usize = 32 << 20;
/// Bytes of a command without its document, roughly.
const OVERHEAD: usize = 256;
/// How much older than an earlier command one may be, in milliseconds: connections are logged when their commands end.
const TOLERANCE: i64 = 10_000;

/// Holds commands until later ones fill its memory, then gives the older half. So a small source is sorted completely.
#[derive(Debug)]
pub struct TimeOrder {
    held: Vec<(i64, RecordedCommand)>,
    bytes: usize,
    limit: usize,
    /// The time of the last command that was added.
    last: i64,
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
        Self { held: Vec::new(), bytes: 0, limit, last: i64::MIN, given: i64::MIN, late: 0 }
    }

    /// Adds a command, and what is now due to `out`. A command without a time keeps its place.
    pub fn add(&mut self, command: RecordedCommand, out: &mut impl Extend<RecordedCommand>) {
        let time = command.milliseconds.unwrap_or(self.last);
        self.last = time;
        self.late += u64::from(time < self.given.saturating_sub(TOLERANCE));
        self.bytes += size(&command);
        self.held.push((time, command));
        if self.bytes > self.limit {
            self.give(self.held.len().div_ceil(2), out);
        }
    }

    /// Adds all commands that are still held to `out`.
    pub fn finish(&mut self, out: &mut impl Extend<RecordedCommand>) {
        self.give(self.held.len(), out);
    }

    /// What is wrong with the order of the source.
    #[must_use]
    pub fn flaw(&self) -> Option<String> {
        let advice = "put the entries in the order of their times, oldest first; until then the result can be wrong";
        (self.late > 0).then(|| format!("{} commands are older than commands long before them: {advice}", self.late))
    }

    fn give(&mut self, count: usize, out: &mut impl Extend<RecordedCommand>) {
        // Of the same millisecond, the order of the lines decides.
        self.held.sort_by_key(|(_, command)| command.line);
        let steps = self.held.array_windows().map(|[(before, _), (after, _)]| after.cmp(before) as i64);
        if steps.sum::<i64>() < 0 {
            self.held.reverse();
        }
        self.held.sort_by_key(|(time, _)| *time);
        if let Some((time, _)) = count.checked_sub(1).and_then(|last| self.held.get(last)) {
            self.given = self.given.max(*time);
        }
        let due: Vec<RecordedCommand> = self.held.drain(..count).map(|(_, command)| command).collect();
        self.bytes -= due.iter().map(size).sum::<usize>();
        out.extend(due);
    }
}

fn size(command: &RecordedCommand) -> usize {
    let document = match &command.content {
        RecordedContent::Command(command) => command.as_document().as_bytes().len(),
        RecordedContent::UnknownStatements(_) => 0,
    };
    OVERHEAD + document
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
