//! Reads and checks the settings of `timestamps`; `timestamps.rs` uses them.

use super::super::read_path;
use super::pipeline::{FieldTimestamp, Forms};
use crate::config::{Code, MapReader};
use crate::document::{Kind, OwnedValue, Path, Value};

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Timestamps {
    pub(super) source: TimeSource,
    pub(super) timestamp_type: TimestampType,
    pub(super) fields: Fields,
    /// Top-level field that holds the timestamps.
    pub(super) store: String,
    pub(super) per: Per,
    pub(super) without_source: WithoutSource,
    /// Milliseconds that a source time may be ahead of docward's clock.
    pub(super) max_ahead: Option<i64>,
    pub(super) hide: bool,
    pub(super) forms: Box<Forms>,
}

#[derive(Debug, Clone)]
pub(super) enum TimeSource {
    /// A field of the write.
    Field(Path),
    /// A field of the command's comment.
    Comment(Path),
    /// The time at which the message arrives at docward.
    Clock,
}

/// The eight bytes of a timestamp in BSON; the rule gives the type.
pub(super) type Time = [u8; 8];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimestampType {
    Date,
    Long,
    Timestamp,
}

#[derive(Debug, Clone)]
pub(super) enum Fields {
    All,
    Listed(Vec<Path>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Per {
    Field,
    Document,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WithoutSource {
    Reject,
    Clock,
    Pass,
}

impl Timestamps {
    pub(super) fn read_keys(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let source = read_source(reader);
        let timestamp_type = reader.choice(
            "type",
            &[("date", TimestampType::Date), ("long", TimestampType::Long), ("timestamp", TimestampType::Timestamp)],
        );
        let fields = read_fields(reader);
        let store = read_path(reader, "store");
        let per = reader.choice("per", &[("field", Per::Field), ("document", Per::Document)]);
        let without_source = reader.choice(
            "without_source",
            &[("reject", WithoutSource::Reject), ("clock", WithoutSource::Clock), ("pass", WithoutSource::Pass)],
        );
        let max_ahead = reader.duration("max_ahead");
        let hide = reader.boolean("hide");
        if let Some(store) = &store
            && (!store.value.is_top_level() || store.value.as_str() == "_id")
        {
            reader.context().error(Code::InvalidValue, store.span, "`store` must be a top-level field other than _id");
            return None;
        }
        let store = store.map_or_else(|| "last_modified".to_owned(), |path| path.value.as_str().to_owned());
        let (source, fields) = (source?, fields?);
        check_own_fields(reader, &source, &fields, &store)?;
        let timestamp_type = timestamp_type.map_or(TimestampType::Date, |word| word.value);
        let per = per.map_or(Per::Field, |word| word.value);
        Some(Self {
            forms: Box::new(Forms::new(&store, per, timestamp_type)),
            source,
            timestamp_type,
            fields,
            store,
            per,
            without_source: without_source.map_or(WithoutSource::Reject, |word| word.value),
            max_ahead: max_ahead.map(|ahead| i64::try_from(ahead.value.as_millis()).unwrap_or(i64::MAX)),
            hide: hide.is_some_and(|flag| flag.value),
        })
    }
}

impl TimestampType {
    /// Returns the type's name as in `$type`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Date => "date",
            Self::Long => "long",
            Self::Timestamp => "timestamp",
        }
    }

    pub(super) fn description(self) -> &'static str {
        match self {
            Self::Date => "a date",
            Self::Long => "a whole number",
            Self::Timestamp => "a BSON timestamp other than (0, 0)",
        }
    }

    /// Returns the value as timestamps are stored, if it is of this type. A long may be any integer type, because
    /// drivers choose the width. All are stored as int64, so that timestamps compare within one type.
    pub(super) fn accept(self, value: Value<'_>) -> Option<Time> {
        match (self, value.kind) {
            (Self::Date, Kind::DateTime) => value.as_raw_i64().map(i64::to_le_bytes),
            (Self::Long, _) => value.as_integer().map(i64::to_le_bytes),
            // mongod replaces Timestamp(0, 0) with its own time.
            (Self::Timestamp, Kind::Timestamp) => value.as_raw_i64().filter(|bits| *bits != 0).map(i64::to_le_bytes),
            _ => None,
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::Date => Kind::DateTime,
            Self::Long => Kind::Int64,
            Self::Timestamp => Kind::Timestamp,
        }
    }

