//! Number of writes, copies, allocations and pool blocks that the adapters use. These counters belong to the process,
//! so the tests run one at a time and alone in this program.

use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use millstream::buf::{Lease, lease};
use millstream::codec::{Framed, Reader, Shape, Writer};
use millstream::metrics::Snapshot;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::task::yield_now;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::codec::LengthDelimitedCodec;

use crate::fake::{Act, Fake};
use testkit::{alone, noise};

/// Number of pool blocks of each size that the adapters lease: 32 MiB per size.
const BLOCKS: [(usize, u64); 5] = [(512, 65_536), (4 << 10, 8192), (16 << 10, 2048), (64 << 10, 512), (256 << 10, 128)];

/// Runs `test` on its own thread, returns its counters, and checks that every block was returned.
fn counted<T: Send, F: Future<Output = T>>(test: impl FnOnce() -> F + Send) -> (T, Snapshot) {
    let work = || {
        let before = Snapshot::now();
        let done = Builder::new_current_thread().enable_all().build().unwrap().block_on(test());
        let counted = Snapshot::now().since(&before);
        for (size, blocks) in BLOCKS {
            let before = Snapshot::now();
            let all: Vec<Lease> = (0..blocks).map(|_| lease(size)).collect();
            assert_eq!(Snapshot::now().since(&before).pool_misses, 0, "a block of {size} was not given back");
            drop(all);
        }
        (done, counted)
    };
    // Joined, so that blocks cached by this thread are back before the next test counts.
    std::thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[test]
fn pieces_are_kept_or_copied_as_they_are_long_and_written_once() {
    if alone::ran_in_child() {
        return;
    }
    let ((), counted) = counted(|| async {
        let mut writer = Writer::builder(Fake::default()).high_mark(1 << 20).build();
        for _ in 0..100 {
            writer.write_all(&noise(40)).await.unwrap();
            writer.send(noise(1000).into()).await.unwrap();
        }
        writer.flush().await.unwrap();
    });
    let counts = (counted.gathered, counted.bytes_copied, counted.bytes_held, counted.inner_writes);
    assert_eq!(counts, (200, 4000, 100_000, 1), "{counted}");
    assert_eq!((counted.pool_hits, counted.pool_misses, counted.flat_writers), (100, 0, 0), "{counted}");
}

#[test]
fn heads_between_long_pieces_take_little_memory() {
    if alone::ran_in_child() {
        return;
    }
    let ((), counted) = counted(|| async {
        let mut writer = Writer::builder(Fake::default()).high_mark(64 << 20).build();
        for _ in 0..3000 {
            writer.write_all(b"9 bytes, ").await.unwrap();
            writer.send(noise(600).into()).await.unwrap();
        }
        writer.flush().await.unwrap();
    });
    // With chunks of 16 KiB, the pool would be exhausted after 2048 of them.
    assert_eq!((counted.pool_hits, counted.pool_misses, counted.inner_writes), (3000, 0, 6), "{counted}");
}

#[test]
fn pool_memory_is_kept_and_not_copied() {
    if alone::ran_in_child() {
        return;
    }
    let ((), counted) = counted(|| async {
        let fake = Fake::new([Act::Yield]);
        let mut writer = Writer::new(fake.clone());
        let mut lease = lease(16 << 10);
        lease.extend_from_slice(&noise(16 << 10));
        let bytes = lease.freeze();
        writer.write_all(&bytes).await.unwrap();
        writer.send(bytes).await.unwrap();
        writer.flush().await.unwrap();
        assert!(fake.seen().bytes == noise(16 << 10).repeat(2));
    });
    assert_eq!((counted.bytes_held, counted.bytes_copied, counted.pool_hits), (32 << 10, 0, 1), "{counted}");
}

#[test]
fn at_the_end_of_the_turn_many_writes_are_one() {
    if alone::ran_in_child() {
        return;
    }
    let ((), counted) = counted(|| async {
        let fake = Fake::default();
        let mut writer = Writer::builder(fake.clone()).gather_limit(Duration::from_secs(60)).build();
        for _ in 0..100 {
            writer.write_all(b"a few bytes").await.unwrap();
            writer.flush().await.unwrap();
        }
        while fake.seen().flushes == 0 {
            yield_now().await;
        }
    });
    assert_eq!((counted.gathered, counted.inner_writes, counted.turn_flushes), (100, 1, 1), "{counted}");
}

#[test]
fn what_is_lost_is_counted_and_every_block_comes_back() {
    if alone::ran_in_child() {
        return;
    }
    for act in [Act::Reset, Act::Nothing, Act::Claim, Act::Panic, Act::Block] {
        for by_turn in [false, true] {
            if matches!(act, Act::Panic) && !by_turn {
                continue;
            }
            let ((), counted) = counted(|| async {
                let fake = Fake::new([Act::Take(1000)]);
                fake.seen().always = Some(act.clone());
                let builder = Writer::builder(fake.clone());
                let mut writer = match by_turn {
                    true => builder.gather_limit(Duration::from_secs(60)).build(),
                    false => builder.build(),
                };
                writer.write_all(&noise(50_000)).await.unwrap();
                writer.send(noise(50_000).into()).await.unwrap();
                let _ = tokio::time::timeout(Duration::from_millis(1), writer.flushed()).await;
                drop(writer);
                while !fake.is_last() {
                    yield_now().await;
                }
            });
            assert_eq!(counted.bytes_lost, 99_000, "{act:?} {by_turn}: {counted}");
        }
    }
}

#[test]
fn an_inner_writer_that_takes_no_pieces_is_counted_once() {
    if alone::ran_in_child() {
        return;
    }
    let ((), counted) = counted(|| async {
        for fake in [Fake::flat(), Fake::always(Act::TakeOne)] {
            let mut writer = Writer::new(fake);
            for _ in 0..100 {
                writer.send(noise(1000).into()).await.unwrap();
            }
            writer.flush().await.unwrap();
        }
        // The caller selected this shape, so it is not counted as a fallback.
        let _ = Writer::builder(Fake::default()).shape(Shape::Flat).build();
    });
    assert_eq!(counted.flat_writers, 2, "{counted}");
}

async fn tls() -> (TlsStream<DuplexStream>, tokio_rustls::server::TlsStream<DuplexStream>) {
    let made = rcgen::generate_simple_self_signed(["mill".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let client = testkit::tls::client([made.cert.der().clone()]).with_no_client_auth();
    let server = testkit::tls::server().with_single_cert(vec![made.cert.into()], key).unwrap();
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let connector = TlsConnector::from(Arc::new(client));
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let name = ServerName::try_from("mill").unwrap();
    tokio::try_join!(connector.connect(name, ours), acceptor.accept(theirs)).unwrap()
}

/// Writes a hundred pieces of 1 KiB and a flush, `flushes` times, while the other end reads. Returns the number of
/// writes of the last flush.
async fn hundreds<W: AsyncWrite + Unpin>(
    mut writer: Writer<W>,
    mut theirs: impl tokio::io::AsyncRead + Unpin + 'static,
    flushes: usize,
) -> (Writer<W>, u64) {
    let piece = Bytes::from(noise(1024));
    let mut last = 0;
    for _ in 0..flushes {
        let before = Snapshot::now();
        for _ in 0..100 {
            writer.push(piece.clone()).unwrap();
        }
        let mut got = vec![0; 100 << 10];
        let (flushed, read) = tokio::join!(writer.flushed(), theirs.read_exact(&mut got));
        flushed.unwrap();
        read.unwrap();
        assert!(got == piece.repeat(100));
        last = Snapshot::now().since(&before).inner_writes;
    }
    (writer, last)
}

#[test]
fn tls_gets_what_its_buffer_takes_in_one_piece() {
    if alone::ran_in_child() {
        return;
    }
    let (writes, counted) = counted(|| async {
        let (ours, theirs) = tls().await;
        let (writer, writes) = hundreds(Writer::new(ours), theirs, 6).await;
        assert!(writer.is_flat());
        writes
    });
    // rustls buffers 64 KiB, four records, and the writer detects that.
    assert_eq!((writes, counted.flat_writers), (2, 1), "{counted}");
    // A writer that is flat from the start sends one record with each write.
    let (writes, counted) = self::counted(|| async {
        let (ours, theirs) = tls().await;
        hundreds(Writer::builder(ours).shape(Shape::Flat).build(), theirs, 2).await.1
    });
    assert_eq!((writes, counted.flat_writers), (7, 0), "{counted}");
    let (writes, counted) = self::counted(|| async {
        let (ours, theirs) = tls().await;
        let (writer, writes) = hundreds(Writer::builder(ours).shape(Shape::Vectored).build(), theirs, 6).await;
        assert!(!writer.is_flat());
        writes
    });
    assert_eq!((writes, counted.flat_writers), (2, 0), "{counted}");
}

#[test]
fn a_reader_that_waits_holds_nothing_and_one_that_reads_gives_back() {
    if alone::ran_in_child() {
        return;
    }
    let ((), counted) = counted(|| async {
        let pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
        let mut readers = Vec::new();
        for (n, (ours, theirs)) in pairs.into_iter().enumerate() {
            let reader = if n % 2 == 0 { Reader::vectored(ours) } else { Reader::new(ours) };
            readers.push((reader, theirs));
        }
        let before = Snapshot::now();
        for (reader, _) in &mut readers {
            let mut line = std::pin::pin!(reader.fill_buf());
            let waits = std::future::poll_fn(|cx| Poll::Ready(line.as_mut().poll(cx).is_pending())).await;
            assert!(waits);
        }
        // Half of them wait for their socket first; the others lease a block, find no data, and return it.
        assert_eq!(Snapshot::now().since(&before).pool_hits, 50);
        let others: Vec<Lease> = (0..BLOCKS[1].1).map(|_| lease(4 << 10)).collect();
        assert_eq!(Snapshot::now().since(&before).pool_misses, 0, "an idle connection holds a block");
        drop(others);
        for (reader, theirs) in &mut readers {
            theirs.write_all(&noise(10_000)).await.unwrap();
            let mut got = Vec::new();
            while got.len() < 10_000 {
                got.extend_from_slice(&reader.chunk().await.unwrap());
            }
            assert!(got == noise(10_000));
        }
    });
    assert_eq!(counted.pool_misses, 0, "{counted}");
}

/// Sends `batch` and reads the same number of bytes; one thread polls both ends.
async fn batch<F: Future<Output = io::Result<()>>>(
    client: &mut UnixStream,
    bytes: &[u8],
    got: &mut [u8],
    mut serve: std::pin::Pin<&mut F>,
) {
    client.write_all(bytes).await.unwrap();
    tokio::select! {
        biased;
        ended = &mut serve => panic!("{ended:?}"),
        read = client.read_exact(got) => drop(read.unwrap()),
    }
    assert!(got == bytes);
}

/// Returns pipelined messages of 64 to 256 bytes.
fn pipelined(messages: usize) -> Vec<u8> {
    let lens = (0..messages).map(|n| 64 + n * 37 % 193);
    lens.flat_map(|len| [&(len as u32).to_be_bytes()[..], &noise(len)].concat()).collect()
}

async fn echo<S: tokio::io::AsyncRead + AsyncWrite + Unpin>(stream: S) -> io::Result<()> {
    let mut framed = Framed::new(stream, LengthDelimitedCodec::new());
    while let Some(message) = framed.next().await {
        framed.feed(message?.freeze()).await?;
    }
    Ok(())
}

/// Returns the number of allocations of this thread while it polls `future`.
async fn allocations<T>(future: impl Future<Output = T>) -> u64 {
    let mut future = std::pin::pin!(future);
    let mut allocations = 0;
    std::future::poll_fn(|cx| {
        let mut polled = Poll::Pending;
        allocations += allocation_counter::measure(|| polled = future.as_mut().poll(cx)).count_total;
        polled
    })
    .await;
    allocations
}

#[test]
fn messages_allocate_nothing_and_share_writes() {
    if alone::ran_in_child() {
        return;
    }
    let ((), _) = counted(|| async {
        let (mut client, ours) = UnixStream::pair().unwrap();
        let mut serve = std::pin::pin!(echo(ours));
        let bytes = pipelined(100);
        let mut got = vec![0; bytes.len()];
        for _ in 0..50 {
            batch(&mut client, &bytes, &mut got, serve.as_mut()).await;
        }
        let before = Snapshot::now();
        for _ in 0..50 {
            assert_eq!(allocations(batch(&mut client, &bytes, &mut got, serve.as_mut())).await, 0);
        }
        assert_eq!(Snapshot::now().since(&before).inner_writes, 50, "one for each batch of a hundred");
    });
}

#[test]
fn connections_that_wait_hold_no_buffer() {
    if alone::ran_in_child() {
        return;
    }
    let ((), _) = counted(|| async {
        let bytes = pipelined(20);
        let mut got = vec![0; bytes.len()];
        let mut connections = Vec::new();
        for _ in 0..100 {
            let (client, ours) = UnixStream::pair().unwrap();
            connections.push((client, Box::pin(echo(ours))));
        }
        for (n, (client, serve)) in connections.iter_mut().enumerate() {
            let allocated = allocations(batch(client, &bytes, &mut got, serve.as_mut())).await;
            // Each connection reuses the buffers of the previous one.
            assert!(allocated == 0 || n < 2, "connection {n} allocated {allocated} times");
        }
    });
}
