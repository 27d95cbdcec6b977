//! Requests and the reaper, in every order: `.ci/run models`.

use std::sync::Arc;

use loom::thread;

use super::super::*;

#[test]
fn the_bytes_of_a_request_are_counted_before_it() {
    const HEAD: u64 = 40;
    loom::model(|| {
        let connection = Arc::new((AtomicU64::new(0), Requests::default()));
        let task = thread::spawn({
            let connection = Arc::clone(&connection);
            move || {
                let (received, requests) = &*connection;
                received.store(HEAD, Ordering::Relaxed);
                requests.begin();
                requests.end();
            }
        });
        let (received, requests) = &*connection;
        let (begun, _) = requests.counts();
        assert!(begun == 0 || received.load(Ordering::Relaxed) == HEAD);
        task.join().unwrap();
    });
}
