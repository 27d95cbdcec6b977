//! Files that are continued at their end.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::{Full, StreamBody};
use hyper::HeaderMap;
use hyper::body::{Body, Frame};
use millstream::body::{Save, SaveError, Saved};
use millstream::fs::Durability;

use super::{JOB, holds, io_kind, only, start};
use testkit::http::{Raw, on_both};
use testkit::noise;

fn at(path: &Path, offset: u64) -> Save {
    Save::new(path).continue_at(offset).durability(Durability::None)
}

/// A body of unknown length that fails after `pieces`.
fn failing(pieces: Vec<Bytes>) -> impl Body<Data = Bytes, Error = io::Error> {
    let pieces = stream::iter(pieces).map(|piece| Ok(Frame::data(piece)));
    StreamBody::new(pieces.chain(stream::iter([Err(io::Error::other("the client went away"))])))
}

async fn put(save: Save, bytes: &[u8]) -> Result<Saved, SaveError> {
    save.run(Full::new(Bytes::copy_from_slice(bytes))).await
}

#[test]
fn a_file_grows_part_by_part() {
    on_both(|| async {
        for durability in [Durability::None, Durability::Data, Durability::Full] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            let bytes = noise(5 * JOB);
            let mut offset = 0;
            for len in [0, 10, JOB, 2 * JOB + 3, 1] {
                let part = &bytes[offset..offset + len];
                let saved = put(at(&path, offset as u64).durability(durability).sha256(), part).await.unwrap();
                offset += len;
                assert_eq!((saved.len, saved.file_len), (len as u64, offset as u64));
                assert_eq!(saved.sha256, Some(testkit::http::sha256(part)), "of the part");
                holds(&path, &bytes[..offset]);
            }
            only(dir.path(), &["file"]).await;
        }
    });
}

#[test]
fn another_offset_than_the_length_is_refused_and_the_length_told() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let error = put(at(&path, 5), b"x").await.unwrap_err();
        assert_eq!(io_kind(&error), io::ErrorKind::NotFound);
        assert_eq!((error.file_len(), error.is_wrong_offset()), (None, false));
        only(dir.path(), &[]).await;
        std::fs::write(&path, "0123456789").unwrap();
        // Also before the body is polled.
        for len in [1, 2 * JOB] {
            for offset in [0, 9, 11, u64::MAX - (2 * JOB) as u64] {
                let error = put(at(&path, offset), &noise(len)).await.unwrap_err();
                assert!(error.is_wrong_offset(), "{error:?}");
                assert_eq!((error.file_len(), error.status().as_u16()), (Some(10), 409));
                holds(&path, b"0123456789");
            }
        }
        let error = put(at(&path, u64::MAX), b"x").await.unwrap_err();
        assert!(error.is_too_large(), "{error:?}");
        only(dir.path(), &["file"]).await;
    });
}

#[test]
fn what_arrived_before_a_failure_stays() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let bytes = noise(4 * JOB);
        let mut have = 0;
        for lens in [vec![], vec![10], vec![JOB, 5], vec![100_000; 12]] {
            let mut pieces = Vec::new();
            let start = have;
            for len in lens {
                pieces.push(Bytes::copy_from_slice(&bytes[have..have + len]));
                have += len;
            }
            let error = at(&path, start as u64).run(failing(pieces)).await.unwrap_err();
            assert!(error.is_body(), "{error:?}");
            assert_eq!(error.file_len(), Some(have as u64));
            holds(&path, &bytes[..have]);
        }
        let rest = put(at(&path, have as u64), &bytes[have..]).await.unwrap();
        assert_eq!(rest.file_len, bytes.len() as u64);
        holds(&path, &bytes);
        only(dir.path(), &["file"]).await;
    });
}

#[test]
fn reserved_space_that_was_not_needed_is_released() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        // A body that announces 64 MiB and fails early.
        struct Announced<B>(B);
        impl<B: Body + Unpin> Body for Announced<B> {
            type Data = B::Data;
            type Error = B::Error;
            fn poll_frame(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Option<Result<Frame<B::Data>, B::Error>>> {
                std::pin::Pin::new(&mut self.0).poll_frame(cx)
            }
            fn size_hint(&self) -> hyper::body::SizeHint {
                hyper::body::SizeHint::with_exact(64 << 20)
            }
        }
        let path = dir.path().join("file");
        at(&path, 0).run(Announced(failing(vec![Bytes::from(noise(JOB))]))).await.unwrap_err();
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!(found.len(), JOB as u64);
        assert!(found.blocks() * 512 <= 2 * JOB as u64, "{} blocks", found.blocks());
        // A body that ends early without an error: the file has what arrived.
        let short = Full::new(Bytes::from_static(b"short"));
        let path = dir.path().join("new");
        let saved = Save::new(&path).durability(Durability::None).run(Announced(short)).await.unwrap();
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!((saved.len, found.len()), (5, 5));
        assert!(found.blocks() * 512 <= 1 << 16, "{} blocks", found.blocks());
    });
}

