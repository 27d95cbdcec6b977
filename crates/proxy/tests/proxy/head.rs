//! Header lines inserted into passing messages. For any split of the input the output equals that of a simple
//! reference on the whole message, and the injector allocates nothing.

use std::future::ready;
use std::hint::black_box;
use std::io;
use std::net::SocketAddr;

use allocation_counter::measure;
use bytes::{Buf, Bytes};
use http_body_util::Full;
use hyper::Response;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use millstream_proxy::{InjectError, Injector, Output};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use testkit::http::{boxed, h1, on_both, request, start, whole};
use testkit::noise;

const LINES: &[u8] = b"via: 1.1 mill\r\nx-stamp: a, b\r\n";

fn injector() -> Injector {
    let mut fields = HeaderMap::new();
    fields.insert("via", HeaderValue::from_static("1.1 mill"));
    fields.insert("x-stamp", HeaderValue::from_static("a, b"));
    Injector::new(&fields).unwrap()
}

fn is_interim(start_line: &[u8]) -> bool {
    let text: String = start_line.iter().map(|&b| char::from(b)).collect();
    let Some((version, rest)) = text.split_once(' ') else { return false };
    let digits = version.strip_prefix("HTTP/").and_then(|v| v.split_once('.'));
    let is_digit = |text: &str| text.len() == 1 && text.parse::<u8>().is_ok();
    let code = rest.get(..3).and_then(|code| code.parse::<u16>().ok());
    digits.is_some_and(|(major, minor)| is_digit(major) && is_digit(minor))
        && code.is_some_and(|code| (100..200).contains(&code) && code != 101)
}

/// Computes the expected output for `stream` line by line, and whether the head has ended.
fn reference(stream: &[u8], limit: usize) -> Result<(Vec<u8>, bool), InjectError> {
    let (mut at, mut head) = (0, 0);
    let mut start_line = None;
    for line in stream.split_inclusive(|&b| b == b'\n') {
        let bare = line.windows(2).position(|pair| pair[0] == b'\r' && pair[1] != b'\n');
        if bare.is_some_and(|cr| head + cr + 1 < limit) {
            return Err(InjectError::BareCr);
        }
        if head + line.len() > limit {
            return Err(too_large(limit));
        }
        let is_empty = matches!(line, b"\n" | b"\r\n");
        head += line.len();
        match start_line {
            None if !is_empty => start_line = Some(line),
            Some(start) if is_empty && is_interim(start) => (start_line, head) = (None, 0),
            Some(_) if is_empty => return Ok(([&stream[..at], LINES, &stream[at..]].concat(), true)),
            _ => {}
        }
        at += line.len();
    }
    Ok((stream.to_vec(), false))
}

fn too_large(limit: usize) -> InjectError {
    let mut small = Injector::new(&HeaderMap::new()).unwrap().limit(limit);
    small.feed(&vec![b'a'; limit + 1]).unwrap_err()
}

fn bytes(output: Output<'_>) -> Vec<u8> {
    let joined = output.slices().map(|slice| slice.to_vec()).concat();
    let mut as_buf = output;
    assert_eq!(as_buf.copy_to_bytes(as_buf.remaining()), joined, "slices and `Buf` give the same bytes");
    joined
}

/// Feeds `pieces` and compares with the [`reference`].
fn compare<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limit: usize) {
    let pieces: Vec<&[u8]> = pieces.into_iter().collect();
    let stream = pieces.concat();
    let expected = reference(&stream, limit);
    let mut injector = injector().limit(limit);
    let mut written = Vec::new();
    for (n, piece) in pieces.iter().enumerate() {
        match injector.feed(piece) {
            Ok(output) => written.extend(bytes(output)),
            Err(error) => {
                assert_eq!(Err(error), expected, "{pieces:?}");
                let left = [&written, injector.held(), &pieces[n..].concat()].concat();
                assert!(left == stream, "bytes lost after an error: {pieces:?}");
                assert_eq!(injector.feed(piece).unwrap_err(), error, "the error repeats");
                return;
            }
        }
        assert!(injector.held().len() < 2);
    }
    let (expected, ended) = expected.unwrap_or_else(|error| panic!("{error} expected: {pieces:?}"));
    assert_eq!(injector.is_done(), ended);
    let begun = stream.iter().any(|b| !b"\r\n".contains(b));
    assert_eq!(injector.finish(), if begun && !ended { Err(InjectError::Ended) } else { Ok(()) }, "{pieces:?}");
    written.extend(injector.held());
    assert!(written == expected, "{pieces:?}:\n{}", String::from_utf8_lossy(&written));
}

