//! Each byte is written once and in order, for every behaviour of the inner writer. One flush is one write. Errors are
//! final.

use std::io::{self, ErrorKind};

use bytes::Bytes;
use millstream::codec::{Shape, Writer};
use proptest::prelude::*;
use tokio::io::AsyncWriteExt;

use crate::fake::{Act, Fake};
use testkit::http::Flavour;
use testkit::noise;

#[derive(Clone, Debug)]
enum Step {
    Give(usize),
    Copy(usize),
    Flush,
    Flushed,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = || prop_oneof![0usize..600, 0usize..20_000];
    let step = prop_oneof![
        4 => len().prop_map(Step::Give),
        4 => len().prop_map(Step::Copy),
        1 => Just(Step::Flush),
        1 => Just(Step::Flushed),
    ];
    proptest::collection::vec(step, 1..40)
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        Just(Act::Take(1)),
        (1usize..5000).prop_map(Act::Take),
        Just(Act::Take(16 << 10)),
        Just(Act::Take(usize::MAX)),
        Just(Act::TakeOne),
        Just(Act::Yield),
    ];
    proptest::collection::vec(act, 0..100)
}

fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![Just(Shape::Auto), Just(Shape::Vectored), Just(Shape::Flat)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn bytes_leave_as_they_came(
        steps in steps(), acts in acts(), shape in shapes(), limit in 1usize..100_000,
        flush_at in prop_oneof![Just(usize::MAX), 1usize..50_000], by_turn in any::<bool>(),
    ) {
        Flavour::CurrentThread.runtime().block_on(async {
            let fake = Fake::new(acts);
            let builder = Writer::builder(fake.clone()).shape(shape).high_mark(limit).flush_at(flush_at);
            let mut writer = match by_turn {
                true => builder.gather_limit(std::time::Duration::from_millis(1)).build(),
                false => builder.build(),
            };
            let bytes = Bytes::from(noise(1 << 20));
            let mut given = Vec::new();
            let mut at = 0;
            let mut next = |len: usize| {
                at = (at + 7919) % (1 << 19);
                bytes.slice(at..at + len)
            };
            for step in steps {
                match step {
                    Step::Give(len) => {
                        let piece = next(len);
                        given.extend_from_slice(&piece);
                        writer.send(piece).await.unwrap();
                        assert!(writer.queued() < limit + len.max(1), "beyond its limit");
                    }
                    Step::Copy(len) => {
                        let piece = next(len);
                        given.extend_from_slice(&piece);
                        writer.write_all(&piece).await.unwrap();
                        assert!(writer.queued() <= limit + 20_000);
                    }
                    Step::Flush => writer.flush().await.unwrap(),
                    Step::Flushed => {
                        writer.flushed().await.unwrap();
                        assert_eq!(writer.queued(), 0);
                        assert!(fake.seen().bytes == given);
                    }
                }
            }
            writer.shutdown().await.unwrap();
            let seen = fake.seen();
            assert!(seen.bytes == given, "{} bytes of {}", seen.bytes.len(), given.len());
            assert_eq!(seen.shutdowns, 2);
        });
    }
}

#[tokio::test]
async fn a_flush_of_up_to_1024_pieces_is_one_write() {
    for (pieces, writes) in [(1, 1), (64, 1), (65, 1), (1024, 1), (1025, 2), (2048, 2)] {
        let fake = Fake::default();
        let mut writer = Writer::builder(fake.clone()).high_mark(4 << 20).build();
        let piece = Bytes::from(noise(1000));
        for _ in 0..pieces {
            writer.send(piece.clone()).await.unwrap();
        }
        assert_eq!(fake.seen().polls, 0, "no write before a flush");
        writer.flush().await.unwrap();
        let seen = fake.seen();
        assert_eq!((seen.calls.len(), seen.flushes), (writes, 1), "{pieces} pieces");
        assert_eq!(seen.calls[0].len(), pieces.min(1024));
        assert!(seen.bytes == piece.repeat(pieces));
    }
}

#[tokio::test]
async fn small_pieces_share_memory_and_large_ones_are_kept() {
    let fake = Fake::default();
    let mut writer = Writer::new(fake.clone());
    for _ in 0..50 {
        writer.write_all(b"a few bytes").await.unwrap();
        writer.send(Bytes::from_static(b"as few")).await.unwrap();
    }
    writer.send(noise(512).into()).await.unwrap();
    writer.flush().await.unwrap();
    assert_eq!(fake.seen().calls, [vec![50 * 17, 512]]);
}

