//! Unit tests of `record`.

use super::*;

fn decoded(bytes: &[u8]) -> io::Result<Record> {
    let head = Head::parse(*bytes.first_chunk().expect("a head"))?;
    assert_eq!(head.payload, bytes.len() - HEAD);
    Record::parse(head, &bytes[HEAD..])
}

#[test]
fn a_record_is_parsed_as_it_was() {
    let names = |names: &[&str]| Record::Listeners(names.iter().map(|&name| name.to_owned()).collect());
    for (record, fds) in [
        (Record::Hello(1, 3), 0),
        (names(&[]), 1),
        (names(&["http", "", "ä"]), 4),
        (Record::Refused("it is full".into()), 0),
        (Record::Ready(vec!["news".into(), String::new()]), 1),
        (Record::Connections(7, vec![None; 64]), 64),
        (Record::Connections(7, vec![None, Some((3, vec![1, 2])), Some((0, vec![])), None]), 4),
        (Record::Events(2, vec![event("a", "data: x\n\n", 7), event("", "", 0)]), 0),
        (Record::Prepend(9, "a-1".into()), 0),
        (Record::Serve, 0),
        (Record::Taken, 0),
        (Record::Yours, 0),
        (Record::Keeps, 0),
        (Record::Done, 0),
    ] {
        assert_eq!(decoded(&record.encode(fds).unwrap()).unwrap(), record);
    }
}

#[test]
fn other_bytes_are_refused() {
    let record =
        |kind: u8, fds: u8, payload: &[u8]| [&(payload.len() as u32).to_le_bytes()[..], &[kind, fds], payload].concat();
    let mut greeting = Record::Hello(1, 1).encode(0).unwrap();
    greeting[HEAD] ^= 1;
    let mut with_descriptor = Record::Taken.encode(0).unwrap();
    with_descriptor[5] = 1;
    for bytes in [
        greeting,
        with_descriptor,
        record(14, 0, &[]),
        record(0, 0, &[]),
        // Longer than its kind, cut off, and no text.
        record(6, 0, &[0]),
        record(2, 2, &[5, 0, 0, 0, b'a']),
        record(2, 2, &[0xff, 0xff, 0xff, 0xff, b'a']),
        record(3, 0, &[0xff]),
        record(10, 0, &[0, 0, 1]),
        record(11, 0, &[0]),
        // Other descriptors than connections.
        Record::Connections(0, vec![]).encode(0).unwrap(),
        Record::Connections(0, vec![None]).encode(2).unwrap(),
        Record::Listeners(vec!["a".into()]).encode(1).unwrap(),
        Record::Ready(vec![]).encode(0).unwrap(),
    ] {
        assert_eq!(decoded(&bytes).unwrap_err().kind(), io::ErrorKind::InvalidData, "{bytes:?}");
    }
    assert!(Head::parse([1, 0, 0, 4, 4, 0]).is_err(), "longer than any record");
    let long = Record::Refused("x".repeat(PAYLOAD_MAX + 1)).encode(0);
    assert_eq!(long.unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

fn event(id: &str, text: &str, millis: u64) -> HandedEvent {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    HandedEvent { id: id.to_owned(), bytes, age: Duration::from_millis(millis) }
}