/// Messages of every kind, with the number of lines expected before the stamp; 0 for no stamp.
const CORPUS: &[(&str, usize)] = &[
    ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\nServer: x\r\n\r\nbody\r\n", 3),
    ("GET / HTTP/1.1\r\nHost: mill\r\n\r\n", 2),
    ("HTTP/1.1 204 No Content\r\n\r\n", 1),
    ("HTTP/1.1 200 OK\r\n\r\n\r\n\r\nbody of empty lines\r\n\r\n", 1),
    ("\r\n\r\nGET / HTTP/1.1\r\nHost: mill\r\n\r\n", 4),
    ("\n\r\n\nGET / HTTP/1.1\n\nbody", 4),
    ("HTTP/1.1 200 OK\nServer: x\n\nbody\n\n", 2),
    ("HTTP/1.1 200 OK\r\nServer: x\n\r\nbody", 2),
    ("HTTP/1.1 200 OK\nServer: x\r\n\nbody", 2),
    ("HTTP/1.1 200 OK\r\nFolded: a\r\n b\r\n\tc\r\n \r\nServer: x\r\n\r\nbody", 6),
    ("HTTP/1.1 200 OK\r\n\tfolded from the start\r\n\r\nbody", 2),
    ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nServer: x\r\n\r\nbody", 4),
    ("HTTP/1.1 103 Early Hints\nLink: x\n\nHTTP/1.1 102 Processing\r\n\r\n\r\nHTTP/1.0 404 Not Found\r\n\r\nbody", 7),
    ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", 2),
    ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 2),
    ("x\r\n\r\n", 1),
    ("\r\n\n", 0),
    ("HTTP/1.1 100 Continue\r\n\r\n", 0),
    ("HTTP/1.1 200 OK\r\nServer: x\r\n", 0),
    ("HTTP/1.1 200 OK\r\nServer: x\r\n\r", 0),
    ("HTTP/1.1 200 OK\r\nServer: x\r\n\rServer: y\r\n\r\n", 0),
    ("HTTP/1.1 200 OK\r\nServer: x\ry\r\n\r\n", 0),
    ("\rHTTP/1.1 200 OK\r\n\r\n", 0),
];

#[test]
fn the_reference_stamps_where_it_should() {
    for &(message, lines) in CORPUS {
        let at: usize = message.split_inclusive('\n').take(lines).map(str::len).sum();
        match reference(message.as_bytes(), 1000) {
            Ok((bytes, true)) => {
                assert_eq!(bytes, [&message.as_bytes()[..at], LINES, &message.as_bytes()[at..]].concat())
            }
            Ok((bytes, false)) => assert_eq!((bytes, lines), (message.into(), 0)),
            Err(error) => assert_eq!((error, lines), (InjectError::BareCr, 0), "{message:?}"),
        }
    }
}

#[test]
fn no_cut_makes_a_difference() {
    for &(message, _) in CORPUS {
        let message = message.as_bytes();
        compare(message.chunks(1), 1000);
        for first in 0..=message.len() {
            for second in first..=message.len() {
                compare([&message[..first], &message[first..second], &message[second..]], 1000);
            }
        }
    }
}

#[test]
fn no_limit_makes_a_difference_but_its_own() {
    for &(message, _) in CORPUS {
        let message = message.as_bytes();
        for limit in 0..=message.len() {
            compare(message.chunks(1), limit);
            for cut in 0..=message.len() {
                let (one, other) = message.split_at(cut);
                compare([one, other], limit);
            }
        }
    }
}

#[test]
fn every_message_is_stamped_when_it_is_told_where_they_begin() {
    let message: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let stamped = reference(message, 1000).unwrap().0;
    let mut injector = injector();
    for _ in 0..3 {
        assert_eq!(bytes(injector.feed(message).unwrap()), stamped);
        injector.reset();
    }
    // Also after an incomplete head with a held CR.
    injector.feed(b"HTTP/1.1 200 OK\r\n\r").unwrap();
    assert_eq!(injector.held(), b"\r");
    injector.reset();
    assert_eq!(bytes(injector.feed(message).unwrap()), stamped);
}

#[test]
fn an_output_advances_by_any_count() {
    let mut injector = injector();
    let output = injector.feed(b"HTTP/1.1 200 OK\r\n\r\nbody").unwrap();
    let whole = bytes(output);
    for n in 0..=whole.len() {
        let mut rest = output;
        rest.advance(n);
        assert_eq!(rest.remaining(), whole.len() - n);
        assert_eq!(rest.has_remaining(), !rest.chunk().is_empty());
        let mut slices = [io::IoSlice::new(&[]); 4];
        let count = rest.chunks_vectored(&mut slices);
        assert!(slices[..count].iter().all(|slice| !slice.is_empty()));
        assert_eq!(slices[..count].iter().flat_map(|slice| slice.to_vec()).collect::<Vec<_>>(), whole[n..]);
    }
}

#[test]
#[should_panic(expected = "cannot advance beyond the end")]
fn an_output_does_not_advance_beyond_its_end() {
    injector().feed(b"five!").unwrap().advance(6);
}

