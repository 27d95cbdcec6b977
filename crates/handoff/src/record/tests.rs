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
        (Record::Ready, 0),
        (Record::Sockets(7), 64),
        (Record::Taken, 0),
        (Record::Yours, 0),
        (Record::Keeps, 0),
        (Record::Done, 0),
    ] {
        assert_eq!(decoded(&record.encode(fds)).unwrap(), record);
    }
}

#[test]
fn other_bytes_are_refused() {
    let mut wrong = Record::Hello(1, 1).encode(0);
    wrong[HEAD] ^= 1;
    let no_kind = vec![0, 0, 10, 0];
    let payload_of_none = vec![1, 0, 4, 0, 0];
    let cut_name = vec![2, 0, 2, 1, 5, b'a'];
    let no_text = vec![1, 0, 3, 0, 0xff];
    let mut unexpected = Record::Ready.encode(0);
    unexpected[3] = 1;
    let without = Record::Sockets(0).encode(0);
    let few = Record::Listeners(vec!["a".into()]).encode(1);
    for bytes in [wrong, no_kind, payload_of_none, cut_name, no_text, unexpected, without, few] {
        assert_eq!(decoded(&bytes).unwrap_err().kind(), io::ErrorKind::InvalidData, "{bytes:?}");
    }
    assert!(Head::parse([1, 16, 4, 0]).is_err(), "longer than any record");
}
