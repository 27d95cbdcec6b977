//! A reader and the flusher that fails, in every order: `.ci/run models`.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use loom::future::block_on;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::super::*;

#[test]
fn a_reader_sees_a_failure_or_is_woken_for_it() {
    loom::model(|| {
        let stream = Arc::new((ReaderWaker::default(), AtomicBool::new(false)));
        let flusher = thread::spawn({
            let stream = Arc::clone(&stream);
            move || {
                stream.1.store(true, Ordering::Relaxed);
                if let Some(reader) = stream.0.take() {
                    reader.wake();
                }
            }
        });
        // The second registration in a row is the one without the lock.
        let register = |cx: &mut std::task::Context<'_>| (0..2).for_each(|_| stream.0.register(cx.waker()));
        block_on(poll_fn(|cx| {
            register(cx);
            if stream.1.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }
        }));
        flusher.join().unwrap();
    });
}
