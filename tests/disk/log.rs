//! Round trips: restarts, several hubs, ids, sizes, retention.

use std::collections::BTreeSet;
use std::time::Duration;

use http_body_util::BodyExt;
use millstream::fs::Durability;
use millstream::sse::log::disk::{Disk, DiskError};
use millstream::sse::{Event, Hub, SendError};

use crate::{close, contents, filled, forgetful, hub, kept, numbers, open, reader, segments, send, small};
use testkit::events::Reader;
use testkit::http::on_both;

/// Long enough for a pending frame to arrive.
const QUIET: Duration = Duration::from_millis(300);

#[test]
fn events_survive_a_restart() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        for round in 0..4 {
            let disk = open(&path).await;
            let hub = hub(&disk);
            let mut before = reader(&hub, "0");
            assert_eq!(before.data(10 * round).await, numbers(0, 10 * round));
            let mut live = Reader::new(hub.subscribe_from(None).unwrap());
            (10 * round..10 * round + 10).for_each(|n| send(&hub, n));
            assert_eq!(before.data(10).await, numbers(10 * round, 10 * round + 10));
            assert_eq!(live.data(10).await, numbers(10 * round, 10 * round + 10));
            assert_eq!(live.last, Some((10 * round + 10).to_string()));
            assert_eq!(before.rest(QUIET).await, []);
            disk.flush().await.unwrap();
            let state = disk.state();
            assert_eq!((state.first, state.next, state.appended, state.queued), (1, 10 * round as u64 + 11, 10, 0));
            drop((before, live));
            close(hub, disk).await;
        }
    });
}

#[test]
fn a_reader_continues_after_a_restart_where_it_was() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        filled(small(dir.path()), 200).await;
        let disk = open(dir.path()).await;
        let hub = forgetful(&disk);
        for after in [0, 1, 17, 100, 199] {
            assert_eq!(reader(&hub, &after.to_string()).data(200 - after).await, numbers(after, 200));
        }
        assert_eq!(reader(&hub, "200").rest(QUIET).await, []);
        // Not an id of the log.
        for unknown in ["007", "x", "1-0", "201", "99999999999999999999"] {
            assert!(reader(&hub, unknown).next().await.is_gap(), "{unknown}");
        }
    });
}

/// A log that has lost its events gives their ids again.
#[test]
fn a_reader_that_is_ahead_of_the_log_gets_a_gap() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        filled(small(&path), 100).await;
        std::fs::remove_dir_all(&path).unwrap();
        let disk = open(&path).await;
        let hub = hub(&disk);
        let mut early = reader(&hub, "100");
        (0..50).for_each(|n| send(&hub, n));
        disk.flush().await.unwrap();
        let mut late = reader(&hub, "100");
        (50..150).for_each(|n| send(&hub, n));
        for reader in [&mut early, &mut late] {
            assert!(reader.next().await.is_gap());
            assert_eq!(reader.data(150).await, numbers(0, 150));
        }
    });
}

#[test]
fn several_hubs_have_one_order() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let disk = small(dir.path()).open().await.unwrap();
        let hubs = [hub(&disk), hub(&disk), hub(&disk.clone())];
        let mut readers = hubs.each_ref().map(|hub| Reader::new(hub.subscribe_from(None).unwrap()));
        // Hubs start with their task.
        tokio::task::yield_now().await;
        let senders = hubs.clone().into_iter().enumerate().map(|(of, hub)| {
            tokio::spawn(async move {
                for n in 0..300 {
                    send(&hub, format!("{of} {n}"));
                    if n % 20 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            })
        });
        for sender in senders.collect::<Vec<_>>() {
            sender.await.unwrap();
        }
        let mut orders = Vec::new();
        for reader in &mut readers {
            let mut order = Vec::new();
            for _ in 0..900 {
                let got = reader.next().await;
                order.push((got.id.unwrap(), got.data));
            }
            assert_eq!(reader.rest(QUIET).await, []);
            orders.push(order);
        }
        assert!(orders[0] == orders[1] && orders[1] == orders[2], "two orders");
        assert!(orders[0].iter().map(|(id, _)| id.clone()).eq(numbers(1, 901)), "ids have no holes");
        for of in ["0 ", "1 ", "2 "] {
            let of_one = orders[0].iter().filter_map(|(_, data)| data.strip_prefix(of)?.parse::<usize>().ok());
            assert!(of_one.eq(0..300), "the order of a sender is kept");
        }
        assert!(segments(dir.path()).len() > 1);
        assert_eq!(contents(&disk).await, orders[0].iter().map(|(_, data)| data.clone()).collect::<Vec<_>>());
    });
}

