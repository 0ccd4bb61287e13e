//! Text that goes on one line where it fits, and over several where it does not.

/// The longest line that is not broken, in characters.
const WIDTH: usize = 100;
const INDENT: &str = "  ";

/// A piece of text that knows where it can be broken.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    Atom(String),
    /// `open`, the items with commas between them, `close`.
    Group {
        open: String,
        items: Vec<Piece>,
        close: &'static str,
    },
    /// One behind the other, without a break between: `key: ` and its value, a call and the next.
    Row(Vec<Piece>),
}

impl Piece {
    pub(super) fn atom(text: impl Into<String>) -> Self {
        Self::Atom(text.into())
    }

    pub(super) fn call(open: impl Into<String>, items: Vec<Self>) -> Self {
        Self::Group { open: format!("{}(", open.into()), items, close: ")" }
    }

    /// All of it, without a line break at the end.
    pub(super) fn print(&self) -> String {
        let mut out = String::new();
        self.print_at(0, &mut out);
        out
    }

    /// The same on one line, whether it fits or not.
    pub(super) fn print_unbroken(&self) -> String {
        let mut out = String::new();
        self.print_flat(&mut out);
        out
    }

    /// The same with the outermost items on lines of their own, whether they would fit or not.
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

    /// What is left of `room` behind it on one line; `None` when it does not fit. Looks no further than it must.
    fn fits(&self, room: usize) -> Option<usize> {
        match self {
            // A character has at most four bytes, and long strings need not be counted to the end.
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
