//! A log in a world that crashes: after each step, with each set of changes that may have reached the disk, every
//! confirmed event is there, and nothing else than what was sent.

use std::path::{Path, PathBuf};

use millstream::fs::Durability;
use millstream::sse::log::disk::{Disk, DiskBuilder, DiskError};
use testkit::crash::{Confirm, Crash, History, RecordedDisk, Tree, Tried};
use testkit::http::{Flavour, watched};
use testkit::letters;
use testkit::mounts::Mount;
use testkit::report::report;
use tokio::runtime::Runtime;

use crate::{contents, hub, send, small};

/// The directory of the log, which does not exist at first.
const LOG: &str = "logs/events";
/// The numbers of events that are sent at once.
const BURSTS: [usize; 6] = [1, 3, 1, 4, 2, 3];

/// The data of an event, of a sector and more.
fn data(id: u64) -> String {
    format!("{id} {}", letters(id as usize * 337 % 1400))
}

/// The recorded events, with the first event of the log after each confirmed number of events.
struct Recorded {
    history: History,
    firsts: Firsts,
}

type Firsts = Vec<(u64, u64)>;

impl Recorded {
    /// Returns the first event that must be there after a crash: the commit that was under way may remove segments.
    fn first(&self, confirmed: u64) -> u64 {
        let next = self.firsts.iter().find(|(sent, _)| *sent > confirmed).or(self.firsts.last());
        next.map_or(1, |(_, first)| *first)
    }
}

/// Opens a log and sends events, each of whose bursts is confirmed.
async fn run(log: DiskBuilder, bursts: &[usize], confirm: &Confirm) -> Firsts {
    let mut firsts = Vec::new();
    let disk = log.open().await.unwrap();
    let hub = hub(&disk);
    let mut sent = disk.state().next - 1;
    for burst in [0].iter().chain(bursts) {
        (0..*burst).for_each(|_| {
            sent += 1;
            send(&hub, data(sent));
        });
        disk.flush().await.unwrap();
        firsts.push((sent, disk.state().first));
        confirm.confirm(sent);
    }
    firsts
}

/// Records what `work` does, which returns the result of the last [`run`].
fn recorded(tree: &Tree, work: impl FnOnce(&Runtime, PathBuf, &Confirm) -> Firsts) -> Option<Recorded> {
    let disk = RecordedDisk::mount(tree, true)?;
    let firsts = work(&Flavour::CurrentThread.runtime(), disk.path().join(LOG), &disk.confirm());
    Some(Recorded { history: disk.history(), firsts })
}

/// Opens the log as soon as its last owner has left it.
async fn reopened(log: &DiskBuilder) -> Result<Disk, DiskError> {
    loop {
        match log.clone().open().await {
            Err(DiskError::Locked { .. }) => tokio::task::yield_now().await,
            opened => return opened,
        }
    }
}

/// Opens what a crash has left, reads it, appends to it, and reads it again. Returns the events: the number of missing
/// ones, or their data.
async fn survivors(log: DiskBuilder) -> Result<Vec<String>, DiskError> {
    let disk = log.clone().open().await?;
    let mut found = contents(&disk).await;
    let next = disk.state().next;
    drop(disk);
    let disk = reopened(&log).await?;
    let again = contents(&disk).await;
    // `contents` ends with an event of its own, if there are others.
    found.extend((!found.is_empty()).then(|| "end".to_owned()));
    assert_eq!((again, disk.state().cut), (found.clone(), 0), "the log does not continue from {next}");
    found.pop();
    Ok(found)
}

/// Asserts that all events from `first` to `confirmed` are there, and the others are those that were sent or are missed.
fn complete(found: &[String], first: u64, confirmed: u64, crash: &Crash<'_>) {
    let mut next = 1;
    for event in found {
        match event.strip_prefix("gap {\"reason\":\"expired\",\"missed\":").and_then(|rest| rest.strip_suffix('}')) {
            Some(missed) => {
                let from = next;
                next += missed.parse::<u64>().unwrap();
                assert!(next <= first || from > confirmed, "the events {from} to {next} are missed: {crash}");
            }
            None => {
                assert_eq!(*event, data(next), "{crash}");
                next += 1;
            }
        }
    }
    assert!(next > confirmed, "the events from {next} to {confirmed} are lost: {crash}");
}

