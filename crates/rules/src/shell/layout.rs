//! Prints text on one line if it fits, otherwise on several lines.

/// The maximum length of a line, in characters. Longer lines are broken.
const WIDTH: usize = 100;
const INDENT: &str = "  ";

/// A piece of text with its possible line breaks.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    Atom(String),
    /// `open`, the items separated by commas, `close`.
    Group {
        open: String,
        items: Vec<Piece>,
        close: &'static str,
    },
    /// Pieces without a break between them: `key: ` and its value, or chained calls.
    Row(Vec<Piece>),
}

impl Piece {
    pub(super) fn atom(text: impl Into<String>) -> Self {
        Self::Atom(text.into())
    }

    pub(super) fn call(open: impl Into<String>, items: Vec<Self>) -> Self {
        Self::Group { open: format!("{}(", open.into()), items, close: ")" }
    }

    /// Returns the text, without a line break at the end.
    pub(super) fn print(&self) -> String {
        let mut out = String::new();
        self.print_at(0, &mut out);
        out
    }

    /// Returns the text on one line of any length.
    pub(super) fn print_unbroken(&self) -> String {
        let mut out = String::new();
        self.print_flat(&mut out);
        out
    }

    /// Returns the text with each outermost item on its own line.
    pub(super) fn print_broken(&self) -> String {
        let mut out = String::new();
        match self {
            Self::Row(pieces) => pieces.iter().for_each(|piece| out.push_str(&piece.print_broken())),
            Self::Group { open, items, close } => print_items(open, items, close, 0, &mut out),
            Self::Atom(_) => self.print_at(0, &mut out),
        }
        out
    }

    fn print_at(&self, indent: usize, out: &mut String) {
        let used = out.len() - out.rfind('\n').map_or(0, |at| at + 1);
        if self.fits(WIDTH.saturating_sub(used)).is_some() {
            return self.print_flat(out);
        }
        match self {
            Self::Atom(text) => out.push_str(text),
            Self::Row(pieces) => pieces.iter().for_each(|piece| piece.print_at(indent, out)),
            Self::Group { open, items, close } if matches!(items.as_slice(), [Self::Group { .. }]) => {
                out.push_str(open);
                items.iter().for_each(|only| only.print_at(indent, out));
                out.push_str(close);
            }
            Self::Group { open, items, close } => print_items(open, items, close, indent, out),
        }
    }

    fn print_flat(&self, out: &mut String) {
        match self {
            Self::Atom(text) => out.push_str(text),
            Self::Row(pieces) => pieces.iter().for_each(|piece| piece.print_flat(out)),
            Self::Group { open, items, close } => {
                out.push_str(open);
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { ", " });
                    item.print_flat(out);
                }
                out.push_str(close);
            }
        }
    }

    /// Returns the room left after this piece on one line, or `None` if it does not fit. It stops as early as
    /// possible.
    fn fits(&self, room: usize) -> Option<usize> {
        match self {
            // A character has at most four bytes, so long strings need not be counted.
            Self::Atom(text) if text.len() > 4 * room => None,
            Self::Atom(text) => room.checked_sub(text.chars().count()),
            Self::Row(pieces) => pieces.iter().try_fold(room, |room, piece| piece.fits(room)),
            Self::Group { open, items, close } => {
                let room = room.checked_sub(open.chars().count() + close.len())?;
                items.iter().enumerate().try_fold(room, |room, (index, item)| {
                    item.fits(room.checked_sub(if index == 0 { 0 } else { 2 })?)
                })
            }
        }
    }
}

fn print_items(open: &str, items: &[Piece], close: &str, indent: usize, out: &mut String) {
    out.push_str(open);
    for (index, item) in items.iter().enumerate() {
        out.push_str(if index == 0 { "\n" } else { ",\n" });
        (0..=indent).for_each(|_| out.push_str(INDENT));
        item.print_at(indent + 1, out);
    }
    if !items.is_empty() {
        out.push('\n');
        (0..indent).for_each(|_| out.push_str(INDENT));
    }
    out.push_str(close);
}
