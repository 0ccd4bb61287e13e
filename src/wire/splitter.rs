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
    /// Bytes of the current frame that still stream through. Zero while `held` is not empty.
    streaming: usize,
    /// What `held` is collected for, once that is known.
    collecting: Option<K>,
    /// The beginning of a frame; keeps no memory while it is empty.
    held: Vec<u8>,
}

/// Before the first frame.
impl<K> Default for Splitter<K> {
    fn default() -> Self {
        Self { streaming: 0, collecting: None, held: Vec::new() }
    }
}

impl<K: Copy> Splitter<K> {
    /// Whether the stream stands between two frames.
    pub fn between_frames(&self) -> bool {
        self.streaming == 0 && self.held.is_empty()
    }

    /// Takes the next part from the front of `input`. `classify` sees a frame's header and as many of its
    /// bytes (header included) as are here; after `Stream` or `Whole` it is not asked about that frame again.
    /// It does not answer `More` to a frame that is here whole.
    ///
    /// # Errors
    /// [`WireError::BadLength`] as `E`, and whatever `classify` refuses: the stream cannot be followed on.
    pub fn next<E: From<WireError>>(
        &mut self,
        input: &mut &[u8],
        classify: impl FnMut(&Header, &[u8]) -> Result<Class<K>, E>,
    ) -> Result<Part<K>, E> {
        if self.streaming > 0 {
            return Ok(self.stream(input));
        }
        if self.held.is_empty() { self.begin(input, classify) } else { self.go_on(input, classify) }
    }

    fn stream(&mut self, input: &mut &[u8]) -> Part<K> {
        if input.is_empty() {
            return Part::Starved;
        }
        self.streaming -= take(input, self.streaming).len();
        Part::Stream
    }

    /// A frame begins at the front of the input.
    fn begin<E: From<WireError>>(
        &mut self,
        input: &mut &[u8],
        mut classify: impl FnMut(&Header, &[u8]) -> Result<Class<K>, E>,
    ) -> Result<Part<K>, E> {
        let Some(header) = Header::parse(input)? else {
            return Ok(self.hold(input, HEADER_LENGTH));
        };
        let mut frame = *input;
        let frame = take(&mut frame, header.length);
        match classify(&header, frame)? {
            Class::Stream => {
                self.streaming = header.length;
                Ok(self.stream(input))
            }
            Class::More => Ok(self.hold(input, header.length)),
            Class::Whole(kind) if frame.len() == header.length => {
                *input = input.get(header.length..).unwrap_or_default();
                Ok(Part::Whole(kind, frame.to_vec()))
            }
            Class::Whole(kind) => {
                self.collecting = Some(kind);
                Ok(self.hold(input, header.length))
            }
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
        if self.collecting.is_none() {
            match classify(&header, &self.held)? {
                Class::More => return Ok(Part::Starved),
                Class::Stream => {
                    self.streaming = header.length - self.held.len();
                    return Ok(Part::Release(std::mem::take(&mut self.held)));
                }
                Class::Whole(kind) => self.collecting = Some(kind),
            }
        }
        match self.collecting {
            Some(kind) if self.held.len() == header.length => {
                self.collecting = None;
                Ok(Part::Whole(kind, std::mem::take(&mut self.held)))
            }
            _ => Ok(Part::Starved),
        }
    }

    fn hold(&mut self, input: &mut &[u8], length: usize) -> Part<K> {
        self.held.extend_from_slice(take(input, length));
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
