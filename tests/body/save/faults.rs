//! Uploads that fail: clients that leave, full disks, limits, dropped futures, bad paths.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Frame, SizeHint};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use millstream::body::Save;
use millstream::fs::Durability;
use millstream::net::TcpListener;
use millstream::server::RequestBody;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{JOB, holds, io_kind, left, limits, only, start};
use testkit::http::{Raw, boxed, on_both, watched};
use testkit::mounts::Mount;
use testkit::serving::serve;
use testkit::{noise, portable};

/// Counts its polls. Its length is known, or not.
struct Counted {
    left: usize,
    polls: Arc<AtomicUsize>,
    known: bool,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        let len = self.left.min(64 << 10);
        self.left -= len;
        Poll::Ready((len > 0).then(|| Ok(Frame::data(Bytes::from(vec![7; len])))))
    }

    fn size_hint(&self) -> SizeHint {
        if self.known { SizeHint::with_exact(self.left as u64) } else { SizeHint::default() }
    }
}

fn counted(len: usize, known: bool) -> (Counted, Arc<AtomicUsize>) {
    let polls = Arc::new(AtomicUsize::new(0));
    (Counted { left: len, polls: Arc::clone(&polls), known }, polls)
}

fn plain(path: impl AsRef<std::path::Path>) -> Save {
    Save::new(path).durability(Durability::None)
}

#[test]
fn clients_that_leave_leave_nothing() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("old"), "old").unwrap();
        let addr = start(dir.path()).await;
        for (n, sent) in [0, 1000, JOB + 1, 3 << 20].into_iter().enumerate() {
            for path in ["old", "new"] {
                for framing in ["Content-Length: 10485760", "Transfer-Encoding: chunked"] {
                    let mut client = Raw::connect(addr).await;
                    client.send(format!("PUT /{path} HTTP/1.1\r\nHost: mill\r\n{framing}\r\n\r\n")).await;
                    if framing.starts_with('T') && sent > 0 {
                        client.send(format!("{sent:x}\r\n")).await;
                    }
                    client.send(noise(sent)).await;
                    if n % 2 == 0 { client.reset() } else { drop(client) }
                }
            }
        }
        only(dir.path(), &["old"]).await;
        holds(&dir.path().join("old"), b"old");
    });
}

#[test]
fn streams_that_are_reset_leave_nothing() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let addr = start(dir.path()).await;
        let io = TokioIo::new(TcpStream::connect(addr).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        for len in [0usize, 1, 20] {
            // The body fails, so the client resets the stream.
            let pieces = stream::iter((0..len).map(|_| Ok(Frame::data(Bytes::from(noise(100_000))))));
            let body = StreamBody::new(pieces.chain(stream::iter([Err(io::Error::other("no more"))])));
            sender.send_request(Request::put("http://mill/new").body(BodyExt::boxed(body)).unwrap()).await.unwrap_err();
        }
        only(dir.path(), &[]).await;
        // The connection lives.
        let body = Full::new(Bytes::from("x")).map_err(|never| match never {}).boxed();
        let response = sender.send_request(Request::put("http://mill/new").body(body).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        only(dir.path(), &["new"]).await;
    });
}

/// Polls `work` up to `polls` times. Returns whether it is done.
async fn poll_times(mut work: Pin<&mut impl Future>, polls: usize) -> bool {
    for _ in 0..polls {
        if poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_ready())).await {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

#[test]
fn futures_dropped_after_any_number_of_polls_leave_nothing() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let new = vec![7; 3 * JOB];
        for known in [false, true] {
            for polls in 0..40 {
                std::fs::write(&path, "old").unwrap();
                let body = counted(3 * JOB, known).0;
                poll_times(pin!(plain(&path).run(body)), polls).await;
                only(dir.path(), &["file"]).await;
                let bytes = std::fs::read(&path).unwrap();
                assert!(bytes == b"old" || bytes == new, "after {polls} polls: {} bytes", bytes.len());
            }
        }
    });
}

#[test]
fn a_full_disk_fails_before_the_body_is_polled_if_its_length_is_known() {
    let unreserved = portable("no space is reserved");
    watched(move || {
        let Some(mount) = Mount::tmpfs("a full disk", "2m") else { return };
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let dir = mount.path();
            let path = dir.join("file");
            let free = || rustix::fs::statvfs(&dir).unwrap().f_bfree;
            let before = free();
            for continued in [false, true] {
                let save = || if continued { plain(&path).continue_at(0) } else { plain(&path) };
                let (body, polls) = counted(10 << 20, true);
                let error = save().run(body).await.unwrap_err();
                assert!(error.is_no_space(), "{error:?}");
                assert_eq!(error.status().as_u16(), 507);
                assert!(unreserved || polls.load(Ordering::Relaxed) == 0, "{polls:?}");
                assert!(unreserved || error.file_len() == continued.then_some(0), "{error:?}");
                if continued {
                    std::fs::remove_file(&path).unwrap();
                }
                only(&dir, &[]).await;
                let (body, polls) = counted(10 << 20, false);
                let error = save().run(body).await.unwrap_err();
                assert!(error.is_no_space(), "{error:?}");
                // 2 MiB fit, and 1 MiB was on the way.
                assert!(polls.load(Ordering::Relaxed) <= 3 * 16 + 2, "{polls:?}");
                if continued {
                    let len = std::fs::metadata(&path).unwrap().len();
                    assert_eq!(error.file_len(), Some(len));
                    assert!(len > 1 << 20, "what fitted stays: {len}");
                    std::fs::remove_file(&path).unwrap();
                }
                only(&dir, &[]).await;
                // A job that was abandoned closes the file later.
                let freed = async {
                    while free() != before {
                        tokio::task::yield_now().await;
                    }
                };
                timeout(testkit::HANGS, freed)
                    .await
                    .unwrap_or_else(|_| panic!("space is lost: {} of {before}", free()));
            }
            // The old file survives.
            std::fs::write(&path, "old").unwrap();
            assert!(plain(&path).run(counted(10 << 20, false).0).await.unwrap_err().is_no_space());
            holds(&path, b"old");
        });
    });
}

