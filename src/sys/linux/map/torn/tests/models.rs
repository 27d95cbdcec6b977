//! A reader and the guard, in every order: `.ci/run models`.

use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, AtomicU8};
use loom::thread;

use super::super::*;

#[test]
fn a_reader_of_a_zero_finds_the_mark() {
    loom::model(|| {
        let page = Arc::new((AtomicU8::new(b'x'), AtomicBool::new(false)));
        let guard = thread::spawn({
            let page = Arc::clone(&page);
            move || {
                page.1.store(true, Ordering::Relaxed);
                before_zeros();
                page.0.store(0, Ordering::Relaxed);
            }
        });
        let byte = page.0.load(Ordering::Relaxed);
        after_reading();
        let is_torn = page.1.load(Ordering::Relaxed);
        assert!(byte == b'x' || is_torn, "a zero without a mark");
        guard.join().unwrap();
    });
}
