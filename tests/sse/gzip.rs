//! Events in gzip form: decoded, they are what a plain reader gets. Polled by hand; the served ones are in `gzip_direct`.

use std::cmp::Ordering;
use std::io::{Read, Write};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use hyper::Request;
use hyper::body::Body;
use millstream::sse::log::{Log, LogFuture, Replay, ReplayError, Sink};
use millstream::sse::{Event, EventBody, Hub, HubBuilder, LagPolicy, SendError};
use proptest::prelude::*;

use testkit::http::on_both;
use testkit::{noise, skip};

/// Decodes what it can now, and says at the end whether it was one whole stream.
const PYTHON: &str = "import sys, zlib, struct
read, write = sys.stdin.buffer.read, sys.stdout.buffer.write
while head := read(4):
    stream = read(struct.unpack('<I', head)[0])
    d = zlib.decompressobj(31)
    text = b''.join(d.decompress(stream[n:n + 7]) for n in range(0, len(stream), 7)) + d.flush()
    assert d.eof and not d.unused_data
    write(struct.pack('<I', len(text)) + text)";

/// Decodes whole streams by Python's zlib; `None` without Python.
pub(crate) fn by_python(streams: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let mut python = Command::new("python3");
    // Without a buffer, a call that is interrupted writes a part only.
    python.args(["-c", PYTHON]).env_remove("PYTHONUNBUFFERED");
    let mut python = match python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() {
        Ok(python) => python,
        Err(error) => {
            skip("python3", error);
            return None;
        }
    };
    let input: Vec<u8> = streams.iter().flat_map(|s| [&(s.len() as u32).to_le_bytes(), &s[..]].concat()).collect();
    let mut stdin = python.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = python.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "not a whole stream");
    let (mut texts, mut rest) = (Vec::new(), &output.stdout[..]);
    while let Some((len, after)) = rest.split_first_chunk() {
        let (text, after) = after.split_at(u32::from_le_bytes(*len) as usize);
        texts.push(text.to_vec());
        rest = after;
    }
    assert_eq!(texts.len(), streams.len());
    Some(texts)
}

/// Decodes a whole stream. Fails at a wrong sum, a missing end, and bytes behind it.
pub(crate) fn whole(stream: &[u8]) -> Vec<u8> {
    let mut decoder = flate2::bufread::GzDecoder::new(stream);
    let mut text = Vec::new();
    decoder.read_to_end(&mut text).expect("a whole stream");
    assert!(decoder.into_inner().is_empty(), "bytes behind the end");
    text
}

/// A hub whose readers all get the same bytes.
pub(crate) fn builder() -> HubBuilder {
    Hub::builder().gzip(6).retry(Duration::from_secs(1))
}

/// Subscribes by a request of a client that does or does not accept gzip.
fn subscribe(hub: &Hub, gzip: bool, last: Option<&str>) -> EventBody {
    let mut request = Request::get("/");
    if gzip {
        request = request.header("accept-encoding", "deflate, gzip, br");
    }
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let response = hub.subscribe(&request.body(()).unwrap());
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["vary"], "accept-encoding");
    let coding = response.headers().get("content-encoding").map(|coding| coding.to_str().unwrap());
    assert_eq!(coding, gzip.then_some("gzip"));
    response.into_body()
}

/// A plain and a compressed reader that do the same at the same time.
struct Pair {
    plain: EventBody,
    gzip: EventBody,
    text: Vec<u8>,
    stream: Vec<u8>,
    decoder: flate2::write::GzDecoder<Vec<u8>>,
    ended: bool,
}

fn read(body: &mut EventBody, bytes: &mut Vec<u8>) -> bool {
    loop {
        match Pin::new(&mut *body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(frame))) => bytes.extend_from_slice(&frame.into_data().unwrap()),
            Poll::Ready(None) => return true,
            Poll::Pending => return false,
        }
    }
}

impl Pair {
    fn new(hub: &Hub, last: Option<&str>) -> Self {
        let (plain, gzip) = (subscribe(hub, false, last), subscribe(hub, true, last));
        let decoder = flate2::write::GzDecoder::new(Vec::new());
        Self { plain, gzip, text: Vec::new(), stream: Vec::new(), decoder, ended: false }
    }

