//! Unit tests of `owed`.

use proptest::prelude::*;

use super::*;

/// Accepts `bytes` in writes of `step` bytes, each in slices of `slice` bytes.
fn accept(owed: &Owed, bytes: &[u8], step: usize, slice: usize) {
    for write in bytes.chunks(step) {
        let bufs: Vec<_> = write.chunks(slice).map(IoSlice::new).collect();
        owed.accepted(write.len(), &bufs);
    }
}

fn begun() -> Owed {
    let owed = Owed::default();
    owed.reset();
    owed.begin();
    owed
}

const HEADS: [&str; 4] = [
    "HTTP/1.1 200 OK\r\n\r\n",
    "HTTP/1.1 404 Not Found\r\na: b\r\nc: \r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ndate: y\r\n\r\n",
    "GET /abcd1 HTTP/1.1\r\nhost: mill\r\n\r\n",
];

#[test]
fn bytes_behind_a_head_are_counted_wherever_they_are_cut() {
    // A body that looks like the end of a head.
    let body = b"5\r\n\r\n\r\na\r\n0\r\n\r\n";
    for head in HEADS {
        let message = [head.as_bytes(), body].concat();
        for step in 1..=message.len() {
            for slice in [1, 3, 4, 7, message.len()] {
                let owed = begun();
                owed.gave(body.len() as u64);
                accept(&owed, &message[..message.len() - 1], step, slice);
                assert!(!owed.is_settled(), "a byte is left: {head:?} {step} {slice}");
                accept(&owed, &message[message.len() - 1..], step, slice);
                // Bytes of a body in the slice of the head may stay owed.
                assert!(owed.is_settled() || step.min(slice) > head.len(), "{head:?} {step} {slice}");
            }
        }
    }
}

#[test]
fn nothing_is_settled_before_the_end_of_a_head_or_beyond_what_was_given() {
    for head in HEADS {
        let owed = begun();
        accept(&owed, &head.as_bytes()[..head.len() - 1], 1000, 1000);
        assert!(!owed.is_settled());
        accept(&owed, b"\n", 1, 1);
        assert!(owed.is_settled());
        accept(&owed, b"more", 4, 4);
        assert!(!owed.is_settled());
    }
}

#[test]
fn a_message_that_begins_before_the_end_of_the_last_one_stops_the_count() {
    let owed = begun();
    accept(&owed, HEADS[0].as_bytes(), 1000, 1000);
    owed.gave(1);
    owed.begin();
    accept(&owed, b"a", 1, 1);
    accept(&owed, HEADS[0].as_bytes(), 1000, 1000);
    assert!(!owed.is_settled());
    owed.begin();
    assert!(!owed.is_settled());
    owed.reset();
    assert!(owed.is_settled());
}

#[test]
fn a_write_that_takes_a_part_counts_that_part() {
    let owed = begun();
    owed.gave(3);
    let bufs = [IoSlice::new(HEADS[0].as_bytes()), IoSlice::new(b"abc")];
    owed.accepted(HEADS[0].len() + 1, &bufs);
    owed.accepted(1, &[IoSlice::new(b"bc")]);
    assert!(!owed.is_settled());
    owed.accepted(1, &[IoSlice::new(b"c")]);
    assert!(owed.is_settled());
}

/// As if hyper framed otherwise than `Framing` says.
#[test]
fn a_message_of_another_length_than_counted_is_never_settled() {
    let message = [HEADS[0].as_bytes(), b"5\r\nhello\r\n0\r\n\r\n"].concat();
    let body = (message.len() - HEADS[0].len()) as u64;
    for counted in (1..body).chain(body + 1..body + 5) {
        for step in 1..=message.len() {
            let owed = begun();
            owed.gave(counted);
            let mut rest = &message[..];
            while !rest.is_empty() {
                let n = step.min(rest.len());
                owed.accepted(n, &[IoSlice::new(rest)]);
                rest = &rest[n..];
                assert!(!owed.is_settled(), "{counted} of {body} bytes, in steps of {step}: {} are left", rest.len());
            }
        }
    }
}

proptest! {
    #[test]
    fn the_end_of_a_head_is_found_as_by_a_search(bytes in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'a')], 0..40)) {
        let expected = bytes.windows(4).position(|window| window == Head::END).map(|at| at + 4);
        let mut head = Head::default();
        prop_assert_eq!(bytes.iter().position(|&byte| head.step(byte)).map(|last| last + 1), expected);
    }
}
