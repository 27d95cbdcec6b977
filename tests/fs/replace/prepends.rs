//! Headers before contents of many sizes, with each strategy, on each available file system.

use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use millstream::fs::{Durability, Moved, Prepend, PrependStrategy, Step, append, prepend};

use super::{HEADER, OLD, block_on, holds, only, with_header};
use testkit::mounts::{Cut, Mount};
use testkit::noise;
use testkit::report::report;

#[test]
fn headers_and_bodies_of_any_size_are_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let bytes = noise(9 << 20);
    block_on(async {
        for body in [0, 1, 4095, 4096, 100_000, 9 << 20] {
            for header in [0, 1, 4095, 4096, 8192, 300_000] {
                std::fs::write(&path, &bytes[..body]).unwrap();
                let done = prepend(&path, bytes[..header].to_vec()).await.unwrap();
                holds(&path, &[&bytes[..header], &bytes[..body]].concat());
                assert_eq!(done.body_len(), body as u64);
                assert_eq!(done.moved() == Moved::Stayed, header == 0 || body == 0);
            }
        }
    });
    only(dir.path(), &["file"]);
}

#[test]
fn progress_is_told_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let body = noise(20 << 20);
    std::fs::write(&path, &body).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let work = Prepend::new(&path).on_progress(move |moved, of| tell.lock().unwrap().push((moved, of)));
    block_on(work.run("head")).unwrap();
    let told = told.lock().unwrap();
    assert!(told.iter().all(|(_, of)| *of == 20 << 20));
    assert!(told.is_sorted_by(|a, b| a.0 < b.0), "{told:?}");
    assert!(told.len() >= 3 && told.last().unwrap().0 == 20 << 20, "{told:?}");
}

/// Prepends while `happens` changes the file in the middle. Returns the error, if any.
fn while_it_happens(path: &Path, happens: impl FnOnce() + Send + 'static) -> Option<Step> {
    std::fs::write(path, &*OLD).unwrap();
    let mut happens = Some(happens);
    let work = Prepend::new(path).on_progress(move |_, _| happens.take().unwrap()());
    block_on(work.run(HEADER.clone())).err().map(|e| e.step())
}

#[test]
fn a_file_that_changes_meanwhile_is_left_as_it_became() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    assert_eq!(while_it_happens(&path, || {}), None);
    holds(&path, &with_header());
    let file = path.clone();
    let appended = move || {
        let mut file = std::fs::File::options().append(true).open(file).unwrap();
        file.write_all(b"more").unwrap();
    };
    assert_eq!(while_it_happens(&path, appended), Some(Step::Recheck));
    holds(&path, &[&OLD[..], b"more"].concat());
    let file = path.clone();
    let other = dir.path().join("other");
    std::fs::write(&other, "of somebody else").unwrap();
    assert_eq!(while_it_happens(&path, move || std::fs::rename(other, file).unwrap()), Some(Step::Recheck));
    holds(&path, b"of somebody else");
    let file = path.clone();
    assert_eq!(while_it_happens(&path, move || std::fs::remove_file(file).unwrap()), Some(Step::Recheck));
    only(dir.path(), &[]);
}

#[test]
fn a_file_that_shrinks_meanwhile_is_no_success() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, noise(20 << 20)).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let work = Prepend::new(&path).on_progress(move |_, _| file.set_len(1000).unwrap());
    assert_eq!(block_on(work.run("head")).unwrap_err().step(), Step::Recheck);
    only(dir.path(), &["file"]);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1000);
}

#[test]
fn a_reserved_area_is_overwritten_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let inode = |path: &Path| std::fs::metadata(path).unwrap().ino();
    block_on(async {
        for durability in [Durability::None, Durability::Data, Durability::Full] {
            std::fs::write(&path, &*OLD).unwrap();
            let before = inode(&path);
            let work =
                |reserved| Prepend::new(&path).strategy(PrependStrategy::InPlace { reserved }).durability(durability);
            let done = work(HEADER.len() as u64).run(HEADER.clone()).await.unwrap();
            assert_eq!((done.moved(), done.body_len()), (Moved::Stayed, (OLD.len() - HEADER.len()) as u64));
            let expected = [&HEADER[..], &OLD[HEADER.len()..]].concat();
            holds(&path, &expected);
            assert_eq!(inode(&path), before);
            for (reserved, header) in [(8, 7), (7, 8), (0, 1), (300_000, 300_000)] {
                let error = work(reserved).run(vec![0; header]).await.unwrap_err();
                assert_eq!((error.step(), error.kind()), (Step::Inspect, ErrorKind::InvalidInput), "{error}");
                assert!(report(&error).contains(&reserved.to_string()), "{error}");
            }
            holds(&path, &expected);
        }
    });
    only(dir.path(), &["file"]);
}

