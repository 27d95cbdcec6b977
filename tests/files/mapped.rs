//! Bodies without a mapping: the same bytes, in private memory.

use super::*;
use millstream::body::FileBody;
use millstream::fs::File;

/// Read as a whole, cached, in one frame, in several, in chunks of several windows.
const LENS: [usize; 5] = [100, 100 << 10, 300 << 10, 1 << 20, 5_000_000];

/// Asserts that a body has the bytes of `path`, and keeps them when the file is overwritten in place. Returns its
/// frames.
async fn private(body: impl Into<FilesBody>, path: &Path, range: std::ops::Range<usize>, len: usize) -> usize {
    let (expected, mut body) = (letters(len), body.into());
    let (mut at, mut frames) = (range.start, Vec::new());
    while let Some(frame) = body.frame().await {
        frames.push(frame.unwrap().into_data().unwrap());
    }
    let strings: Vec<&str> = frames.iter().map(|frame| std::str::from_utf8(frame).unwrap()).collect();
    std::fs::write(path, vec![0xff; len]).unwrap();
    for string in strings {
        assert!(*string == expected[at..at + string.len()], "changed at {at} of {len}");
        at += string.len();
    }
    assert_eq!(at, range.end);
    std::fs::write(path, expected).unwrap();
    frames.len()
}

#[tokio::test]
async fn a_frame_of_a_file_that_is_not_mapped_does_not_change() {
    for len in LENS {
        let dir = dir(&[("f", letters(len).as_bytes())]);
        let path = dir.path().join("f");
        let file = File::open(&path).await.unwrap();
        private(FileBody::new(&file, ..).unwrap().mapped(false), &path, 0..len, len).await;
        private(FileBody::new(&file, 50..).unwrap().mapped(false), &path, 50..len, len).await;
        assert!(file.opened().len() == len as u64 && file.opened().etag() != "");

        let files =
            Files::builder(dir.path()).validate_every(std::time::Duration::from_secs(3600)).mapped(false).build();
        let files = files.unwrap();
        private(send(&files, "GET", "/f", &[]).await.into_body(), &path, 0..len, len).await;
        let range = format!("bytes=50-{}", len - 1);
        private(send(&files, "GET", "/f", &[("range", &range)]).await.into_body(), &path, 50..len, len).await;
        let several = send(&files, "GET", "/f", &[("range", "bytes=0-9,50-")]).await;
        assert_eq!(several.status(), StatusCode::PARTIAL_CONTENT);
        let bytes = several.into_body().collect().await.unwrap().to_bytes();
        let whole = letters(len);
        assert!(String::from_utf8_lossy(&bytes).contains(&whole[50..]));
    }
}

#[tokio::test]
async fn a_file_that_is_not_mapped_and_shrinks_fails_its_body() {
    for len in LENS {
        let dir = dir(&[("f", letters(len).as_bytes())]);
        let file = File::open(dir.path().join("f")).await.unwrap();
        let body = FileBody::new(&file, ..).unwrap().mapped(false);
        std::fs::File::options().write(true).open(dir.path().join("f")).unwrap().set_len(len as u64 - 1).unwrap();
        assert_eq!(body.collect().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{len}");
    }
}