    /// Returns the time as a value.
    pub(super) fn value(self, time: &Time) -> Value<'_> {
        Value { kind: self.kind(), bytes: time }
    }

    /// Returns whether a stored timestamp is newer. A timestamp of another type counts as missing.
    pub(super) fn is_newer(self, stored: Value<'_>, time: Time) -> bool {
        let bits = stored.as_raw_i64().filter(|_| stored.kind == self.kind());
        bits.is_some_and(|bits| match self {
            Self::Date | Self::Long => bits > i64::from_le_bytes(time),
            Self::Timestamp => bits as u64 > u64::from_le_bytes(time),
        })
    }

    pub(super) fn newest(self, timestamps: &[FieldTimestamp<'_>]) -> Option<Time> {
        let rank = |time: &Time| match self {
            Self::Date | Self::Long => i128::from(i64::from_le_bytes(*time)),
            Self::Timestamp => i128::from(u64::from_le_bytes(*time)),
        };
        timestamps.iter().map(|timestamp| timestamp.time).max_by_key(rank)
    }

    /// Returns the time in milliseconds since 1970. A long is assumed to be in milliseconds.
    pub(super) fn milliseconds(self, time: Time) -> i64 {
        let bits = i64::from_le_bytes(time);
        match self {
            Self::Date | Self::Long => bits,
            Self::Timestamp => i64::from((bits as u64 >> 32) as u32) * 1000,
        }
    }

    /// Returns the timestamp of these 64 bits.
    pub(super) fn of_bits(self, bits: i64) -> OwnedValue {
        match self {
            Self::Date => OwnedValue::date(bits),
            Self::Long => OwnedValue::int64(bits),
            Self::Timestamp => OwnedValue::timestamp((bits >> 32) as u32, bits as u32),
        }
    }

    /// Returns `now`, in milliseconds since 1970, as a timestamp.
    pub(super) fn clock(self, now: i64) -> Time {
        match self {
            Self::Date | Self::Long => now.to_le_bytes(),
            Self::Timestamp => {
                let seconds = u32::try_from(now.div_euclid(1000)).unwrap_or(u32::MAX);
                ((u64::from(seconds) << 32) | (now.rem_euclid(1000) as u64 + 1)).to_le_bytes()
            }
        }
    }
}

fn read_source(reader: &mut MapReader<'_, '_, '_>) -> Option<TimeSource> {
    let text = reader.required_text("source")?;
    let wrong = |reader: &mut MapReader<'_, '_, '_>| {
        let message = format!("`{}` is not a source; write a field path, $comment.PATH or $clock", text.value);
        reader.context().error(Code::InvalidValue, text.span, message);
        None
    };
    if text.value == "$clock" {
        return Some(TimeSource::Clock);
    }
    match text.value.strip_prefix("$comment.") {
        Some(path) => match Path::parse(path) {
            Some(path) => Some(TimeSource::Comment(path)),
            None => wrong(reader),
        },
        None => match super::super::read_path(reader, "source") {
            Some(path) => Some(TimeSource::Field(path.value)),
            None => None,
        },
    }
}

/// Reads `all`, or paths that do not overlap.
fn read_fields(reader: &mut MapReader<'_, '_, '_>) -> Option<Fields> {
    let Some(texts) = reader.entry("fields").is_some().then(|| reader.texts("fields")) else {
        return Some(Fields::All);
    };
    let texts = texts?;
    if let [only] = texts.as_slice()
        && only.value == "all"
    {
        return Some(Fields::All);
    }
    let mut paths: Vec<Path> = Vec::new();
    for text in texts {
        let path = super::super::located_path(reader.context(), text.clone())?.value;
        if let Some(other) = paths.iter().find(|other| other.overlaps(path.as_str().as_bytes())) {
            let message = format!("`{path}` overlaps `{other}`: protected fields must not overlap");
            reader.context().error(Code::ConflictingSettings, text.span, message);
            return None;
        }
        paths.push(path);
    }
    Some(Fields::Listed(paths))
}

/// Checks that the timestamps' field and `_id` are neither protected nor a source.
fn check_own_fields(
    reader: &mut MapReader<'_, '_, '_>,
    source: &TimeSource,
    fields: &Fields,
    store: &str,
) -> Option<()> {
    let place = reader.place();
    let listed = match fields {
        Fields::All => &[][..],
        Fields::Listed(paths) => paths,
    };
    let source = match source {
        TimeSource::Field(path) => Some(path),
        TimeSource::Comment(_) | TimeSource::Clock => None,
    };
    let own = |path: &&Path| path.root() == store || path.root() == "_id";
    let Some(taken) = listed.iter().chain(source).find(own) else { return Some(()) };
    let message =
        format!("`{taken}` can be neither protected nor a source: it is `_id` or inside the field with the timestamps");
    reader.context().error(Code::ConflictingSettings, place, message);
    None
}