#[test]
fn a_client_that_expects_100_sends_nothing_to_a_full_disk() {
    if portable("no space is reserved") {
        return;
    }
    watched(|| {
        let Some(mount) = Mount::tmpfs("a full disk and a client that waits", "1m") else { return };
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let addr = start(&mount.path()).await;
            let mut client = Raw::connect(addr).await;
            let head = "PUT /file HTTP/1.1\r\nHost: mill\r\nContent-Length: 9000000\r\nExpect: 100-continue\r\n\r\n";
            client.send(head).await;
            assert_eq!(client.head().await.status, 507);
            only(&mount.path(), &[]).await;
        });
    });
}

#[test]
fn the_limit_holds_with_and_without_a_length() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for (len, max, fits) in
            [(10, 10, true), (11, 10, false), (3 * JOB, 3 * JOB, true), (3 * JOB, 3 * JOB - 1, false)]
        {
            for known in [true, false] {
                let (body, polls) = counted(len, known);
                let saved = plain(&path).max_len(max as u64).run(body).await;
                match saved {
                    Ok(saved) => {
                        assert!(fits && saved.len == len as u64);
                        std::fs::remove_file(&path).unwrap();
                    }
                    Err(e) => {
                        assert!(!fits && e.is_too_large(), "{e:?}");
                        assert_eq!((e.status().as_u16(), e.file_len()), (413, None));
                        assert!(!known || polls.load(Ordering::Relaxed) == 0, "polled although the length was known");
                    }
                }
                only(dir.path(), &[]).await;
            }
        }
        let addr = start(dir.path()).await;
        for framing in ["Content-Length: 1000", "Transfer-Encoding: chunked"] {
            let mut client = Raw::connect(addr).await;
            client.send(format!("PUT /file?max=999 HTTP/1.1\r\nHost: mill\r\n{framing}\r\n\r\n")).await;
            let bytes = vec![b'x'; 1000];
            let chunk = [b"3e8\r\n", &bytes[..], b"\r\n0\r\n\r\n"].concat();
            client.send(if framing.starts_with('C') { &bytes } else { &chunk }).await;
            assert_eq!(client.head().await.status, 413, "{framing}");
            only(dir.path(), &[]).await;
        }
    });
}

/// A service may fail with the error: the server recognises the one of a limit, its own and that of a `Save`.
#[test]
fn the_error_of_a_limit_is_answered_with_413() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        for (of_server, of_save) in [(999, u64::MAX), (u64::MAX, 999)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let path = dir.path().join("file");
            let service = tower::service_fn(move |request: Request<RequestBody>| {
                let save = plain(&path).max_len(of_save);
                async move {
                    let saved = save.run(request.into_body()).await;
                    assert!(saved.as_ref().is_err_and(|e| e.is_too_large()), "{saved:?}");
                    saved.map(|_| Response::new(boxed(Full::new(Bytes::new()))))
                }
            });
            tokio::spawn(serve(listener, service).limits(limits().body(of_server)).into_future());
            let mut client = Raw::connect(addr).await;
            client.send("PUT /file HTTP/1.1\r\nHost: mill\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n").await;
            client.send([&[b'x'; 1000][..], b"\r\n0\r\n\r\n"].concat()).await;
            assert_eq!(client.head().await.status, 413);
            only(dir.path(), &[]).await;
        }
    });
}

#[test]
fn one_of_several_new_files_of_one_name_wins() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for len in [10, 3 * JOB] {
            let saves = (0..8).map(|n| {
                let save = plain(&path).create_new();
                async move { save.run(Full::new(Bytes::from(vec![n; len]))).await.map(|_| n) }
            });
            let saved = futures_util::future::join_all(saves).await;
            let winners: Vec<u8> = saved.iter().filter_map(|saved| saved.as_ref().ok().copied()).collect();
            assert_eq!(winners.len(), 1, "{saved:?}");
            for error in saved.iter().filter_map(|saved| saved.as_ref().err()) {
                assert!(error.is_already_exists(), "{error:?}");
                assert_eq!(error.status(), 409);
            }
            holds(&path, &vec![winners[0]; len]);
            only(dir.path(), &["file"]).await;
            // Refused before the body is polled.
            let (body, polls) = counted(2 * JOB, true);
            assert!(plain(&path).create_new().run(body).await.unwrap_err().is_already_exists());
            assert_eq!(polls.load(Ordering::Relaxed), 0);
            std::fs::remove_file(&path).unwrap();
            // A link that leads nowhere is a name in use.
            std::os::unix::fs::symlink("nowhere", &path).unwrap();
            assert!(plain(&path).create_new().run(counted(len, true).0).await.is_err());
            std::fs::remove_file(&path).unwrap();
            only(dir.path(), &[]).await;
        }
    });
}

