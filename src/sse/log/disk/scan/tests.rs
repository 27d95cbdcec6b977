//! Unit tests of `scan`.

use std::io::Write;

use super::*;

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn record(id: u64, data: usize, begins_commit: bool) -> Vec<u8> {
    let event = format!("data: {}\nid: {id}\n\n", "x".repeat(data)).into_bytes();
    [&record::head(&event, begins_commit)[..], &event].concat()
}

#[test]
fn records_of_any_length_are_found() {
    let lens = [10, READ, 0, READ - 100, 3 * READ, 1];
    let bytes: Vec<u8> = (5..).zip(lens).flat_map(|(id, len)| record(id, len, true)).collect();
    let mut all = Vec::new();
    let scanned = scan(&file(&bytes), bytes.len() as u64, (5, 0), |id, offset| {
        assert!(matches!(record::check_record(&bytes[offset as usize..], id), RecordCheck::Whole(_)));
        all.push(id);
    });
    assert_eq!(scanned.unwrap(), Scanned { id: 11, offset: bytes.len() as u64, wrong: None });
    assert_eq!(all, [5, 6, 7, 8, 9, 10]);
}

#[test]
fn a_commit_behind_a_bad_record_is_found() {
    let parts = [record(1, 10, true), record(2, READ + 1, false), record(3, 10, true), record(4, 9, false)];
    let (two, three) = (parts[0].len() as u64, (parts[0].len() + parts[1].len()) as u64);
    let bytes = parts.concat();
    let (file, len) = (file(&bytes), bytes.len() as u64);
    assert!(has_later_commit(&file, len, 1, 0).unwrap());
    assert!(has_later_commit(&file, len, 2, two).unwrap());
    assert!(!has_later_commit(&file, len, 3, three).unwrap(), "the last commit itself");
    assert!(!has_later_commit(&file, len - 60, 2, two).unwrap(), "its record is incomplete");
}

#[test]
fn a_commit_is_found_at_any_distance() {
    for distance in READ - 3..READ + 3 {
        let bytes = [&b"x".repeat(distance)[..], b"\n", &record(7, 10, true)].concat();
        let (len, found) = (bytes.len() as u64, file(&bytes));
        assert!(has_later_commit(&found, len, 6, 0).unwrap(), "{distance}");
        assert!(!has_later_commit(&found, len - 1, 6, 0).unwrap(), "{distance}");
        let inside = [&b"x".repeat(distance)[..], b"\nx", &record(7, 10, true)].concat();
        assert!(!has_later_commit(&file(&inside), inside.len() as u64, 6, 0).unwrap(), "{distance}");
    }
}

#[test]
fn a_commit_behind_a_wrong_line_feed_is_found() {
    let mut bytes = [record(1, 10, true), record(2, 10, true)].concat();
    let end = bytes.len() / 2 - 1;
    assert_eq!(bytes[end], b'\n');
    bytes[end] = b'x';
    assert!(has_later_commit(&file(&bytes), bytes.len() as u64, 1, 0).unwrap());
}
