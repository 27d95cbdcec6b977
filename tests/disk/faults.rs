//! Failures of the disk: what is confirmed is there, and what is not is said.

use std::fs;
use std::time::Duration;

use millstream::sse::log::disk::{Disk, DiskError};
use millstream::sse::{Event, SendError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{contents, filled, forgetful, hub, kept, numbers, open, reader, segments, send};
use testkit::http::{Flavour, on_both, watched};
use testkit::mounts::{Cut, Mount};
use testkit::report::report;
use testkit::{alone, child, strace};

/// Runs `test` in a child whose calls are made to fail by strace, with the directory of a log. Returns what it printed.
fn injected(name: &str, inject: &str, test: impl AsyncFnOnce(&str), then: impl AsyncFnOnce(&Disk)) {
    if let Some(dir) = child::task() {
        // One thread, because strace counts the calls of each.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.max_blocking_threads(1).enable_all().build().unwrap();
        return runtime.block_on(test(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    Flavour::CurrentThread.runtime().block_on(filled(Disk::builder(dir.path()), 2));
    let call = inject.split(':').next().unwrap();
    let command = child::command(name, dir.path().to_str().unwrap());
    let options = ["-e", &format!("trace={call}"), "-e", &format!("inject={inject}")];
    let Some(trace) = strace::run(&command, &options) else { return };
    assert!(trace.contains("(INJECTED)"), "{trace}");
    Flavour::CurrentThread.runtime().block_on(async {
        let disk = open(dir.path()).await;
        then(&disk).await;
    });
}

#[test]
fn a_failed_sync_ends_the_log_and_is_not_repeated() {
    injected(
        "faults::a_failed_sync_ends_the_log_and_is_not_repeated",
        "fdatasync:error=EIO:when=3",
        async |dir| {
            let disk = open(dir.as_ref()).await;
            let hub = hub(&disk);
            let mut live = reader(&hub, "2");
            send(&hub, 2);
            disk.flush().await.unwrap();
            assert_eq!(live.data(1).await, ["2"]);
            send(&hub, "not confirmed");
            let error = disk.flush().await.unwrap_err();
            assert!(report(&error).contains("sync the file: Input/output error"), "{}", report(&error));
            let state = disk.state();
            assert_eq!((state.failed, state.appended, state.given_up, state.queued, state.next), (true, 1, 1, 0, 4));
            assert_eq!(state.error, Some(report(&error)));
            // The next sync would succeed.
            let refused = hub.send(Event::new().data("late")).unwrap_err();
            assert!(matches!(refused, SendError::Log(_)) && report(&refused).contains("sync"), "{}", report(&refused));
            disk.flush().await.unwrap_err();
            assert_eq!(live.rest(Duration::from_millis(300)).await, []);
        },
        async |disk| assert_eq!(contents(disk).await, numbers(0, 3)),
    );
}

/// The second sync succeeds and writes nothing: the kernel has reported the failure, and holds the pages for written.
#[test]
fn a_failed_sync_of_an_opening_drops_what_may_not_be_on_the_disk() {
    if let Some(dir) = child::task() {
        return Flavour::CurrentThread.runtime().block_on(async {
            let error = Disk::builder(&dir).open().await.unwrap_err();
            assert!(report(&error).contains("sync the file: Input/output error"), "{}", report(&error));
        });
    }
    if testkit::portable("no pages are dropped") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    Flavour::CurrentThread.runtime().block_on(filled(Disk::builder(dir.path()), 2));
    let name = "faults::a_failed_sync_of_an_opening_drops_what_may_not_be_on_the_disk";
    let command = child::command(name, dir.path().to_str().unwrap());
    let options = ["-e", "trace=fdatasync,fadvise64", "-e", "inject=fdatasync:error=EIO:when=1"];
    let Some(trace) = strace::run(&command, &options) else { return };
    let (_, behind) = trace.split_once("(INJECTED)").expect("a failed sync");
    assert!(behind.contains("POSIX_FADV_DONTNEED"), "{trace}");
}

#[test]
fn a_failed_write_ends_the_log() {
    injected(
        "faults::a_failed_write_ends_the_log",
        "pwrite64:error=EIO:when=2",
        async |dir| {
            let disk = open(dir.as_ref()).await;
            let hub = hub(&disk);
            send(&hub, 2);
            disk.flush().await.unwrap();
            send(&hub, "lost");
            let error = disk.flush().await.unwrap_err();
            assert!(report(&error).contains("write: Input/output error"), "{}", report(&error));
            assert!(disk.state().failed);
        },
        async |disk| assert_eq!(contents(disk).await, numbers(0, 3)),
    );
}

#[test]
fn a_full_disk_that_has_room_again_loses_nothing() {
    injected(
        "faults::a_full_disk_that_has_room_again_loses_nothing",
        "pwrite64:error=ENOSPC:when=2",
        async |dir| {
            let disk = open(dir.as_ref()).await;
            let hub = hub(&disk);
            for n in 2..20 {
                send(&hub, n);
                disk.flush().await.unwrap();
            }
            let state = disk.state();
            assert_eq!((state.failed, state.given_up, state.error), (false, 0, None));
        },
        async |disk| assert_eq!(contents(disk).await, numbers(0, 20)),
    );
}

#[test]
fn a_sync_that_finds_no_space_ends_the_log() {
    injected(
        "faults::a_sync_that_finds_no_space_ends_the_log",
        "fdatasync:error=ENOSPC:when=2",
        async |dir| {
            let disk = open(dir.as_ref()).await;
            let hub = hub(&disk);
            send(&hub, "not confirmed");
            let error = disk.flush().await.unwrap_err();
            assert!(error.is_no_space() && disk.state().failed, "{error}");
        },
        async |disk| assert_eq!(contents(disk).await, numbers(0, 2)),
    );
}

#[test]
fn writes_that_fill_the_disk_are_cut_off() {
    watched(|| {
        let Some(mount) = Mount::tmpfs("a full disk", "256k") else { return };
        Flavour::TwoWorkers.runtime().block_on(async {
            let path = mount.path().join("log");
            let filler = mount.path().join("filler");
            fs::write(&filler, vec![0; 160 << 10]).unwrap();
            let disk = Disk::builder(&path).queue(20).open().await.unwrap();
            let hub = hub(&disk);
            let data = |n: usize| format!("{n} {}", "x".repeat(3000));
            let mut sent = 0;
            while disk.state().error.is_none() {
                match hub.send(Event::new().data(data(sent))) {
                    Ok(_) => sent += 1,
                    Err(e) => assert!(matches!(e, SendError::Full), "{e}"),
                }
                tokio::task::yield_now().await;
            }
            let state = disk.state();
            assert!(state.error.as_ref().unwrap().contains("No space left on device"), "{state:?}");
            assert!(!state.failed && state.queued > 0 && state.appended > 0, "{state:?}");
            let written = fs::metadata(&segments(&path)[0]).unwrap().len();
            assert_eq!(written, disk.state().bytes, "the part of a commit is cut off");
            // A full queue refuses, and nothing that was accepted is lost.
            while hub.send(Event::new().data(data(sent))).is_ok() {
                sent += 1;
            }
            fs::remove_file(&filler).unwrap();
            disk.flush().await.unwrap();
            let state = disk.state();
            assert_eq!((state.appended, state.given_up, state.error), (sent as u64, 0, None));
            let mut reader = reader(&hub, "0");
            assert_eq!(reader.data(sent).await, (0..sent).map(data).collect::<Vec<_>>());
        });
    });
}

#[test]
fn a_directory_that_is_removed_ends_the_log() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let disk = open(&path).await;
        let hub = hub(&disk);
        send(&hub, 0);
        disk.flush().await.unwrap();
        fs::remove_dir_all(&path).unwrap();
        send(&hub, 1);
        let error = disk.flush().await.unwrap_err();
        assert!(
            matches!(error, DiskError::Removed { .. }) && error.to_string().contains(path.to_str().unwrap()),
            "{error}"
        );
        assert!(matches!(hub.send(Event::new()), Err(SendError::Log(_))));
        assert!(disk.state().error.unwrap().contains("removed"));
    });
}

#[test]
fn a_replay_waits_for_a_descriptor() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        filled(crate::small(dir.path()), 200).await;
        let disk = open(dir.path()).await;
        let hub = forgetful(&disk);
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
        let mut reader = reader(&hub, "0");
        assert_eq!(reader.rest(Duration::from_millis(500)).await, []);
        setrlimit(Resource::Nofile, limit).unwrap();
        assert_eq!(reader.data(200).await, numbers(0, 200));
        assert_eq!(disk.state().error, None);
    });
}