#[test]
fn parts_of_an_event_arrive_live_and_from_the_segment() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let disk = open(dir.path()).await;
        let hub = forgetful(&disk);
        let event = || Event::new().event("token").data("a\nb").retry(Duration::from_secs(2)).comment("c");
        assert!(matches!(hub.send(event().id("mine")), Err(SendError::IdNotOurs)));
        let mut live = hub.subscribe_from(None).unwrap();
        assert_eq!(hub.send(event()).unwrap().id(), None);
        let text = ": c\nevent: token\ndata: a\ndata: b\nretry: 2000\nid: 1\n\n";
        assert_eq!(live.frame().await.unwrap().unwrap().into_data().unwrap(), text);
        (0..3).for_each(|n| send(&hub, n));
        disk.flush().await.unwrap();
        let mut replayed = hub.subscribe_from(Some("0")).unwrap();
        let frame = replayed.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(frame[..5], *b":0000");
        assert!(frame[19..].starts_with(text.as_bytes()), "{frame:?}");
        let segment = std::fs::read(&segments(dir.path())[0]).unwrap();
        assert!(segment.starts_with(&frame), "a page is a range of the segment");
    });
}

#[test]
fn an_event_may_be_larger_than_a_segment() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let disk = small(dir.path()).queue_bytes(1 << 20).open().await.unwrap();
        let hub = forgetful(&disk);
        let large = |n: usize| format!("{n} {}", "x".repeat(300_000 * (n % 2)));
        for n in 0..6 {
            send(&hub, large(n));
            disk.flush().await.unwrap();
        }
        let too_large = hub.send(Event::new().data("x".repeat((16 << 20) + 1))).unwrap_err();
        assert!(matches!(too_large, SendError::Log(_)), "{too_large}");
        assert_eq!(reader(&hub, "0").data(6).await, (0..6).map(large).collect::<Vec<_>>());
        assert_eq!(segments(dir.path()).len(), 6, "a segment for each: none fits behind another");
    });
}

#[test]
fn the_queue_is_bounded() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let disk = small(dir.path()).queue(3).open().await.unwrap();
        // No hub has begun to run, so nothing is committed.
        let hub = hub(&disk);
        let sent: Vec<_> = (0..4).map(|n| hub.send(Event::new().data(n.to_string()))).collect();
        if disk.state().appended == 0 {
            assert!(sent[..3].iter().all(Result::is_ok));
            assert!(matches!(sent[3], Err(SendError::Full)), "{:?}", sent[3]);
        }
        disk.flush().await.unwrap();
        send(&hub, 5);
        disk.flush().await.unwrap();
        assert_eq!(disk.state().queued, 0);
    });
}

#[test]
fn a_directory_has_one_log() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let disk = open(dir.path()).await;
        let clone = disk.clone();
        drop(disk);
        let error = Disk::builder(dir.path()).open().await.unwrap_err();
        assert!(
            matches!(error, DiskError::Locked { .. }) && error.to_string().contains(dir.path().to_str().unwrap()),
            "{error}"
        );
        drop(clone);
        open(dir.path()).await;
    });
}