/// Inserts blocks of `block` bytes on the file system of `dir`.
fn inserts(dir: &Path, block: usize) {
    let path = dir.join("inserted");
    let work = || Prepend::new(&path).strategy(PrependStrategy::InsertRange);
    block_on(async {
        for body in [0, 1, block, 5 * block + 7, 3 << 20] {
            let body = noise(body);
            std::fs::write(&path, &body).unwrap();
            let mut logger = std::fs::File::options().append(true).read(true).open(&path).unwrap();
            for blocks in [1, 3] {
                let header = vec![b'h'; blocks * block];
                let before = std::fs::read(&path).unwrap();
                let done = work().run(header.clone()).await.unwrap();
                assert_eq!((done.moved(), done.body_len()), (Moved::Stayed, before.len() as u64));
                holds(&path, &[&header[..], &before].concat());
            }
            // An open descriptor still works.
            logger.write_all(b"line").unwrap();
            logger.seek(SeekFrom::Start(4 * block as u64)).unwrap();
            let mut rest = Vec::new();
            logger.read_to_end(&mut rest).unwrap();
            assert!(rest == [&body[..], b"line"].concat());
        }
        let error = work().run(vec![0; block + 1]).await.unwrap_err();
        assert_eq!((error.step(), error.kind()), (Step::Inspect, ErrorKind::InvalidInput));
        assert!(report(&error).contains(&format!("multiples of the block size, {block},")), "{error}");
    });
}

#[test]
fn blocks_are_inserted_where_the_file_system_can() {
    if testkit::portable("no bytes are inserted") {
        return;
    }
    if let Some(disk) = Mount::image("inserting on ext4", "mkfs.ext4 -q -F -b 1024", 32, "defaults") {
        inserts(&disk.path(), 1024);
        let path = disk.path().join("inserted");
        let expected = std::fs::read(&path).unwrap();
        block_on(append(&path, "synced")).unwrap();
        disk.cut_power(Cut::LogLost);
        holds(&path, &[&expected[..], b"synced"].concat());
    }
    if let Some(disk) = Mount::image("inserting on xfs", "mkfs.xfs -q", 320, "defaults") {
        inserts(&disk.path(), 4096);
    }
    if let Some(disk) = Mount::tmpfs("inserting on tmpfs", "8m") {
        let path = disk.path().join("file");
        std::fs::write(&path, &*OLD).unwrap();
        let block = rustix::fs::statvfs(&path).unwrap().f_bsize as usize;
        let work = Prepend::new(&path).strategy(PrependStrategy::InsertRange).run(vec![0; block]);
        let error = block_on(work).unwrap_err();
        assert_eq!((error.step(), error.kind(), error.raw_os_error()), (Step::Move, ErrorKind::Unsupported, Some(95)));
        holds(&path, &OLD);
    }
}

#[test]
fn a_body_is_shared_where_the_file_system_can() {
    if testkit::portable("files share no blocks") {
        return;
    }
    for (mkfs, megabytes) in [("mkfs.xfs -q -m reflink=1", 320), ("mkfs.btrfs -q", 128)] {
        let Some(disk) = Mount::image("sharing blocks", mkfs, megabytes, "defaults") else { continue };
        let path = disk.path().join("file");
        let body = noise(10_000_000);
        block_on(async {
            for (header, moved) in [(4096, Moved::Cloned), (8192, Moved::Cloned), (1000, Moved::Copied)] {
                std::fs::write(&path, &body).unwrap();
                let done = prepend(&path, vec![b'h'; header]).await.unwrap();
                assert_eq!(done.moved(), moved, "{mkfs}");
                holds(&path, &[&vec![b'h'; header][..], &body].concat());
            }
        });
        only(&disk.path(), &["file"]);
    }
}
