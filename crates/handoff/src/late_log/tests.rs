//! Unit tests of `late_log`.

use std::sync::atomic::{AtomicUsize, Ordering};

use millstream::sse::Hub;
use millstream::sse::log::disk::Disk;
use tokio::sync::oneshot;

use super::*;

/// Returns a log that is opened when the sender is dropped.
fn after<F: Future<Output = io::Result<Disk>> + Send + 'static>(
    open: impl Fn() -> F + Send + Sync + 'static,
) -> (oneshot::Sender<()>, HandoffLog<Disk>) {
    let (sender, ended) = oneshot::channel();
    (sender, HandoffLog::open_after(async { drop(ended.await) }, open, watch::Sender::new(())))
}

#[tokio::test]
async fn events_wait_for_the_log_and_keep_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events");
    let before = Disk::builder(&path).open().await.unwrap();
    let (ended, log) = after(move || {
        let path = path.clone();
        async move { Ok(Disk::builder(path).open().await?) }
    });
    let hubs = [(); 2].map(|()| Hub::builder().log(log.clone()).build());
    for n in 0..WAITING {
        hubs[n % 2].send(Event::new().data(n.to_string())).unwrap();
    }
    assert!(matches!(hubs[0].send(Event::new().data("more")), Err(SendError::Full)));
    drop(ended);
    // The process before still has the directory.
    sleep(PAUSE * 3).await;
    assert!(log.0.opened().is_none());
    drop(before);
    log.0.is_ready.subscribe().wait_for(|is_ready| *is_ready).await.unwrap();
    let disk = log.0.opened().expect("it is open");
    while !matches!(*log.0.state(), State::Open(_)) {
        tokio::task::yield_now().await;
    }
    disk.flush().await.unwrap();
    hubs[1].send(Event::new().data("last")).unwrap();
    disk.flush().await.unwrap();
    assert_eq!(disk.state().next, WAITING as u64 + 2);
    let page = disk.replay("0", "3", 1 << 10).await.unwrap();
    assert!(format!("{page:?}").contains("data: 0\\n"), "{page:?}");
    assert_eq!((log.order("2", "1"), log.order("99999999", "1")), (Some(std::cmp::Ordering::Greater), None));
}

#[tokio::test]
async fn a_log_that_cannot_be_opened_fails_sends() {
    let (ended, log) = after(async || Err(io::Error::new(io::ErrorKind::NotFound, "no such disk")));
    let hub = Hub::builder().log(log.clone()).build();
    hub.send(Event::new().data("lost")).unwrap();
    drop(ended);
    log.0.is_ready.subscribe().wait_for(|is_ready| *is_ready).await.unwrap();
    let error = hub.send(Event::new().data("refused")).unwrap_err();
    assert!(matches!(&error, SendError::Log(why) if why.to_string().contains("no such disk")), "{error}");
    assert!(matches!(log.replay("0", "1", 100).await, Err(ReplayError::Unknown)));
    assert_eq!(log.order("0", "1"), None);
    hub.close();
}

#[tokio::test(start_paused = true)]
async fn a_log_that_another_process_keeps_is_not_waited_for_without_end() {
    let attempts = AtomicUsize::new(0);
    let open = async || {
        attempts.fetch_add(1, Ordering::Relaxed);
        Err::<(), _>(io::Error::from(io::ErrorKind::ResourceBusy))
    };
    let begun = Instant::now();
    assert_eq!(retried(open).await.unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    assert!(begun.elapsed() >= PATIENCE && attempts.load(Ordering::Relaxed) > 100);
}

#[tokio::test]
async fn events_of_a_hub_that_is_closed_before_the_log_opens_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events");
    let open = || Disk::builder(&path).open();
    let opens = path.clone();
    let (ended, log) = after(move || {
        let path = opens.clone();
        async move { Ok(Disk::builder(path).open().await?) }
    });
    let hub = Hub::builder().log(log.clone()).build();
    (0..3).for_each(|_| drop(hub.send(Event::new().data("kept")).unwrap()));
    hub.close();
    drop((hub, ended));
    log.0.is_ready.subscribe().wait_for(|is_ready| *is_ready).await.unwrap();
    drop(log);
    let disk = loop {
        // Until the hub has ended.
        match open().await {
            Ok(disk) => break disk,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    assert_eq!(disk.state().next, 4);
}