#[test]
fn a_mismatch_removes_this_part_and_no_other() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut wrong = HeaderMap::new();
        wrong.append("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==".parse().unwrap());
        // A file that this save has created goes.
        let error = put(at(&path, 0).verify(&wrong), &noise(3 * JOB)).await.unwrap_err();
        assert!(error.is_digest_mismatch() && error.file_len() == Some(0), "{error:?}");
        only(dir.path(), &[]).await;
        // An empty one that was there stays, and so do earlier parts.
        for old in [&b""[..], b"earlier"] {
            std::fs::write(&path, old).unwrap();
            let error = put(at(&path, old.len() as u64).verify(&wrong), &noise(3 * JOB)).await.unwrap_err();
            assert!(error.is_digest_mismatch());
            assert_eq!(error.file_len(), Some(old.len() as u64));
            holds(&path, old);
        }
        only(dir.path(), &["file"]).await;
    });
}

#[test]
fn of_two_at_the_same_time_the_later_fails() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let (send, receive) = tokio::sync::mpsc::channel::<Bytes>(1);
        let frames = stream::unfold(receive, async |mut receive| {
            Some((Ok::<_, io::Error>(Frame::data(receive.recv().await?)), receive))
        });
        let first = tokio::spawn(at(&path, 0).run(StreamBody::new(frames)));
        // The file is opened by the first job.
        for _ in 0..3 {
            send.send(Bytes::from(noise(JOB))).await.unwrap();
        }
        let start = std::time::Instant::now();
        while std::fs::metadata(&path).map_or(0, |found| found.len()) == 0 {
            assert!(start.elapsed().as_secs() < 20);
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let error = put(at(&path, 0), b"x").await.unwrap_err();
        assert!(error.is_busy(), "{error:?}");
        assert_eq!(error.status(), 409);
        drop(send);
        assert_eq!(first.await.unwrap().unwrap().file_len, 3 * JOB as u64);
        put(at(&path, 3 * JOB as u64), b"x").await.unwrap();
    });
}

#[test]
fn the_limit_is_that_of_the_file() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "0123456789").unwrap();
        let error = put(at(&path, 10).max_len(12), b"abc").await.unwrap_err();
        assert!(error.is_too_large(), "{error:?}");
        holds(&path, b"0123456789");
        assert_eq!(put(at(&path, 10).max_len(12), b"ab").await.unwrap().file_len, 12);
        // On the way: what fits stays.
        let pieces = ["c", "d", "e"].map(Bytes::from).to_vec();
        let error = at(&path, 12).max_len(14).run(failing(pieces)).await.unwrap_err();
        assert!(error.is_too_large() && error.file_len() == Some(14), "{error:?}");
        holds(&path, b"0123456789abcd");
        let error = put(at(&path, 14).max_len(13), b"").await.unwrap_err();
        assert!(error.is_too_large(), "{error:?}");
    });
}

/// A client that leaves continues where the file ends.
#[test]
fn a_client_that_left_resumes() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let addr = start(dir.path()).await;
        let bytes = noise(8 << 20);
        let len = || std::fs::metadata(&path).map_or(0, |found| found.len() as usize);
        for reset in [true, false] {
            let have = len();
            let mut client = Raw::connect(addr).await;
            let rest = bytes.len() - have;
            client.send(format!("PUT /file?at={have} HTTP/1.1\r\nHost: mill\r\nContent-Length: {rest}\r\n\r\n")).await;
            client.send(&bytes[have..have + (3 << 20)]).await;
            // Most of it is in the file; at most 1 MiB may be missing.
            let start = std::time::Instant::now();
            while len() < have + (2 << 20) {
                assert!(start.elapsed().as_secs() < 20, "{}", len());
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            if reset {
                client.reset()
            } else {
                drop(client)
            }
            only(dir.path(), &["file"]).await;
            let now = len();
            holds(&path, &bytes[..now]);
        }
        let have = len();
        let mut client = Raw::connect(addr).await;
        let rest = bytes.len() - have;
        client.send(format!("PUT /file?at={have} HTTP/1.1\r\nHost: mill\r\nContent-Length: {rest}\r\n\r\n")).await;
        client.send(&bytes[have..]).await;
        assert_eq!(client.head().await.status, 200);
        holds(&path, &bytes);
    });
}