#[tokio::test]
async fn a_mark_writes_without_waiting() {
    let fake = Fake::new([Act::Take(700), Act::Block]);
    let mut writer = Writer::builder(fake.clone()).flush_at(1000).build();
    writer.write_all(&[1; 999]).await.unwrap();
    assert_eq!(fake.seen().polls, 0);
    writer.write_all(&[2; 1]).await.unwrap();
    assert_eq!((fake.seen().bytes.len(), writer.queued()), (700, 300));
    writer.write_all(&[3; 10]).await.unwrap();
    assert_eq!(fake.seen().polls, 2, "below the mark again");
    writer.flush().await.unwrap();
    assert_eq!(fake.seen().bytes.len(), 1010);
}

#[tokio::test]
async fn errors_end_it_and_stay() {
    let reset = rustix::io::Errno::CONNRESET;
    let acts = [
        (Act::Reset, ErrorKind::ConnectionReset, Some(reset.raw_os_error())),
        (Act::Fail(ErrorKind::TimedOut), ErrorKind::TimedOut, None),
        (Act::Nothing, ErrorKind::WriteZero, None),
        (Act::Claim, ErrorKind::InvalidData, None),
    ];
    for (act, kind, errno) in acts {
        let fake = Fake::new([Act::Take(3), act.clone()]);
        let mut writer = Writer::new(fake.clone());
        writer.write_all(b"some bytes").await.unwrap();
        let is_it = |error: io::Error| assert_eq!((error.kind(), error.raw_os_error()), (kind, errno), "{act:?}");
        is_it(writer.flush().await.unwrap_err());
        assert_eq!(writer.queued(), 0, "the queue is dropped");
        is_it(writer.flush().await.unwrap_err());
        is_it(writer.flushed().await.unwrap_err());
        is_it(writer.write_all(b"more").await.unwrap_err());
        is_it(writer.send(Bytes::from_static(b"more")).await.unwrap_err());
        is_it(writer.push(Bytes::from_static(b"more")).unwrap_err());
        is_it(writer.shutdown().await.unwrap_err());
        let seen = fake.seen();
        assert_eq!((&seen.bytes[..], seen.polls, seen.shutdowns), (&b"som"[..], 2, 0), "{act:?}");
    }
}

#[tokio::test]
async fn writers_wait_for_half_of_the_room() {
    let fake = Fake::new([Act::Block, Act::Take(300), Act::Block, Act::Take(300), Act::Block]);
    let mut writer = Writer::builder(fake.clone()).high_mark(1000).build();
    assert_eq!(writer.write(&[1; 3000]).await.unwrap(), 1000, "as much as there is room for");
    let mut more = tokio_test(writer.write(&[2; 3000]));
    assert!(more.poll().is_none());
    fake.wake();
    assert!(more.poll().is_none(), "700 are left");
    fake.wake();
    assert_eq!(more.poll().unwrap().unwrap(), 600, "400 are left");
}

struct ByHand<F>(std::pin::Pin<Box<F>>);

fn tokio_test<F: Future>(future: F) -> ByHand<F> {
    ByHand(Box::pin(future))
}

impl<F: Future> ByHand<F> {
    fn poll(&mut self) -> Option<F::Output> {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match self.0.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(done) => Some(done),
            std::task::Poll::Pending => None,
        }
    }
}

/// The inner writer need not be `Send` if the writer sends only on request.
#[tokio::test]
async fn an_inner_writer_may_stay_on_its_thread() {
    struct Local(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);
    impl tokio::io::AsyncWrite for Local {
        fn poll_write(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            piece: &[u8],
        ) -> std::task::Poll<io::Result<usize>> {
            self.0.borrow_mut().extend_from_slice(piece);
            std::task::Poll::Ready(Ok(piece.len()))
        }
        fn poll_flush(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            std::task::Poll::Ready(Ok(()))
        }
        fn poll_shutdown(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            std::task::Poll::Ready(Ok(()))
        }
    }
    let got = std::rc::Rc::default();
    let mut writer = Writer::new(Local(std::rc::Rc::clone(&got)));
    writer.write_all(b"here").await.unwrap();
    writer.shutdown().await.unwrap();
    assert_eq!(*got.borrow(), b"here");
}
