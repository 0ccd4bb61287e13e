//! Tests compressed messages on both sides, with and without docward's own compressor list for the upstream.

use super::*;
use crate::wire::compressed::Compressor::{self, Snappy, Zlib, Zstd};
use crate::wire::compressed::{compress, decompress};

fn packed(frame: &[u8], compressor: Compressor) -> Vec<u8> {
    compress(frame, compressor.into()).unwrap()
}

fn repacked(frame: Vec<u8>, compressor: Option<Compressor>) -> Vec<u8> {
    compressor.map_or(frame.clone(), |compressor| packed(&frame, compressor))
}

impl Ends {
    /// A connection after its hellos: the client asked for `asks`, the server agreed to `agrees`.
    async fn agreed(own: Option<&[Compressor]>, asks: &[&str], agrees: &[&str]) -> Ends {
        let own = own.map(|own| own.iter().map(|compressor| CompressionMethod::from(*compressor)).collect());
        let mut ends = start_with(1 << 20, own);
        let body = doc! {"hello": 1, "compression": asks, "$db": "admin"};
        ends.client.write_all(&hello(1, 0, 0, &body)).await.unwrap();
        read_frame(&mut ends.upstream).await;
        let reply = doc! {"ok": 1, "compression": agrees};
        ends.upstream.write_all(&hello(50, 1, 0, &reply)).await.unwrap();
        read_frame(&mut ends.client).await;
        ends
    }
}

#[tokio::test]
async fn messages_with_a_shared_compressor_stream_through_unchanged_wherever_they_are_cut() {
    for compressor in [Snappy, Zlib, Zstd] {
        let request = packed(&frame(2, 0, 0, b"goes through"), compressor);
        let reply = packed(&frame(52, 2, 0, b"the reply"), compressor);
        for cut in 0..request.len() {
            let mut ends = Ends::agreed(None, &[compressor.name()], &[compressor.name()]).await;
            ends.client.write_all(&request[..cut]).await.unwrap();
            tokio::task::yield_now().await;
            ends.client.write_all(&request[cut..]).await.unwrap();
            assert_eq!(read_frame(&mut ends.upstream).await, request, "{compressor:?} cut at {cut}");
            let cut = cut.min(reply.len());
            ends.upstream.write_all(&reply[..cut]).await.unwrap();
            tokio::task::yield_now().await;
            ends.upstream.write_all(&reply[cut..]).await.unwrap();
            assert_eq!(read_frame(&mut ends.client).await, reply, "{compressor:?} cut at {cut}");
        }
    }
}

#[tokio::test]
async fn each_side_gets_a_compressor_it_agreed_to() {
    let own = &[Zlib][..];
    let both = [None, Some(Snappy), Some(Zlib)];
    // docward's offer to the upstream; what the upstream agrees to; the client's compressor; the compressor upstream.
    for (own, agrees, came, goes) in [
        (Some(own), &["zlib"][..], None, Some(Zlib)),
        (Some(own), &["zlib"], Some(Snappy), Some(Zlib)),
        (Some(own), &["zlib"], Some(Zlib), Some(Zlib)),
        (Some(own), &[], None, None),
        (Some(own), &[], Some(Snappy), None),
        (None, &["snappy", "zlib"], None, None),
        (None, &["snappy", "zlib"], Some(Snappy), Some(Snappy)),
    ] {
        let case = format!("{own:?} {agrees:?} {came:?}");
        for content in [&b"plainly"[..], b"jf", b"jm"] {
            let mut ends = Ends::agreed(own, &["snappy", "zlib"], agrees).await;
            ends.client.write_all(&repacked(frame(2, 0, 0, content), came)).await.unwrap();
            let sent = if content == b"jm" { &b"other"[..] } else { content };
            assert_eq!(read_frame(&mut ends.upstream).await, repacked(frame(2, 0, 0, sent), goes), "{case}");
            // A server replies with the request's compressor, and may always reply uncompressed.
            for replied_with in [goes, None] {
                let (more, id) = if replied_with == goes && goes.is_some() { (MORE_TO_COME, 2) } else { (0, 52) };
                let reply = frame(50 + id, id, more, b"reply");
                ends.upstream.write_all(&repacked(reply.clone(), replied_with)).await.unwrap();
                let expected = if goes == came { replied_with } else { came };
                assert_eq!(read_frame(&mut ends.client).await, repacked(reply, expected), "{case}");
                if goes.is_none() {
                    break;
                }
            }
            // No reply is pending any more: an evaluated message is processed.
            for came in both.iter().filter(|came| came.is_none() || **came == Some(Snappy)) {
                ends.client.write_all(&repacked(frame(3, 0, 0, b"jr"), *came)).await.unwrap();
                let expected = if agrees.is_empty() && own.is_none() { None } else { *came };
                assert_eq!(
                    read_frame(&mut ends.client).await,
                    repacked(frame(901, 3, 0, b"local"), expected),
                    "{case}"
                );
            }
        }
    }
}

