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
mod tests;
