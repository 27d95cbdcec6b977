//! Pages: readers that catch up while events are appended, compressed ones, and what is sent by `sendfile`.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::io::Read;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Request;
use millstream::fs::Durability;
use millstream::metrics::Snapshot;
use millstream::net::TcpListener;
use millstream::server;
use millstream::sse::log::disk::Disk;
use millstream::sse::{Event, Hub, SendError};

use crate::{close, hub, reader, send, small};
use testkit::events::Reader;
use testkit::http::{Flavour, Raw, on_both, watched};
use testkit::{alone, counted_since, lacks};

fn data(n: usize) -> String {
    format!("{n} {}", "x".repeat(n % 1000))
}

/// Creates a log with many events in few commits.
async fn many(builder: millstream::sse::log::disk::DiskBuilder, events: usize) {
    let disk = builder.queue(1 << 20).durability(Durability::None).open().await.unwrap();
    let hub = hub(&disk);
    for n in 0..events {
        send(&hub, data(n));
        if n % 500 == 0 {
            disk.flush().await.unwrap();
        }
    }
    disk.flush().await.unwrap();
    close(hub, disk).await;
}

#[test]
fn readers_catch_up_while_events_are_appended() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let segment = 100 << 10;
        many(Disk::builder(dir.path()).segment_bytes(segment), 2000).await;
        let disk = Disk::builder(dir.path()).segment_bytes(segment).open().await.unwrap();
        let hub = Hub::builder().replay(10).queue(5000).log(disk.clone()).build();
        let sender = hub.clone();
        let appends = tokio::spawn(async move {
            for n in 2000..3000 {
                while let Err(e) = sender.send(Event::new().data(data(n))) {
                    assert!(matches!(e, SendError::Full), "{e}");
                    tokio::task::yield_now().await;
                }
                if n % 7 == 0 {
                    tokio::time::sleep(Duration::from_micros(100)).await;
                }
            }
        });
        let readers = (0..12).map(|n| {
            let hub = hub.clone();
            tokio::spawn(async move {
                let from = n * 180;
                let mut reader = reader(&hub, &from.to_string());
                for expected in from..3000 {
                    let got = reader.next().await;
                    assert_eq!((got.data, got.id), (data(expected), Some((expected + 1).to_string())));
                }
            })
        });
        for reader in readers.collect::<Vec<_>>() {
            reader.await.unwrap();
        }
        appends.await.unwrap();
        assert_eq!(disk.state().damaged, 0);
    });
}

#[test]
fn pages_are_bounded_and_whole_events() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        many(Disk::builder(dir.path()), 3000).await;
        let disk = Disk::builder(dir.path()).open().await.unwrap();
        let hub = Hub::builder().replay(1).log(disk.clone()).build();
        let before = hub.stats().delivered;
        let mut body = hub.subscribe_from(Some("0")).unwrap();
        let (mut next, mut frames) = (1, 0);
        while next <= 3000 {
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(frame.len() <= 257 << 10, "{}", frame.len());
            frames += 1;
            let text = str::from_utf8(&frame).unwrap();
            assert!(text.starts_with(':') && text.ends_with("\n\n"));
            for event in text.split_terminator("\n\n") {
                assert!(event.ends_with(&format!("\nid: {next}")), "{next}: {event}");
                next += 1;
            }
        }
        assert!((5..40).contains(&frames), "{frames} frames");
        assert_eq!(hub.stats().delivered - before, 3000);
    });
}

#[test]
fn compressed_readers_get_the_same_in_short_frames() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        many(Disk::builder(dir.path()), 3000).await;
        let disk = Disk::builder(dir.path()).open().await.unwrap();
        let hub = Hub::builder().gzip(1).replay(1).log(disk.clone()).build();
        let request = Request::get("/").header("accept-encoding", "gzip").header("last-event-id", "0");
        let response = hub.subscribe(&request.body(()).unwrap());
        assert_eq!(response.headers()["content-encoding"], "gzip");
        let mut body = response.into_body();
        let mut decoder = flate2::write::GzDecoder::new(Vec::new());
        let (mut text, mut longest) = (Vec::new(), 0);
        while !text.ends_with(b"id: 3000\n\n") {
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            std::io::Write::write_all(&mut decoder, &frame).unwrap();
            std::io::Write::flush(&mut decoder).unwrap();
            let part = std::mem::take(decoder.get_mut());
            assert!(part.is_empty() || part.ends_with(b"\n\n"), "a frame ends with an event");
            longest = part.len().max(longest);
            text.extend(part);
        }
        assert!(longest > 16 << 10 && longest < 18 << 10, "{longest}");
        let mut segment = Vec::new();
        fs::File::open(&crate::segments(dir.path())[0]).unwrap().read_to_end(&mut segment).unwrap();
        assert!(text == segment, "the segment itself");
    });
}

