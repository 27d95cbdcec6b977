//! Per-thread cache of unused codec buffers: idle connections hold none, and messages need no allocation.

use std::cell::RefCell;

use bytes::BytesMut;

pub(super) const BUFFER_MIN: usize = 8 << 10;
/// Maximum capacity of a cached buffer, so that one long message does not pin its memory.
pub(super) const BUFFER_MAX: usize = 128 << 10;
/// Number of buffers that a thread caches. An active connection uses two, and usually one is active at a time.
const KEPT: usize = 8;

thread_local! {
    static CACHE: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn take() -> BytesMut {
    // A thread that is ending has no cache.
    let kept = CACHE.try_with(|buffer_cache| buffer_cache.borrow_mut().pop()).ok().flatten();
    kept.unwrap_or_else(|| BytesMut::with_capacity(BUFFER_MIN))
}

/// Returns a buffer to the cache. Drops it if it is not empty, too small, too large, or partly shared.
pub(super) fn give(mut buffer: BytesMut) {
    // Each call reclaims bytes taken from the front, if they are not shared; otherwise the capacity is unknown.
    let too_large = buffer.try_reclaim(BUFFER_MAX + 1);
    if buffer.is_empty() && !too_large && buffer.try_reclaim(BUFFER_MIN) {
        let _ = CACHE.try_with(|buffer_cache| {
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
        CACHE.with(|buffer_cache| buffer_cache.borrow().len())
    }

    #[test]
    fn a_buffer_goes_round() {
        let mut buffer = take();
        buffer.extend_from_slice(&[1; 8000]);
        let address = buffer.as_ptr();
        drop(buffer.split_to(8000));
        give(buffer);
        assert_eq!(kept(), 1);
        assert_eq!(take().as_ptr(), address, "all of the buffer is reused");
        assert_eq!(kept(), 0);
    }

    #[test]
    fn what_is_in_use_or_of_no_use_is_let_go() {
        let mut buffer = take();
        buffer.extend_from_slice(&[1; 8000]);
        let part = buffer.split();
        give(buffer);
        assert_eq!(kept(), 0, "a part is shared, and the rest is too small");
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
