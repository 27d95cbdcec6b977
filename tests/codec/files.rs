//! Mapped files through a writer that does not know files: correct bytes or an error.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use millstream::body::FileBody;
use millstream::codec::{Shape, Writer};
use millstream::fs::File;
use tokio::io::AsyncWriteExt;

use crate::fake::{Act, Fake};
use testkit::http::{on_both, pages};
use testkit::lacks;

const LEN: usize = 1 << 20;

/// Returns the frames of the file's body, as they are mapped.
async fn mapped(path: &Path) -> Vec<Bytes> {
    let mut body = FileBody::new(&File::open(path).await.unwrap(), ..).unwrap();
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        all.push(frame.unwrap().into_data().unwrap());
    }
    all
}

const SHAPES: [Shape; 2] = [Shape::Vectored, Shape::Flat];

#[test]
fn files_are_memory_to_a_foreign_writer() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, pages(LEN)).unwrap();
        for shape in SHAPES {
            let fake = Fake::always(Act::Take(70_000));
            let mut writer = Writer::builder(fake.clone()).shape(shape).high_mark(100_000).build();
            for (n, piece) in mapped(&path).await.into_iter().enumerate() {
                match n % 2 {
                    0 => writer.send(piece).await.unwrap(),
                    _ => writer.write_all(&piece).await.unwrap(),
                }
            }
            writer.shutdown().await.unwrap();
            assert!(fake.seen().bytes == pages(LEN), "{shape:?}");
        }
    });
}

#[test]
fn a_file_that_shrinks_while_it_waits_is_an_error() {
    if lacks("mapping") {
        return;
    }
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for shape in SHAPES {
            for given in [true, false] {
                for few in [true, false] {
                    std::fs::write(&path, pages(LEN)).unwrap();
                    let piece = mapped(&path).await.pop().unwrap();
                    let fake = Fake::default();
                    let mut writer = Writer::builder(fake.clone()).shape(shape).high_mark(2 * LEN).build();
                    writer.write_all(b"head").await.unwrap();
                    let piece = if few { piece.slice(piece.len() - 100..) } else { piece };
                    // A short piece is copied when it is accepted; a long one is read when it is sent.
                    if few {
                        std::fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
                    }
                    let taken = match given {
                        true => writer.push(piece),
                        false => writer.write_all(&piece).await,
                    };
                    let case = format!("{shape:?}, given {given}, few {few}");
                    assert_eq!(taken.is_err(), few, "{case}");
                    if !few {
                        std::fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
                    }
                    assert_eq!(writer.flushed().await.unwrap_err().kind(), ErrorKind::UnexpectedEof, "{case}");
                    assert_eq!(writer.shutdown().await.unwrap_err().kind(), ErrorKind::UnexpectedEof, "{case}");
                    assert_eq!(fake.seen().shutdowns, 0, "{case}");
                }
            }
        }
    });
}

#[test]
fn whoever_waits_for_a_full_inner_writer_learns_of_it() {
    if lacks("mapping") {
        return;
    }
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, pages(LEN)).unwrap();
        let piece = mapped(&path).await.pop().unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        let fake = Fake::always(Act::Block);
        let mut writer = Writer::builder(fake.clone()).gather_limit(Duration::from_millis(1)).build();
        writer.write_all(b"waits").await.unwrap();
        while fake.seen().polls == 0 {
            tokio::task::yield_now().await;
        }
        assert!(writer.push(piece.slice(piece.len() - 100..)).is_err());
        assert_eq!(writer.flushed().await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    });
}
