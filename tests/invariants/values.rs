//! The fields that rules and statements share, and values of all types that a field may hold.

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Decimal128, Document, Regex, doc};

use super::dice::Dice;

/// Paths that rules protect and statements write.
pub(super) const PATHS: [&str; 26] = [
    "a",
    "a.n",
    "a.m",
    "a.n.x",
    "b",
    "c.d",
    "c.e",
    "version",
    "try",
    "locked",
    "tlocked",
    "count",
    "messages",
    "opened",
    "parent",
    "path",
    "at",
    "last_modified",
    "last_modified.a",
    "last_modified.b",
    "no",
    "sku",
    "ref.id",
    "ref.name",
    "note",
    "_id",
];

/// Long ago: a lease from then has expired. Every generated date is before 2020 or after 2090, so that a date from a
/// clock can be recognised.
pub(super) const PAST: i64 = 1_000_000_000_000;
/// A lease from then has not expired.
pub(super) const FUTURE: i64 = 4_200_000_000_000;

pub(super) fn date(millis: i64) -> Bson {
    Bson::DateTime(DateTime::from_millis(millis))
}

pub(super) fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse::<Decimal128>().unwrap())
}

/// Ordinary numbers of all types.
pub(super) fn small_number(dice: &mut Dice) -> Bson {
    let n = dice.below(14) as i32 - 3;
    match dice.below(10) {
        0 => Bson::Int64(i64::from(n)),
        1 => Bson::Double(f64::from(n)),
        2 => Bson::Double(f64::from(n) + 0.5),
        3 => decimal(&n.to_string()),
        _ => Bson::Int32(n),
    }
}

/// Numbers at the limits of their types, and several forms of equal numbers.
pub(super) fn odd_number(dice: &mut Dice) -> Bson {
    const DECIMALS: [&str; 16] = [
        "1",
        "1.0",
        "1E+3",
        "1E+0",
        "0E-8",
        "-0",
        "0",
        "0.1",
        "-0.5",
        "9.70000000000000001",
        "-0.100000000000000005",
        "NaN",
        "Infinity",
        "-Infinity",
        "9.999999999999999999999999999999999E+6144",
        "1E-6176",
    ];
    const DOUBLES: [f64; 11] = [
        0.0,
        -0.0,
        0.1,
        0.3,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e308,
        -1e308,
        1e-320,
        9_007_199_254_740_993.0,
    ];
    match dice.below(6) {
        0 | 1 => decimal(dice.pick(&DECIMALS)),
        2 | 3 => Bson::Double(dice.pick(&DOUBLES)),
        4 => {
            Bson::Int64(dice.pick(&[i64::MAX, i64::MAX - 1, i64::MIN, PAST, FUTURE, 1 << 53, i64::from(i32::MAX) + 1]))
        }
        _ => Bson::Int32(dice.pick(&[i32::MAX, i32::MIN, 0, 1, -1, 100, 1000])),
    }
}

/// A value that is equal for the server: a number of another type, or the same value.
pub(super) fn equal(dice: &mut Dice, value: &Bson) -> Bson {
    match value {
        Bson::Int32(n) => {
            dice.pick(&[Bson::Int64(i64::from(*n)), Bson::Double(f64::from(*n)), decimal(&n.to_string())])
        }
        Bson::Int64(n) => decimal(&n.to_string()),
        value => value.clone(),
    }
}

fn number(dice: &mut Dice) -> Bson {
    if dice.percent(80) { small_number(dice) } else { odd_number(dice) }
}

pub(super) fn some_date(dice: &mut Dice) -> Bson {
    match dice.below(8) {
        0 => date(FUTURE),
        n => date(PAST + n as i64 * 1000),
    }
}

pub(super) fn id(dice: &mut Dice) -> Bson {
    match dice.below(30) {
        0 => Bson::Int64(1),
        1 => Bson::Double(2.0),
        2 => "x".into(),
        n => Bson::Int32(1 + n as i32 % 6),
    }
}

/// Any value.
pub(super) fn any(dice: &mut Dice, depth: usize) -> Bson {
    match dice.below(if depth == 0 { 11 } else { 14 }) {
        0..3 => number(dice),
        3 => odd_number(dice),
        4 => Bson::Boolean(dice.percent(50)),
        5 => Bson::Null,
        6 => dice.pick(&["", "x", "X", "$a", "$$ROOT", "$a.n", "1"]).into(),
        7 => some_date(dice),
        8 => match dice.below(3) {
            0 => Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![1] }),
            1 => Bson::MinKey,
            _ => Bson::RegularExpression(Regex { pattern: "^x".try_into().unwrap(), options: "".try_into().unwrap() }),
        },
        9 => Bson::Array(Vec::new()),
        10 => Bson::Document(doc! {}),
        11 => Bson::Array((0..dice.below(4)).map(|_| any(dice, depth - 1)).collect()),
        12 => Bson::Array((0..=dice.below(3)).map(|_| Bson::Document(nested(dice, depth - 1))).collect()),
        _ => Bson::Document(nested(dice, depth - 1)),
    }
}

fn nested(dice: &mut Dice, depth: usize) -> Document {
    const KEYS: [&str; 10] = ["n", "m", "x", "d", "e", "id", "name", "0", "a", "b"];
    (0..dice.below(4)).map(|_| (dice.pick(&KEYS).to_owned(), any(dice, depth))).collect()
}

fn reference(dice: &mut Dice) -> Bson {
    let mut reference = doc! { "id": id(dice) };
    if dice.percent(80) {
        reference.insert("name", "Ada");
    }
    reference.into()
}