#[test]
fn a_segment_that_cannot_be_removed_is_removed_later() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let disk = crate::small(dir.path()).keep_segments(2).open().await.unwrap();
        let hub = hub(&disk);
        let more = async || {
            send(&hub, "x".repeat(1000));
            disk.flush().await.unwrap();
        };
        let first = dir.path().join("00000000000000000001.events");
        let other = dir.path().join("other");
        while segments(dir.path()).len() < 2 {
            more().await;
        }
        fs::rename(&first, &other).unwrap();
        // It cannot be removed as a file.
        fs::create_dir(&first).unwrap();
        while disk.state().error.is_none() {
            more().await;
            assert!(disk.state().next < 100, "no reader was told");
        }
        let error = disk.state().error.unwrap();
        assert!(error.starts_with(first.to_str().unwrap()) && error.contains("remove"), "{error}");
        fs::remove_dir(&first).unwrap();
        fs::rename(&other, &first).unwrap();
        while disk.state().error.is_some() {
            more().await;
            assert!(disk.state().next < 200, "it is not tried again");
        }
        assert_eq!(kept(&disk).await.len(), 2);
        assert!(!first.exists() && !disk.state().failed);
    });
}

#[test]
fn a_log_of_another_process_is_refused() {
    const NAME: &str = "faults::a_log_of_another_process_is_refused";
    if let Some(dir) = child::task() {
        let error = Flavour::CurrentThread.runtime().block_on(Disk::builder(&dir).open()).unwrap_err();
        assert!(matches!(&error, DiskError::Locked { path } if path.to_str() == Some(&dir)), "{error}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let runtime = Flavour::CurrentThread.runtime();
    let disk = runtime.block_on(open(dir.path()));
    child::run(&mut child::command(NAME, dir.path().to_str().unwrap()));
    drop(disk);
}

#[test]
fn a_directory_that_may_not_be_written_is_an_error() {
    watched(|| {
        let Some(mount) = Mount::tmpfs("a read-only file system", "1m,mode=755") else { return };
        let status = std::process::Command::new("mount").arg("-oremount,ro").arg(mount.path()).status();
        assert!(status.unwrap().success());
        Flavour::CurrentThread.runtime().block_on(async {
            let error = Disk::builder(mount.path()).open().await.unwrap_err();
            assert!(error.is_denied(), "{error}");
            assert!(report(&error).starts_with(mount.path().to_str().unwrap()), "{}", report(&error));
            assert!(report(&error).contains("Read-only file system"), "{}", report(&error));
        });
    });
}

#[test]
fn confirmed_events_survive_a_power_cut() {
    watched(|| {
        for (mkfs, name, cut) in [
            ("mkfs.ext4 -q -F", "ext4", Cut::LogLost),
            ("mkfs.xfs -q -f", "xfs", Cut::LogLost),
            ("mkfs.btrfs -q", "btrfs", Cut::Written),
        ] {
            let Some(mount) = Mount::image(name, mkfs, 320, "noatime") else { continue };
            let path = mount.path().join("log");
            for round in 0..3 {
                let (from, to) = (round * 200, round * 200 + 200);
                Flavour::CurrentThread.runtime().block_on(async {
                    let disk = crate::small(&path).open().await.unwrap();
                    let hub = hub(&disk);
                    for n in from..to {
                        send(&hub, n);
                        disk.flush().await.unwrap();
                    }
                    hub.close();
                });
                mount.cut_power(cut);
                let next = Flavour::CurrentThread
                    .runtime()
                    .block_on(async { crate::small(&path).open().await.unwrap().state().next });
                assert_eq!(next, to as u64 + 1, "{name}");
            }
            Flavour::CurrentThread.runtime().block_on(async {
                let disk = crate::small(&path).open().await.unwrap();
                assert_eq!(contents(&disk).await, numbers(0, 600), "{name}");
            });
        }
    });
}
