//! A log in a directory, and what it has when it is opened again.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt;
use millstream::fs::Durability;
use millstream::sse::log::disk::Disk;
use millstream::sse::{Event, Hub};
use tempfile::TempDir;
use testkit::sim::Dice;
use tokio::time::sleep;

use crate::publish::text;
use crate::world::World;

/// The longest record, which has a segment of its own.
const EVENT: u64 = 6_100;

/// The log of a hub. Its ids are the numbers of the events, from 1 on.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    path: Arc<TempDir>,
    segment_bytes: u64,
    keep_bytes: u64,
    durability: Durability,
    /// Bytes of a commit that did not end, which the next one to open it finds.
    torn: usize,
    disk: Arc<Mutex<Option<Disk>>>,
}

impl Directory {
    pub(crate) fn choose(dice: &mut Dice) -> Self {
        Self {
            path: Arc::new(tempfile::tempdir().expect("a directory")),
            segment_bytes: *dice.pick(&[4 << 10, 32 << 10, 1 << 20]),
            keep_bytes: *dice.pick(&[64 << 10, 1 << 30, 1 << 30]),
            durability: *dice.pick(&[Durability::None, Durability::None, Durability::Data]),
            torn: dice.of_any_size(0..=200) as usize,
            disk: Arc::default(),
        }
    }

    pub(crate) async fn open(&self) -> Disk {
        let disk = Disk::builder(self.path.path().join("log")).durability(self.durability);
        let disk = disk.segment_bytes(self.segment_bytes).keep_bytes(self.keep_bytes);
        let disk = disk.open().await.expect("a log that can be opened");
        *self.disk.lock().unwrap() = Some(disk.clone());
        disk
    }

    fn disk(&self) -> Disk {
        self.disk.lock().unwrap().clone().expect("a log that is open")
    }

    /// Waits until the event that was sent last is in the log. Returns its id.
    pub(crate) async fn commit(&self) -> String {
        let disk = self.disk();
        disk.flush().await.expect("an event that is committed");
        (disk.state().next - 1).to_string()
    }

    /// Returns the number of the oldest event that it has.
    pub(crate) fn first(&self) -> u64 {
        self.disk().state().first - 1
    }

    /// Opens the log again, behind a part of a commit, and sends one more event. A reader gets all that it had, and that one.
    pub(crate) async fn check(&self, world: &World) {
        let (before, sent) = (self.disk().state(), world.published.lock().unwrap().len());
        let segments = self.segments().into_iter().map(|path| fs::metadata(path).expect("a segment").len());
        let (bytes, longest) = segments.fold((0, 0), |(sum, most), len| (sum + len, len.max(most)));
        let counted = (before.next - 1, before.appended, before.bytes, before.queued, before.given_up, before.damaged);
        if counted != (sent, sent, bytes, 0, 0, 0)
            || before.error.is_some()
            || before.segments != self.segments().len()
            || before.bytes > self.most()
            || longest > self.segment_bytes.max(EVENT)
        {
            world.fault(0, format_args!("not the state of a log of {sent} events in {bytes} bytes: {before:?}"));
        }
        *self.disk.lock().unwrap() = None;
        let mut left = vec![];
        if let Some(last) = self.segments().last() {
            let record = format!(":{:08x}+00000000\ndata: {}", self.torn + 100, "x".repeat(100));
            left.extend_from_slice(&record.as_bytes()[..self.torn.min(record.len())]);
            OpenOptions::new().append(true).open(last).and_then(|mut file| file.write_all(&left)).expect("a segment");
        }
        let hub = Hub::builder().log(self.open().await).build();
        let after = self.disk().state();
        if (after.first, after.next, after.bytes, after.cut)
            != (before.first, before.next, before.bytes, left.len() as u64)
        {
            world.fault(0, format_args!("opened again, it is {after:?}, and was {before:?}"));
        }
        let first = before.first - 1;
        hub.send(Event::new().data(text(sent))).expect("an event that fits");
        for part in 0..=4 {
            let from = first + (sent - first) * part / 4;
            let mut body = hub.subscribe_from(Some(&from.to_string())).expect("a place");
            let (mut got, mut next) = (String::new(), from);
            while next <= sent {
                let frame = body.frame().await.expect("a stream that goes on").expect("no error");
                got += str::from_utf8(frame.data_ref().expect("data")).expect("text");
                while let Some((event, rest)) = got.split_once("\n\n") {
                    // Without comments and the time to come back.
                    let lines: Vec<_> = event.lines().filter(|line| !line.starts_with([':', 'r'])).collect();
                    if !lines.is_empty() {
                        if lines != [format!("data: {}", text(next)), format!("id: {}", next + 1)] {
                            return world
                                .fault(0, format_args!("not event {next} of a log that was opened again: {event:?}"));
                        }
                        next += 1;
                    }
                    got = rest.to_owned();
                }
            }
        }
        // Events that are added to a file without a name would be lost.
        let last = self.segments().pop().expect("a segment");
        fs::remove_file(&last).expect("a segment that can be removed");
        hub.send(Event::new().data("lost")).expect("an event that fits");
        let is_added = self.disk().flush().await.is_ok();
        if is_added && self.segments().last() <= Some(&last) {
            world.fault(0, format_args!("an event is in a log without {last:?}"));
        }
        drop(hub);
        // Its task ends.
        sleep(Duration::from_secs(1)).await;
    }

    /// Returns the longest that all segments may be.
    fn most(&self) -> u64 {
        self.keep_bytes.max(self.segment_bytes).saturating_add(self.segment_bytes + (8 << 10))
    }

    /// Returns the paths of the segments, the oldest first.
    fn segments(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path.path().join("log")).expect("a directory");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "events"));
        paths.sort();
        paths
    }
}
