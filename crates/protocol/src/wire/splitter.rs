//! Finds frames in a byte stream and decides for each whether it is streamed or buffered. Both directions of a relay
//! use it. It has no socket and does not parse commands.
//!
//! It copies only frames that must be buffered as a whole, and the start of a frame that cannot be classified yet. It
//! allocates memory for bytes it has received; only [`Splitter::reserve`] uses the length that a header gives. The relay in `proxy` calls it.

use super::{HEADER_LENGTH, Header, WireError};

/// The classification of a frame by its first bytes. The caller attaches a `Tag` to a frame that is buffered, and gets it
/// back with the complete frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameClass<Tag> {
    /// More bytes of the frame are needed.
    More,
    /// The frame is forwarded as its bytes arrive.
    Stream,
    /// The frame is buffered until it is complete.
    Whole(Tag),
}

/// The next part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub enum StreamPart<Tag> {
    /// The bytes taken from the input are to be forwarded.
    Stream,
    /// These buffered bytes are to be forwarded before the bytes after them.
    Release(Vec<u8>),
    /// One complete frame.
    Whole(Tag, Vec<u8>),
    /// The input is empty.
    Starved,
}

/// The state of a stream.
#[derive(Debug)]
pub struct Splitter<Tag> {
    state: SplitterState<Tag>,
    /// The buffered start of a frame. It has no allocation while it is empty.
    held: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SplitterState<Tag> {
    /// Between two frames. Nothing is buffered.
    Between,
    /// This number of bytes of the current frame is still to be forwarded. It is at least 1. Nothing is buffered.
    Streaming(usize),
    /// The bytes in `held` do not classify the frame. It is classified again at this number of bytes or when it is
    /// complete.
    Undecided(usize),
    /// `held` is filled until the frame is complete.
    Collecting(Tag),
}

/// The state before the first frame.
impl<Tag> Default for Splitter<Tag> {
    fn default() -> Self {
        Self { state: SplitterState::Between, held: Vec::new() }
    }
}

impl<Tag: Copy + PartialEq> Splitter<Tag> {
    /// Returns whether the stream is between two frames.
    pub fn between_frames(&self) -> bool {
        self.state == SplitterState::Between
    }

    /// Returns whether a part of the current frame has been forwarded and the rest has not.
    pub fn is_streaming(&self) -> bool {
        matches!(self.state, SplitterState::Streaming(_))
    }

    /// Returns whether a frame of this kind is being buffered.
    pub fn is_collecting(&self, kind: Tag) -> bool {
        self.state == SplitterState::Collecting(kind)
    }

    /// Allocates memory for the whole buffered frame, so that the buffer is not moved as it grows. The kernel backs
    /// only the pages that are written.
    pub fn reserve(&mut self) {
        if let Ok(Some(header)) = Header::parse(&self.held) {
            self.held.reserve_exact(header.length.saturating_sub(self.held.len()));
        }
    }

    /// Returns the buffered start of a frame, or an empty slice.
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// Takes the next part from the front of `input`. `classify` receives the header and all available bytes of the
    /// frame, including the header. After it returns `Stream` or `Whole` it is not called again for that frame. If it
    /// returns `More` for a complete frame, the frame is buffered, and it is called again at the next call.
    ///
    /// After `More` it is called again when the number of bytes has doubled or the frame is complete. A frame that
    /// arrives byte by byte is therefore classified only O(log n) times.
    ///
    /// # Errors
    /// [`WireError::BadLength`] converted to `E`, and any error of `classify`. The rest of the stream cannot be
    /// parsed then.
    pub fn next<E: From<WireError>>(
        &mut self,
        input: &mut &[u8],
        classify: impl FnMut(&Header, &[u8]) -> Result<FrameClass<Tag>, E>,
    ) -> Result<StreamPart<Tag>, E> {
        match self.state {
            SplitterState::Streaming(_) if input.is_empty() => Ok(StreamPart::Starved),
            SplitterState::Streaming(left) => Ok(self.stream(input, left)),
            SplitterState::Between => self.begin_frame(input, classify),
            SplitterState::Undecided(_) | SplitterState::Collecting(_) => self.continue_frame(input, classify),
        }
    }

    /// Forwards up to `left` bytes of the frame. `left` is at least 1.
    fn stream(&mut self, input: &mut &[u8], left: usize) -> StreamPart<Tag> {
        let left = left - take(input, left).len();
        self.state = if left > 0 { SplitterState::Streaming(left) } else { SplitterState::Between };
        StreamPart::Stream
    }

    /// Handles a frame that begins at the front of the input.
    fn begin_frame<E: From<WireError>>(
        &mut self,
        input: &mut &[u8],
        mut classify: impl FnMut(&Header, &[u8]) -> Result<FrameClass<Tag>, E>,
    ) -> Result<StreamPart<Tag>, E> {
        let Some(header) = Header::parse(input)? else {
            return Ok(self.hold(input, HEADER_LENGTH, SplitterState::Undecided(HEADER_LENGTH)));
        };
        let mut frame = *input;
        let frame = take(&mut frame, header.length);
        match classify(&header, frame)? {
            FrameClass::Stream => Ok(self.stream(input, header.length)),
            FrameClass::More => {
                Ok(self.hold(input, header.length, SplitterState::Undecided(frame.len().saturating_mul(2))))
            }
            FrameClass::Whole(kind) if frame.len() == header.length => {
                *input = input.get(header.length..).unwrap_or_default();
                Ok(StreamPart::Whole(kind, frame.to_vec()))
            }
            FrameClass::Whole(kind) => Ok(self.hold(input, header.length, SplitterState::Collecting(kind))),
        }
    }

