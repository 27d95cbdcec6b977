//! Unit tests of `stream_file`: claims, and what a killed writer leaves.

use std::path::Path;

use super::*;

const TTL: Duration = Duration::from_secs(60);

fn open(path: &Path) -> StreamFile {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    if Header::read(&file).unwrap().is_none() {
        Header::create(&file, 7, u64::MAX).unwrap();
    }
    let epoch = Header::read(&file).unwrap().unwrap().epoch();
    StreamFile::new(file, epoch, Durability::None, Arc::default())
}

fn events(from: u64, to: u64) -> Vec<Bytes> {
    (from..to).map(|n| Bytes::from(format!("data: {}\nid: 00000007-{n}\n\n", "x".repeat(n as usize * 50)))).collect()
}

fn read_all(file: &StreamFile) -> (Vec<Bytes>, Option<StreamEnd>) {
    let (mut all, mut end) = (Vec::new(), None);
    loop {
        let page = file.read(all.len() as u64).unwrap();
        all.extend(page.events);
        end = page.end.map(|(end, _)| end).or(end);
        if !page.more {
            return (all, end);
        }
    }
}

#[test]
fn one_handle_has_the_claim_and_the_next_one_continues() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stream");
    let (one, other) = (open(&path), open(&path));
    let token = one.claim(TTL).unwrap().unwrap();
    assert_eq!(other.claim(TTL).unwrap(), None);
    one.append(token, 0, &events(0, 3), None).unwrap();
    assert!(matches!(other.append(token, 3, &events(3, 4), None), Err(StreamLogError::Lost)));
    assert!(one.beat(Some(token), true).unwrap().is_claimed);
    assert_eq!(other.beat(None, false).unwrap().unread.map(|unread| unread < TTL), Some(true));
    drop(one);
    let next = other.claim(TTL).unwrap().unwrap();
    // Repeated with more, after an unknown outcome.
    other.append(next, 1, &events(1, 5), None).unwrap();
    assert!(matches!(other.append(next, 9, &events(9, 10), None), Err(StreamLogError::Gone)));
    assert_eq!(other.claim(TTL).unwrap(), None, "it has the claim");
    assert!(matches!(other.append(next + 1, 5, &events(5, 6), None), Err(StreamLogError::Lost)));
    assert!(matches!(other.beat(Some(next + 1), false), Err(StreamLogError::Lost)));
    other.append(next, 5, &[], Some((StreamEnd::Complete, TTL))).unwrap();
    other.append(next, 5, &[], Some((StreamEnd::Complete, TTL))).unwrap();
    assert_eq!(read_all(&open(&path)), (events(0, 5), Some(StreamEnd::Complete)));
    assert_eq!(open(&path).claim(TTL).unwrap(), None, "it has ended");
}

#[test]
fn a_torn_record_is_cut_off_at_every_byte() {
    let dir = tempfile::tempdir().unwrap();
    for end in [None, Some((StreamEnd::Failed, TTL))] {
        let path = dir.path().join(format!("{}", end.is_some()));
        let file = open(&path);
        let token = file.claim(TTL).unwrap().unwrap();
        file.append(token, 0, &events(0, 3), None).unwrap();
        let before = file.len().unwrap();
        file.append(token, 3, &events(3, 4), end).unwrap();
        let whole = std::fs::read(&path).unwrap();
        drop(file);
        for len in before..whole.len() as u64 {
            for garbage in [0, 40] {
                let torn = [&whole[..len as usize], &vec![0xaa; garbage]].concat();
                std::fs::write(&path, torn).unwrap();
                let reader = open(&path);
                assert_eq!(read_all(&reader), (events(0, 3), None), "{len}");
                let writer = open(&path);
                let token = writer.claim(TTL).unwrap().unwrap();
                assert_eq!(writer.len().unwrap(), before);
                writer.append(token, 3, &events(3, 6), Some((StreamEnd::Complete, TTL))).unwrap();
                // A reader that saw the torn record gets the new one.
                let page = reader.read(3).unwrap();
                assert_eq!((page.events, page.end.unwrap().0), (events(3, 6), StreamEnd::Complete));
                assert_eq!(read_all(&open(&path)), (events(0, 6), Some(StreamEnd::Complete)));
            }
        }
    }
}