#[test]
fn paths_that_cannot_be_written_are_told() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        std::fs::create_dir(dir.path().join("directory")).unwrap();
        let long = "n".repeat(300);
        for (name, kind) in [
            ("missing/file", io::ErrorKind::NotFound),
            ("file/file", io::ErrorKind::NotADirectory),
            ("directory", io::ErrorKind::InvalidInput),
            ("directory/", io::ErrorKind::InvalidInput),
            ("..", io::ErrorKind::InvalidInput),
            ("a\0b", io::ErrorKind::InvalidInput),
            (&long, io::ErrorKind::InvalidFilename),
        ] {
            for len in [0, 3 * JOB] {
                let error = plain(dir.path().join(name)).run(counted(len, true).0).await.unwrap_err();
                assert_eq!(io_kind(&error), kind, "{name}: {error:?}");
                assert_eq!(error.status(), 500);
            }
        }
        only(dir.path(), &["directory", "file"]).await;
    });
}

/// A slow client occupies no thread: with one thread in the pool, a fast upload passes a hundred that wait.
#[test]
fn slow_clients_do_not_stop_others() {
    let named = portable("temporary files have a name");
    watched(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let addr = start(dir.path()).await;
            let mut slow = Vec::new();
            for n in 0..100 {
                let mut client = Raw::connect(addr).await;
                client.send(format!("PUT /{n} HTTP/1.1\r\nHost: mill\r\nContent-Length: 1000000\r\n\r\n")).await;
                client.send(vec![n; n as usize * 5000]).await;
                slow.push(client);
            }
            let mut fast = Raw::connect(addr).await;
            fast.send("PUT /fast HTTP/1.1\r\nHost: mill\r\nContent-Length: 1000000\r\n\r\n").await;
            fast.send(noise(1_000_000)).await;
            assert_eq!(fast.head().await.status, 200);
            holds(&dir.path().join("fast"), &noise(1_000_000));
            let mut names = left(dir.path()).0;
            names.retain(|name| !(named && name.starts_with('.')));
            assert_eq!(names, ["fast"], "the others have not ended");
            for (n, client) in slow.iter_mut().enumerate() {
                for piece in vec![n as u8; 1_000_000 - n * 5000].chunks(500_000) {
                    client.send(piece).await;
                }
                assert_eq!(client.head().await.status, 200);
                holds(&dir.path().join(n.to_string()), &vec![n as u8; 1_000_000]);
            }
        });
    });
}

/// Bytes that were taken from the body and are not in the file are in memory.
#[test]
fn at_most_1_mib_is_in_memory() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        for piece in [500, 16 << 10, 64 << 10, 300_000, 3_000_000] {
            let (taken, written) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (most, done, sent) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&written), Arc::clone(&taken));
            let seen = Arc::clone(&most);
            let pieces = stream::iter(0..(12 << 20) / piece).map(move |_| {
                let taken = sent.fetch_add(piece, Ordering::Relaxed) + piece;
                seen.fetch_max(taken - done.load(Ordering::Relaxed), Ordering::Relaxed);
                Ok::<_, Infallible>(Frame::data(Bytes::from(vec![1; piece])))
            });
            let save = plain(dir.path().join("file"));
            let save = save.on_progress(move |bytes, _| written.store(bytes as usize, Ordering::Relaxed));
            let saved = save.run(StreamBody::new(pieces)).await.unwrap();
            assert_eq!(saved.len as usize, taken.load(Ordering::Relaxed));
            let bound = if piece <= 64 << 10 { 1 << 20 } else { (1 << 20) + piece };
            assert!(most.load(Ordering::Relaxed) <= bound, "{piece}: {most:?}");
            assert!(most.load(Ordering::Relaxed) >= JOB.min(1 << 20), "{piece}: {most:?}: nothing is gathered");
        }
    });
}

#[test]
fn a_runtime_that_ends_takes_unfinished_files_along() {
    watched(|| {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let pieces = stream::iter((0..20).map(|_| Ok::<_, Infallible>(Frame::data(Bytes::from(noise(100_000))))));
            let body = StreamBody::new(pieces.chain(stream::pending()));
            tokio::spawn(plain(dir.path().join("file")).run(body));
            let start = std::time::Instant::now();
            while left(dir.path()).1 < 2 {
                assert!(start.elapsed() < testkit::HANGS, "the directory and the file are opened");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        drop(runtime);
        assert_eq!(left(dir.path()), (vec![], 0));
    });
}
