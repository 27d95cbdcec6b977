//! A full disk or a failing call: the error names the step, the old file is unchanged, and nothing is left.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::stream;
use millstream::fs::{Append, Error, Prepend, Replace, Step};
use rustix::io::Errno;

use super::child::{self, Ended, Proc, Work, name};
use super::{HEADER, NEW, OLD, block_on, holds, only, with_header};
use testkit::mounts::Mount;

fn free(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).unwrap().f_bfree
}

/// Asserts that the blocks of dropped temporary files are free again. Child processes of other tests may share all
/// descriptors for a moment.
fn all_free_again(dir: &Path, before: u64) {
    let since = Instant::now();
    while free(dir) != before {
        assert!(since.elapsed() < Duration::from_secs(30), "{} blocks are free, not {before}", free(dir));
        std::thread::yield_now();
    }
}

#[track_caller]
fn full(error: &Error, step: Step) {
    assert_eq!((error.step(), error.raw_os_error()), (step, Some(Errno::NOSPC.raw_os_error())), "{error}");
}

#[test]
fn a_full_disk_leaves_the_old_file_and_takes_no_room() {
    let Some(disk) = Mount::tmpfs("a full disk", "2m") else { return };
    let (dir, path) = (disk.path(), disk.path().join("file"));
    std::fs::write(&path, &*OLD).unwrap();
    let before = free(&dir);
    let large = vec![7; 3 << 20];
    block_on(async {
        full(&Replace::new(&path).run(large.clone()).await.unwrap_err(), Step::Write);
        only(&dir, &["file"]);
        all_free_again(&dir, before);
        for piece in [100, 30_000, 3 << 20] {
            let pieces = large.chunks(piece).map(|piece| Ok::<_, Error>(piece.to_vec()));
            full(&Replace::new(&path).run_stream(stream::iter(pieces)).await.unwrap_err(), Step::Write);
            only(&dir, &["file"]);
            all_free_again(&dir, before);
        }
        full(&Prepend::new(&path).run(large.clone()).await.unwrap_err(), Step::Write);
        all_free_again(&dir, before);
        std::fs::write(dir.join("filler"), vec![1; (before as usize - 40) << 12]).unwrap();
        // The header fits, the body after it does not.
        full(&Prepend::new(&path).run(HEADER.clone()).await.unwrap_err(), Step::Write);
        full(&Replace::new(dir.join("other")).run(NEW.clone()).await.unwrap_err(), Step::Write);
        only(&dir, &["file", "filler"]);
        all_free_again(&dir, 40);
        holds(&path, &OLD);
    });
}

#[test]
fn an_append_to_a_full_disk_says_what_it_has_written() {
    let Some(disk) = Mount::tmpfs("a full disk", "2m") else { return };
    let (dir, path) = (disk.path(), disk.path().join("file"));
    std::fs::write(&path, &*OLD).unwrap();
    let bytes = super::noise(3 << 20);
    let error = block_on(Append::new(&path).run(bytes.clone())).unwrap_err();
    full(&error, Step::Write);
    assert!(error.written() > 1 << 20, "{error}");
    holds(&path, &[&OLD, &bytes[..error.written() as usize]].concat());
    let error = block_on(Append::new(&path).run(bytes)).unwrap_err();
    full(&error, Step::Write);
    assert_eq!(error.written(), 0, "{error}");
    only(&dir, &["file"]);
}

fn failing(work: Work, inject: &str) -> Option<(tempfile::TempDir, Ended)> {
    let (dir, path) = child::with_old();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    let ended = child::run(&format!("{work:?} with {inject}"), work, &path, &[inject.to_owned()], Proc::Mounted)?;
    assert!(ended.status.success(), "{inject}: {ended:?}");
    assert_eq!(ended.threads, 1, "{inject}: {ended:?}");
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o640, "{inject}");
    only(dir.path(), &["file"]);
    Some((dir, ended))
}