#[test]
fn pages_are_bounded_and_complete() {
    let dir = tempfile::tempdir().unwrap();
    let file = open(&dir.path().join("stream"));
    let token = file.claim(TTL).unwrap().unwrap();
    let large: Vec<Bytes> = (0..9).map(|n| Bytes::from(vec![b'a' + n; PAGE / 2 - 1 + n as usize % 2 * PAGE])).collect();
    file.append(token, 0, &large, Some((StreamEnd::Stopped, TTL))).unwrap();
    let page = file.read(0).unwrap();
    assert!(page.more && page.end.is_none() && page.events.len() == 2, "{}", page.events.len());
    assert_eq!(read_all(&file), (large.clone(), Some(StreamEnd::Stopped)));
    for from in 0..9 {
        assert_eq!(file.read(from).unwrap().events[0], large[from as usize]);
    }
}

#[test]
fn a_removed_file_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stream");
    let file = open(&path);
    let token = file.claim(TTL).unwrap().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(file.append(token, 0, &events(0, 1), None), Err(StreamLogError::Gone)));
    assert!(matches!(file.beat(Some(token), false), Err(StreamLogError::Gone)));
    assert!(matches!(file.request_stop(), Err(StreamLogError::Gone)));
    assert!(matches!(open(&dir.path().join("other")).claim(TTL), Ok(Some(1))));
}

#[test]
fn the_end_is_found_again_by_a_repeated_read() {
    let dir = tempfile::tempdir().unwrap();
    for end in [StreamEnd::Complete, StreamEnd::Failed] {
        let path = dir.path().join(end.as_str());
        let file = open(&path);
        let token = file.claim(TTL).unwrap().unwrap();
        file.append(token, 0, &events(0, 3), Some((end, TTL))).unwrap();
        for from in [0, 3, 3, 2, 2, 3] {
            let page = file.read(from).unwrap();
            assert_eq!((page.events, page.end.map(|(end, _)| end)), (events(from, 3), Some(end)), "{from}");
        }
    }
}

#[test]
fn a_log_with_a_damaged_record_before_whole_ones_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stream");
    let file = open(&path);
    let token = file.claim(TTL).unwrap().unwrap();
    let mut ends = Vec::new();
    for n in 0..10 {
        ends.push(file.len().unwrap());
        file.append(token, n, &events(n, n + 1), None).unwrap();
    }
    drop(file);
    let whole = std::fs::read(&path).unwrap();
    // Each byte of the record 3, and the last byte of the one before the last.
    for at in (ends[3]..ends[4]).chain([ends[9] - 1]) {
        let mut damaged = whole.clone();
        damaged[at as usize] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let file = open(&path);
        assert!(matches!(file.claim(TTL), Err(StreamLogError::Gone)), "{at}");
        assert_eq!(file.len().unwrap(), whole.len() as u64, "nothing is cut off");
        assert!(Header::read(&file.file).unwrap().unwrap().get(Field::RemoveAt) <= header::now());
        assert!(matches!(open(&path).claim(TTL), Err(StreamLogError::Gone)), "the lock is free");
    }
    // The last record may be a part of one.
    let mut damaged = whole;
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &damaged).unwrap();
    let file = open(&path);
    assert!(file.claim(TTL).unwrap().is_some());
    assert_eq!(read_all(&file).0, events(0, 9));
}

#[test]
fn a_claim_renews_the_time_of_removal() {
    let dir = tempfile::tempdir().unwrap();
    let file = open(&dir.path().join("stream"));
    let before = header::now();
    Header::set(&file.file, Field::RemoveAt, before + 1).unwrap();
    file.claim(TTL).unwrap().unwrap();
    let remove_at = Header::read(&file.file).unwrap().unwrap().get(Field::RemoveAt);
    assert!(remove_at >= before + header::millis(TTL), "{remove_at}");
}

#[test]
fn a_look_at_the_length_does_not_wait_for_a_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = open(&dir.path().join("stream"));
    assert!(!file.has_grown());
    let _reads = lock(&file.read);
    assert!(file.has_grown());
}
