//! Damage that opening finds after a crash: torn ends, flipped bits, lost files.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use millstream::fs::Durability;
use millstream::sse::log::disk::{Disk, DiskError};

use crate::{close, contents, filled, forgetful, hub, numbers, open, reader, segments, send, small};
use testkit::alone;
use testkit::http::{Flavour, on_both, watched};
use testkit::report::report;

/// A directory with a copy of this one segment.
fn copy_of(bytes: &[u8]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("00000000000000000001.events"), bytes).unwrap();
    dir
}

/// Returns a segment, and the offsets of the records in it and its end.
fn parts(dir: &Path) -> (Vec<u8>, Vec<usize>) {
    let bytes = fs::read(&segments(dir)[0]).unwrap();
    let is_head = |at: &usize| bytes[*at] == b':' && bytes.get(*at + 1).is_some_and(u8::is_ascii_hexdigit);
    let mut starts: Vec<usize> = (0..bytes.len()).filter(is_head).collect();
    starts.push(bytes.len());
    (bytes, starts)
}

/// Creates three commits, the last one of three events.
async fn three_commits() -> (Vec<u8>, Vec<usize>) {
    loop {
        let dir = tempfile::tempdir().unwrap();
        filled(Disk::builder(dir.path()), 2).await;
        let disk = open(dir.path()).await;
        let hub = hub(&disk);
        (2..5).for_each(|n| send(&hub, n));
        disk.flush().await.unwrap();
        let commits = disk.state().commits;
        close(hub, disk).await;
        // Another thread may have begun a commit between two sends.
        if commits == 1 {
            return parts(dir.path());
        }
    }
}

#[test]
fn an_end_torn_at_any_byte_is_cut_off() {
    on_both(async || {
        let (bytes, starts) = three_commits().await;
        for len in starts[2]..=bytes.len() {
            let whole = starts.iter().rposition(|&start| start <= len).unwrap();
            let cut = len - starts[whole];
            let rests = [vec![], vec![0; 100], b"x:0123456 0\n".repeat(9), bytes[..starts[1] - 1].to_vec()];
            for (n, rest) in rests.into_iter().enumerate() {
                let dir = copy_of(&[&bytes[..len], &rest].concat());
                let state = open(dir.path()).await.state();
                assert_eq!((state.next, state.cut), (whole as u64 + 1, (cut + rest.len()) as u64), "{len}, rest {n}");
                assert_eq!(fs::read(&segments(dir.path())[0]).unwrap(), bytes[..starts[whole]]);
            }
        }
    });
}

#[test]
fn the_log_continues_behind_a_cut() {
    on_both(async || {
        let (bytes, starts) = three_commits().await;
        let dir = copy_of(&bytes[..starts[3] - 1]);
        let disk = open(dir.path()).await;
        let hub = hub(&disk);
        send(&hub, "new");
        disk.flush().await.unwrap();
        close(hub, disk).await;
        let disk = open(dir.path()).await;
        assert_eq!((disk.state().next, disk.state().cut), (4, 0));
        assert_eq!(contents(&disk).await, ["0", "1", "new"]);
    });
}

#[test]
fn a_flipped_bit_is_never_taken_for_an_event() {
    on_both(async || {
        let (bytes, starts) = three_commits().await;
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let record = starts.iter().rposition(|&start| start <= bit / 8).unwrap();
            let dir = copy_of(&wrong);
            let opened = Disk::builder(dir.path()).open().await;
            if record >= 2 {
                // The last commit: it might not have been complete.
                let state = opened.unwrap().state();
                assert_eq!((state.next, state.cut), (record as u64 + 1, (bytes.len() - starts[record]) as u64));
                continue;
            }
            let DiskError::Damaged { path, offset, .. } = opened.unwrap_err() else { panic!("bit {bit}") };
            assert_eq!((path, offset), (segments(dir.path())[0].clone(), starts[record] as u64), "bit {bit}");
            assert!(fs::read(&segments(dir.path())[0]).unwrap() == wrong, "the file was changed");
            // Without syncs it may be an end that was torn.
            let disk = Disk::builder(dir.path()).durability(Durability::None).open().await.unwrap();
            assert_eq!(disk.state().next, record as u64 + 1);
        }
    });
}

/// An event may contain what looks like a later record.
#[test]
fn a_head_inside_of_an_event_is_no_record() {
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            let dir = tempfile::tempdir().unwrap();
            filled(Disk::builder(dir.path()), 2).await;
            let disk = open(dir.path()).await;
            let hub = hub(&disk);
            let rest = "data: more\nid: 4\n\n";
            let head = format!(":{:08x}+", rest.len());
            let forged = format!("{head}{:08x}", crc32c(format!("{head}{rest}").as_bytes()));
            let slow = ":00100000+00000000\n".repeat(100_000);
            send(&hub, "not complete");
            send(&hub, format!("{slow}{forged}\nmore"));
            disk.flush().await.unwrap();
            assert_eq!(disk.state().commits, 1);
            close(hub, disk).await;
            let path = &segments(dir.path())[0];
            let mut bytes = fs::read(path).unwrap();
            assert!(bytes.ends_with(format!("{forged}\n{rest}").as_bytes()));
            let at = bytes.windows(8).position(|text| text == b"complete").unwrap();
            bytes[at] ^= 1;
            fs::write(path, bytes).unwrap();
            let disk = open(dir.path()).await;
            assert_eq!(disk.state().next, 3);
        });
    });
}