    /// Continues a frame that began in an earlier input.
    fn continue_frame<E: From<WireError>>(
        &mut self,
        input: &mut &[u8],
        mut classify: impl FnMut(&Header, &[u8]) -> Result<FrameClass<Tag>, E>,
    ) -> Result<StreamPart<Tag>, E> {
        let header = loop {
            match Header::parse(&self.held)? {
                Some(header) => break header,
                None if input.is_empty() => return Ok(StreamPart::Starved),
                None => self.held.extend_from_slice(take(input, 1)),
            }
        };
        self.held.extend_from_slice(take(input, header.length - self.held.len()));
        let here = self.held.len();
        if let SplitterState::Undecided(enough) = self.state
            && (here >= enough || here == header.length)
        {
            match classify(&header, &self.held)? {
                FrameClass::More => self.state = SplitterState::Undecided(here.saturating_mul(2)),
                FrameClass::Stream => {
                    let left = header.length - here;
                    self.state = if left > 0 { SplitterState::Streaming(left) } else { SplitterState::Between };
                    return Ok(StreamPart::Release(std::mem::take(&mut self.held)));
                }
                FrameClass::Whole(kind) => self.state = SplitterState::Collecting(kind),
            }
        }
        match self.state {
            SplitterState::Collecting(kind) if here == header.length => {
                self.state = SplitterState::Between;
                Ok(StreamPart::Whole(kind, std::mem::take(&mut self.held)))
            }
            _ => Ok(StreamPart::Starved),
        }
    }

    /// Buffers the front of the input. An empty input changes nothing.
    fn hold(&mut self, input: &mut &[u8], length: usize, state: SplitterState<Tag>) -> StreamPart<Tag> {
        if !input.is_empty() {
            self.held.extend_from_slice(take(input, length));
            self.state = state;
        }
        StreamPart::Starved
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

    /// Classifies by the first content byte: `s` streams, any other byte buffers.
    fn classify(_: &Header, bytes: &[u8]) -> Result<FrameClass<char>, WireError> {
        Ok(match bytes.get(16) {
            None => FrameClass::More,
            Some(b's') => FrameClass::Stream,
            Some(byte) => FrameClass::Whole(*byte as char),
        })
    }

    /// Returns the streamed bytes and the buffered frames, in order.
    fn run(pieces: &[&[u8]]) -> (Vec<u8>, Vec<Vec<u8>>) {
        let mut splitter = Splitter::default();
        let (mut through, mut whole) = (Vec::new(), Vec::new());
        for piece in pieces {
            let mut rest = *piece;
            loop {
                let at = piece.len() - rest.len();
                match splitter.next(&mut rest, classify).unwrap() {
                    StreamPart::Stream => through.extend_from_slice(&piece[at..piece.len() - rest.len()]),
                    StreamPart::Release(bytes) => through.extend_from_slice(&bytes),
                    StreamPart::Whole(_, frame) => whole.push(frame),
                    StreamPart::Starved => break,
                }
            }
            assert!(rest.is_empty());
        }
        assert!(splitter.between_frames() && splitter.held.capacity() == 0);
        (through, whole)
    }

    #[test]
    fn frames_are_found_at_any_split_of_the_stream() {
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
    fn classification_work_is_linear_in_the_frame_length() {
        let frame = frame(1, &[b's'; 100_000]);
        let mut splitter = Splitter::default();
        let (mut looks, mut bytes) = (0, 0);
        for byte in frame.chunks(1) {
            let part = splitter.next(&mut &*byte, |header, head| {
                looks += 1;
                bytes += head.len();
                Ok::<_, WireError>(if head.len() < header.length { FrameClass::More } else { FrameClass::Whole('w') })
            });
            let whole = matches!(part, Ok(StreamPart::Whole('w', _)));
            assert_eq!(whole, splitter.between_frames());
        }
        assert!(looks <= 14 && bytes <= 3 * frame.len(), "{looks} looks at {bytes} bytes");
    }

    #[test]
    fn memory_depends_on_received_bytes_not_on_the_claimed_length() {
        let mut claimed = frame(1, b"whole");
        claimed[..4].copy_from_slice(&(MAX_MESSAGE_LENGTH as u32).to_le_bytes());
        let mut splitter = Splitter::default();
        assert_eq!(splitter.next(&mut &claimed[..], classify), Ok(StreamPart::Starved));
        assert!(splitter.held.capacity() < 1024);
    }

    #[test]
    fn an_invalid_length_is_an_error() {
        for length in [0u32, 15, 48_000_001, u32::MAX] {
            let mut bad = frame(1, b"s");
            bad[..4].copy_from_slice(&length.to_le_bytes());
            let mut splitter = Splitter::default();
            assert!(splitter.next(&mut &bad[..], classify).is_err());
        }
    }
}
