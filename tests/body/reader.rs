//! `body::from_reader`: the bytes, the error and the end of a reader, whatever it returns.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::TryStreamExt;
use http_body_util::{BodyDataStream, BodyExt};
use hyper::Response;
use hyper::body::Body;
use millstream::body::from_reader;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio_util::io::StreamReader;

use testkit::http::{self, Flavour, boxed, on_both, watched};
use testkit::noise;

#[derive(Clone, Debug)]
enum Step {
    Bytes(usize),
    Pending,
    Fail,
}

/// Does its steps in order, then ends. A read after its end or error is a mistake of the caller.
#[derive(Debug)]
struct Script {
    steps: VecDeque<Step>,
    next: u8,
    ended: bool,
}

impl AsyncRead for Script {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        assert!(!self.ended, "read after the end");
        assert!(buf.remaining() > 0);
        match self.steps.pop_front() {
            Some(Step::Bytes(len)) => {
                let now = len.min(buf.remaining());
                for _ in 0..now {
                    buf.put_slice(&[self.next]);
                    self.next = self.next.wrapping_add(1);
                }
                if now < len {
                    self.steps.push_front(Step::Bytes(len - now));
                }
                Poll::Ready(Ok(()))
            }
            Some(Step::Pending) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Step::Fail) => {
                self.ended = true;
                Poll::Ready(Err(io::Error::other("broken")))
            }
            None => {
                self.ended = true;
                Poll::Ready(Ok(()))
            }
        }
    }
}

#[test]
fn any_reader_arrives_as_it_is() {
    watched(|| {
        let step = prop_oneof![
            4 => (1usize..3000).prop_map(Step::Bytes),
            2 => (1usize..400_000).prop_map(Step::Bytes),
            3 => Just(Step::Pending),
            1 => Just(Step::Fail),
        ];
        let strategy = (prop::collection::vec(step, 0..20), prop::option::of(0u64..500_000), any::<bool>());
        let config = Config { cases: 500, failure_persistence: None, ..Config::default() };
        let runtime = Flavour::CurrentThread.runtime();
        let ran = TestRunner::new(config).run(&strategy, |(steps, exact, fitting)| {
            let fails = steps.iter().position(|step| matches!(step, Step::Fail));
            let before = &steps[..fails.unwrap_or(steps.len())];
            let sum = before.iter().map(|step| if let Step::Bytes(len) = step { *len as u64 } else { 0 }).sum();
            let exact = exact.map(|exact| if fitting { sum } else { exact });
            let mut body = from_reader(Script { steps: steps.clone().into(), next: 0, ended: false });
            if let Some(exact) = exact {
                body = body.exact(exact);
            }
            let (mut got, mut error) = (Vec::new(), None);
            runtime.block_on(async {
                let mut left = exact;
                while let Some(frame) = {
                    assert_eq!(body.size_hint().exact(), left);
                    body.frame().await
                } {
                    match frame {
                        Ok(frame) => {
                            let data = frame.into_data().unwrap();
                            assert!(!data.is_empty() && data.len() <= 256 << 10);
                            left = left.map(|left| left - data.len() as u64);
                            got.extend_from_slice(&data);
                        }
                        Err(e) => error = Some(e.kind()),
                    }
                }
                assert!(body.is_end_stream() && body.frame().await.is_none());
            });
            let bytes: Vec<u8> = (0..sum.min(exact.unwrap_or(sum))).map(|n| n as u8).collect();
            prop_assert!(got == bytes, "{} bytes, expected {}", got.len(), bytes.len());
            let expected = match (exact, fails) {
                (Some(exact), _) if exact <= sum => None,
                (_, Some(_)) => Some(io::ErrorKind::Other),
                (Some(_), None) => Some(io::ErrorKind::UnexpectedEof),
                (None, None) => None,
            };
            prop_assert_eq!(error, expected);
            Ok(())
        });
        ran.unwrap();
    });
}

#[test]
fn small_reads_that_are_ready_are_one_frame_and_none_waits() {
    on_both(|| async {
        let (mut writer, reader) = tokio::io::duplex(1 << 20);
        let mut body = Box::pin(from_reader(reader));
        for _ in 0..3 {
            for _ in 0..10 {
                writer.write_all(b"token ").await.unwrap();
            }
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), 60);
            // Nothing is ready.
            assert!(futures_util::FutureExt::now_or_never(body.frame()).is_none());
        }
        drop(writer);
        assert!(body.frame().await.is_none());
    });
}

/// The exact length is announced, and a reader that ends early is seen by the client.
#[test]
fn clients_see_the_length_and_a_reader_that_ends_early() {
    on_both(|| async {
        let bytes = noise(1 << 20);
        let source = bytes.clone();
        let addr = http::start(move |request| {
            let reader = io::Cursor::new(source.clone());
            let len = source.len() as u64;
            async move {
                Response::new(match request.uri().path() {
                    "/exact" => boxed(from_reader(reader).exact(len)),
                    "/long" => boxed(from_reader(reader).exact(1000)),
                    "/short" => boxed(from_reader(reader).exact(len + 1)),
                    _ => boxed(from_reader(reader)),
                })
            }
        })
        .await;
        let mut client = http::h1(addr).await;
        for (path, len, announced) in [("/exact", 1 << 20, true), ("/long", 1000, true), ("/", 1 << 20, false)] {
            client.ready().await.unwrap();
            let response = client.send_request(http::request(path)).await.unwrap();
            assert_eq!(response.headers().contains_key("content-length"), announced);
            assert!(http::whole(response).await.unwrap() == bytes[..len], "{path}");
        }
        client.ready().await.unwrap();
        http::whole(client.send_request(http::request("/short")).await.unwrap()).await.unwrap_err();
        let mut client = http::h2(addr).await;
        http::whole(client.send_request(http::request("/short")).await.unwrap()).await.unwrap_err();
    });
}

/// The way back: the recipe of the guide.
#[test]
fn a_body_is_a_reader_by_tokio_util() {
    on_both(|| async {
        let bytes = noise(100_000);
        let body = from_reader(io::Cursor::new(bytes.clone()));
        let mut reader = StreamReader::new(BodyDataStream::new(body).map_err(io::Error::other));
        let mut got = Vec::new();
        reader.read_to_end(&mut got).await.unwrap();
        assert!(got == bytes);
        let failing = from_reader(&b"x"[..]).exact(2);
        let failing = BodyDataStream::new(failing).map_ok(|bytes: Bytes| bytes).map_err(io::Error::other);
        let mut reader = StreamReader::new(failing);
        let error = reader.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert!(error.to_string().contains("1 bytes early"), "{error}");
    });
}
