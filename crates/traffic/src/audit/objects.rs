//! Finds the JSON objects in a text, whatever is between them: line breaks, the brackets and commas of a list, the
//! prefixes of container logs, other output, the rest of an object that begins before the text. An object may have
//! several lines, and Kubernetes splits long lines into parts with the prefixes `… stdout P ` and, of the last one,
//! `… stdout F `. In strings of JSON, of a shell or Python, and of CSV, its quotes are written in another way.
//!
//! An object that is cut off must not take the next ones with it: a string has no line break, an object at the beginning
//! of a line is not part of another one, and each value must be able to continue the object.

use std::borrow::Cow;

/// The longest object: a document of 16 MiB as JSON.
const MAX_LENGTH: usize = 64 << 20;
/// Long enough for `... 99999 more items`.
const PREFIX: usize = 20;
/// The deepest nesting; deeper objects count as cut off.
const MAX_DEPTH: usize = 500;

/// How a string is written that contains an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quoting {
    /// In double quotes, with escapes.
    Json,
    /// In other quotes, with escapes, as mongosh and Python print it.
    Printed,
    /// In double quotes, which are doubled inside.
    Csv,
}

impl Quoting {
    /// The content of the rest of a string; `None` if the string is cut off.
    #[must_use]
    pub fn content(self, rest: &[u8]) -> Option<String> {
        let rest = std::str::from_utf8(rest).ok()?;
        match self {
            Self::Json => serde_json::from_str(&format!("\"{rest}")).ok(),
            Self::Csv => Some(rest.strip_suffix('"')?.replace("\"\"", "\"")),
            Self::Printed => printed(rest.strip_suffix(['\'', '`'])?),
        }
    }
}

/// The content of a string as mongosh or Python prints it.
fn printed(inside: &str) -> Option<String> {
    let mut content = String::with_capacity(inside.len());
    let mut chars = inside.chars();
    while let Some(char) = chars.next() {
        let escaped = if char == '\\' { chars.next()? } else { '\\' };
        let digits = match escaped {
            'x' => 2,
            'u' => 4,
            _ => 0,
        };
        content.push(match (char, escaped) {
            ('\\', 'n' | 'r' | 't') => ' ',
            ('\\', 'x' | 'u') => {
                let (code, rest) = chars.as_str().split_at_checked(digits)?;
                chars = rest.chars();
                char::from_u32(u32::from_str_radix(code, 16).ok()?)?
            }
            ('\\', other) => other,
            _ => char,
        });
    }
    Some(content)
}

/// What is found in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'t> {
    Object(&'t [u8]),
    /// The rest of a string, from the object in it to the closing quote or the end of the line.
    Quoted(Quoting, &'t [u8]),
    /// A shell prints a list without this many of its entries.
    Omitted(u64),
    /// An object that is cut off, or nested too deeply.
    Cut,
    TooLong,
    /// The end of a line. `other`: it has other content than objects and the punctuation of lists.
    Line {
        other: bool,
    },
}

/// Receives the position of a finding in the text, and the finding.
pub type ReceiveFound<'r, E> = dyn FnMut(u64, Found<'_>) -> Result<(), E> + 'r;

/// Takes a text in blocks.
#[derive(Debug, Default)]
pub struct ObjectScanner {
    /// Bytes of earlier blocks.
    taken: u64,
    /// The open brackets of the object; empty between objects.
    open: Vec<u8>,
    /// The bytes of the object in earlier blocks.
    held: Vec<u8>,
    /// Where the object begins in the text.
    start: u64,
    is_too_long: bool,
    /// The object is in a string.
    quoting: Option<Quoting>,
    /// The end of the line's text before the object.
    prefix: [u8; PREFIX],
    /// The line is a part of a longer one.
    is_part: bool,
    /// The spaces of the next part's prefix that are still to come.
    spaces: u8,
    in_string: bool,
    is_escaped: bool,
    /// The last byte of the object that is not a space.
    last: u8,
    /// A line break follows `last`.
    after_break: bool,
    /// Nothing follows that line break.
    at_line_start: bool,
    /// The lines of the object are not indented.
    is_unindented: bool,
    /// The line has other content.
    other: bool,
}

