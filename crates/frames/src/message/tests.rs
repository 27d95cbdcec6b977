//! Unit tests of `message`.

use super::*;
use proptest::prelude::*;

#[test]
fn the_bytes_are_those_of_the_documentation() {
    let frame = b"FRAM\x01\0\0\0\0\0\x10\0\0\0\0\0";
    assert_eq!(Message::Frame(1 << 20).encode(), *frame);
    assert_eq!(Message::parse(frame), Ok(Message::Frame(1 << 20)));
    let hello = b"MSF1\x10\0\0\0\0\0\0\x01\0\0\0\0";
    assert_eq!(Message::parse(hello), Ok(Message::Hello(Credit { frames: 16, bytes: 16 << 20 })));
    let done = Message::Done(Credit { frames: 3, bytes: 300 });
    assert_eq!(done.encode(), *b"DONE\x03\0\0\0\x2c\x01\0\0\0\0\0\0");
    assert_eq!(Message::parse(&done.encode()), Ok(done));
}

#[test]
fn wrong_numbers_are_refused() {
    for wrong in [
        b"MSF1\x01\0\0\0\0\0\0\0\0\0\0\0",
        b"MSF1\0\0\0\0\x01\0\0\0\0\0\0\0",
        b"FRAM\0\0\0\0\x01\0\0\0\0\0\0\0",
        b"FRAM\x02\0\0\0\x02\0\0\0\0\0\0\0",
        b"FRAM\x01\0\0\0\0\0\0\0\0\0\0\0",
        b"CRED\0\0\0\0\x01\0\0\0\0\0\0\0",
        b"CRED\x01\0\0\0\0\0\0\0\0\0\0\0",
        b"MSF2\0\0\0\0\0\0\0\0\0\0\0\0",
        b"GET / HTTP/1.1\r\n",
    ] {
        assert!(Message::parse(wrong).is_err(), "{wrong:?}");
    }
}

proptest! {
    #[test]
    fn parsed_messages_are_the_encoded_ones(
        kind in prop_oneof![Just(HELLO), Just(FRAME), Just(CREDIT), Just(DONE), any::<[u8; 4]>()],
        frames in prop_oneof![0..3u32, any::<u32>()],
        bytes in prop_oneof![0..3u64, any::<u64>()],
    ) {
        let mut raw = [0; LEN];
        raw[..4].copy_from_slice(&kind);
        raw[4..8].copy_from_slice(&frames.to_le_bytes());
        raw[8..].copy_from_slice(&bytes.to_le_bytes());
        if let Ok(message) = Message::parse(&raw) {
            prop_assert_eq!(message.encode(), raw);
        }
    }
}