/// Opens the log after each crash, in a directory in memory, and passes the events that it has.
fn each_crash(
    history: &History,
    log: impl Fn(&Path) -> DiskBuilder,
    mut check: impl FnMut(&[String], &Crash<'_>),
) -> Option<Tried> {
    let memory = Mount::tmpfs("logs after crashes", "64m")?;
    let runtime = Flavour::CurrentThread.runtime();
    let mut number = 0;
    let tried = history.crashes(|crash| {
        number += 1;
        let dir = memory.path().join(number.to_string());
        std::fs::create_dir(&dir).unwrap();
        crash.tree.write_to(&dir);
        let found = runtime.block_on(survivors(log(&dir.join(LOG))));
        check(&found.unwrap_or_else(|e| panic!("{}: {crash}", report(&e))), crash);
        std::fs::remove_dir_all(&dir).unwrap();
    });
    Some(tried)
}

/// Asserts that all confirmed events are there after each crash.
fn nothing_is_lost(recorded: &Recorded, log: impl Fn(&Path) -> DiskBuilder) -> Option<Tried> {
    each_crash(&recorded.history, log, |found, crash| {
        complete(found, recorded.first(crash.confirmed), crash.confirmed, crash);
    })
}

fn tested(test: impl FnOnce() + Send + 'static) {
    if !testkit::portable("it makes other calls") {
        watched(test);
    }
}

#[test]
fn confirmed_events_are_there_after_each_crash() {
    tested(|| {
        let mut all = Tried::default();
        for durability in [Durability::Full, Durability::Data] {
            let log = move |dir: &Path| small(dir).durability(durability);
            let work = |runtime: &Runtime, path: PathBuf, confirm: &Confirm| {
                runtime.block_on(run(log(&path), &BURSTS, confirm))
            };
            let Some(recorded) = recorded(&Tree::new(), work) else { return };
            assert!(recorded.history.end().names_in(LOG).len() > 4, "several segments");
            let Some(tried) = nothing_is_lost(&recorded, log) else { return };
            all += tried;
        }
        println!("log in a directory: {all}");
    });
}

#[test]
fn kept_events_are_there_after_each_crash_while_segments_are_removed() {
    tested(|| {
        let log = |dir: &Path| small(dir).keep_segments(2);
        let work =
            |runtime: &Runtime, path: PathBuf, confirm: &Confirm| runtime.block_on(run(log(&path), &BURSTS, confirm));
        let Some(recorded) = recorded(&Tree::new(), work) else { return };
        assert!(recorded.firsts.last().unwrap().1 > 1, "segments are removed");
        let Some(tried) = nothing_is_lost(&recorded, log) else { return };
        println!("log that removes segments: {tried}");
    });
}

/// The log may end earlier. It may also lack a full segment, which leaves a gap.
#[test]
fn a_log_without_syncs_has_only_what_was_sent_after_each_crash() {
    tested(|| {
        let log = |dir: &Path| small(dir).durability(Durability::None);
        let work =
            |runtime: &Runtime, path: PathBuf, confirm: &Confirm| runtime.block_on(run(log(&path), &BURSTS, confirm));
        let Some(recorded) = recorded(&Tree::new(), work) else { return };
        let (mut shorter, mut gaps) = (0, 0);
        let tried = each_crash(&recorded.history, log, |found, crash| {
            complete(found, u64::MAX, 0, crash);
            shorter += usize::from((found.len() as u64) < crash.confirmed);
            gaps += usize::from(found.iter().any(|event| event.starts_with("gap")));
        });
        let Some(tried) = tried else { return };
        assert!(shorter > gaps && gaps > 0, "{shorter}, {gaps}: the disk loses too little");
        println!("log without syncs: {tried}; {shorter} logs are shorter, {gaps} of them with a gap");
    });
}

/// A process that was killed may have created a directory, or written events, and not synced them.
#[test]
fn what_a_killed_process_has_not_synced_is_durable_after_opening() {
    tested(|| {
        let dirs = Tree::new().directory("logs");
        let work = |runtime: &Runtime, path: PathBuf, confirm: &Confirm| {
            std::fs::create_dir(&path).unwrap();
            runtime.block_on(async {
                let disk = Disk::builder(&path).durability(Durability::None).open().await.unwrap();
                let hub = hub(&disk);
                (1..4).for_each(|id| send(&hub, data(id)));
                disk.flush().await.unwrap();
                hub.close();
                drop((hub, disk));
                reopened(&Disk::builder(&path)).await.unwrap();
            });
            runtime.block_on(run(Disk::builder(&path), &[2, 1], confirm))
        };
        let Some(events) = recorded(&dirs, work) else { return };
        let work = |runtime: &Runtime, path: PathBuf, confirm: &Confirm| {
            std::fs::create_dir(path.parent().unwrap()).unwrap();
            runtime.block_on(run(Disk::builder(&path), &[2], confirm))
        };
        let Some(directory) = recorded(&Tree::new(), work) else { return };
        for recorded in [events, directory] {
            let Some(tried) = nothing_is_lost(&recorded, |dir| Disk::builder(dir)) else { return };
            println!("log of a killed process: {tried}");
        }
    });
}

/// Opening truncates the log after its last event. A crash of that, and of the commits behind it, loses nothing either.
#[test]
fn a_second_crash_loses_nothing_that_the_first_one_left() {
    tested(|| {
        let work = |bursts: &'static [usize]| {
            move |runtime: &Runtime, path: PathBuf, confirm: &Confirm| {
                runtime.block_on(run(Disk::builder(&path), bursts, confirm))
            }
        };
        let Some(once) = recorded(&Tree::new(), work(&[1, 3])) else { return };
        let mut left = Vec::new();
        once.history.crashes(|crash| left.push((crash.confirmed, crash.tree.clone())));
        let mut all = Tried::default();
        let few = left.len().div_ceil(12);
        for (before, tree) in left.into_iter().step_by(few) {
            let Some(twice) = recorded(&tree, work(&[2])) else { return };
            let found = twice.firsts[0].0;
            assert!(found >= before, "{found} of {before} events are left");
            let Some(tried) = nothing_is_lost(&twice, |dir| Disk::builder(dir)) else { return };
            all += tried;
        }
        println!("log that crashes twice: {all}");
    });
}
