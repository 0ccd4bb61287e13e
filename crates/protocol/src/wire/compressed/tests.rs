//! Round trips, and messages whose content differs from the claimed size.

use proptest::prelude::*;

use super::*;

const ALL: [Compressor; 3] = [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];

fn message(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Header::write(&mut out, 7, 9, OpCode::Msg);
    out.extend_from_slice(content);
    patch_length(&mut out);
    out
}

/// Returns an OP_COMPRESSED frame with any data.
fn enveloped(op_code: i32, claimed: i32, compressor: u8, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Header::write(&mut out, 7, 9, OpCode::Compressed);
    out.extend_from_slice(&op_code.to_le_bytes());
    out.extend_from_slice(&claimed.to_le_bytes());
    out.push(compressor);
    out.extend_from_slice(data);
    patch_length(&mut out);
    out
}

fn compressed_by(compressor: Compressor, content: &[u8]) -> Vec<u8> {
    compress(&message(content), compressor.into()).unwrap()
}

/// Returns compressible content.
fn text(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * at / 97) as u8).collect()
}

#[test]
fn names_and_numbers_are_those_of_the_specification() {
    for (id, name) in [(1, "snappy"), (2, "zlib"), (3, "zstd")] {
        let compressor = Compressor::from_wire(id).unwrap();
        assert_eq!((compressor.to_wire(), compressor.name()), (id, name));
        assert_eq!(Compressor::from_name(name), Some(compressor));
    }
    assert_eq!((Compressor::from_wire(0), Compressor::from_name("noop")), (None, None));
}

#[test]
fn invalid_envelopes_are_errors() {
    for (frame, expected) in [
        (enveloped(2013, 100, 0, b"x"), WireError::UnknownCompressor(0)),
        (enveloped(2013, 100, 4, b"x"), WireError::UnknownCompressor(4)),
        (enveloped(2012, 100, 1, b"x"), WireError::NestedCompression),
        (enveloped(2013, 0, 1, b"x"), WireError::BadUncompressedSize(0)),
        (enveloped(2013, -1, 1, b"x"), WireError::BadUncompressedSize(-1)),
        (enveloped(2013, i32::MAX, 1, b"x"), WireError::BadUncompressedSize(i32::MAX)),
        (enveloped(2013, 47_999_985, 2, b"x"), WireError::BadUncompressedSize(47_999_985)),
        (enveloped(2013, 47_999_984, 1, b"x"), WireError::DamagedCompression("snappy")),
        (enveloped(2013, 47_999_984, 2, b"x"), WireError::DamagedCompression("zlib")),
        (enveloped(2013, 47_999_984, 3, b"x"), WireError::DamagedCompression("zstd")),
    ] {
        assert_eq!(decompress(&frame), Err(expected), "{frame:?}");
    }
    for end in 0..DATA_AT {
        let mut cut = compressed_by(Compressor::Zlib, b"content")[..end].to_vec();
        if end >= HEADER_LENGTH {
            patch_length(&mut cut);
        }
        assert!(matches!(decompress(&cut), Err(WireError::Truncated(_))), "cut at {end}");
    }
}

#[test]
fn content_that_differs_from_the_claimed_size_is_an_error() {
    let content = text(5000);
    for compressor in ALL {
        let valid = compressed_by(compressor, &content);
        assert_eq!(decompress(&valid), Ok(message(&content)));
        let data = &valid[DATA_AT..];
        let damaged = Err(WireError::DamagedCompression(compressor.name()));
        for claimed in [1, 16, 4999, 5001, 1 << 20, 47_999_984] {
            let frame = enveloped(2013, claimed, compressor.to_wire(), data);
            assert_eq!(decompress(&frame), damaged, "{compressor:?} {claimed}");
            assert!(peek(&frame, DecompressLimit::Checked(100)).is_err(), "{compressor:?} {claimed}");
        }
        for (name, data) in
            [("cut", data[..data.len() - 1].to_vec()), ("longer", [data, &[0]].concat()), ("empty", Vec::new())]
        {
            let frame = enveloped(2013, 5000, compressor.to_wire(), &data);
            assert_eq!(decompress(&frame), damaged, "{compressor:?} {name}");
            assert!(peek(&frame, DecompressLimit::Checked(100)).is_err(), "{compressor:?} {name}");
        }
    }
}

