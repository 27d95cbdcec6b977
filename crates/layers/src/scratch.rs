//! Header values of single requests, without an allocation for each.

use std::cell::RefCell;

use bytes::{BufMut, BytesMut};
use http::HeaderValue;

/// Bytes allocated at a time, for about forty requests; reused when all of them have ended.
const CHUNK: usize = 4 << 10;

thread_local! {
    static SCRATCH: RefCell<BytesMut> = RefCell::new(BytesMut::with_capacity(CHUNK));
}

/// Returns a header value of `bytes`, which are visible ASCII.
pub(super) fn value(bytes: &[u8]) -> HeaderValue {
    let shared = SCRATCH.with_borrow_mut(|scratch| {
        if scratch.capacity() < bytes.len() && !scratch.try_reclaim(bytes.len()) {
            *scratch = BytesMut::with_capacity(CHUNK.max(bytes.len()));
        }
        scratch.put_slice(bytes);
        scratch.split().freeze()
    });
    HeaderValue::from_maybe_shared(shared).expect("internal: made of visible ASCII")
}

pub(super) fn hex(bytes: &[u8], digits: &mut [u8]) {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    assert_eq!(digits.len(), 2 * bytes.len(), "internal: two digits for a byte");
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_bytes_and_memory_is_used_again() {
        let kept: Vec<_> = (0..1000).map(|n| value(format!("value-{n}").as_bytes())).collect();
        for (n, value) in kept.iter().enumerate() {
            assert_eq!(value, &format!("value-{n}"));
        }
        drop(kept);
        let counted = allocation_counter::measure(|| (0..10_000).for_each(|_| drop(value(&[b'x'; 55]))));
        assert!(counted.count_total <= 2, "{counted:?}");
    }

    #[test]
    fn digits_are_lower_case() {
        let mut digits = [0; 6];
        hex(&[0x00, 0xaf, 0x19], &mut digits);
        assert_eq!(&digits, b"00af19");
    }
}
