//! Files by each path.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http_body_util::BodyExt;
use millstream::body::FileBody;
use millstream::fs::File;
use sha2::{Digest, Sha256};

use super::*;
use testkit::noise;

async fn file(len: usize) -> (Vec<u8>, Vec<Bytes>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let bytes = noise(len);
    std::fs::write(&path, &bytes).unwrap();
    let mut body = FileBody::new(&File::open(&path).await.unwrap(), ..).unwrap();
    let mut pieces = Vec::new();
    while let Some(frame) = body.frame().await {
        pieces.push(frame.unwrap().into_data().unwrap());
    }
    (bytes, pieces)
}

#[test]
fn without_sendfile_files_leave_from_their_memory() {
    if alone::ran_in_child() {
        return;
    }
    with(Flavour::CurrentThread, || async {
        if testkit::lacks("sendfile") || testkit::lacks("mapping") {
            return;
        }
        let (bytes, pieces) = file(1 << 20).await;
        for &path in SendStrategy::ALL {
            let (mut ours, theirs) = connect(path).await;
            let expected = [b"head", &bytes[..]].concat();
            let before = Snapshot::now();
            let reader = tokio::spawn(read_all(theirs));
            ours.write_all(b"head").await.unwrap();
            for piece in &pieces {
                let mut rest = &piece[..];
                while !rest.is_empty() {
                    // With a slice before it in the same write, and without.
                    let n = match rest.len() == piece.len() {
                        true => ours.write_vectored(&[IoSlice::new(&[]), IoSlice::new(rest)]).await.unwrap(),
                        false => ours.write(rest).await.unwrap(),
                    };
                    rest = &rest[n..];
                }
            }
            ours.shutdown().await.unwrap();
            assert!(reader.await.unwrap() == expected, "{path}");
            let counted = Snapshot::now().since(&before);
            let by_sendfile = if path == SendStrategy::NoSendfile { 0 } else { 1 << 20 };
            assert_eq!(counted.bytes_by_sendfile, by_sendfile, "{path}\n{counted}");
            assert_eq!(counted.bytes_written, expected.len() as u64, "{path}\n{counted}");
        }
    });
}

async fn read_all(mut theirs: tokio::net::TcpStream) -> Vec<u8> {
    let mut got = Vec::new();
    theirs.read_to_end(&mut got).await.unwrap();
    got
}

#[test]
fn changing_the_path_under_load_keeps_every_byte_in_order() {
    if alone::ran_in_child() {
        return;
    }
    for flavour in Flavour::BOTH {
        with(flavour, || async {
            let (bytes, pieces) = file(300_000).await;
            for slow in [false, true] {
                let (mut ours, mut theirs) = connect(SendStrategy::Auto).await;
                socket2::SockRef::from(&ours).set_send_buffer_size(8192).unwrap();
                let handle = ours.handle();
                // This task sets the path in each step, and a thread sets it all the time.
                let done = std::sync::Arc::new(AtomicBool::new(false));
                let (ended, other) = (done.clone(), handle.clone());
                let switcher = std::thread::spawn(move || {
                    for &path in SendStrategy::ALL.iter().cycle() {
                        if ended.load(Ordering::Relaxed) {
                            return;
                        }
                        other.set_send_strategy(path);
                        std::thread::yield_now();
                    }
                });
                let reader = tokio::spawn(async move {
                    let (mut sum, mut buf) = (Sha256::new(), vec![0; if slow { 500 } else { 100_000 }]);
                    loop {
                        match theirs.read(&mut buf).await.unwrap() {
                            0 => return sum.finalize().to_vec(),
                            n => sum.update(&buf[..n]),
                        }
                    }
                });
                let mut expected = Sha256::new();
                for n in 0..400usize {
                    handle.set_send_strategy(SendStrategy::ALL[n * 7 % SendStrategy::ALL.len()]);
                    let len = [1, 300, 7, 20_000, 64, 5000][n % 6];
                    let piece = &bytes[n..n + len];
                    ours.write_all(piece).await.unwrap();
                    expected.update(piece);
                    if n % 40 == 0 {
                        for piece in &pieces {
                            let slices = [IoSlice::new(b"frame"), IoSlice::new(piece)];
                            let n = ours.write_vectored(&slices).await.unwrap();
                            let both = [b"frame", &piece[..]].concat();
                            ours.write_all(&both[n..]).await.unwrap();
                            expected.update(&both);
                        }
                    }
                    if n % 5 == 0 {
                        yield_now().await;
                    }
                }
                ours.shutdown().await.unwrap();
                assert_eq!(reader.await.unwrap(), expected.finalize().to_vec());
                done.store(true, Ordering::Relaxed);
                switcher.join().unwrap();
            }
        });
    }
}