#[test]
fn every_call_that_fails_is_told_by_its_step_and_leaves_the_old_file() {
    if testkit::portable("it makes other calls") {
        return;
    }
    for (work, inject, told) in [
        (Work::Replace, "pwrite64:error=EIO:when=1", "Write 5 "),
        (Work::Replace, "fchmod:error=EPERM", "SetMode 1 "),
        (Work::Replace, "flistxattr:error=EACCES:when=1", "KeepAttributes 13 "),
        (Work::Replace, "fsync:error=EIO:when=1", "Sync 5 "),
        (Work::Replace, "fsync:error=ENOSPC:when=1", "Sync 28 "),
        (Work::Replace, "linkat:error=ENOSPC", "Link 28 "),
        (Work::Replace, "linkat:error=EEXIST", "Link 0 "),
        (Work::Replace, "renameat:error=ENOSPC", "Rename 28 "),
        (Work::Prepend, "copy_file_range,pread64:error=EIO", "Move 5 "),
        (Work::Prepend, "fsync:error=EIO:when=1", "Sync 5 "),
        (Work::Prepend, "renameat:error=EIO", "Rename 5 "),
        // The blocks are moved back.
        (Work::Insert, "pwrite64:error=ENOSPC", "Write 28 "),
    ] {
        let Some((dir, ended)) = failing(work, inject) else { continue };
        assert!(ended.said.starts_with(told), "{inject}: {}", ended.said);
        holds(&dir.path().join("file"), &OLD);
        let syncs = ended.calls.iter().filter(|call| name(call) == "fsync").count();
        assert_eq!(
            syncs,
            usize::from(!matches!(&told[..2], "Wr" | "Se" | "Ke" | "Mo")),
            "never tried again: {ended:?}"
        );
    }
}

#[test]
fn a_directory_that_is_not_synced_is_told_although_the_new_file_is_there() {
    let Some((dir, ended)) = failing(Work::Replace, "fsync:error=EIO:when=2") else { return };
    let path = dir.path().join("file");
    let told = format!("SyncDirectory 5 {}: sync the directory: Input/output error (os error 5)", path.display());
    assert_eq!(ended.said, told);
    holds(&path, &NEW);
}

#[test]
fn an_append_that_is_not_synced_says_that_the_bytes_are_there() {
    for (exists, inject, told) in [
        (true, "fsync:error=EIO", "Sync 5 "),
        (false, "fsync:error=EIO:when=1", "Sync 5 "),
        // The name must be synced as well, also of a file that exists.
        (true, "fsync:error=EIO:when=2", "SyncDirectory 5 "),
        (false, "fsync:error=EIO:when=2", "SyncDirectory 5 "),
    ] {
        let (_dir, path) = child::with_old();
        if !exists {
            std::fs::remove_file(&path).unwrap();
        }
        let before = if exists { &OLD[..] } else { &[] };
        let Some(ended) = child::run(inject, Work::Append, &path, &[inject.to_owned()], Proc::Mounted) else { return };
        assert!(ended.said.starts_with(told), "{inject}: {}", ended.said);
        let synced = told.starts_with("Sync");
        assert_eq!(ended.said.contains("; 7655 bytes were appended: "), synced, "{inject}: {}", ended.said);
        holds(&path, &[before, if synced { &HEADER[..] } else { &[] }].concat());
    }
}

#[test]
fn what_can_be_done_in_another_way_is() {
    for (work, inject) in [
        (Work::Replace, "pwrite64,fsync,linkat,renameat,fchmod:error=EINTR:when=1"),
        (Work::Replace, "linkat:error=EEXIST:when=1..8"),
        (Work::Replace, "flock:error=ENOLCK"),
        (Work::Replace, "flistxattr:error=EOPNOTSUPP"),
        (Work::Prepend, "copy_file_range:error=EOPNOTSUPP"),
        (Work::Prepend, "copy_file_range:error=EPERM"),
        (Work::Prepend, "copy_file_range:retval=0"),
    ] {
        let Some((dir, ended)) = failing(work, inject) else { return };
        assert_eq!(ended.said, "done", "{inject}");
        let expected = if work == Work::Replace { NEW.clone() } else { with_header() };
        holds(&dir.path().join("file"), &expected);
    }
}
