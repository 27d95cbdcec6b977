//! Unit tests of `buffer_cache`.

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
