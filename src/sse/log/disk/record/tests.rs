//! Unit tests of `record`.

use super::*;

fn record(event: &str, begins_commit: bool) -> Vec<u8> {
    [&head(event.as_bytes(), begins_commit)[..], event.as_bytes()].concat()
}

#[test]
fn a_record_is_a_comment_and_an_event() {
    let text = record("data: Hello\nid: 17\n\n", true);
    assert_eq!(str::from_utf8(&text).unwrap(), ":00000014+d5d4dd0d\ndata: Hello\nid: 17\n\n");
    assert_eq!(check_record(&text, 17), RecordCheck::Whole(text.len()));
    assert_eq!(check_record(&text, 18), RecordCheck::Bad("the id is not the next one"));
    assert_eq!(check_record(&text[..text.len() - 1], 17), RecordCheck::Part(text.len()));
    assert_eq!(check_record(&text[..HEAD - 1], 17), RecordCheck::Part(HEAD));
    assert!(is_later_commit(&text, 16) && !is_later_commit(&text, 17));
    assert!(!is_later_commit(&record("data: Hello\nid: 17\n\n", false), 16));
}

#[test]
fn every_flipped_bit_is_found() {
    let text = record("event: e\ndata: Hello\nid: 17\n\n", false);
    for bit in 0..text.len() * 8 {
        let mut wrong = text.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(!matches!(check_record(&wrong, 17), RecordCheck::Whole(_)), "bit {bit}");
    }
}

#[test]
fn ids_are_canonical() {
    for (text, id) in [
        ("0", Some(0)),
        ("17", Some(17)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("", None),
        ("00", None),
        ("017", None),
        ("+17", None),
        ("-1", None),
        ("1-0", None),
    ] {
        assert_eq!(parse_id(text), id, "{text}");
    }
}
