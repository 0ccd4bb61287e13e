//! Finds the frames in a stream of bytes and says which of them may stream through and which must be here
//! whole first. Both directions of a relay use it; it owns no socket and knows no command.
//!
//! Nothing is copied but a frame that is not here far enough to be told apart, and one that must be whole.
//! Memory follows the bytes that came, never the length a header claims. Next: the relay in `proxy`.

use super::{HEADER_LENGTH, Header, WireError};

/// What the first bytes of a frame ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class<K> {
    /// Cannot be told before more of the frame is here.
    More,
    /// It goes through as it comes.
    Stream,
    /// It must be here whole.
    Whole(K),
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<K> {
    /// What was taken from the input goes through.
    Stream,
    /// These bytes were kept back and go through now, before what follows.
    Release(Vec<u8>),
    /// One frame, whole.
    Whole(K, Vec<u8>),
    /// The input is used up.
    Starved,
}

/// Where a stream stands between its frames.
#[derive(Debug)]
pub struct Splitter<K> {
    state: State<K>,
    /// The beginning of a frame; keeps no memory while it is empty.
    held: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State<K> {
    /// Between two frames; nothing is held.
    Between,
    /// So many bytes of the current frame still stream through. Never 0; nothing is held.
    Streaming(usize),
    /// `held` is not enough to tell the frame apart. It is asked about again when it has so many bytes, or is whole.
    Asking(usize),
    /// `held` is collected for this.
    Collecting(K),
}

/// Before the first frame.
impl<K> Default for Splitter<K> {
    fn default() -> Self {
        Self { state: State::Between, held: Vec::new() }
    }
}

impl<K: Copy + PartialEq> Splitter<K> {
    /// Whether the stream stands between two frames.
    pub fn between_frames(&self) -> bool {
        self.state == State::Between
    }

    /// Takes memory for the whole frame that is held back, so that it does not have to be moved as it grows. What is not
    /// written to yet costs nothing but addresses.
    pub fn reserve(&mut self) {
        if let Ok(Some(header)) = Header::parse(&self.held) {
            self.held.reserve_exact(header.length.saturating_sub(self.held.len()));
        }
    }

    /// The beginning of a frame that is held back; empty when there is none.
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// Takes the next part from the front of `input`. `classify` sees a frame's header and as many of its
    /// bytes (header included) as are here; after `Stream` or `Whole` it is not asked about that frame again.
    /// It does not answer `More` to a frame that is here whole.
    ///
    /// After `More` it is asked again when twice as many bytes are here, or the whole frame: so a frame that comes byte
    /// by byte is looked at as often as its length has binary digits, and its bytes no more than twice on average.
    ///
    /// # Errors
    /// [`WireError::BadLength`] as `E`, and whatever `classify` refuses: the stream cannot be followed on.
    pub fn next<E: From<WireError>>(
        &mut self,
        input: &mut &[u8],
        classify: impl FnMut(&Header, &[u8]) -> Result<Class<K>, E>,
    ) -> Result<Part<K>, E> {
        match self.state {
            State::Streaming(_) if input.is_empty() => Ok(Part::Starved),
            State::Streaming(left) => Ok(self.stream(input, left)),
            State::Between => self.begin(input, classify),
            State::Asking(_) | State::Collecting(_) => self.go_on(input, classify),
        }
    }

    /// `left` bytes of the frame stream through; at least 1.
    fn stream(&mut self, input: &mut &[u8], left: usize) -> Part<K> {
        let left = left - take(input, left).len();
        self.state = if left > 0 { State::Streaming(left) } else { State::Between };
        Part::Stream
    }

    /// A frame begins at the front of the input.
    fn begin<E: From<WireError>>(
        &mut self,
        input: &mut &[u8],
        mut classify: impl FnMut(&Header, &[u8]) -> Result<Class<K>, E>,
    ) -> Result<Part<K>, E> {
        let Some(header) = Header::parse(input)? else {
            return Ok(self.hold(input, HEADER_LENGTH, State::Asking(HEADER_LENGTH)));
        };
        let mut frame = *input;
        let frame = take(&mut frame, header.length);
        match classify(&header, frame)? {
            Class::Stream => Ok(self.stream(input, header.length)),
            Class::More => Ok(self.hold(input, header.length, State::Asking(frame.len().saturating_mul(2)))),
            Class::Whole(kind) if frame.len() == header.length => {
                *input = input.get(header.length..).unwrap_or_default();
                Ok(Part::Whole(kind, frame.to_vec()))
            }
            Class::Whole(kind) => Ok(self.hold(input, header.length, State::Collecting(kind))),
        }
    }