/// Fills several segments. Returns the first events of them.
async fn several(dir: &Path) -> Vec<usize> {
    filled(small(dir), 400).await;
    let firsts =
        segments(dir).iter().map(|path| path.file_stem().unwrap().to_str().unwrap().parse().unwrap()).collect();
    let firsts: Vec<usize> = firsts;
    assert!(firsts.len() > 3, "{firsts:?}");
    firsts
}

#[test]
fn a_full_segment_that_is_damaged_leaves_a_gap() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let firsts = several(dir.path()).await;
        let path = &segments(dir.path())[1];
        let mut bytes = fs::read(path).unwrap();
        bytes[2000] ^= 1;
        fs::write(path, bytes).unwrap();
        let disk = small(dir.path()).open().await.unwrap();
        let all = contents(&disk).await;
        let before = all.iter().position(|data| data.starts_with("gap")).unwrap();
        assert!(before + 1 > firsts[1] && before + 1 < firsts[2], "{before} of {firsts:?}");
        assert_eq!(all[..before], numbers(0, before));
        let missed = firsts[2] - 1 - before;
        assert_eq!(all[before], format!("gap {{\"reason\":\"expired\",\"missed\":{missed}}}"));
        assert_eq!(all[before + 1..], numbers(firsts[2] - 1, 400));
        let state = disk.state();
        let error = state.error.unwrap();
        assert!(error.starts_with(path.to_str().unwrap()) && error.contains("offset 1"), "{error}");
        assert_eq!((state.damaged, state.failed), (1, false));
    });
}

/// Counts the warnings about events that cannot be read.
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "millstream" && *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn damage_is_logged_once() {
    if alone::ran_in_child() {
        return;
    }
    let warnings = Arc::new(AtomicUsize::new(0));
    // Also for the threads that read.
    tracing::subscriber::set_global_default(Warnings(Arc::clone(&warnings))).unwrap();
    watched(move || {
        Flavour::CurrentThread.runtime().block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let firsts = several(dir.path()).await;
            for path in &segments(dir.path())[..2] {
                let mut bytes = fs::read(path).unwrap();
                bytes[2000] ^= 1;
                fs::write(path, bytes).unwrap();
            }
            let disk = small(dir.path()).open().await.unwrap();
            for _ in 0..5 {
                contents(&disk).await;
            }
            // Also for readers that begin behind the damage.
            let hub = forgetful(&disk);
            assert!(reader(&hub, &(firsts[1] - 2).to_string()).next().await.is_gap());
            assert_eq!(disk.state().damaged, 11);
            assert!((2..4).contains(&warnings.load(Ordering::Relaxed)), "{warnings:?}");
        });
    });
}

#[test]
fn a_segment_that_is_missing_or_short_leaves_a_gap() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let firsts = several(dir.path()).await;
        let path = segments(dir.path())[1].clone();
        let len = fs::metadata(&path).unwrap().len();
        fs::File::options().write(true).open(&path).unwrap().set_len(len - 1).unwrap();
        let disk = small(dir.path()).open().await.unwrap();
        let all = contents(&disk).await;
        assert_eq!(all[firsts[2] - 2], "gap {\"reason\":\"expired\",\"missed\":1}");
        assert_eq!(all.len(), 400);
        drop(disk);
        tokio::task::yield_now().await;
        fs::remove_file(&path).unwrap();
        let disk = loop {
            match small(dir.path()).open().await {
                Ok(disk) => break disk,
                Err(e) => assert!(matches!(e, DiskError::Locked { .. }), "{e}"),
            }
        };
        let all = contents(&disk).await;
        let missed = firsts[2] - firsts[1];
        assert_eq!(all[firsts[1] - 1], format!("gap {{\"reason\":\"expired\",\"missed\":{missed}}}"));
        // The last event is that of the first call of `contents`.
        assert_eq!(all.len(), 401 - missed + 1);
    });
}

#[test]
fn indexes_may_be_lost() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        filled(Disk::builder(dir.path()).segment_bytes(200 << 10), 0).await;
        let large = |n: usize| format!("{n} {}", "x".repeat(3000));
        let disk = Disk::builder(dir.path()).segment_bytes(200 << 10).open().await.unwrap();
        let first = hub(&disk);
        for n in 0..150 {
            send(&first, large(n));
            disk.flush().await.unwrap();
        }
        close(first, disk).await;
        let index = dir.path().join("00000000000000000001.index");
        let bytes = fs::read(&index).unwrap();
        assert!(bytes.len() > 40, "several entries");
        for change in 0..4 {
            match change {
                0 => {}
                1 => fs::remove_file(&index).unwrap(),
                2 => fs::write(&index, "").unwrap(),
                _ => fs::write(&index, &bytes[1..]).unwrap(),
            }
            let disk = open(dir.path()).await;
            let hub = forgetful(&disk);
            for after in [0, 1, 30, 63, 100, 149] {
                assert_eq!(reader(&hub, &after.to_string()).data(1).await, [large(after)]);
            }
            assert_eq!(fs::read(&index).unwrap(), bytes, "change {change}: it is made again");
            close(hub, disk).await;
        }
    });
}

