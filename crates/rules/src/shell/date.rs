//! Parses the dates of `ISODate` and `new Date` into milliseconds since 1970 UTC. It accepts only ISO 8601 and only
//! days that exist; mongosh turns February 30th into March 2nd.

/// The range of JavaScript dates, in milliseconds before and after 1970.
const MAX_MILLISECONDS: f64 = 8.64e15;

pub(super) fn of_number(milliseconds: f64) -> Option<i64> {
    (milliseconds.abs() <= MAX_MILLISECONDS).then_some(milliseconds.trunc() as i64)
}

/// Parses a date as `ISODate` does. Without a time zone it is UTC.
pub(super) fn iso_date(text: &str) -> Result<i64, String> {
    let moment = DateParts::parse(text).filter(|moment| moment.has_day).ok_or_else(|| not_a_date(text))?;
    moment.milliseconds().ok_or_else(|| not_a_date(text))
}

/// Parses a date as `new Date` does. A time without a time zone is an error, because it would depend on the machine.
pub(super) fn javascript_date(text: &str) -> Result<i64, String> {
    let moment = DateParts::parse(text).ok_or_else(|| not_a_date(text))?;
    if moment.has_time && moment.zone.is_none() {
        return Err("a time without a time zone is ambiguous".to_owned());
    }
    moment.milliseconds().ok_or_else(|| not_a_date(text))
}

/// Formats milliseconds as `2026-01-31T12:00:00Z`. Returns `None` outside the years 0 to 9999.
pub fn to_iso(milliseconds: i64) -> Option<String> {
    let text = bson::DateTime::from_millis(milliseconds).try_to_rfc3339_string().ok()?;
    (text.len() >= 20 && !text.starts_with(['-', '+'])).then_some(text)
}

/// Formats milliseconds as [`to_iso`]; as a number outside these years.
#[must_use]
pub fn iso(milliseconds: i64) -> String {
    to_iso(milliseconds).unwrap_or_else(|| milliseconds.to_string())
}

fn not_a_date(text: &str) -> String {
    format!("\"{text}\" is not a valid date")
}

#[derive(Default)]
struct DateParts {
    year: i32,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    millisecond: u16,
    /// Offset from UTC in milliseconds, positive to the east.
    zone: Option<i64>,
    has_day: bool,
    has_time: bool,
}

impl DateParts {
    /// Parses `YYYY[-MM[-DD[(T| )HH[:MM[:SS[.fff]]][zone]]]]`. Hyphens and colons are optional.
    fn parse(text: &str) -> Option<Self> {
        let mut rest = text;
        let year = i32::from(digits(&mut rest, 4)?);
        let mut moment = Self { year, month: 1, day: 1, ..Self::default() };
        if rest.is_empty() {
            return Some(moment);
        }
        skip(&mut rest, '-');
        moment.month = digits(&mut rest, 2)? as u8;
        if rest.is_empty() {
            return Some(moment);
        }
        skip(&mut rest, '-');
        moment.day = digits(&mut rest, 2)? as u8;
        moment.has_day = true;
        if rest.is_empty() {
            return Some(moment);
        }
        (skip(&mut rest, 'T') || skip(&mut rest, ' ')).then_some(())?;
        moment.has_time = true;
        moment.time(&mut rest)?;
        rest.is_empty().then_some(moment)
    }

    fn time(&mut self, rest: &mut &str) -> Option<()> {
        self.hour = digits(rest, 2)? as u8;
        if skip(rest, ':') || rest.starts_with(|c: char| c.is_ascii_digit()) {
            self.minute = digits(rest, 2)? as u8;
            if skip(rest, ':') || rest.starts_with(|c: char| c.is_ascii_digit()) {
                self.second = digits(rest, 2)? as u8;
                if skip(rest, '.') {
                    self.millisecond = fraction(rest)?;
                }
            }
        }
        self.zone = zone(rest)?;
        Some(())
    }

    fn milliseconds(&self) -> Option<i64> {
        let date = bson::DateTime::builder().year(self.year).month(self.month).day(self.day);
        let date = date.hour(self.hour).minute(self.minute).second(self.second).millisecond(self.millisecond);
        let utc = date.build().ok()?.timestamp_millis();
        Some(utc - self.zone.unwrap_or(0))
    }
}

fn skip(rest: &mut &str, sign: char) -> bool {
    match rest.strip_prefix(sign) {
        Some(after) => {
            *rest = after;
            true
        }
        None => false,
    }
}

fn digits(rest: &mut &str, count: usize) -> Option<u16> {
    let taken = rest.get(..count).filter(|taken| taken.bytes().all(|byte| byte.is_ascii_digit()))?;
    *rest = rest.get(count..).unwrap_or_default();
    taken.parse().ok()
}

/// Parses a fraction of a second into milliseconds. Further digits are ignored.
fn fraction(rest: &mut &str) -> Option<u16> {
    let length = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (taken, after) = rest.split_at(length);
    *rest = after;
    let three: String = taken.chars().chain("00".chars()).take(3).collect();
    if taken.is_empty() { None } else { three.parse().ok() }
}

/// Parses a time zone. The outer `None` is an error; the inner one means that there is none.
fn zone(rest: &mut &str) -> Option<Option<i64>> {
    if rest.is_empty() {
        return Some(None);
    }
    if skip(rest, 'Z') {
        return Some(Some(0));
    }
    let sign = if skip(rest, '+') { 1 } else { skip(rest, '-').then_some(-1)? };
    let hours = i64::from(digits(rest, 2)?);
    skip(rest, ':');
    let minutes = i64::from(digits(rest, 2)?);
    Some(Some(sign * (hours * 60 + minutes) * 60_000))
}
