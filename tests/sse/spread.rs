//! Readers end one after another when a server drains, or at their age, and come back at different times: written by the
//! hub or polled, plain or compressed.

use std::time::{Duration, Instant};

use millstream::metrics::Snapshot;
use millstream::sse::{Event, Hub};
use tokio::task::JoinSet;

use crate::gzip_direct::{Servers, Way};
use crate::served::until;
use testkit::http::on_both;

/// Readers of each way and form.
const EACH: usize = 10;
const ALL: usize = EACH * 2 * Way::ALL.len();

/// Connects readers, which get one event. Returns, when each has ended, how long that took since now and its `retry:`.
async fn readers(hub: &Hub, servers: &Servers) -> JoinSet<(Duration, u64)> {
    let before = hub.send(Event::new().data("before")).unwrap().to_string();
    hub.send(Event::new().data("first")).unwrap();
    let mut readers = Vec::new();
    let mut direct = 0;
    for way in Way::ALL {
        direct += if matches!(way, Way::One | Way::Tls) { 2 * EACH } else { 0 };
        for gzip in [false, true] {
            for _ in 0..EACH {
                readers.push((way, servers.subscribe(way, gzip, Some(&before)).await));
            }
        }
        // Unless one has reached its age.
        until(hub, |stats| stats.direct == direct || stats.subscribers < readers.len()).await;
    }
    let (mut ends, begun) = (JoinSet::new(), Instant::now());
    for (way, reader) in readers {
        ends.spawn(async move {
            let (_, text) = reader.end().await;
            let after = begun.elapsed();
            let text = String::from_utf8(text).unwrap();
            assert!(text.starts_with("data: first\nid: "), "{way:?}: {text}");
            let (events, retry) = text.rsplit_once("retry: ").expect("a time to come back");
            assert!(events.ends_with("\n\n"), "{way:?}: cut inside an event");
            (after, retry.strip_suffix("\n\n").unwrap().parse().unwrap())
        });
    }
    ends
}

/// The draws of a hub are spread evenly over its range.
fn assert_spread(mut retries: Vec<u64>) {
    retries.sort_unstable();
    assert!(retries[0] >= 1000 && retries[ALL - 1] <= 3000, "{retries:?}");
    for tenth in 0..10_u64 {
        let range = 1000 + 200 * tenth..1200 + 200 * tenth;
        let count = retries.iter().filter(|&retry| range.contains(retry)).count();
        assert!((ALL / 10 - 2..=ALL / 10 + 2).contains(&count), "{count} in {range:?}: {retries:?}");
    }
}

#[test]
fn a_drain_ends_readers_one_after_another() {
    on_both(async || {
        let hub = Hub::builder().gzip(6).build();
        let servers = Servers::start(&hub).await;
        let mut ends = readers(&hub, &servers).await;
        let signalled = Instant::now();
        servers.drain();
        // An event between two ends reaches the readers that are left.
        while hub.stats().subscribers > ALL / 2 {
            hub.send(Event::new().data("more")).unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut retries = Vec::new();
        while let Some(end) = ends.join_next().await {
            retries.push(end.unwrap().1);
        }
        // Each of three servers has 20 or 40 readers at least, and told the last of them after 10 ms for each.
        let took = signalled.elapsed();
        assert!(took >= Duration::from_millis(10) * EACH as u32 * 2, "{took:?}");
        assert_eq!((retries.len(), hub.stats().subscribers, hub.stats().direct), (ALL, 0, 0));
        assert_spread(retries);
    });
}

#[test]
fn readers_end_at_their_age() {
    on_both(async || {
        // Far longer than a machine stands still, after which many end at once.
        let (least, most) = (Duration::from_secs(2), Duration::from_secs(12));
        let hub = Hub::builder().gzip(6).max_age(least..=most).build();
        let (servers, before, begun) = (Servers::start(&hub).await, Snapshot::now(), Instant::now());
        let mut ends = readers(&hub, &servers).await;
        // Direct readers and polled readers end between two events, too.
        while hub.stats().subscribers > 0 {
            hub.send(Event::new().data("more")).unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
            // The first reader has lived as long as the time since the beginning at most.
            assert!(hub.stats().subscribers == ALL || begun.elapsed() >= least);
        }
        let (mut times, mut retries) = (Vec::new(), Vec::new());
        while let Some(end) = ends.join_next().await {
            let (after, retry) = end.unwrap();
            times.push(after);
            retries.push(retry);
        }
        assert_eq!((times.len(), hub.stats().direct), (ALL, 0));
        assert_spread(retries);
        times.sort_unstable();
        assert!(times[ALL - 1] - times[0] >= (most - least) / 2, "{times:?}");
        assert!(Snapshot::now().since(&before).readers_aged >= ALL as u64);
    });
}

/// Without events too: the task that sends comments looks for the age of silent readers.
#[test]
fn silent_readers_end_at_their_age() {
    on_both(async || {
        let hub = Hub::builder().gzip(6).max_age(Duration::from_secs(1)).keep_alive(Duration::ZERO).build();
        let servers = Servers::start(&hub).await;
        let mut ends = readers(&hub, &servers).await;
        while let Some(end) = ends.join_next().await {
            end.unwrap();
        }
        assert_eq!((hub.stats().subscribers, hub.stats().direct), (0, 0));
    });
}