impl ObjectScanner {
    /// Takes the next block.
    ///
    /// # Errors
    /// An error of `receive`.
    pub fn scan<E>(&mut self, block: &[u8], receive: &mut ReceiveFound<'_, E>) -> Result<(), E> {
        let mut at = 0;
        // Where the object begins or continues in this block.
        let mut from = 0;
        while at < block.len() {
            if self.open.is_empty() {
                at = self.between(block, at, receive)?;
                from = at.saturating_sub(1);
            } else {
                at = self.inside(block, at, &mut from, receive)?;
            }
        }
        if !self.open.is_empty() && !self.is_too_long {
            self.held.extend_from_slice(block.get(from..).unwrap_or_default());
            if self.held.len() > MAX_LENGTH {
                (self.is_too_long, self.held) = (true, Vec::new());
            }
        }
        self.taken += block.len() as u64;
        Ok(())
    }

    /// Ends the text.
    ///
    /// # Errors
    /// An error of `receive`.
    pub fn finish<E>(mut self, receive: &mut ReceiveFound<'_, E>) -> Result<(), E> {
        if self.quoting == Some(Quoting::Csv) && self.is_escaped {
            self.complete(&[], receive)?;
        } else if !self.open.is_empty() {
            self.abandon(receive)?;
        }
        receive(self.taken, Found::Line { other: self.other })
    }

    /// Searches for the next object or line; returns where to continue.
    fn between<E>(&mut self, block: &[u8], at: usize, receive: &mut ReceiveFound<'_, E>) -> Result<usize, E> {
        let rest = block.get(at..).unwrap_or_default();
        let end = memchr::memchr2(b'{', b'\n', rest).unwrap_or(rest.len());
        let text = rest.get(..end).unwrap_or_default();
        text.iter().rev().take(self.prefix.len()).rev().for_each(|byte| self.extend_prefix(*byte));
        self.other |= text.iter().any(|byte| !byte.is_ascii_whitespace() && !matches!(byte, b'[' | b']' | b','));
        match rest.get(end) {
            Some(b'\n') => {
                let omitted = omitted(&std::mem::take(&mut self.prefix));
                omitted.into_iter().try_for_each(|count| receive(self.taken + at as u64, Found::Omitted(count)))?;
                receive(self.taken + (at + end) as u64, Found::Line { other: std::mem::take(&mut self.other) })?;
                Ok(at + end + 1)
            }
            Some(_) => {
                self.open.push(b'{');
                self.start = self.taken + (at + end) as u64;
                (self.last, self.after_break) = (b'{', false);
                self.is_part = self.has_prefix(b'P');
                self.held.clear();
                if matches!(self.prefix.last(), Some(b'\'' | b'`')) {
                    (self.quoting, self.in_string) = (Some(Quoting::Printed), true);
                }
                Ok(at + end + 1)
            }
            None => Ok(block.len()),
        }
    }

