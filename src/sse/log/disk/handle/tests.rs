//! Unit tests of `handle`.

use std::future::poll_fn;
use std::task::Poll;

use super::*;

/// A job continues if its reader leaves, so it counts as long as it runs.
#[tokio::test]
#[expect(clippy::await_holding_lock, reason = "the jobs wait for it")]
async fn jobs_of_readers_that_left_count() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::builder(dir.path()).open().await.unwrap();
    let hub = crate::sse::hub::Hub::builder().log(disk.clone()).build();
    hub.send(Event::new().data("x")).unwrap();
    disk.flush().await.unwrap();
    let reading = Arc::clone(&disk.0.shared.segments().last().reading);
    let (jobs, reads) = (Arc::strong_count(&reading), &disk.0.reads);
    let index = reading.index();
    let mut readers: Vec<_> = (0..READS).map(|_| disk.replay("0", "1", 1000)).collect();
    for reader in &mut readers {
        assert!(poll_fn(|cx| Poll::Ready(reader.as_mut().poll(cx).is_pending())).await);
    }
    while Arc::strong_count(&reading) < jobs + READS {
        tokio::task::yield_now().await;
    }
    drop(readers);
    tokio::task::yield_now().await;
    assert_eq!(reads.available_permits(), 0);
    drop(index);
    while reads.available_permits() < READS {
        tokio::task::yield_now().await;
    }
    assert!(disk.replay("0", "1", 1000).await.is_ok());
}