#[test]
fn a_length_and_a_coding_are_not_added() {
    for (name, value) in [(hyper::header::CONTENT_LENGTH, "5"), (hyper::header::TRANSFER_ENCODING, "chunked")] {
        let error = Injector::new([(&name, &HeaderValue::from_static(value))]).unwrap_err();
        let expected = format!("invalid fields: {name}; allowed: fields that do not frame the body");
        assert_eq!(error.to_string(), expected);
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn errors_say_what_and_are_io_errors() {
    let too_large = io::Error::from(too_large(5));
    assert_eq!(too_large.to_string(), "the head of the message is larger than 5 bytes");
    assert_eq!(too_large.kind(), io::ErrorKind::InvalidData);
    assert_eq!(io::Error::from(InjectError::BareCr).kind(), io::ErrorKind::InvalidData);
    assert_eq!(io::Error::from(InjectError::Ended).kind(), io::ErrorKind::UnexpectedEof);
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let known =
        ["\r", "\n", "\r\n", "\r\n\r\n", "HTTP/1.1 100 Continue\r\n", "HTTP/1.1 200 OK\r\n", "Server: x\r\n", " fold"];
    let part = prop_oneof![
        4 => select(known.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..80),
    ];
    vec(part, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_in_any_pieces(stream in stream(), cuts in vec(any::<prop::sample::Index>(), 0..6), limit in 0..300usize) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        compare(cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]), limit);
        compare(stream.chunks(1), limit);
        compare([&stream[..]], 10_000);
    }

    #[test]
    fn a_field_is_one_line(name in vec(any::<u8>(), 0..12), value in vec(any::<u8>(), 0..12)) {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(&name), HeaderValue::from_bytes(&value)) {
            let mut injector = Injector::new([(&name, &value)]).unwrap();
            let stamped = bytes(injector.feed(b"HTTP/1.1 200 OK\r\n\r\n").unwrap());
            let count = |byte| stamped.iter().filter(|&&b| b == byte).count();
            prop_assert_eq!((count(b'\r'), count(b'\n')), (3, 3));
        }
    }
}

#[test]
fn nothing_is_allocated_for_a_message() {
    let head = format!("HTTP/1.1 200 OK\r\nServer: {}\r\n\r\n", "x".repeat(500));
    let message = [head.as_bytes(), &noise(4096)].concat();
    let mut injector = injector();
    let mut written = 0;
    let counted = measure(|| {
        for size in [1, 7, 100, 1500, message.len()] {
            for piece in message.chunks(size) {
                written += injector.feed(piece).unwrap().slices().iter().map(|slice| slice.len()).sum::<usize>();
            }
            injector.finish().unwrap();
            injector.reset();
        }
        assert!(matches!(injector.feed(&[b'x'; 100_000]), Err(InjectError::TooLarge { limit: 65_536, .. })));
        injector.clone().reset();
    });
    assert_eq!(written, 5 * (message.len() + LINES.len()));
    assert_eq!(counted.count_total, 0, "{counted:?}");
    assert_eq!(measure(|| drop(black_box([head.as_bytes(), LINES].concat()))).count_total, 1, "the counter works");
}

/// Relays bytes to `upstream` and back, for one connection.
async fn relay(upstream: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_upstream, mut to_upstream) = TcpStream::connect(upstream).await.unwrap().into_split();
        tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_upstream).await });
        let mut injector = injector();
        let mut piece = vec![0; 30];
        while !injector.is_done() {
            let n = from_upstream.read(&mut piece).await.unwrap();
            assert!(n > 0, "end of stream within the head");
            to_client.write_all_buf(&mut injector.feed(&piece[..n]).unwrap()).await.unwrap();
        }
        tokio::io::copy(&mut from_upstream, &mut to_client).await.unwrap();
    });
    addr
}

#[test]
fn hyper_reads_what_was_stamped() {
    on_both(|| async {
        let body = Bytes::from(noise(100_000));
        let answer = body.clone();
        let upstream = start(move |_| ready(Response::new(boxed(Full::new(answer.clone()))))).await;
        let mut client = h1(relay(upstream).await).await;
        let answer = client.send_request(request("/")).await.unwrap();
        assert_eq!(answer.headers()["via"], "1.1 mill");
        assert_eq!(answer.headers()["x-stamp"], "a, b");
        assert_eq!(answer.headers()["content-length"], "100000");
        assert!(whole(answer).await.unwrap() == body);
        // Without `reset`, the injector does not stamp the next message of the connection.
        client.ready().await.unwrap();
        let answer = client.send_request(request("/")).await.unwrap();
        assert!(!answer.headers().contains_key("via"));
        assert!(whole(answer).await.unwrap() == body);
    });
}
