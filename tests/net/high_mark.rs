//! A high-water mark that follows the rates: small for a slow reader, larger for a fast one.

use std::io;
use std::time::Duration;

#[cfg(feature = "client")]
use millstream::net::{Connector, UnixConnector};
use millstream::net::{Profile, TcpListener, TcpStream, UnixListener};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use testkit::http::{Flavour, on_both, watched};
use testkit::noise;

const MIN: usize = 8 << 10;
const MAX: usize = 512 << 10;

async fn connect() -> (TcpStream, tokio::net::TcpStream) {
    let builder = TcpListener::builder().gather_limit(Duration::from_secs(60)).adaptive_high_mark(MIN..=MAX);
    let listener = builder.profile(Profile::Latency).bind("127.0.0.1:0").await.unwrap();
    let client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (listener.accept().await.unwrap().0, client)
}

#[test]
fn a_slow_reader_ends_up_with_little() {
    on_both(|| async {
        let (mut ours, mut theirs) = connect().await;
        SockRef::from(&ours).set_send_buffer_size(4096).unwrap();
        let handle = ours.handle();
        let writer = tokio::spawn(async move {
            let piece = [7; 500];
            loop {
                if ours.write_all(&piece).await.is_err() {
                    return;
                }
            }
        });
        let mut got = [0; 2000];
        let (mut small, mut largest) = (0, 0);
        // The reader takes about 200 kB per second, of which the mark keeps 10 kB.
        while small < 50 {
            theirs.read_exact(&mut got).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
            let queued = handle.stats().unwrap().queued;
            largest = largest.max(queued);
            small = if queued <= 4 * MIN { small + 1 } else { 0 };
        }
        assert!(largest <= MAX, "{largest}");
        drop(theirs);
        writer.await.unwrap();
    });
}

#[test]
fn a_fast_reader_gets_room_for_what_it_takes() {
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            let (mut ours, mut theirs) = connect().await;
            let all = noise(16 << 20);
            let small = &all[..100_000];
            let at_first = {
                for piece in small.chunks(1000) {
                    ours.write_all(piece).await.unwrap();
                }
                ours.handle().stats().unwrap()
            };
            assert!(at_first.flushes.through > 0, "the first mark is small: {at_first:?}");
            theirs.read_exact(&mut vec![0; small.len()]).await.unwrap();
            // The grown mark has room for all of them. It shrinks again if the machine is too busy for a second: then the
            // reader is not fast.
            loop {
                let mut got = vec![0; all.len()];
                let (wrote, read) = tokio::join!(ours.write_all(&all), theirs.read_exact(&mut got));
                wrote.unwrap();
                read.unwrap();
                assert!(got == all);
                ours.flushed().await.unwrap();
                for piece in small.chunks(1000) {
                    ours.write_all(piece).await.unwrap();
                }
                if ours.queued() == small.len() {
                    return;
                }
                ours.flushed().await.unwrap();
                theirs.read_exact(&mut vec![0; small.len()]).await.unwrap();
            }
        });
    });
}

#[tokio::test]
#[expect(clippy::reversed_empty_ranges, reason = "tests the invalid range")]
async fn bounds_that_hold_nothing_are_refused() {
    let refused = |error: io::Error| {
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        error.to_string()
    };
    let expected = "invalid adaptive_high_mark: 2..=1; allowed: the lower bound first";
    let wrong = || TcpListener::builder().adaptive_high_mark(2..=1);
    assert_eq!(refused(wrong().bind("127.0.0.1:0").await.unwrap_err()), expected);
    assert_eq!(refused(wrong().bind_each("127.0.0.1:0", 2).map(drop).unwrap_err()), expected);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(refused(wrong().from_std(listener).unwrap_err()), expected);

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let wrong = || UnixListener::builder().adaptive_high_mark(2..=1);
    assert_eq!(refused(wrong().bind(&path).await.unwrap_err()), expected);
    assert!(!path.exists());
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert_eq!(refused(wrong().from_std(listener).unwrap_err()), expected);
    #[cfg(feature = "client")]
    {
        let source = |error: &dyn std::error::Error| error.source().unwrap().to_string();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connector = Connector::new().adaptive_high_mark(2..=1);
        let error = connector.connect_to("127.0.0.1", port).await.unwrap_err();
        assert_eq!(source(&error), expected);
        refused(error.into());
        let error = UnixConnector::new(&path).adaptive_high_mark(2..=1).connect().await.unwrap_err();
        assert_eq!(source(&error), expected);
        refused(error.into());
    }
}