/// A document with some of these fields.
fn whole(dice: &mut Dice, names: &[&str]) -> Bson {
    let some: Vec<&str> = names.iter().filter(|_| dice.percent(80)).copied().collect();
    Bson::Document(some.into_iter().map(|name| (name.to_owned(), fitting(dice, name))).collect())
}

/// A value that usually fits the field's name.
pub(super) fn fitting(dice: &mut Dice, path: &str) -> Bson {
    if dice.percent(15) {
        return any(dice, 2);
    }
    // Some rules have the same fields inside a document.
    let inside = ["log.", "node.", "deep."].iter().find_map(|outer| path.strip_prefix(outer));
    match inside.unwrap_or(path) {
        "log" => whole(dice, &["messages", "count", "opened"]),
        "node" => whole(dice, &["parent", "path"]),
        "deep" => {
            let deep = whole(dice, &["ref"]);
            if dice.percent(30) { vec![deep].into() } else { deep }
        }
        // Texts that a collation may take for one.
        "version" if dice.percent(6) => dice.pick(&["x", "X"]).into(),
        // The position of an element with a usual value may become that of `$`.
        "version" | "no" | "count" | "b" if dice.percent(4) => {
            Bson::Array((0..=dice.below(2)).map(|_| small_number(dice)).collect())
        }
        "a.n" | "a.m" | "a.n.x" | "b" | "version" | "try" | "no" | "count" | "c.d" | "c.e" => number(dice),
        "a" => match dice.below(6) {
            0 => number(dice),
            1 => Bson::Array(vec![Bson::Document(doc! { "n": number(dice) })]),
            2 => Bson::Document(doc! { "m": number(dice) }),
            3 => Bson::Document(doc! { "n": number(dice), "m": number(dice) }),
            _ => Bson::Document(doc! { "n": number(dice) }),
        },
        "locked" => dice.pick(&[Bson::Boolean(true), Bson::Boolean(true), Bson::Boolean(false), Bson::Int32(1)]),
        "tlocked" if dice.percent(20) => Bson::Int64(dice.pick(&[PAST, FUTURE])),
        "tlocked" | "at" | "last_modified.a" | "last_modified.b" | "opened" => some_date(dice),
        "last_modified" => Bson::Document(doc! { "a": some_date(dice) }),
        "messages" => Bson::Array((0..dice.below(6)).map(|_| small_number(dice)).collect()),
        "parent" | "_id" | "ref.id" => id(dice),
        "path" => dice.pick(&[Bson::Null, ",1,".into(), ",1,2,".into(), ",3,".into(), "1".into(), ",".into()]),
        "ref" if dice.percent(40) => Bson::Array((0..dice.below(3)).map(|_| reference(dice)).collect()),
        "ref" => reference(dice),
        "tags" => Bson::Array((0..=dice.below(3)).map(|_| dice.pick(&["a", "b", "c"]).into()).collect()),
        "sku" | "ref.name" => dice.pick(&["x", "y", "X"]).into(),
        _ => any(dice, 2),
    }
}

/// The first value at a path through nested documents.
pub(super) fn at<'a>(document: &'a Document, path: &str) -> Option<&'a Bson> {
    match path.split_once('.') {
        None => document.get(path),
        Some((first, rest)) => at(document.get(first)?.as_document()?, rest),
    }
}

/// Every value at a path, also through arrays of documents, as a query finds them.
pub(super) fn reachable<'a>(document: &'a Document, path: &str) -> Vec<&'a Bson> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let Some(value) = document.get(first) else { return Vec::new() };
    let Some(rest) = rest else { return vec![value] };
    match value {
        Bson::Document(inner) => reachable(inner, rest),
        Bson::Array(items) => {
            items.iter().filter_map(Bson::as_document).flat_map(|inner| reachable(inner, rest)).collect()
        }
        _ => Vec::new(),
    }
}

/// Sets a value at a path, and creates missing documents on the path.
pub(super) fn put(document: &mut Document, path: &str, value: Bson) {
    match path.split_once('.') {
        None => drop(document.insert(path, value)),
        Some((first, rest)) => {
            if !matches!(document.get(first), Some(Bson::Document(_))) {
                document.insert(first, doc! {});
            }
            put(document.get_document_mut(first).unwrap(), rest, value);
        }
    }
}

/// Removes the value at a path; a document that becomes empty stays.
pub(super) fn take(document: &mut Document, path: &str) -> Option<Bson> {
    match path.split_once('.') {
        None => document.remove(path),
        Some((first, rest)) => take(document.get_document_mut(first).ok()?, rest),
    }
}

/// A number of any type as a double, which is precise enough for range checks.
pub(super) fn as_number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) => Some(*n as f64),
        Bson::Double(n) => Some(*n),
        Bson::Decimal128(n) => decimal_as_number(&n.to_string()),
        _ => None,
    }
}

/// A value too large for a double is not infinity, and one too small is not zero.
fn decimal_as_number(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    let overflows = number.is_infinite() && text.contains(|c: char| c.is_ascii_digit());
    let digits = text.split(['E', 'e']).next().unwrap_or(text);
    let underflows = number == 0.0 && digits.contains(|c: char| ('1'..='9').contains(&c));
    Some(match () {
        () if overflows => f64::MAX.copysign(number),
        () if underflows => f64::MIN_POSITIVE.copysign(number),
        () => number,
    })
}

/// Whether two paths are equal, or one contains the other.
pub(super) fn related(one: &str, other: &str) -> bool {
    let inside = |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'));
    one == other || inside(one, other) || inside(other, one)
}
