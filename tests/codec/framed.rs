//! `Framed`: every codec of tokio-util, all messages of one read, responses in one write.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Sink, SinkExt, StreamExt};
use millstream::codec::Framed;
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_util::codec::{BytesCodec, Decoder, LengthDelimitedCodec, LinesCodec, LinesCodecError};

use crate::fake::{Act, Fake};
use testkit::http::{Flavour, on_both};
use testkit::noise;

/// Returns the listed reads, then the end; writes go to a fake.
struct Duplex {
    reads: std::collections::VecDeque<Option<Bytes>>,
    writes: Fake,
}

impl Duplex {
    fn new(reads: impl IntoIterator<Item = impl Into<Bytes>>) -> (Self, Fake) {
        let writes = Fake::default();
        let reads = reads.into_iter().map(|read| Some(read.into())).collect();
        (Self { reads, writes: writes.clone() }, writes)
    }
}

impl AsyncRead for Duplex {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.reads.pop_front() {
            Some(None) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Some(Some(mut read)) => {
                let n = read.len().min(buf.remaining());
                buf.put_slice(&read[..n]);
                read.advance(n);
                if !read.is_empty() {
                    self.reads.push_front(Some(read));
                }
            }
            None => {}
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Duplex {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, piece: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writes).poll_write(cx, piece)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writes).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writes).poll_shutdown(cx)
    }
}

fn message(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

#[tokio::test]
async fn what_one_read_brings_is_answered_by_one_write() {
    let batch = message(&noise(100)).repeat(30);
    let (io, writes) = Duplex::new([batch.clone(), batch.clone()]);
    let mut framed = Framed::new(io, LengthDelimitedCodec::new());
    let mut messages = 0;
    while let Some(message) = framed.next().await {
        messages += 1;
        framed.feed(message.unwrap().freeze()).await.unwrap();
    }
    let seen = writes.seen();
    assert_eq!((messages, &seen.calls[..], seen.flushes), (60, &[vec![3120], vec![3120]][..], 2));
    assert!(seen.bytes == batch.repeat(2));
}

#[tokio::test]
async fn a_message_in_parts_is_answered_when_it_is_whole() {
    let whole = message(&noise(300));
    let reads = [&whole[..], &whole[..2], &whole[2..200], &[&whole[200..], &whole[..7]].concat(), &whole[7..]];
    let (io, writes) = Duplex::new(reads.map(Bytes::copy_from_slice));
    let mut framed = Framed::new(io, LengthDelimitedCodec::new());
    while let Some(message) = framed.next().await {
        framed.feed(message.unwrap().freeze()).await.unwrap();
    }
    assert_eq!(writes.seen().calls, [[304], [304], [304]]);
}

#[tokio::test]
async fn lines_and_their_last_one_without_an_end() {
    let (io, writes) = Duplex::new(["one\ntwo\r\nth", "ree\n\nfour"]);
    let mut framed = Framed::new(io, LinesCodec::new());
    let mut lines = Vec::new();
    while let Some(line) = framed.next().await {
        let line = line.unwrap();
        framed.feed(&line).await.unwrap();
        lines.push(line);
    }
    assert_eq!(lines, ["one", "two", "three", "", "four"]);
    assert_eq!(writes.seen().bytes, b"one\ntwo\nthree\n\nfour\n");
    assert_eq!(writes.seen().calls.len(), 3, "the last one at the end");
}

#[tokio::test]
async fn errors_end_the_stream() {
    let (io, writes) = Duplex::new(["fine\nfar too long\nfine"]);
    let mut framed = Framed::new(io, LinesCodec::new_with_max_length(5));
    framed.feed("waits").await.unwrap();
    assert_eq!(framed.next().await.unwrap().unwrap(), "fine");
    assert!(matches!(framed.next().await, Some(Err(LinesCodecError::MaxLineLengthExceeded))));
    assert!(framed.next().await.is_none());
    assert!(framed.next().await.is_none());
    SinkExt::<&str>::close(&mut framed).await.unwrap();
    assert_eq!(writes.seen().bytes, b"waits\n");
    assert_eq!(writes.seen().shutdowns, 2);

    let (io, writes) = Duplex::new(["fine\n"]);
    writes.seen().script.push_back(Act::Reset);
    let mut framed = Framed::new(io, LinesCodec::new());
    framed.feed("lost").await.unwrap();
    // The writer sends before the first read.
    assert!(
        matches!(framed.next().await, Some(Err(LinesCodecError::Io(e))) if e.kind() == io::ErrorKind::ConnectionReset)
    );
    assert!(framed.next().await.is_none());

    let (io, _) = Duplex::new([message(b"whole"), message(b"cut")[..6].to_vec()]);
    let mut framed = Framed::new(io, LengthDelimitedCodec::new());
    assert_eq!(framed.next().await.unwrap().unwrap(), b"whole"[..]);
    assert!(framed.next().await.unwrap().is_err(), "a truncated message is an error");
    assert!(framed.next().await.is_none());
}

#[tokio::test]
async fn a_sink_waits_when_much_is_encoded() {
    let (io, writes) = Duplex::new(std::iter::empty::<Bytes>());
    writes.seen().always = Some(Act::Block);
    let mut framed = Framed::new(io, BytesCodec::new());
    let ready = <Framed<_, _> as Sink<Bytes>>::poll_ready;
    let mut cx = Context::from_waker(Waker::noop());
    let mut fed = 0;
    while ready(Pin::new(&mut framed), &mut cx).is_ready() {
        Pin::new(&mut framed).start_send(Bytes::from(noise(1000))).unwrap();
        fed += 1000;
        assert!(fed < 100_000, "no backpressure");
    }
    assert_eq!((framed.queued(), writes.seen().polls), (66_000, 1));
    writes.seen().always = None;
    SinkExt::<Bytes>::close(&mut framed).await.unwrap();
    assert_eq!(writes.seen().bytes.len(), 66_000);
}

#[tokio::test]
async fn a_peer_that_takes_no_answers_may_still_send() {
    let (io, writes) = Duplex::new(["one\n", "two\n"]);
    writes.seen().always = Some(Act::Block);
    let mut framed = Framed::new(io, LinesCodec::new());
    framed.feed("hello").await.unwrap();
    assert_eq!(framed.next().await.unwrap().unwrap(), "one");
    assert_eq!(framed.next().await.unwrap().unwrap(), "two");
    let mut next = framed.next();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut next).poll(&mut cx).is_pending(), "the end waits until the answer is written");
    writes.seen().always = None;
    assert!(Pin::new(&mut next).poll(&mut cx).is_ready());
    assert_eq!(writes.seen().bytes, b"hello\n");
}

