//! Reads and checks the settings of `timestamps`; `timestamps.rs` uses them.

use super::super::field_path::{FieldPath, overlap};
use super::pipeline::{FieldTimestamp, RegisterExpressions};
use crate::config::keys::{
    Boolean, DeclaredScalar, DescribeSchema, Duration, Keys, Keywords, NamedSchema, ReadText, ReadValue as ValueKind,
    Setting, TextOrList, TextSchema, ValueSchema,
};
use crate::config::{Code, Diagnostic, Located, MapReader, Node, ReadContext};
use crate::document::{Kind, OwnedValue, Path, Value};

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Timestamps {
    pub(super) source: TimeSource,
    pub(super) timestamp_type: TimestampType,
    pub(super) fields: TimestampedFields,
    /// Top-level field that holds the timestamps.
    pub(super) store: Path,
    pub(super) per: TimestampScope,
    pub(super) without_source: WithoutSource,
    /// Milliseconds that a source time may be ahead of docward's clock.
    pub(super) max_ahead: Option<i64>,
    pub(super) hide: bool,
    pub(super) forms: Box<RegisterExpressions>,
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
pub(super) type TimestampBytes = [u8; 8];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimestampType {
    Date,
    Long,
    Timestamp,
}

#[derive(Debug, Clone)]
pub(super) enum TimestampedFields {
    All,
    Listed(Vec<Path>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimestampScope {
    Field,
    Document,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WithoutSource {
    Reject,
    Clock,
    Pass,
}

const SOURCE: Setting<SourceTime> = Setting::required(
    "source",
    SourceTime,
    "The source time: a field of the write, $comment.PATH (in the command's comment), or $clock (arrival at docward).",
)
.examples(&["published_at", "$comment.at", "$clock"]);
const TYPE: Setting<Keywords<TimestampType>> = Setting::with_default(
    "type",
    Keywords(&[
        ("date", TimestampType::Date, "A date."),
        ("long", TimestampType::Long, "A whole number, stored as a long."),
        ("timestamp", TimestampType::Timestamp, "A BSON timestamp."),
    ]),
    DeclaredScalar::Text("date"),
    "The BSON type of source times; a write with another type is rejected.",
);
const FIELDS: Setting<ProtectedFields> = Setting::with_default(
    "fields",
    ProtectedFields,
    DeclaredScalar::Text(ALL),
    "The protected fields: `all`, or a list of paths that do not overlap.",
);
const STORE: Setting<TopLevelField> = Setting::with_default(
    "store",
    TopLevelField,
    DeclaredScalar::Text("last_modified"),
    "The top-level field that holds the timestamps.",
);
const PER: Setting<Keywords<TimestampScope>> = Setting::with_default(
    "per",
    Keywords(&[
        ("field", TimestampScope::Field, "Every protected field has its own timestamp."),
        ("document", TimestampScope::Document, "The whole document has one timestamp; replacements are protected too."),
    ]),
    DeclaredScalar::Text("field"),
    "What has a timestamp.",
);
const WITHOUT_SOURCE: Setting<Keywords<WithoutSource>> = Setting::with_default(
    "without_source",
    Keywords(&[
        ("reject", WithoutSource::Reject, "It is rejected."),
        ("clock", WithoutSource::Clock, "It gets the time of docward's clock."),
        ("pass", WithoutSource::Pass, "It is forwarded; timestamps are not compared or written."),
    ]),
    DeclaredScalar::Text("reject"),
    "The action for a write to protected fields without a source time.",
);
const MAX_AHEAD: Setting<Duration> = Setting::optional(
    "max_ahead",
    Duration,
    "How far a source time may be ahead of docward's clock; a write with a later time is rejected. Default: no limit. A \
     source time of type long is in milliseconds since 1970.",
);
const HIDE: Setting<Boolean> = Setting::with_default(
    "hide",
    Boolean,
    DeclaredScalar::Boolean(false),
    "Whether reads exclude the timestamps unless they ask for them by name.",
);
pub(super) const KEYS: Keys = Keys::new(
    "The value with the newest source time wins, for each field.",
    &[&SOURCE, &TYPE, &FIELDS, &STORE, &PER, &WITHOUT_SOURCE, &MAX_AHEAD, &HIDE],
);

impl Timestamps {
    pub(super) fn read_keys(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let source = reader.get(&SOURCE);
        let timestamp_type = reader.get_or_default(&TYPE);
        let fields = reader.get(&FIELDS);
        let store = reader.get(&STORE);
        let per = reader.get_or_default(&PER);
        let without_source = reader.get_or_default(&WITHOUT_SOURCE);
        let max_ahead = reader.get(&MAX_AHEAD);
        let hide = reader.get_or_default(&HIDE);
        let (source, fields, store) = (source?, fields?, store?);
        if matches!(source, TimeSource::Clock) {
            reader.warn_without_effect(&[WITHOUT_SOURCE.name], "with `source: $clock`");
        }
        check_own_fields(reader, &source, &fields, &store)?;
        let (timestamp_type, per) = (timestamp_type?.value, per?.value);
        Some(Self {
            forms: Box::new(RegisterExpressions::new(store.as_str(), per, timestamp_type)),
            source,
            timestamp_type,
            fields,
            store,
            per,
            without_source: without_source?.value,
            max_ahead: max_ahead.map(|ahead| i64::try_from(ahead.value.as_millis()).unwrap_or(i64::MAX)),
            hide: hide?.value,
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
    pub(super) fn accept(self, value: Value<'_>) -> Option<TimestampBytes> {
        match (self, value.kind) {
            (Self::Date, Kind::DateTime) => value.as_raw_i64().map(i64::to_le_bytes),
            (Self::Long, Kind::Int32 | Kind::Int64 | Kind::Double) => value.as_whole().map(i64::to_le_bytes),
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
    pub(super) fn value(self, time: &TimestampBytes) -> Value<'_> {
        Value { kind: self.kind(), bytes: time }
    }

    /// Returns whether a stored timestamp is newer. A timestamp of another type counts as missing.
    pub(super) fn is_newer(self, stored: Value<'_>, time: TimestampBytes) -> bool {
        let bits = stored.as_raw_i64().filter(|_| stored.kind == self.kind());
        bits.is_some_and(|bits| match self {
            Self::Date | Self::Long => bits > i64::from_le_bytes(time),
            Self::Timestamp => bits as u64 > u64::from_le_bytes(time),
        })
    }

    pub(super) fn newest(self, timestamps: &[FieldTimestamp<'_>]) -> Option<TimestampBytes> {
        let rank = |time: &TimestampBytes| match self {
            Self::Date | Self::Long => i128::from(i64::from_le_bytes(*time)),
            Self::Timestamp => i128::from(u64::from_le_bytes(*time)),
        };
        timestamps.iter().map(|timestamp| timestamp.time).max_by_key(rank)
    }

    /// Returns the time in milliseconds since 1970. A long is assumed to be in milliseconds.
    pub(super) fn milliseconds(self, time: TimestampBytes) -> i64 {
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
    pub(super) fn clock(self, now: i64) -> TimestampBytes {
        match self {
            Self::Date | Self::Long => now.to_le_bytes(),
            Self::Timestamp => {
                let seconds = u32::try_from(now.div_euclid(1000)).unwrap_or(u32::MAX);
                ((u64::from(seconds) << 32) | (now.rem_euclid(1000) as u64 + 1)).to_le_bytes()
            }
        }
    }
}

/// A field path, `$comment.PATH` or `$clock`.
#[derive(Clone, Copy, Debug)]
struct SourceTime;

const SOURCE_TIME: NamedSchema = NamedSchema {
    name: "source",
    meaning: "",
    schema: || {
        ValueSchema::AnyOf(vec![
            FieldPath.schema(),
            ValueSchema::Text(TextSchema::matching(r"^\$(clock|comment\..+)$")),
        ])
    },
};

impl DescribeSchema for SourceTime {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Shared(&SOURCE_TIME)
    }
}

impl ReadText for SourceTime {
    type Value = TimeSource;

    fn read_text(&self, context: &mut ReadContext<'_>, key: &str, text: Located<String>) -> Option<TimeSource> {
        if text.value == "$clock" {
            return Some(TimeSource::Clock);
        }
        if let Some(path) = text.value.strip_prefix("$comment.") {
            let path = Located { value: path.to_owned(), span: text.span };
            return FieldPath.read_text(context, key, path).map(|path| TimeSource::Comment(path.value));
        }
        if text.value.starts_with('$') {
            let message = format!("`{}` is not a source; write a field path, $comment.PATH or $clock", text.value);
            context.error(Code::InvalidValue, text.span, message);
            return None;
        }
        FieldPath.read_text(context, key, text).map(|path| TimeSource::Field(path.value))
    }
}

/// A top-level field other than `_id`.
#[derive(Clone, Copy, Debug)]
struct TopLevelField;

const TOP_LEVEL_FIELD: NamedSchema = NamedSchema {
    name: "topLevelField",
    meaning: "",
    schema: || {
        let pattern = "^([^$.0-9][^.]*|[0-9]+[^.0-9][^.]*)$";
        ValueSchema::Text(TextSchema { other_than: Some("_id"), ..TextSchema::matching(pattern) })
    },
};

impl DescribeSchema for TopLevelField {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Shared(&TOP_LEVEL_FIELD)
    }
}

impl ReadText for TopLevelField {
    type Value = Path;

    fn read_text(&self, context: &mut ReadContext<'_>, key: &str, text: Located<String>) -> Option<Path> {
        let path = FieldPath.read_text(context, key, text)?;
        if !path.value.is_top_level() || path.value.as_str() == "_id" {
            context.error(Code::InvalidValue, path.span, "`store` must be a top-level field other than _id");
            return None;
        }
        Some(path.value)
    }
}

/// The word for all fields.
const ALL: &str = "all";

/// `all`, or paths that do not overlap.
#[derive(Clone, Copy, Debug)]
struct ProtectedFields;

impl DescribeSchema for ProtectedFields {
    fn schema(&self) -> ValueSchema {
        let paths = ValueSchema::List { items: Box::new(FieldPath.schema()), at_least: 1, distinct: true };
        ValueSchema::AnyOf(vec![ValueSchema::Constant(DeclaredScalar::Text(ALL)), FieldPath.schema(), paths])
    }
}

impl ValueKind for ProtectedFields {
    type Value = TimestampedFields;

    fn read(&self, context: &mut ReadContext<'_>, key: &'static str, node: &Node) -> Option<TimestampedFields> {
        let fields = TextOrList(FieldPath).read(context, key, node)?;
        if let [only] = fields.as_slice()
            && only.as_str() == ALL
        {
            return Some(TimestampedFields::All);
        }
        if let Some(all) = fields.iter().find(|field| field.as_str().eq_ignore_ascii_case(ALL)) {
            let message = format!("`{}` is the field of this name here", all.value);
            let warning = Diagnostic::warning(Code::DoubtfulName, all.span, message);
            context.push(warning.help("write `fields: all` to protect all fields"));
        }
        if let Some((field, other)) = overlap(&fields) {
            let message = format!("`{}` overlaps `{}`: protected fields must not overlap", field.value, other.value);
            context.error(Code::ConflictingSettings, field.span, message);
            return None;
        }
        Some(TimestampedFields::Listed(fields.into_iter().map(|field| field.value).collect()))
    }
}

/// Checks that the timestamps' field and `_id` are neither protected nor a source.
fn check_own_fields(
    reader: &mut MapReader<'_, '_, '_>,
    source: &TimeSource,
    fields: &TimestampedFields,
    store: &Path,
) -> Option<()> {
    let span = reader.span();
    let listed = match fields {
        TimestampedFields::All => &[][..],
        TimestampedFields::Listed(paths) => paths,
    };
    let source = match source {
        TimeSource::Field(path) => Some(path),
        TimeSource::Comment(_) | TimeSource::Clock => None,
    };
    let own = |path: &&Path| path.root() == store.as_str() || path.root() == "_id";
    let Some(taken) = listed.iter().chain(source).find(own) else { return Some(()) };
    let message =
        format!("`{taken}` can be neither protected nor a source: it is `_id` or inside the field with the timestamps");
    reader.context().error(Code::ConflictingSettings, span, message);
    None
}
