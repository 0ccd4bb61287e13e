//! How a path that an update writes relates to a field that a rule names.

use crate::document::Path;

/// Where a written path lies, seen from a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    Apart,
    Exact,
    /// It writes a part of the field.
    Inside,
    /// It writes a field around it.
    Around,
    /// It goes through an array by position, and may reach the field there.
    Positional,
}

/// Positional operators (`$`, `$[]`, `$[x]`) and numbers may stand for places in arrays that a rule's plain
/// path runs through.
pub(super) fn touch(field: &Path, written: &[u8]) -> Touch {
    let positional = |part: &[u8]| part.first() == Some(&b'$') || part.iter().all(u8::is_ascii_digit);
    let parts = || written.split(|byte| *byte == b'.');
    if parts().any(positional) {
        let plain: Vec<&[u8]> = parts().filter(|part| !positional(part)).collect();
        return if field.overlaps(&plain.join(&b'.')) { Touch::Positional } else { Touch::Apart };
    }
    match () {
        () if field.as_str().as_bytes() == written => Touch::Exact,
        () if field.covers(written) => Touch::Inside,
        () if field.is_below(written) => Touch::Around,
        () => Touch::Apart,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_in_arrays_do_not_hide_a_field() {
        let field = Path::parse("a.b").unwrap();
        let cases = [
            ("a.b", Touch::Exact),
            ("a", Touch::Around),
            ("a.b.c", Touch::Inside),
            ("a.c", Touch::Apart),
            ("ab", Touch::Apart),
            ("a.$.b", Touch::Positional),
            ("a.0.b", Touch::Positional),
            ("a.$[x].b.c", Touch::Positional),
            ("a.0", Touch::Positional),
            ("a.b.0", Touch::Positional),
            ("c.0.b", Touch::Apart),
            ("0", Touch::Apart),
        ];
        for (written, expected) in cases {
            assert_eq!(touch(&field, written.as_bytes()), expected, "{written}");
        }
    }
}