/// Reads lines until the end, and returns their number. The peer of `small_pipe`.
async fn lines_until_the_end(theirs: impl AsyncRead + Unpin) -> usize {
    Framed::new(tokio::io::join(theirs, tokio::io::sink()), LinesCodec::new()).map(Result::unwrap).count().await
}

/// With the paused clock, a time limit passes as soon as no task can run.
const HANGS: Duration = Duration::from_secs(30);

const LINE: &str = "a line that does not fit the pipe ........................";

/// The stream writes what the sink has encoded, while the task of the sink waits for room.
#[tokio::test(start_paused = true)]
async fn halves_in_two_tasks_wake_each_other_for_room() {
    let (ours, theirs) = tokio::io::duplex(64);
    let (mut sink, mut stream) = Framed::new(ours, LinesCodec::new()).split();
    let sender = tokio::spawn(async move {
        for _ in 0..3000 {
            sink.send(LINE).await.unwrap();
        }
        SinkExt::<&str>::close(&mut sink).await.unwrap();
    });
    tokio::task::yield_now().await;
    let reader = tokio::spawn(async move { stream.next().await.unwrap().unwrap() });
    tokio::task::yield_now().await;
    let (read, mut write) = tokio::io::split(theirs);
    let got = tokio::time::timeout(HANGS, lines_until_the_end(read)).await;
    assert_eq!(got.expect("the sink is never woken"), 3000);
    sender.await.unwrap();
    write.write_all(b"now\n").await.unwrap();
    assert_eq!(reader.await.unwrap(), "now");
}

/// The sink writes, while the task of the stream waits at its end for the same bytes.
#[tokio::test(start_paused = true)]
async fn a_stream_at_its_end_is_woken_when_the_sink_has_written() {
    let (ours, theirs) = tokio::io::duplex(64);
    let (mut sink, mut stream) = Framed::new(ours, LinesCodec::new()).split();
    let (read, mut write) = tokio::io::split(theirs);
    write.shutdown().await.unwrap();
    for _ in 0..5 {
        sink.feed(LINE).await.unwrap();
    }
    let reader = tokio::spawn(async move {
        assert!(stream.next().await.is_none());
        stream
    });
    tokio::task::yield_now().await;
    let sender = tokio::spawn(async move {
        SinkExt::<&str>::flush(&mut sink).await.unwrap();
        sink
    });
    tokio::task::yield_now().await;
    let lines = tokio::spawn(lines_until_the_end(read));
    let stream = tokio::time::timeout(HANGS, reader).await.expect("the stream is never woken").unwrap();
    drop((sender.await.unwrap(), stream));
    assert_eq!(lines.await.unwrap(), 5);
}