#[test]
fn old_segments_are_removed_and_readers_are_told_how_much_they_missed() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let disk = small(dir.path()).keep_segments(2).open().await.unwrap();
        let hub = forgetful(&disk);
        for n in 0..300 {
            send(&hub, n);
            disk.flush().await.unwrap();
        }
        assert_eq!(kept(&disk).await.len(), 2);
        let state = disk.state();
        assert!(state.removed > 0 && state.first > 5 && state.bytes <= 8192, "{state:?}");
        let indexes = std::fs::read_dir(dir.path())
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|end| end == "index"));
        assert_eq!(indexes.count(), 1, "that of the full segment");
        let first = state.first as usize;
        for after in [0, 5, first - 2] {
            let mut reader = reader(&hub, &after.to_string());
            let gap = reader.next().await;
            assert_eq!(gap.data, format!("{{\"reason\":\"expired\",\"missed\":{}}}", first - 1 - after));
            assert_eq!(reader.data(301 - first).await, numbers(first - 1, 300));
        }
        assert_eq!(reader(&hub, &(first - 1).to_string()).data(301 - first).await, numbers(first - 1, 300));
        drop(reader(&hub, "0"));
        close(hub, disk).await;
        // The options of the next opening count.
        let disk = small(dir.path()).keep_bytes(0).open().await.unwrap();
        let state = disk.state();
        assert_eq!((state.segments, segments(dir.path()).len(), state.next), (1, 1, 301));
    });
}

#[test]
fn segments_are_removed_by_age() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        filled(small(dir.path()), 500).await;
        let all = segments(dir.path());
        assert!(all.len() > 3);
        for path in &all[..2] {
            let long_ago = std::time::SystemTime::now() - Duration::from_secs(1000);
            std::fs::File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
        }
        let disk = small(dir.path()).keep_for(Duration::from_secs(900)).open().await.unwrap();
        assert_eq!(segments(dir.path()), all[2..]);
        assert_eq!(disk.state().segments, all.len() - 2);
    });
}

/// The time at which a segment was begun is not known after a restart.
#[test]
fn a_restart_begins_a_segment_if_segments_are_removed_by_age() {
    on_both(async || {
        let (aged, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for _ in 0..3 {
            filled(Disk::builder(aged.path()).keep_for(Duration::from_secs(900)), 2).await;
            filled(Disk::builder(kept.path()), 2).await;
        }
        assert_eq!((segments(aged.path()).len(), segments(kept.path()).len()), (3, 1));
        let disk = open(aged.path()).await;
        assert_eq!(contents(&disk).await, ["0", "1", "0", "1", "0", "1"]);
    });
}

/// Nothing that was confirmed has its id again, also after everything was removed.
#[test]
fn ids_are_never_used_again() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let mut ids = BTreeSet::new();
        for _ in 0..4 {
            let disk = small(dir.path()).keep_segments(1).open().await.unwrap();
            let hub = hub(&disk);
            let mut live = Reader::new(hub.subscribe_from(None).unwrap());
            for n in 0..70 {
                send(&hub, n);
                assert!(ids.insert(live.next().await.id.unwrap()));
            }
            drop(live);
            close(hub, disk).await;
        }
        assert_eq!(ids.len(), 280);
    });
}

#[test]
fn a_closed_hub_commits_what_it_has() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        for durability in [Durability::None, Durability::Full] {
            let disk = Disk::builder(dir.path()).durability(durability).open().await.unwrap();
            let before = disk.state().next;
            let mut hubs: Vec<Hub> = (0..3).map(|_| hub(&disk)).collect();
            for n in 0..100 {
                send(&hubs[n % 3], n);
            }
            hubs.iter().for_each(Hub::close);
            assert!(matches!(hubs[0].send(Event::new()), Err(SendError::Closed)));
            disk.flush().await.unwrap();
            let state = disk.state();
            assert_eq!((state.next - before, state.given_up), (100, 0));
            drop(hubs.split_off(1));
            close(hubs.remove(0), disk).await;
        }
    });
}

#[test]
fn a_runtime_that_ends_gives_up_what_waits() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let one = runtime();
    let (disk, hub) = one.block_on(async {
        let disk = open(dir.path()).await;
        let hub = hub(&disk);
        send(&hub, "committed");
        disk.flush().await.unwrap();
        (disk, hub)
    });
    send(&hub, "waits");
    drop(one);
    assert!(matches!(hub.send(Event::new()), Err(SendError::Closed)));
    assert_eq!((disk.state().given_up, disk.state().queued), (1, 0));
    runtime().block_on(async {
        assert!(matches!(disk.flush().await, Err(DiskError::GivenUp { events: 1, .. })));
        // A new hub opens the queue again.
        assert_eq!(contents(&disk).await, ["committed"]);
    });
}
