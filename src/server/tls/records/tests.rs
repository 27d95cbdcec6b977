//! Unit tests of `records`.

use super::*;

#[test]
fn records_grow_and_are_small_again_after_silence() {
    let start = Instant::now();
    let at = |millis| start + Duration::from_millis(millis);
    let mut records = Records::new(start);
    for millis in 0..48 {
        records.begin(at(millis));
        assert_eq!(records.room(), SMALL);
        records.wrote(SMALL);
    }
    records.begin(at(48));
    assert_eq!(records.room(), FULL);
    records.wrote(FULL);
    records.begin(at(48 + 999));
    assert_eq!(records.room(), FULL);
    records.begin(at(48 + 999 + 1000));
    assert_eq!(records.room(), SMALL);
    records.wrote(YOUNG);
    assert_eq!(records.room(), FULL);
    // The clocks of two processors may differ.
    records.begin(start);
    assert_eq!(records.room(), FULL);
}

#[test]
fn pieces_are_cut_where_a_record_ends() {
    let bufs = [&b"head"[..], b"", b"body", b"tail"].map(IoSlice::new);
    for room in 1..14 {
        let mut all = Vec::new();
        loop {
            let mut pieces = [IoSlice::new(&[]); 2];
            let used = cut(&bufs, all.len(), room, &mut pieces);
            let record: Vec<u8> = pieces[..used].iter().flat_map(|piece| piece.iter().copied()).collect();
            if record.is_empty() {
                break;
            }
            assert!(record.len() <= room && pieces[..used].iter().all(|piece| !piece.is_empty()));
            all.extend(record);
        }
        assert_eq!(all, b"headbodytail", "room for {room}");
    }
}
