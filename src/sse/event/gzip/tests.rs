//! Unit tests of `gzip`.

use std::io::Read as _;

use super::*;

fn texts() -> Vec<Vec<u8>> {
    let long: Vec<u8> = (0..100_000u32).flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 8).to_le_bytes()).collect();
    let event = |n: usize| format!("event: tick\ndata: {{\"second\":{n}}}\nid: 0badcafe-{n}\n\n").into_bytes();
    let mut all: Vec<Vec<u8>> = (0..50).map(event).collect();
    all.extend([Vec::new(), b"x".to_vec(), b"x".repeat(200_000), long, event(7)]);
    all
}

fn decoded(bytes: &[u8]) -> Vec<u8> {
    let mut decoder = flate2::bufread::GzDecoder::new(bytes);
    let mut text = Vec::new();
    decoder.read_to_end(&mut text).expect("a valid stream with its sums");
    assert!(decoder.into_inner().is_empty(), "bytes behind the end");
    text
}

#[test]
fn a_stream_may_begin_at_any_piece() {
    let texts = texts();
    for level in 1..=9 {
        let deflater = Arc::new(Deflater::new(level));
        let pieces: Vec<Piece> = texts.iter().map(|text| deflater.deflate(text)).collect();
        for first in [0, 1, 49, 51, 53, 54] {
            let mut stream = Gzip::new(&deflater);
            let mut bytes = stream.begin().expect("a head").to_vec();
            assert_eq!(stream.begin(), None);
            for piece in &pieces[first..] {
                stream.add(piece.sum.expect("a sum"));
                bytes.extend_from_slice(&piece.bytes);
            }
            bytes.extend_from_slice(&stream.end(b"retry: 1000\n\n"));
            assert!(decoded(&bytes) == [&texts[first..].concat()[..], b"retry: 1000\n\n"].concat(), "{level}");
        }
    }
}

#[test]
fn pieces_are_joined_once_and_events_compressed_once() {
    let texts = texts();
    let deflater = Arc::new(Deflater::new(6));
    let mut slots = vec![Slot::default(); texts.len()];
    for range in [(0, 3), (0, 3), (0, 5), (1, 2), (2, 55), (0, 55)] {
        let (from, to) = (range.0 as usize, range.1 as usize);
        let mut parts: Vec<Part> = Vec::new();
        for (slot, text) in slots.iter_mut().zip(&texts).take(to).skip(from) {
            parts.push(slot.part(&Bytes::copy_from_slice(text)));
        }
        let piece = deflater.join(range, &parts);
        let mut stream = Gzip::new(&deflater);
        let mut bytes = stream.begin().expect("a head").to_vec();
        stream.add(piece.sum.expect("a sum"));
        bytes.extend_from_slice(&piece.bytes);
        bytes.extend_from_slice(&stream.end(b""));
        assert!(decoded(&bytes) == texts[from..to].concat());
    }
    assert_eq!(deflater.events(), texts.len() as u64);
}

#[test]
fn hubs_of_different_levels_share_the_encoder_of_a_thread() {
    let text = texts().concat();
    let len = |level| Deflater::new(level).deflate(&text).bytes.len();
    let (fast, small) = (len(1), len(9));
    assert!(small < fast);
    assert_eq!((len(1), len(9), len(9)), (fast, small, small));
}