    /// A frame began in an earlier input.
    fn go_on<E: From<WireError>>(
        &mut self,
        input: &mut &[u8],
        mut classify: impl FnMut(&Header, &[u8]) -> Result<Class<K>, E>,
    ) -> Result<Part<K>, E> {
        let header = loop {
            match Header::parse(&self.held)? {
                Some(header) => break header,
                None if input.is_empty() => return Ok(Part::Starved),
                None => self.held.extend_from_slice(take(input, 1)),
            }
        };
        self.held.extend_from_slice(take(input, header.length - self.held.len()));
        let here = self.held.len();
        if let State::Asking(enough) = self.state
            && (here >= enough || here == header.length)
        {
            match classify(&header, &self.held)? {
                Class::More => self.state = State::Asking(here.saturating_mul(2)),
                Class::Stream => {
                    let left = header.length - here;
                    self.state = if left > 0 { State::Streaming(left) } else { State::Between };
                    return Ok(Part::Release(std::mem::take(&mut self.held)));
                }
                Class::Whole(kind) => self.state = State::Collecting(kind),
            }
        }
        match self.state {
            State::Collecting(kind) if here == header.length => {
                self.state = State::Between;
                Ok(Part::Whole(kind, std::mem::take(&mut self.held)))
            }
            _ => Ok(Part::Starved),
        }
    }

    /// Keeps the front of the input; nothing of an empty one.
    fn hold(&mut self, input: &mut &[u8], length: usize, state: State<K>) -> Part<K> {
        if !input.is_empty() {
            self.held.extend_from_slice(take(input, length));
            self.state = state;
        }
        Part::Starved
    }
}

/// Takes up to `count` bytes from the front of `input`.
fn take<'b>(input: &mut &'b [u8], count: usize) -> &'b [u8] {
    let (front, rest) = input.split_at(count.min(input.len()));
    *input = rest;
    front
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{MAX_MESSAGE_LENGTH, OpCode};

    fn frame(request_id: i32, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Header::write(&mut out, request_id, 0, OpCode::Msg);
        out.extend_from_slice(content);
        let length = out.len() as u32;
        out[..4].copy_from_slice(&length.to_le_bytes());
        out
    }

    /// Told apart by the first content byte: `s` streams, anything else is wanted whole.
    fn classify(_: &Header, bytes: &[u8]) -> Result<Class<char>, WireError> {
        Ok(match bytes.get(16) {
            None => Class::More,
            Some(b's') => Class::Stream,
            Some(byte) => Class::Whole(*byte as char),
        })
    }

    /// What went through, and what came whole, in order.
    fn run(pieces: &[&[u8]]) -> (Vec<u8>, Vec<Vec<u8>>) {
        let mut splitter = Splitter::default();
        let (mut through, mut whole) = (Vec::new(), Vec::new());
        for piece in pieces {
            let mut rest = *piece;
            loop {
                let at = piece.len() - rest.len();
                match splitter.next(&mut rest, classify).unwrap() {
                    Part::Stream => through.extend_from_slice(&piece[at..piece.len() - rest.len()]),
                    Part::Release(bytes) => through.extend_from_slice(&bytes),
                    Part::Whole(_, frame) => whole.push(frame),
                    Part::Starved => break,
                }
            }
            assert!(rest.is_empty());
        }
        assert!(splitter.between_frames() && splitter.held.capacity() == 0);
        (through, whole)
    }

    #[test]
    fn frames_are_found_wherever_the_stream_is_cut() {
        let frames = [frame(1, b"s-one"), frame(2, b"whole"), frame(3, b"s"), frame(4, &[b's'; 40])];
        let stream = frames.concat();
        let expected = ([&frames[0][..], &frames[2], &frames[3]].concat(), vec![frames[1].clone()]);
        for first in 0..=stream.len() {
            for second in first..=stream.len() {
                assert_eq!(run(&[&stream[..first], &stream[first..second], &stream[second..]]), expected);
            }
        }
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(run(&single), expected);
    }

    #[test]
    fn a_frame_that_dribbles_in_is_looked_at_in_proportion_to_its_length() {
        let frame = frame(1, &[b's'; 100_000]);
        let mut splitter = Splitter::default();
        let (mut looks, mut bytes) = (0, 0);
        for byte in frame.chunks(1) {
            let part = splitter.next(&mut &*byte, |header, head| {
                looks += 1;
                bytes += head.len();
                Ok::<_, WireError>(if head.len() < header.length { Class::More } else { Class::Whole('w') })
            });
            let whole = matches!(part, Ok(Part::Whole('w', _)));
            assert_eq!(whole, splitter.between_frames());
        }
        assert!(looks <= 14 && bytes <= 3 * frame.len(), "{looks} looks at {bytes} bytes");
    }

    #[test]
    fn memory_follows_the_bytes_and_not_the_claimed_length() {
        let mut claimed = frame(1, b"whole");
        claimed[..4].copy_from_slice(&(MAX_MESSAGE_LENGTH as u32).to_le_bytes());
        let mut splitter = Splitter::default();
        assert_eq!(splitter.next(&mut &claimed[..], classify), Ok(Part::Starved));
        assert!(splitter.held.capacity() < 1024);
    }

    #[test]
    fn an_impossible_length_ends_the_stream() {
        for length in [0u32, 15, 48_000_001, u32::MAX] {
            let mut bad = frame(1, b"s");
            bad[..4].copy_from_slice(&length.to_le_bytes());
            let mut splitter = Splitter::default();
            assert!(splitter.next(&mut &bad[..], classify).is_err());
        }
    }
}
