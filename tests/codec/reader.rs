//! All read methods return the bytes whole, in order and without a copy.

use std::io::{self, Cursor, ErrorKind, Read};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use millstream::codec::Reader;
use proptest::prelude::*;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use testkit::http::{Flavour, on_both, sha256};
use testkit::noise;

/// Returns a few bytes at a time, and sometimes pending.
struct Bits {
    all: Cursor<Vec<u8>>,
    bits: Vec<usize>,
    at: usize,
}

impl AsyncRead for Bits {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let bit = self.bits[self.at % self.bits.len()];
        self.at += 1;
        if bit == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let n = bit.min(buf.remaining());
        let n = Read::read(&mut self.all, buf.initialize_unfilled_to(n))?;
        buf.advance(n);
        Poll::Ready(Ok(()))
    }
}

/// Method by which a test reads.
#[derive(Clone, Debug)]
enum Door {
    Chunk,
    Take(usize),
    Read(usize),
    Line,
    /// Polls once and drops the future.
    Cancel,
}

fn doors() -> impl Strategy<Value = Vec<Door>> {
    let door = prop_oneof![
        Just(Door::Chunk),
        (1usize..3000).prop_map(Door::Take),
        (1usize..100_000).prop_map(Door::Read),
        Just(Door::Line),
        Just(Door::Cancel),
    ];
    let none = |doors: &Vec<Door>| doors.iter().all(|door| matches!(door, Door::Cancel));
    proptest::collection::vec(door, 1..10).prop_filter("something is taken", move |doors| !none(doors))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn bytes_come_out_as_they_went_in(
        len in 0usize..300_000, doors in doors(),
        bits in proptest::collection::vec(prop_oneof![Just(0), 1usize..10, 1usize..100_000], 1..10)
            .prop_filter("something comes", |bits| bits.iter().any(|&bit| bit > 0)),
    ) {
        Flavour::CurrentThread.runtime().block_on(async {
            let all = noise(len);
            let mut reader = Reader::new(Bits { all: Cursor::new(all.clone()), bits, at: 0 });
            let mut got = Vec::new();
            for door in doors.iter().cycle() {
                let before = got.len();
                match door {
                    Door::Chunk => got.extend_from_slice(&reader.chunk().await.unwrap()),
                    Door::Take(most) => {
                        let there = reader.fill_buf().await.unwrap().len();
                        assert_eq!(reader.buffer().len(), there);
                        got.extend_from_slice(&reader.split_to(there.min(*most)));
                    }
                    Door::Read(most) => {
                        let mut buf = vec![0; *most];
                        let n = reader.read(&mut buf).await.unwrap();
                        got.extend_from_slice(&buf[..n]);
                    }
                    Door::Line => drop(reader.read_until(b'\n', &mut got).await.unwrap()),
                    Door::Cancel => {
                        let mut chunk = std::pin::pin!(reader.chunk());
                        if let Poll::Ready(chunk) = chunk.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                            got.extend_from_slice(&chunk.unwrap());
                        }
                        continue;
                    }
                }
                if got.len() == before {
                    break;
                }
            }
            assert!(got == all, "{} bytes of {len}", got.len());
        });
    }
}

#[test]
fn sockets_are_read_in_several_pieces_at_once() {
    on_both(async || {
        let all = noise(3_000_000);
        let (ours, theirs) = UnixStream::pair().unwrap();
        copied(Reader::vectored(ours), theirs, &all).await;
        let (ours, theirs) = UnixStream::pair().unwrap();
        copied(Reader::vectored(ours.into_split().0), theirs, &all).await;
        let (ours, theirs) = tcp().await;
        copied(Reader::vectored(ours), theirs, &all).await;
        let (ours, theirs) = tcp().await;
        copied(Reader::vectored(ours.into_split().0), theirs, &all).await;
        let (ours, theirs) = tcp().await;
        copied(Reader::new(ours), theirs, &all).await;
    });
}

async fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (one, listener.accept().await.unwrap().0)
}

async fn copied<R: AsyncRead + Unpin>(
    mut reader: Reader<R>,
    mut from: impl tokio::io::AsyncWrite + Unpin + Send + 'static,
    all: &[u8],
) {
    let sent = all.to_vec();
    let writing = tokio::spawn(async move {
        for piece in sent.chunks(70_001) {
            from.write_all(piece).await.unwrap();
        }
    });
    let mut got = Vec::new();
    loop {
        let chunk = reader.chunk().await.unwrap();
        if chunk.is_empty() {
            break;
        }
        got.extend_from_slice(&chunk);
    }
    writing.await.unwrap();
    assert_eq!(sha256(got), sha256(all));
}

#[tokio::test]
async fn one_read_brings_what_several_leases_hold() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(&noise(40_000)).await.unwrap();
    let mut reader = Reader::vectored(ours);
    let first = reader.chunk().await.unwrap();
    // The same call read the rest: no further poll is needed.
    let second = reader.split_to(reader.buffer().len());
    assert_eq!((first.len(), second.len()), (4 << 10, 40_000 - (4 << 10)));
    assert!([first, second].concat() == noise(40_000));
}

#[tokio::test]
async fn bytes_outlive_their_reader_and_are_not_copied() {
    let mut reader = Reader::new(Cursor::new(noise(3000)));
    let address = reader.fill_buf().await.unwrap().as_ptr();
    let (one, two) = (reader.split_to(1000), reader.split_to(1000));
    assert_eq!((one.as_ptr(), two.as_ptr()), (address, address.wrapping_add(1000)));
    drop(reader);
    // The next lease must not get the same memory.
    let mut other = millstream::buf::lease(4096);
    other.extend_from_slice(&[0; 4096]);
    assert!([one, two].concat() == noise(3000)[..2000]);
}

#[tokio::test]
async fn errors_are_the_inner_readers_and_what_came_before_stays() {
    struct Once(Option<Bytes>);
    impl AsyncRead for Once {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            match self.0.take() {
                Some(bytes) => buf.put_slice(&bytes),
                None => return Poll::Ready(Err(ErrorKind::ConnectionReset.into())),
            }
            Poll::Ready(Ok(()))
        }
    }
    let mut reader = Reader::new(Once(Some(Bytes::from_static(b"before"))));
    assert_eq!(reader.fill_buf().await.unwrap(), b"before");
    assert_eq!(reader.split_to(3), "bef");
    assert_eq!(reader.chunk().await.unwrap(), "ore");
    assert_eq!(reader.chunk().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(reader.chunk().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}