#[tokio::test]
async fn unacknowledged_requests_leave_no_pending_reply() {
    for (own, came) in [(None, Zlib), (Some(&[Zstd][..]), Zlib), (Some(&[Zlib][..]), Zlib)] {
        let mut ends = Ends::agreed(own, &["zlib"], &["zlib", "zstd"]).await;
        ends.client.write_all(&packed(&frame(2, 0, MORE_TO_COME, b"silent"), came)).await.unwrap();
        assert_eq!(decompress(&read_frame(&mut ends.upstream).await).unwrap(), frame(2, 0, MORE_TO_COME, b"silent"));
        ends.client.write_all(&packed(&frame(3, 0, 0, b"jr"), came)).await.unwrap();
        assert_eq!(read_frame(&mut ends.client).await, packed(&frame(901, 3, 0, b"local"), came));
    }
}

#[tokio::test]
async fn a_compressed_hello_is_handled_like_a_plain_one() {
    let mut ends = Ends::agreed(None, &["zlib"], &["zlib"]).await;
    let asked = hello(2, 0, 0, &doc! {"hello": 1, "$db": "admin"});
    ends.client.write_all(&packed(&asked, Zlib)).await.unwrap();
    assert_eq!(read_frame(&mut ends.upstream).await, asked);
    ends.upstream.write_all(&hello(52, 2, 0, &doc! {"hosts": ["db:5"], "me": "db:5"})).await.unwrap();
    let shown = hello(52, 2, 0, &doc! {"hosts": ["127.0.0.1:27018"], "me": "127.0.0.1:27018"});
    assert_eq!(read_frame(&mut ends.client).await, packed(&shown, Zlib));
}

#[tokio::test]
async fn an_unagreed_compressor_or_damaged_content_gets_an_error_and_closes_the_connection() {
    let mut damaged = packed(&frame(2, 0, 0, b"goes through"), Zlib);
    *damaged.last_mut().unwrap() ^= 1;
    let mut unknown = packed(&frame(2, 0, 0, b"x"), Zlib);
    unknown[24] = 0;
    let mut nested = packed(&frame(2, 0, 0, b"x"), Zlib);
    nested[16..20].copy_from_slice(&2012i32.to_le_bytes());
    for (request, text) in [
        (packed(&frame(2, 0, 0, b"x"), Snappy), "compressed by snappy, which was not agreed on"),
        (damaged, "does not decompress (zlib)"),
        (unknown, "compressor 0 is unknown"),
        (nested, "contains another compressed message"),
    ] {
        let mut ends = Ends::agreed(None, &["zlib"], &["zlib"]).await;
        // Earlier requests get their replies first.
        ends.client.write_all(&frame(9, 0, 0, b"before")).await.unwrap();
        ends.client.write_all(&request).await.unwrap();
        read_frame(&mut ends.upstream).await;
        ends.upstream.write_all(&frame(59, 9, 0, b"y")).await.unwrap();
        assert_eq!(read_frame(&mut ends.client).await, frame(59, 9, 0, b"y"));
        let error = read_frame(&mut ends.client).await;
        assert!(String::from_utf8_lossy(&error).contains(text), "{}", String::from_utf8_lossy(&error));
        assert_eq!(Header::of_frame(&error).unwrap().response_to, 2);
        assert!(rest_of(&mut ends.client).await.is_empty());
        assert!(rest_of(&mut ends.upstream).await.is_empty(), "{text}");
    }
}

#[tokio::test]
async fn large_messages_are_not_collected() {
    let mut random = 7u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as u8
    })
    .take(3_000_000)
    .collect();
    for compressor in [Snappy, Zlib, Zstd] {
        let mut ends = Ends::agreed(None, &[compressor.name()], &[compressor.name()]).await;
        for (id, last) in [(2, false), (3, true)] {
            let request = packed(&frame(id, 0, 0, &noise), compressor);
            let cut = request.len() - 1_000_000;
            ends.client.write_all(&request[..cut]).await.unwrap();
            let mut seen = vec![0; cut - 300_000];
            // It arrives before the end of the message has been sent.
            ends.upstream.read_exact(&mut seen).await.unwrap();
            ends.client.write_all(&request[cut..]).await.unwrap();
            let mut rest = vec![0; request.len() - seen.len()];
            ends.upstream.read_exact(&mut rest).await.unwrap();
            assert!([seen, rest].concat() == request);
            let reply = packed(&frame(50 + id, id, 0, if last { b"end" } else { &noise }), compressor);
            let sending = async { ends.upstream.write_all(&reply).await.unwrap() };
            let (_, received) = tokio::join!(sending, read_frame(&mut ends.client));
            assert!(received == reply);
        }
    }
}
