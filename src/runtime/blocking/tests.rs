//! Unit tests of `blocking`.

use super::*;

#[tokio::test]
async fn a_task_returns_its_result_or_error() {
    assert_eq!(BlockingTask::start(|| Ok(7)).unwrap().await.unwrap(), 7);
    let failed = BlockingTask::<()>::start(|| Err(io::ErrorKind::NotFound.into())).unwrap().await;
    assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn without_a_runtime_there_is_an_error_and_no_panic() {
    assert!(BlockingTask::start(|| Ok(())).is_err());
}

#[tokio::test]
async fn disposed_values_are_dropped_on_another_thread() {
    struct Notifier(std::sync::mpsc::Sender<std::thread::ThreadId>);
    impl Drop for Notifier {
        fn drop(&mut self) {
            self.0.send(std::thread::current().id()).unwrap();
        }
    }
    let (sender, notified) = std::sync::mpsc::channel();
    dispose(Notifier(sender));
    assert_ne!(notified.recv().unwrap(), std::thread::current().id());
}

#[test]
fn a_job_that_was_dropped_before_it_started_never_runs() {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let busy = BlockingTask::start(move || wait.recv().map_err(io::Error::other)).unwrap();
        let ran = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let flag = std::sync::Arc::clone(&ran);
        drop(BlockingTask::start(move || {
            flag.store(true, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        }));
        go.send(()).unwrap();
        busy.await.unwrap();
        // The pool has one thread and a FIFO queue, so the dropped task would have run before this one.
        BlockingTask::start(|| Ok(())).unwrap().await.unwrap();
        assert!(!ran.load(std::sync::atomic::Ordering::Relaxed));
    });
}