    /// Continues an object to its end; returns where to continue.
    fn inside<E>(
        &mut self,
        block: &[u8],
        mut at: usize,
        from: &mut usize,
        receive: &mut ReceiveFound<'_, E>,
    ) -> Result<usize, E> {
        while let Some(&byte) = block.get(at) {
            if self.spaces > 0 {
                if !self.skip_prefix(byte) {
                    self.abandon(receive)?;
                    return Ok(at);
                }
                at += 1;
                *from = at;
                continue;
            }
            if self.is_part && byte == b'\n' {
                self.held.extend_from_slice(block.get(*from..at).unwrap_or_default());
                self.held.pop_if(|last| *last == b'\r');
                self.spaces = 3;
                at += 1;
                *from = at;
                continue;
            }
            if self.in_string {
                at += self.string(block.get(at..).unwrap_or_default());
                let is_cut = self.in_string && block.get(at) == Some(&b'\n') && !self.is_part;
                if self.quoting.is_some() && (is_cut || !self.in_string) {
                    self.complete(block.get(*from..at).unwrap_or_default(), receive)?;
                    return Ok(at);
                }
                if is_cut {
                    self.abandon(receive)?;
                    return Ok(at);
                }
                continue;
            }
            at += 1;
            if byte.is_ascii_whitespace() {
                self.at_line_start = byte == b'\n';
                self.after_break |= self.at_line_start;
                continue;
            }
            if byte == b'\\' && self.last == b'{' && self.open.len() == 1 {
                (self.quoting, self.in_string, self.is_escaped) = (Some(Quoting::Json), true, true);
                continue;
            }
            // `{""` and then a name.
            if self.last == b'"' && self.taken + at as u64 == self.start + 4 && byte != b':' {
                (self.quoting, self.in_string) = (Some(Quoting::Csv), true);
                continue;
            }
            let begins = matches!(byte, b'"' | b'{' | b'[');
            self.is_unindented |= self.last == b'{' && self.open.len() == 1 && self.after_break && self.at_line_start;
            if (begins || self.after_break || self.last == b'{') && !self.can_follow(byte) {
                self.abandon(receive)?;
                return Ok(at - 1);
            }
            (self.last, self.after_break) = (byte, false);
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' if self.open.len() < MAX_DEPTH => self.open.push(byte),
                b'{' | b'[' => {
                    self.abandon(receive)?;
                    return Ok(at);
                }
                b'}' | b']' => {
                    if self.open.len() == 1 {
                        self.complete(block.get(*from..at).unwrap_or_default(), receive)?;
                        return Ok(at);
                    }
                    self.open.pop();
                }
                _ => {}
            }
        }
        Ok(at)
    }

    /// Skips a byte of the prefix of the next part. Returns false if it cannot be in one.
    fn skip_prefix(&mut self, byte: u8) -> bool {
        self.extend_prefix(byte);
        self.spaces -= u8::from(byte == b' ');
        self.is_part = self.has_prefix(b'P');
        let is_prefix = self.is_part || self.has_prefix(b'F');
        (self.spaces > 0 || is_prefix) && !matches!(byte, b'\n' | b'{')
    }

    fn extend_prefix(&mut self, byte: u8) {
        self.prefix.rotate_left(1);
        self.prefix[PREFIX - 1] = byte;
    }

    /// Whether Kubernetes writes the line as a part of this kind: `P`, or `F` for the last one.
    fn has_prefix(&self, kind: u8) -> bool {
        [*b"stdout   ", *b"stderr   "].iter_mut().any(|prefix| {
            prefix[7] = kind;
            self.prefix.ends_with(prefix)
        })
    }

    /// The length of the rest of a string with its closing quote; up to a line break, which a string does not have.
    fn string(&mut self, rest: &[u8]) -> usize {
        let (escape, end) = match self.quoting {
            Some(Quoting::Printed) => (b'\\', self.prefix[PREFIX - 1]),
            Some(Quoting::Csv) => (b'"', b'"'),
            Some(Quoting::Json) | None => (b'\\', b'"'),
        };
        for (at, byte) in rest.iter().enumerate() {
            match *byte {
                b'\n' => return at,
                // In CSV a quote escapes a quote; a single one is the end.
                byte if self.is_escaped && escape == end && byte != end => {
                    self.in_string = false;
                    return at;
                }
                _ if self.is_escaped => self.is_escaped = false,
                byte if byte == escape => self.is_escaped = true,
                byte if byte == end => {
                    self.in_string = false;
                    return at + 1;
                }
                _ => {}
            }
        }
        rest.len()
    }

    /// Whether a byte can follow the last one in JSON.
    fn can_follow(&self, byte: u8) -> bool {
        let in_list = self.open.last() == Some(&b'[');
        let is_value = byte.is_ascii_digit() || matches!(byte, b'"' | b'{' | b'[' | b'-' | b't' | b'f' | b'n');
        match self.last {
            _ if byte == b'{' && self.after_break && self.at_line_start && !self.is_unindented => false,
            b'{' => matches!(byte, b'"' | b'}'),
            b',' if !in_list => byte == b'"',
            b',' | b':' => is_value,
            b'[' => is_value || byte == b']',
            // A value, or the name of a field.
            _ => matches!(byte, b',' | b':' | b'}' | b']'),
        }
    }

    /// Ends an object, of which `last` are the bytes in this block.
    fn complete<E>(&mut self, last: &[u8], receive: &mut ReceiveFound<'_, E>) -> Result<(), E> {
        let held = std::mem::take(&mut self.held);
        let whole = if held.is_empty() { Cow::Borrowed(last) } else { Cow::Owned([&held, last].concat()) };
        let found = match self.quoting {
            _ if self.is_too_long => Found::TooLong,
            Some(quoting) => Found::Quoted(quoting, &whole),
            None => Found::Object(&whole),
        };
        self.end();
        receive(self.start, found)
    }

    /// Ends an object that is not one, or is cut off.
    fn abandon<E>(&mut self, receive: &mut ReceiveFound<'_, E>) -> Result<(), E> {
        // A brace of another text has no name of a field behind it.
        let is_text = self.open.len() == 1 && self.last == b'{' && !self.in_string;
        let found = if self.is_too_long { Found::TooLong } else { Found::Cut };
        self.other |= is_text;
        self.end();
        if is_text { Ok(()) } else { receive(self.start, found) }
    }

    fn end(&mut self) {
        self.open.clear();
        self.held.clear();
        (self.in_string, self.is_escaped, self.quoting, self.is_too_long, self.spaces) = Default::default();
        self.is_unindented = false;
    }
}