/// Over a socket, the bytes of a page do not pass through this process.
#[test]
fn pages_are_sent_by_sendfile() {
    if alone::ran_in_child() {
        return;
    }
    let copies = lacks("sendfile") || lacks("mapping");
    watched(move || {
        Flavour::CurrentThread.runtime().block_on(async {
            let dir = tempfile::tempdir().unwrap();
            many(Disk::builder(dir.path()), 4000).await;
            let disk = Disk::builder(dir.path()).open().await.unwrap();
            let len = disk.state().bytes;
            let hub = Hub::builder().replay(1).log(disk.clone()).build();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let service = tower::service_fn(move |request| {
                let answer = hub.subscribe(&request);
                async { Ok::<_, Infallible>(answer) }
            });
            tokio::spawn(server::serve(listener, service).into_future());
            let before = Snapshot::now();
            let mut client = Raw::connect(addr).await;
            client.send("GET / HTTP/1.1\r\nhost: mill\r\nlast-event-id: 0\r\n\r\n").await;
            let mut got = Vec::new();
            while !got.windows(11).rev().take(100).any(|end| end == b"id: 4000\n\n\r") {
                let mut buf = vec![0; 64 << 10];
                let n = tokio::io::AsyncReadExt::read(&mut client.io, &mut buf).await.unwrap();
                assert!(n > 0, "the stream ends");
                got.extend_from_slice(&buf[..n]);
            }
            match copies {
                true => assert_eq!(Snapshot::now().since(&before).bytes_by_sendfile, 0),
                // A client has the last bytes before they are counted.
                false => drop(counted_since(&before, |counted| counted.bytes_by_sendfile > len * 9 / 10).await),
            }
        });
    });
}

/// Returns the number of open descriptors of each segment.
fn descriptors() -> Vec<usize> {
    let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    let mut counts = BTreeMap::new();
    for path in links.filter(|path| path.extension().is_some_and(|end| end == "events")) {
        *counts.entry(path).or_default() += 1;
    }
    counts.into_values().collect()
}

#[test]
fn a_segment_has_one_descriptor_and_short_pages_need_none() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            for (segment, expected) in [(300 << 10, vec![1, 1]), (0, vec![1])] {
                let dir = tempfile::tempdir().unwrap();
                many(Disk::builder(dir.path()).segment_bytes(segment), 2000).await;
                let disk = Disk::builder(dir.path()).segment_bytes(segment).open().await.unwrap();
                let hub = Hub::builder().replay(1).log(disk.clone()).build();
                let mut held = Vec::new();
                for _ in 0..20 {
                    let mut body = hub.subscribe_from(Some("0")).unwrap();
                    held.push((body.frame().await.unwrap().unwrap().into_data().unwrap(), body));
                }
                let expected = if lacks("mapping") { vec![1] } else { expected };
                assert_eq!(descriptors(), expected, "segments of {segment} bytes");
                // At the end, the descriptor of the writer is used.
                held.clear();
                for _ in 0..20 {
                    let mut body = hub.subscribe_from(Some("1990")).unwrap();
                    held.push((body.frame().await.unwrap().unwrap().into_data().unwrap(), body));
                }
                assert_eq!(descriptors(), [1], "segments of {segment} bytes");
                drop(held);
                close(hub, disk).await;
            }
        });
    });
}

/// A reader may have the id of an event that the hub delivers later.
#[test]
fn a_reader_moves_between_hubs() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let disk = small(dir.path()).open().await.unwrap();
        let hubs = [hub(&disk), Hub::builder().replay(1).log(disk.clone()).build()];
        let sender = hubs[0].clone();
        let appends = tokio::spawn(async move {
            for n in 0..1000 {
                send(&sender, n);
                tokio::time::sleep(Duration::from_micros(100)).await;
            }
        });
        let (mut last, mut all) = ("0".to_owned(), Vec::new());
        for turn in 0..40 {
            let mut reader = Reader::new(hubs[turn % 2].subscribe_from(Some(&last)).unwrap());
            all.extend(reader.data(25).await);
            last = reader.last.unwrap();
        }
        assert_eq!(all, crate::numbers(0, 1000));
        appends.await.unwrap();
    });
}

/// As docs/guide/respond.md says.
#[test]
fn an_unknown_id_gets_what_is_in_memory_and_zero_gets_all() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        crate::filled(small(dir.path()), 5).await;
        let disk = small(dir.path()).open().await.unwrap();
        let hub = hub(&disk);
        send(&hub, 5);
        disk.flush().await.unwrap();
        let [mut all, mut unknown] = ["0", "no-id-of-this-log"].map(|last| crate::reader(&hub, last));
        assert_eq!(all.data(6).await, crate::numbers(0, 6));
        let gap = unknown.next().await;
        assert!(gap.is_gap() && gap.data.contains("null"), "{}", gap.data);
        assert_eq!(unknown.next().await.data, "5");
    });
}
