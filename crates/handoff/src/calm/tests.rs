//! Unit tests of `calm`.

use tokio::time::timeout;

use super::*;

#[tokio::test(start_paused = true)]
async fn it_is_calm_after_a_pause_or_in_time_although_batches_trickle() {
    let (mut calm, since) = (Calm::new(), Instant::now());
    calm.begins().await;
    assert!(calm.is_calm() && since.elapsed() < CALM * 2);
    let since = Instant::now();
    calm.disturb();
    assert!(!calm.is_calm());
    while timeout(CALM * 4 / 5, calm.begins()).await.is_err() {
        assert!(since.elapsed() < CALM_MAX, "it is not calm");
        calm.disturb();
    }
    let took = since.elapsed();
    assert!(took > CALM_MAX - CALM && took < CALM_MAX + CALM, "{took:?}");
    // The events of the next process come on.
    sleep(CALM).await;
    calm.disturb();
    assert!(calm.is_calm());
}