/// The number of entries that mongosh leaves out of a list: `... 900 more items`.
fn omitted(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).ok()?.trim_end();
    text.rsplit_once("... ")?.1.strip_suffix(" more items")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The objects of a text, `cut`, and `?` for a line with other content.
    fn found(text: &str, block: usize) -> Vec<String> {
        let mut found = Vec::new();
        let mut receive = |at: u64, one: Found<'_>| {
            match one {
                Found::Object(object) => {
                    assert_eq!(text.as_bytes()[at as usize], b'{', "{text}");
                    found.push(String::from_utf8(object.to_vec()).unwrap());
                }
                Found::Quoted(quoting, text) => found.push(quoting.content(text).unwrap_or_else(|| "cut".to_owned())),
                Found::Omitted(count) => found.push(format!("{count} more")),
                Found::Cut => found.push("cut".to_owned()),
                Found::TooLong => found.push("long".to_owned()),
                Found::Line { other } => found.extend(other.then(|| "?".to_owned())),
            }
            Ok::<(), ()>(())
        };
        let mut scanner = ObjectScanner::default();
        text.as_bytes().chunks(block).for_each(|block| scanner.scan(block, &mut receive).unwrap());
        scanner.finish(&mut receive).unwrap();
        found
    }

    #[test]
    fn objects_are_found_whatever_is_between_them() {
        const A: &str = r#"{"a":{"b":"}\"{"}}"#;
        const B: &str = "{\n  \"a\": [\n    {\n      \"b\": \"1\"\n    },\n    -2\n  ]\n}";
        const UNINDENTED: &str = "{\n\"a\": [\n{\n\"b\": 1\n},\n{}\n]\n}";
        const PART: &str = "2026-11-28T08:44:23.379Z stdout P";
        const LAST: &str = "2026-11-28T08:44:23.379Z stdout F";
        for (text, expected) in [
            (format!("{A}\n{A}"), vec![A, A]),
            (format!("[{A},{A}]"), vec![A, A]),
            (format!("[{A},\r\n{A}\r\n]\r\n"), vec![A, A]),
            (format!("[\n  {B},\n  {B}\n]\n"), vec![B, B]),
            (format!("[pod/mongo{{0}}] {A}\n"), vec![A, "?"]),
            (format!("{{ ok: 1 }}\nmongo-0 | {A}\n"), vec!["?", A, "?"]),
            (format!("{{}}\n{A}"), vec!["{}", A]),
            // The start or the end of a line is missing.
            (format!("x\"}},{{\"y\":5}}}}\n{A}"), vec![r#"{"y":5}"#, "?", A]),
            (format!("{{\"a\":\"bc\n{A}"), vec!["cut", A]),
            (format!("{{\"a\":\"bc\\\n{A}"), vec!["cut", A]),
            (format!("{{\"a\":1,\n{A}"), vec!["cut", A]),
            (format!("{{\"a\":1\n{A}"), vec!["cut", A]),
            (format!("{{\"a\":{{\n{A}"), vec!["cut", A]),
            (format!("{{\"a\":[1\npod {A}"), vec!["cut", A, "?"]),
            (format!("foo {{ \"a\":\n{A}"), vec!["cut", A, "?"]),
            (format!("foo {{ \"a\":\nmongo-0 | {A}"), vec!["cut", A, "?"]),
            (format!("foo {{ \"a\": [\n{A}\n{A}"), vec!["cut", A, "?", A]),
            (format!("{{\"a\": [1,\n2026-11-28T08:44:23.379Z {A}"), vec!["cut", A]),
            (format!("{A}\n{{\"a\":"), vec![A, "cut"]),
            // In strings.
            (r#"["{\"a\":1}","{\"a\":2}"]"#.to_owned(), vec![r#"{"a":1}"#, r#"{"a":2}"#, "?"]),
            (format!("\"{{\\\"a\\\"\n{A}"), vec!["cut", "?", A]),
            (r#"log: [ '{"a":"x\\"y\'s"}', `{"b":"'"}` ]"#.to_owned(), vec![r#"{"a":"x\"y's"}"#, r#"{"b":"'"}"#, "?"]),
            (
                "'{\"a\":\"\\x7e\\u00e9\"}\\n'\n... 900 more items\n".to_owned(),
                vec!["{\"a\":\"~é\"} ", "?", "900 more", "?"],
            ),
            (r#"2026,"{""a"":""x\""y""}",5"#.to_owned(), vec![r#"{"a":"x\"y"}"#, "?"]),
            (r#"{"":1}"#.to_owned(), vec![r#"{"":1}"#]),
            (format!("{UNINDENTED}\n{UNINDENTED}\n{A}"), vec![UNINDENTED, UNINDENTED, A]),
            // Parts of lines.
            (format!("{PART} {{\"a\":{{\n{LAST} \"b\":\"}}\\\"{{\"}}}}\n{LAST} {A}\n"), vec![A, "?", A, "?"]),
            (format!("{PART} {{\"a\":{{\"b\":\"}}\\\n{PART} \"\n{LAST} {{\"}}}}"), vec![A, "?"]),
            (format!("{PART} {{\"a\":{{\r\n{LAST} \"b\":\"}}\\\"{{\"}}}}\r\n"), vec![A, "?"]),
            (format!("{PART} {{\"a\":\"b\n{A}"), vec!["cut", A, "?"]),
            (format!("{PART} {{\"a\":\"b\nanother line of text\n{A}"), vec!["cut", "?", A]),
            (format!("{{\"a\":{}\n{A}", "[".repeat(600)), vec!["cut", A]),
        ] {
            for block in [1, 7, text.len()] {
                assert_eq!(found(&text, block), expected, "{text:?} in blocks of {block}");
            }
        }
    }
}
