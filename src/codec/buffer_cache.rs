//! Buffers of codecs that are not in use: lent to whoever is about to read or write, so that connections that wait hold
//! none, and none is allocated for a message.

use std::cell::RefCell;

use bytes::BytesMut;

/// Smallest buffer worth keeping.
pub(super) const BUFFER_MIN: usize = 8 << 10;
/// Largest buffer that is kept: a long message is no reason to hold on to its memory.
pub(super) const BUFFER_MAX: usize = 128 << 10;
/// Buffers that a thread keeps. A connection has two while it works, and mostly one connection works at a time.
const KEPT: usize = 8;

thread_local! {
    static STASH: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer.
pub(super) fn take() -> BytesMut {
    // A thread that is ending has no stash any more.
    let kept = STASH.try_with(|buffer_cache| buffer_cache.borrow_mut().pop()).ok().flatten();
    kept.unwrap_or_else(|| BytesMut::with_capacity(BUFFER_MIN))
}

/// Gives a buffer back. It is let go if it is not empty, too small, too large, or if others still hold parts of it.
pub(super) fn give(mut buffer: BytesMut) {
    // Each reclaims what was taken from the front, if nobody holds it; else how long the buffer is does not show.
    let too_large = buffer.try_reclaim(BUFFER_MAX + 1);
    if buffer.is_empty() && !too_large && buffer.try_reclaim(BUFFER_MIN) {
        let _ = STASH.try_with(|buffer_cache| {
            let mut buffer_cache = buffer_cache.borrow_mut();
            if buffer_cache.len() < KEPT {
                buffer_cache.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> usize {
        STASH.with(|buffer_cache| buffer_cache.borrow().len())
    }

    #[test]
    fn a_buffer_goes_round() {
        let mut buffer = take();
        buffer.extend_from_slice(&[1; 8000]);
        let address = buffer.as_ptr();
        drop(buffer.split_to(8000));
        give(buffer);
        assert_eq!(kept(), 1);
        assert_eq!(take().as_ptr(), address, "the whole of it");
        assert_eq!(kept(), 0);
    }

    #[test]
    fn what_is_in_use_or_of_no_use_is_let_go() {
        let mut buffer = take();
        buffer.extend_from_slice(&[1; 8000]);
        let part = buffer.split();
        give(buffer);
        assert_eq!(kept(), 0, "a part is held, and the rest is too small");
        drop(part);
        give(BytesMut::from(&b"not empty"[..]));
        give(BytesMut::with_capacity(2 * BUFFER_MAX));
        give(BytesMut::new());
        let mut long = BytesMut::zeroed(2 * BUFFER_MAX);
        drop(long.split_to(2 * BUFFER_MAX - BUFFER_MIN));
        long.clear();
        give(long);
        assert_eq!(kept(), 0);
    }

    #[test]
    fn a_thread_keeps_few() {
        (0..100).for_each(|_| give(BytesMut::with_capacity(BUFFER_MIN)));
        assert_eq!(kept(), KEPT);
    }
}