/// As after a crash between the creation of a segment and its first commit.
#[test]
fn an_empty_segment_keeps_the_next_id() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        filled(Disk::builder(dir.path()), 7).await;
        fs::write(dir.path().join("00000000000000000008.events"), "").unwrap();
        fs::write(dir.path().join("9.events"), "a name that is none").unwrap();
        let disk = open(dir.path()).await;
        assert_eq!((disk.state().segments, disk.state().next), (2, 8));
        assert_eq!(contents(&disk).await, numbers(0, 7));
    });
}

#[test]
fn files_of_no_segment_are_ignored_or_removed() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        filled(small(dir.path()), 400).await;
        let end = |path: &Path| path.extension().is_some_and(|end| end == "index");
        let indexes = || {
            let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
            let mut all: Vec<_> = names.filter(|path| end(path)).collect();
            all.sort();
            all
        };
        let before = indexes();
        assert!(before.len() > 1);
        fs::write(dir.path().join("00000000000000000002.index"), "of a removed segment").unwrap();
        fs::write(dir.path().join("18446744073709551615.events"), "").unwrap();
        let disk = open(dir.path()).await;
        assert_eq!((disk.state().next, indexes()), (401, before));
        assert_eq!(contents(&disk).await, numbers(0, 400));
    });
}

#[test]
fn what_is_no_directory_of_a_log_is_an_error() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Disk::builder(&file).open().await.unwrap_err();
        assert!(report(&error).starts_with(file.to_str().unwrap()), "{}", report(&error));
        let path = dir.path().join("00000000000000000001.events");
        fs::create_dir(&path).unwrap();
        let error = Disk::builder(dir.path()).open().await.unwrap_err();
        assert!(report(&error).starts_with(path.to_str().unwrap()), "{}", report(&error));
    });
}

/// Returns a number of a file in `/proc/self`.
fn own(file: &str, name: &str) -> usize {
    let text = fs::read_to_string(format!("/proc/self/{file}")).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    value.trim().trim_end_matches(" kB").parse().unwrap()
}

/// 10 GiB in 160 segments, of which the last one is read, in small parts.
#[test]
fn opening_reads_only_the_last_segment() {
    const SEGMENT: u64 = 64 << 20;
    const FIRST: u64 = 159_001;
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let path = |first: u64| dir.path().join(format!("{first:020}.events"));
            for n in 0..159 {
                // Holes take no space.
                fs::File::create(path(1 + n * 1000)).unwrap().set_len(SEGMENT).unwrap();
            }
            fs::write(path(FIRST), "").unwrap();
            let builder = || Disk::builder(dir.path()).keep_bytes(u64::MAX);
            let disk = builder().durability(Durability::None).open().await.unwrap();
            let filling = hub(&disk);
            while disk.state().bytes < 160 * SEGMENT - (1 << 20) {
                (0..500).for_each(|_| send(&filling, "x".repeat(1000)));
                disk.flush().await.unwrap();
            }
            let before = disk.state();
            drop((filling, disk));
            while builder().open().await.is_err_and(|e| matches!(e, DiskError::Locked { .. })) {
                tokio::task::yield_now().await;
            }
            // From here on only the opening raises the peak.
            let is_reset = fs::write("/proc/self/clear_refs", "5").is_ok();
            let (read, memory, begun) = (own("io", "rchar: "), own("status", "VmRSS:"), Instant::now());
            let disk = builder().open().await.unwrap();
            let (took, peak) = (begun.elapsed(), own("status", "VmHWM:"));
            let (read, more) = (own("io", "rchar: ") - read, peak.saturating_sub(memory));
            println!("10 GiB were opened in {took:?} with {more} KiB more memory, {peak} KiB in total");
            let len = fs::metadata(path(FIRST)).unwrap().len() as usize;
            assert!(len > 60 << 20 && read < len + (64 << 10), "{read} bytes of {len} were read");
            assert!(!is_reset || more < 8 << 10, "{more} KiB");
            let state = disk.state();
            assert_eq!((state.segments, state.bytes, state.next), (160, before.bytes, before.next));
            let hub = forgetful(&disk);
            send(&hub, "end");
            let got = reader(&hub, &(before.next - 101).to_string()).data(101).await;
            assert_eq!(got[100], "end");
        });
    });
}

/// CRC32C by its definition, RFC 3720 §12.1.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        let bit = |sum: u32, _| (sum >> 1) ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
        (0..8).fold(sum ^ u32::from(*byte), bit)
    };
    !bytes.iter().fold(!0, step)
}