#[test]
fn a_decompression_bomb_stops_at_the_claimed_size() {
    let bomb = vec![0; 40_000_000];
    for compressor in ALL {
        let mut frame = compressed_by(compressor, &bomb);
        assert!(frame.len() < 3_000_000);
        frame[20..24].copy_from_slice(&1000i32.to_le_bytes());
        assert_eq!(decompress(&frame), Err(WireError::DamagedCompression(compressor.name())));
        assert!(peek(&frame, DecompressLimit::Checked(100)).is_err());
    }
}

#[test]
fn peek_reads_the_start_from_the_first_bytes() {
    let content = text(2_000_000);
    for compressor in ALL {
        let frame = compressed_by(compressor, &content);
        for limit in [0, 1, 4, 1000, 16 * 1024] {
            let head = &frame[..peek_length(compressor, limit).min(frame.len())];
            assert_eq!(
                peek(head, DecompressLimit::UpTo(limit)).unwrap(),
                message(&content)[..16 + limit],
                "{compressor:?}"
            );
        }
        // An incomplete head gives a shorter but correct start.
        for end in (DATA_AT + 5..3000).step_by(37) {
            let seen = peek(&frame[..end], DecompressLimit::UpTo(1000)).unwrap();
            assert!(message(&content)[..1016].starts_with(&seen), "{compressor:?}");
        }
    }
}

#[test]
fn peek_does_not_open_a_large_zstd_window() {
    let mut encoder = zstd::bulk::Compressor::new(3).unwrap();
    encoder.set_parameter(zstd::zstd_safe::CParameter::WindowLog(25)).unwrap();
    let content = text(40_000_000);
    let frame = enveloped(2013, 40_000_000, 3, &encoder.compress(&content).unwrap());
    assert!(peek(&frame[..200_000.min(frame.len())], DecompressLimit::UpTo(4)).is_err());
    assert_eq!(decompress(&frame).unwrap().len(), 40_000_016);
}

#[test]
fn compression_levels_are_used() {
    let content = text(100_000);
    let with = |level| compress(&message(&content), CompressionMethod { compressor: Compressor::Zlib, level }).unwrap();
    assert!(with(Some(9)).len() < with(Some(1)).len() && with(Some(1)).len() < with(Some(0)).len());
    assert_eq!(decompress(&with(Some(0))), Ok(message(&content)));
    let zstd =
        compress(&message(&content), CompressionMethod { compressor: Compressor::Zstd, level: Some(19) }).unwrap();
    assert_eq!(decompress(&zstd), Ok(message(&content)));
}

proptest! {
    #[test]
    fn round_trips(parts in prop::collection::vec((any::<u8>(), 1usize..300), 1..60), noise in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut content = noise;
        parts.iter().for_each(|(byte, count)| content.extend(std::iter::repeat_n(*byte, *count)));
        for compressor in ALL {
            let frame = compressed_by(compressor, &content);
            prop_assert_eq!(decompress(&frame).unwrap(), message(&content));
            prop_assert_eq!(peek(&frame, DecompressLimit::Checked(usize::MAX)).unwrap(), message(&content));
            prop_assert_eq!(peek(&frame, DecompressLimit::Checked(10)).unwrap(), &message(&content)[..16 + 10.min(content.len())]);
        }
    }

    #[test]
    fn peek_and_decompress_agree_on_damaged_data(
        seed in prop::collection::vec(any::<u8>(), 1..200),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let content = [&seed[..], &seed, &seed].concat();
        for compressor in ALL {
            let mut frame = compressed_by(compressor, &content);
            for (at, byte) in &changes {
                let at = DATA_AT + at.index(frame.len() - DATA_AT);
                frame[at] = *byte;
            }
            let whole = decompress(&frame);
            let looked = peek(&frame, DecompressLimit::Checked(usize::MAX));
            // A changed zstd header can name a window that `peek` does not open. The caller then decompresses the whole
            // message.
            match looked {
                Ok(looked) => prop_assert_eq!(whole.clone().ok(), Some(looked)),
                Err(_) => prop_assert!(!changes.is_empty() || whole.is_err()),
            }
            if let (Ok(whole), Ok(beginning)) = (whole, peek(&frame, DecompressLimit::UpTo(20))) {
                prop_assert!(whole.starts_with(&beginning));
            }
        }
    }
}
