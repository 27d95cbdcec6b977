//! Tests that bodies deliver exactly their length or fail, even if the file changes meanwhile.

use super::*;
use crate::report::report;
use http_body_util::BodyExt;
use proptest::prelude::*;
use std::io::Write;
use std::os::unix::fs::FileExt;

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    File::from_std(file).unwrap()
}

#[tokio::test]
async fn ranges_end_at_the_end_of_the_file() {
    let file = file(b"0123456789");
    let body = |range: (Bound<u64>, Bound<u64>)| FileBody::new(&file, range).unwrap();
    let (from, to, behind) = (Bound::Included::<u64>, Bound::Included::<u64>, Bound::Excluded::<u64>);
    let bodies = [
        (body((Bound::Unbounded, Bound::Unbounded)), "0123456789"),
        (body((from(3), Bound::Unbounded)), "3456789"),
        (body((from(3), to(4))), "34"),
        (body((from(8), Bound::Excluded(100))), "89"),
        (body((from(10), Bound::Unbounded)), ""),
        (body((from(100), Bound::Unbounded)), ""),
        (body((behind(7), to(u64::MAX))), "89"),
        (body((from(7), Bound::Excluded(3))), ""),
    ];
    for (body, expected) in bodies {
        assert_eq!(body.is_end_stream(), expected.is_empty());
        assert_eq!(collect(body).await.unwrap(), expected.as_bytes());
    }
}

#[tokio::test]
async fn only_regular_files_have_bodies() {
    let dir = tempfile::tempdir().unwrap();
    for (path, kind) in [(dir.path(), "a directory"), ("/dev/zero".as_ref(), "a device")] {
        let error = FileBody::new(&File::open(path).await.unwrap(), ..).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(report(&error), format!("{}: look at the file: {kind}, not a regular file", path.display()));
    }
}

async fn collect(mut body: FileBody) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let promised = body.size_hint().exact().unwrap();
    while let Some(frame) = body.frame().await {
        let data = frame?.into_data().unwrap();
        assert!(!data.is_empty());
        all.extend_from_slice(&data);
        assert_eq!(body.size_hint().exact().unwrap() + all.len() as u64, promised);
        assert!(!body.is_end_stream() || all.len() as u64 == promised);
    }
    assert!(body.is_end_stream());
    assert_eq!(all.len() as u64, promised, "the body ended cleanly before its length");
    Ok(all)
}

#[tokio::test]
async fn an_empty_body_and_a_ready_one() {
    assert!(FileBody::empty().is_end_stream());
    assert!(FileBody::from(Bytes::new()).is_end_stream());
    assert_eq!(collect(FileBody::default()).await.unwrap(), b"");
    assert_eq!(collect(FileBody::from(Bytes::from_static(b"hello"))).await.unwrap(), b"hello");
}

#[tokio::test]
async fn parts_come_in_order_with_their_text() {
    let file = file(b"0123456789");
    let text = |t: &'static str| Part::Text(Bytes::from_static(t.as_bytes()));
    let parts = vec![text("<"), Part::Range(2..4), text(""), text("|"), Part::Range(0..10), text(">")];
    let body = FileBody::parts(Reader::new(file.clone()), parts);
    assert_eq!(collect(body).await.unwrap(), b"<23|0123456789>");
}

#[tokio::test]
#[cfg_attr(portable, ignore = "files are not mapped")]
async fn a_torn_mapping_fails_the_body_that_was_made_before() {
    let bytes = vec![b'x'; 100_000];
    let mut std_file = tempfile::tempfile().unwrap();
    std_file.write_all(&bytes).unwrap();
    let file = File::from_std(std_file.try_clone().unwrap()).unwrap();
    let mapping = Mapping::new(Arc::clone(file.shared()), 0, bytes.len()).unwrap();
    let whole = Arc::new(Whole::new(file, Arc::clone(&mapping)));
    assert_eq!(collect(FileBody::kept(&whole, 5..10)).await.unwrap(), b"xxxxx");
    assert!(FileBody::kept(&whole, 5..5).is_end_stream());
    let body = FileBody::kept(&whole, ..);
    std_file.set_len(10).unwrap();
    assert_eq!(mapping.bytes()[99_999], 0);
    let error = collect(body).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert!(collect(FileBody::kept(&whole, 5..10)).await.is_err());
}

#[tokio::test]
#[cfg_attr(portable, ignore = "files are not mapped")]
async fn a_mapping_torn_after_its_frame_fails_the_end() {
    let mut std_file = tempfile::tempfile().unwrap();
    std_file.write_all(&[b'x'; 100_000]).unwrap();
    let file = File::from_std(std_file.try_clone().unwrap()).unwrap();
    let mapping = Mapping::new(Arc::clone(file.shared()), 0, 100_000).unwrap();
    let whole = Arc::new(Whole::new(file.clone(), mapping));
    let parts = FileBody::parts(Reader::new(file.clone()), vec![Part::Range(0..100_000)]);
    for mut body in [FileBody::new(&file, ..).unwrap(), parts, FileBody::kept(&whole, ..)] {
        std_file.write_all_at(&[b'x'; 100_000], 0).unwrap();
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((frame.len(), body.is_end_stream()), (100_000, false));
        std_file.set_len(10).unwrap();
        assert_eq!(std::hint::black_box(&frame)[90_000], 0);
        assert!(body.frame().await.unwrap().is_err());
        assert!(body.frame().await.is_none());
    }
}

#[tokio::test]
#[cfg_attr(portable, ignore = "files are not mapped")]
async fn what_is_short_is_a_copy() {
    let mut std_file = tempfile::tempfile().unwrap();
    std_file.write_all(&[b'x'; 10_000]).unwrap();
    let file = File::from_std(std_file.try_clone().unwrap()).unwrap();
    let mapping = Mapping::new(Arc::clone(file.shared()), 0, 10_000).unwrap();
    let whole = Arc::new(Whole::new(file, mapping));
    let mut short = FileBody::kept(&whole, 4096..4096 + COPIED);
    let short = short.frame().await.unwrap().unwrap().into_data().unwrap();
    std_file.set_len(0).unwrap();
    assert!(short == [b'x'; COPIED][..]);
    assert!(FileBody::kept(&whole, ..1).frame().await.unwrap().is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_parts_of_any_file_are_exact(
        len in 1usize..200_000,
        cuts in proptest::collection::vec((0.0f64..1.0, 0.0f64..1.0), 0..6),
    ) {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
        let file = file(&bytes);
        let mut parts = Vec::new();
        let mut expected = Vec::new();
        for (from, to) in cuts {
            let from = (from * len as f64) as usize;
            let to = from + 1 + (to * (len - from - 1) as f64) as usize;
            parts.push(Part::Text(Bytes::from_static(b"--")));
            parts.push(Part::Range(from as u64..to as u64));
            expected.extend_from_slice(b"--");
            expected.extend_from_slice(&bytes[from..to]);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let got = runtime.block_on(collect(FileBody::parts(Reader::new(file.clone()), parts))).unwrap();
        prop_assert!(got == expected);
    }
}
