//! Frames of an HTTP/2 client against `server::serve`: what is answered are frames in a legal order, the connection ends,
//! and the server goes on.
#![no_main]

use std::collections::HashMap;
use std::sync::LazyLock;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use millstream_fuzz::service::{GOOD, service};
use millstream_fuzz::{Address, all_closed, http1, run, start};

static SERVER: LazyLock<Address> = LazyLock::new(|| start(service(), |serve| serve));

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const METHODS: [&[u8]; 6] = [b"GET", b"HEAD", b"POST", b"CONNECT", b"OPTIONS", b"P\x00"];
const PATHS: [&[u8]; 9] =
    [b"/", b"/echo", b"/read", b"/stream", b"/events", b"/none", b"/f/small.txt", b"/f/large.bin", b"*"];
const NAMES: [&[u8]; 14] = [
    b"range",
    b"accept-encoding",
    b"content-length",
    b"if-none-match",
    b"te",
    b"host",
    b"connection",
    b"cookie",
    b"last-event-id",
    b"traceparent",
    b"x-millstream-canary",
    b":path",
    b":protocol",
    b"Upper",
];

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    Request {
        stream: u8,
        method: u8,
        path: u8,
        fields: Vec<(u8, &'a [u8])>,
        end_stream: bool,
        cut: u8,
    },
    Data {
        stream: u8,
        data: &'a [u8],
        times: u8,
        end_stream: bool,
    },
    Trailers {
        stream: u8,
        fields: Vec<(u8, &'a [u8])>,
    },
    Reset {
        stream: u8,
        code: u8,
    },
    Settings(Vec<(u8, u32)>),
    Acknowledge,
    Window {
        stream: u8,
        bytes: u32,
    },
    Ping {
        answer: bool,
    },
    GoAway {
        last: u8,
        debug: &'a [u8],
    },
    Frame {
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &'a [u8],
    },
    Bytes(&'a [u8]),
    /// The following frames are sent later.
    Pause,
}

fn frame(to: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    to.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    to.extend_from_slice(&[kind, flags]);
    to.extend_from_slice(&stream.to_be_bytes());
    to.extend_from_slice(payload);
}

/// A field as a literal without indexing (RFC 7541 §6.2.2).
fn field(to: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    to.push(0);
    for text in [name, value] {
        let text = &text[..text.len().min(126)];
        to.push(text.len() as u8);
        to.extend_from_slice(text);
    }
}

fn fields(to: &mut Vec<u8>, list: &[(u8, &[u8])]) {
    for (name, value) in list.iter().take(200) {
        field(to, NAMES[usize::from(*name) % NAMES.len()], value);
    }
}

/// Clients have the odd numbers.
fn client_stream(stream: u8) -> u32 {
    u32::from(stream % 16) * 2 + 1
}

fn write(step: &Step<'_>, to: &mut Vec<u8>) {
    match step {
        Step::Request { stream, method, path, fields: list, end_stream, cut } => {
            let mut block = Vec::new();
            field(&mut block, b":method", METHODS[usize::from(*method) % METHODS.len()]);
            field(&mut block, b":scheme", b"http");
            field(&mut block, b":authority", b"mill");
            field(&mut block, b":path", PATHS[usize::from(*path) % PATHS.len()]);
            fields(&mut block, list);
            let end = if *end_stream { END_STREAM } else { 0 };
            match usize::from(*cut) {
                0 => frame(to, HEADERS, END_HEADERS | end, client_stream(*stream), &block),
                cut => {
                    let (one, other) = block.split_at(cut.min(block.len()));
                    frame(to, HEADERS, end, client_stream(*stream), one);
                    frame(to, CONTINUATION, END_HEADERS, client_stream(*stream), other);
                }
            }
        }
        Step::Data { stream, data, times, end_stream } => {
            let data = data.repeat(usize::from(*times % 32) + 1);
            let data = &data[..data.len().min(16 << 10)];
            frame(to, DATA, if *end_stream { END_STREAM } else { 0 }, client_stream(*stream), data);
        }
        Step::Trailers { stream, fields: list } => {
            let mut block = Vec::new();
            fields(&mut block, list);
            frame(to, HEADERS, END_HEADERS | END_STREAM, client_stream(*stream), &block);
        }
        Step::Reset { stream, code } => {
            frame(to, RST_STREAM, 0, client_stream(*stream), &u32::from(*code).to_be_bytes());
        }
        Step::Settings(list) => {
            let mut all = Vec::new();
            for (name, value) in list {
                all.extend_from_slice(&[0, name % 10]);
                all.extend_from_slice(&value.to_be_bytes());
            }
            frame(to, SETTINGS, 0, 0, &all);
        }
        Step::Acknowledge => frame(to, SETTINGS, 1, 0, &[]),
        Step::Window { stream, bytes } => {
            let stream = if *stream == 0 { 0 } else { client_stream(stream - 1) };
            frame(to, WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
        }
        Step::Ping { answer } => frame(to, PING, u8::from(*answer), 0, b"12345678"),
        Step::GoAway { last, debug } => {
            let mut payload = vec![0, 0, 0, *last, 0, 0, 0, 0];
            payload.extend_from_slice(debug);
            frame(to, GOAWAY, 0, 0, &payload);
        }
        Step::Frame { kind, flags, stream, payload } => frame(to, *kind, *flags, *stream, payload),
        Step::Bytes(bytes) => to.extend_from_slice(bytes),
        Step::Pause => {}
    }
}

/// Checks the frames of the server. The last one may be cut.
fn check(mut bytes: &[u8]) {
    #[derive(PartialEq)]
    enum Stream {
        Open,
        Ended,
        Reset,
    }
    let mut streams: HashMap<u32, Stream> = HashMap::new();
    let mut first = true;
    let mut continued = None;
    while bytes.len() >= 9 {
        let len = usize::from(bytes[0]) << 16 | usize::from(bytes[1]) << 8 | usize::from(bytes[2]);
        let (kind, flags) = (bytes[3], bytes[4]);
        let stream = u32::from_be_bytes(bytes[5..9].try_into().unwrap());
        assert!(std::mem::take(&mut first) == (kind == SETTINGS && flags == 0), "SETTINGS come first, and once");
        assert!(stream >> 31 == 0 && kind <= CONTINUATION && kind != PUSH_PROMISE, "kind {kind}, stream {stream}");
        let Some(payload) = bytes.get(9..9 + len) else { return };
        bytes = &bytes[9 + len..];
        let of_connection = matches!(kind, SETTINGS | PING | GOAWAY);
        assert!(kind == WINDOW_UPDATE || of_connection == (stream == 0), "kind {kind}, stream {stream}");
        assert_eq!(continued.is_some(), kind == CONTINUATION, "a header block is cut");
        match kind {
            SETTINGS => assert_eq!(len % 6, 0),
            PING => assert_eq!(len, 8),
            GOAWAY => assert!(len >= 8),
            WINDOW_UPDATE => assert!(len == 4 && payload != [0; 4]),
            RST_STREAM => {
                assert_eq!(len, 4);
                streams.insert(stream, Stream::Reset);
            }
            HEADERS => {
                let known = streams.entry(stream).or_insert(Stream::Open);
                assert!(*known == Stream::Open, "HEADERS behind the end of stream {stream}");
            }
            DATA => assert!(streams.get(&stream) == Some(&Stream::Open), "DATA of stream {stream}, which is not open"),
            _ => {}
        }
        if matches!(kind, HEADERS | CONTINUATION) {
            continued = (flags & END_HEADERS == 0).then_some(stream);
        }
        if matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0 {
            streams.insert(stream, Stream::Ended);
        }
    }
}

fuzz_target!(|steps: Vec<Step<'_>>| {
    let mut all = vec![PREFACE.to_vec()];
    frame(&mut all[0], SETTINGS, 0, 0, &[]);
    for step in steps.iter().take(200) {
        match step {
            Step::Pause => all.push(Vec::new()),
            step => write(step, all.last_mut().unwrap()),
        }
    }
    let pieces: Vec<&[u8]> = all.iter().map(|piece| &piece[..]).collect();
    run(async {
        check(&SERVER.exchange(&pieces).await);
        let good = http1::responses(&SERVER.exchange(&[GOOD]).await);
        assert_eq!((good.len(), good[0].status), (1, 200), "{good:?}");
        all_closed().await;
    });
});