/// A half whose future was dropped has left its waker with the inner writer.
#[tokio::test(start_paused = true)]
async fn a_half_that_gave_up_takes_no_wake_up_with_it() {
    let (ours, theirs) = tokio::io::duplex(64);
    let (mut sink, mut stream) = Framed::new(ours, LinesCodec::new()).split();
    let (read, mut write) = tokio::io::split(theirs);
    for _ in 0..5 {
        sink.feed(LINE).await.unwrap();
    }
    let sender = tokio::spawn(async move {
        SinkExt::<&str>::close(&mut sink).await.unwrap();
    });
    tokio::task::yield_now().await;
    let idle = tokio::spawn(async move {
        let mut next = stream.next();
        let polled = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut next).poll(cx).is_pending())).await;
        assert!(polled);
        // Neither polls the stream again nor ends.
        std::future::pending::<()>().await;
        drop(stream);
    });
    tokio::task::yield_now().await;
    let got = tokio::time::timeout(HANGS, lines_until_the_end(read)).await;
    assert_eq!(got.expect("the sink is never woken"), 5);
    sender.await.unwrap();
    write.shutdown().await.unwrap();
    idle.abort();
}

/// The reader keeps its messages, as a queue between tasks does.
#[tokio::test]
async fn messages_that_are_kept_stay_as_they_are() {
    let all: Vec<Vec<u8>> = (0..2000).map(|n| noise(64 + n % 200)).collect();
    let (io, _) = Duplex::new(all.chunks(7).map(|some| some.iter().flat_map(|m| message(m)).collect::<Vec<_>>()));
    let framed = Framed::new(io, LengthDelimitedCodec::new());
    let kept: Vec<BytesMut> = framed.map(|message| message.unwrap()).collect().await;
    assert!(kept.iter().zip(&all).all(|(kept, sent)| kept == sent));
    assert_eq!(kept.len(), all.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn messages_come_whole_however_they_are_cut(
        lens in proptest::collection::vec(prop_oneof![4 => 0usize..300, 1 => 0usize..40_000], 0..200),
        cuts in proptest::collection::vec(prop_oneof![Just(0), 1usize..10, 1usize..50_000], 1..20)
            .prop_filter("something comes", |cuts| cuts.iter().any(|&cut| cut > 0)),
        acts in proptest::collection::vec(prop_oneof![(1usize..9000).prop_map(Act::Take), Just(Act::Yield)], 0..100),
        kept in 0usize..20,
    ) {
        Flavour::CurrentThread.runtime().block_on(async {
            let sent: Vec<Vec<u8>> = lens.into_iter().map(noise).collect();
            let mut all = Bytes::from(sent.iter().flat_map(|m| message(m)).collect::<Vec<_>>());
            let whole = all.clone();
            let mut reads = Vec::new();
            for &cut in cuts.iter().cycle() {
                if all.is_empty() {
                    break;
                }
                reads.push((cut > 0).then(|| all.split_to(cut.min(all.len()))));
            }
            let writes = Fake::new(acts);
            let mut framed = Framed::new(Duplex { reads: reads.into(), writes: writes.clone() }, LengthDelimitedCodec::new());
            let mut messages = Vec::new();
            let mut n = 0;
            while let Some(message) = framed.next().await {
                let message = message.unwrap().freeze();
                assert!(message == sent[n]);
                n += 1;
                framed.feed(message.clone()).await.unwrap();
                messages.push(message);
                if messages.len() > kept {
                    messages.clear();
                }
            }
            assert_eq!(n, sent.len());
            assert!(writes.seen().bytes == whole);
        });
    }
}

#[test]
fn echo_over_sockets() {
    on_both(async || {
        let listener = millstream::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut framed = Framed::new(stream, LengthDelimitedCodec::new());
                    while let Some(message) = framed.next().await {
                        framed.feed(message.unwrap().freeze()).await.unwrap();
                    }
                });
            }
        });
        let clients = (0..8usize).map(async |client| {
            let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
            let sent: Vec<Vec<u8>> = (0..500).map(|n| noise(64 + (n * 7 + client) % 193)).collect();
            let all: Vec<u8> = sent.iter().flat_map(|m| message(m)).collect();
            let (read, mut write) = stream.split();
            let mut answers = LengthDelimitedCodec::new().framed(tokio::io::join(read, tokio::io::sink()));
            let writing = async {
                for piece in all.chunks(5000) {
                    write.write_all(piece).await.unwrap();
                }
            };
            let reading = async {
                for message in &sent {
                    assert!(answers.next().await.unwrap().unwrap() == message);
                }
            };
            tokio::join!(writing, reading);
        });
        futures_util::future::join_all(clients).await;
    });
}
