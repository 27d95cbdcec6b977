//! `sse::log::disk`: a log in a directory.
#![cfg(all(feature = "fs", feature = "sse"))]

mod calls;
mod crash;
mod faults;
mod killed;
mod log;
mod model;
mod recovery;
mod replay;

use std::fs;
use std::path::{Path, PathBuf};

use millstream::sse::log::disk::{Disk, DiskBuilder, DiskError};
use millstream::sse::{Event, EventBody, Hub};
use testkit::events::Reader;

/// A log with segments as small as possible.
fn small(dir: &Path) -> DiskBuilder {
    Disk::builder(dir).segment_bytes(0)
}

async fn open(dir: &Path) -> Disk {
    Disk::builder(dir).open().await.unwrap()
}

fn hub(disk: &Disk) -> Hub {
    Hub::builder().log(disk.clone()).build()
}

/// A hub whose ring holds nothing for long, so that readers need the log.
fn forgetful(disk: &Disk) -> Hub {
    Hub::builder().replay(1).queue(1).log(disk.clone()).build()
}

fn reader(hub: &Hub, last: &str) -> Reader<EventBody> {
    Reader::new(hub.subscribe_from(Some(last)).unwrap())
}

fn send(hub: &Hub, data: impl ToString) {
    hub.send(Event::new().data(data.to_string())).unwrap();
}

fn numbers(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|n| n.to_string()).collect()
}

/// Closes the hub and waits until the log is free.
async fn close(hub: Hub, disk: Disk) {
    let path = disk.path().to_owned();
    hub.close();
    drop((hub, disk));
    // The task of the hub ends on its own.
    loop {
        match Disk::builder(&path).open().await {
            Ok(_) => return,
            Err(e) => assert!(matches!(e, DiskError::Locked { .. }), "{e}"),
        }
        tokio::task::yield_now().await;
    }
}

/// Creates a log with the events `0..events`, each in a commit of its own.
async fn filled(builder: DiskBuilder, events: usize) {
    let disk = builder.open().await.unwrap();
    let hub = hub(&disk);
    for n in 0..events {
        send(&hub, n);
        disk.flush().await.unwrap();
    }
    close(hub, disk).await;
}

/// Returns the segments, oldest first.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = names.filter(|path| path.extension().is_some_and(|end| end == "events")).collect();
    all.sort();
    all
}

/// Returns the segments once those that are not kept are removed, which happens after the commit.
async fn kept(disk: &Disk) -> Vec<PathBuf> {
    loop {
        let (all, state) = (segments(disk.path()), disk.state());
        if all.len() == state.segments {
            return all;
        }
        tokio::task::yield_now().await;
    }
}

/// Returns the data of the events in the log, and `gap` for gaps, as a reader of a new hub gets them.
async fn contents(disk: &Disk) -> Vec<String> {
    let hub = forgetful(disk);
    let mut reader = reader(&hub, "0");
    let end = disk.state().next - 1;
    let mut all = Vec::new();
    if end == 0 {
        return all;
    }
    send(&hub, "end");
    loop {
        let got = reader.next().await;
        match got.is_gap() {
            true => all.push(format!("gap {}", got.data)),
            false if got.id == Some((end + 1).to_string()) => return all,
            false => all.push(got.data),
        }
    }
}
