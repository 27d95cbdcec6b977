//! Unit tests of `record`.

use super::*;

fn written(number: u64, event: &[u8], end: Option<StreamEnd>) -> Vec<u8> {
    let mut record = Vec::new();
    write(&mut record, number, event, end);
    record
}

#[test]
fn records_are_read_as_written() {
    for (event, end) in [
        (&b"data: a\n\n"[..], None),
        (b"", Some(StreamEnd::Complete)),
        (b"data: a\n\n", Some(StreamEnd::Complete)),
        (b"event: error\n\n", Some(StreamEnd::TooLarge)),
    ] {
        let record = written(7, event, end);
        assert_eq!(len(record.first_chunk().unwrap()), record.len());
        let expected = Record { event: Some(event).filter(|event| !event.is_empty()), end };
        assert_eq!(read(&record, 7), Some(expected));
        assert_eq!(read(&record, 8), None, "another number");
    }
}

#[test]
fn a_record_with_a_wrong_or_missing_byte_is_none() {
    for end in [None, Some(StreamEnd::Failed)] {
        let record = written(7, b"data: a\n\n", end);
        for at in 0..record.len() {
            assert_eq!(read(&record[..at], 7), None);
            for bit in 0..8 {
                let mut wrong = record.clone();
                wrong[at] ^= 1 << bit;
                assert_eq!(read(&wrong, 7), None, "{at} {bit}");
            }
        }
    }
}