    /// Polls both until they wait, or end. All that the plain one has can be decoded from the other.
    fn read(&mut self) {
        let ended = read(&mut self.plain, &mut self.text);
        let before = self.stream.len();
        assert_eq!(read(&mut self.gzip, &mut self.stream), ended, "only one has ended");
        self.ended = ended;
        self.decoder.write_all(&self.stream[before..]).unwrap();
        self.decoder.flush().unwrap();
        let decoded = self.decoder.get_ref();
        let same = decoded.iter().zip(&self.text).take_while(|(a, b)| a == b).count();
        assert!(*decoded == self.text, "{} bytes, {} expected, {same} the same", decoded.len(), self.text.len());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send(Vec<u8>),
    /// A new reader, behind an earlier event, an unknown one, or none.
    Subscribe(Option<usize>),
    Read(usize),
    Leave(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![
        4 => (0..300usize).prop_map(|len| b"{\"mill\": \"turns\", \"n\": 7}\n".repeat(len / 10)),
        2 => (0..3000usize).prop_map(noise),
        1 => (10_000..40_000usize).prop_map(noise),
    ];
    prop_oneof![
        6 => bytes.prop_map(Step::Send),
        2 => prop::option::of(0..40usize).prop_map(Step::Subscribe),
        4 => (0..8usize).prop_map(Step::Read),
        1 => (0..8usize).prop_map(Step::Leave),
    ]
}

fn event(bytes: &[u8]) -> Event {
    Event::new()
        .event("tick")
        .data(bytes.iter().map(|&byte| char::from(byte)).filter(|c| *c != '\0').collect::<String>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decoded_it_is_what_a_plain_reader_gets(
        steps in prop::collection::vec(step(), 1..60),
        level in 0..12u32,
        (replay, queue) in (1..20usize, 1..10usize),
        slow in prop_oneof![Just(LagPolicy::DropOldest), Just(LagPolicy::Latest), Just(LagPolicy::Disconnect)],
    ) {
        let hub = builder().gzip(level).replay(replay).queue(queue).lag_policy(slow).build();
        let (mut pairs, mut ids, mut left): (Vec<Pair>, Vec<String>, usize) = Default::default();
        for step in steps {
            match step {
                Step::Send(bytes) => ids.push(hub.send(event(&bytes)).unwrap().to_string()),
                Step::Subscribe(last) => {
                    let last = last.map(|n| ids.get(n).map_or("of-another-hub", String::as_str));
                    pairs.push(Pair::new(&hub, last));
                }
                Step::Read(n) if n < pairs.len() => pairs[n].read(),
                Step::Leave(n) if n < pairs.len() => {
                    pairs.remove(n);
                    left += 1;
                }
                Step::Read(_) | Step::Leave(_) => {}
            }
        }
        hub.close();
        pairs.iter_mut().for_each(Pair::read);
        prop_assert_eq!(hub.stats().subscribers, 0);
        prop_assert!(hub.stats().compressed <= hub.stats().sent, "an event was compressed twice");
        prop_assert!(pairs.iter().all(|pair| pair.ended));
        let streams: Vec<Vec<u8>> = pairs.iter().map(|pair| pair.stream.clone()).collect();
        for (pair, stream) in pairs.iter().zip(&streams) {
            prop_assert!(whole(stream) == pair.text);
        }
        if let Some(texts) = by_python(&streams) {
            prop_assert!(texts.iter().eq(pairs.iter().map(|pair| &pair.text)), "other bytes by Python, {} left", left);
        }
    }
}

#[test]
fn each_event_is_compressed_once_and_only_for_readers_that_want_it() {
    const READERS: usize = 50;
    let hub = builder().build();
    let send = || hub.send(Event::new().data("the mill turns")).unwrap().to_string();
    let mut plain = subscribe(&hub, false, None);
    let first = send();
    read(&mut plain, &mut Vec::new());
    assert_eq!(hub.stats().compressed, 0, "nobody wants it");

    let mut pairs: Vec<Pair> = (0..READERS).map(|_| Pair::new(&hub, None)).collect();
    for burst in [1, 7, 30] {
        (0..burst).for_each(|_| drop(send()));
        pairs.iter_mut().for_each(Pair::read);
        // In other frames than the others.
        subscribe(&hub, true, Some(&first));
    }
    assert_eq!(hub.stats().compressed, 38);
    let mut late = Pair::new(&hub, Some(&first));
    late.read();
    assert_eq!(hub.stats().compressed, 38, "compressed again for a late reader");
    let mut unknown = Pair::new(&hub, Some("unknown"));
    unknown.read();
    assert_eq!(hub.stats().compressed, 39, "with the first event, which nobody wanted before");
    hub.close();
    for pair in pairs.iter_mut().chain([&mut late, &mut unknown]) {
        pair.read();
        assert!(whole(&pair.stream) == pair.text);
    }
}

#[test]
fn a_hub_compresses_only_if_it_was_told_to_and_the_client_prefers_it() {
    for (accept, compressed) in [
        (Some("gzip"), true),
        (Some("br, gzip;q=0.5"), true),
        (Some("*"), true),
        (Some("identity, gzip;q=0.5"), false),
        (Some("gzip;q=0"), false),
        (Some("br"), false),
        (None, false),
    ] {
        for told in [false, true] {
            let hub = if told { builder().build() } else { Hub::new() };
            for method in ["GET", "HEAD"] {
                let mut request = Request::builder().method(method);
                if let Some(accept) = accept {
                    request = request.header("accept-encoding", accept);
                }
                let response = hub.subscribe(&request.body(()).unwrap());
                let coding = response.headers().get("content-encoding").map(|coding| coding.to_str().unwrap());
                assert_eq!(coding, (told && compressed).then_some("gzip"), "{method} {accept:?}");
                assert_eq!(response.headers().contains_key("vary"), told);
                assert_eq!(response.body().is_end_stream(), method == "HEAD");
            }
        }
    }
}

#[test]
fn events_that_do_not_compress_are_hardly_longer() {
    let hub = builder().build();
    let mut body = subscribe(&hub, true, None);
    for len in [1, 1000, 100_000] {
        hub.send(Event::new().data(noise(len).iter().map(|byte| char::from(byte % 94 + 33)).collect::<String>()))
            .unwrap();
        let (mut stream, ring) = (Vec::new(), hub.stats().ring_bytes);
        read(&mut body, &mut stream);
        assert!(stream.len() <= ring + ring / 100 + 50 + 10, "{len}");
    }
}

#[tokio::test(start_paused = true)]
async fn comments_are_in_the_stream() {
    let hub = builder().keep_alive(Duration::from_secs(15)).build();
    let mut pair = Pair::new(&hub, None);
    pair.read();
    let empty = pair.stream.len();
    for n in 1..=3 {
        while pair.text.len() < 2 * n {
            tokio::time::advance(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
            pair.read();
        }
    }
    assert_eq!(pair.text, b":\n:\n:\n");
    assert!(pair.stream.len() - empty < 60);
    hub.send(Event::new().data("x")).unwrap();
    hub.close();
    pair.read();
    assert!(whole(&pair.stream) == pair.text);
}

/// A log with the events 1 to 20, of which the hub has those after 10.
#[derive(Debug)]
struct Twenty;

fn number(id: &str) -> Option<u64> {
    id.strip_suffix("-0")?.parse().ok()
}

impl Log for Twenty {
    fn append(&self, _: Event) -> Result<(), SendError> {
        Err(SendError::Full)
    }

    fn order(&self, id: &str, other: &str) -> Option<Ordering> {
        Some(number(id)?.cmp(&number(other)?))
    }

    fn run(self: Arc<Self>, sink: Sink) -> LogFuture<'static, ()> {
        sink.start(Some("10-0"));
        for n in 11..=20 {
            sink.deliver(&format!("{n}-0"), &Event::new().data(format!("event {n}"))).unwrap();
            if n == 15 {
                sink.gap(Some(3));
            }
        }
        Box::pin(async move { sink.closed().await })
    }

    fn replay<'a>(&'a self, after: &'a str, upto: &'a str, _: usize) -> LogFuture<'a, Result<Replay, ReplayError>> {
        let (after, upto) = (number(after).unwrap(), number(upto).unwrap());
        let to = upto.min(after + 3);
        let events = (after + 1..=to).map(|n| (format!("{n}-0"), Event::new().data(format!("event {n}")))).collect();
        let page = Replay::new(events).more(to < upto);
        Box::pin(std::future::ready(Ok(if after == 1 { page.gap(Some(1)) } else { page })))
    }
}

#[test]
fn replay_from_a_log_is_in_the_stream() {
    on_both(async || {
        let hub = builder().log(Twenty).build();
        let mut pairs: Vec<Pair> =
            ["1-0", "5-0", "10-0", "17-0", "nonsense"].map(|last| Pair::new(&hub, Some(last))).into();
        pairs.iter_mut().for_each(Pair::read);
        assert!(
            pairs[0].text.windows(5).any(|text| text == b"id: 2")
                && pairs[0].text.windows(6).any(|text| text == b"id: 20")
        );
        hub.close();
        for pair in &mut pairs {
            pair.read();
            assert!(pair.ended && whole(&pair.stream) == pair.text);
        }
    });
}

#[test]
fn a_body_that_was_never_polled_ends_as_a_whole_stream() {
    let hub = builder().build();
    let mut body = subscribe(&hub, true, None);
    hub.close();
    let mut stream = Vec::new();
    assert!(read(&mut body, &mut stream));
    assert_eq!(Bytes::from(whole(&stream)), "retry: 1000\n\n");
}
