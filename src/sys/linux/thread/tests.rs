//! Unit tests of `thread`.

use super::*;
use std::sync::mpsc;

#[test]
fn waiting_threads_differ_from_running_ones() {
    let me = activity(current()).unwrap();
    assert!(me.runnable);
    let (tell, told) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        tell.send(current()).unwrap();
        let _ = ends.recv();
    });
    let id = told.recv().unwrap();
    assert_ne!(id, current());
    let since = std::time::Instant::now();
    while activity(id).unwrap().runnable {
        assert!(since.elapsed() < Duration::from_secs(30));
        std::thread::yield_now();
    }
    drop(end);
    other.join().unwrap();
    while activity(current()).unwrap().ran == me.ran {
        std::hint::spin_loop();
    }
    assert_eq!(activity(i32::MAX), None);
}
