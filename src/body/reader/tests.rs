//! Tests of the reader: cached files, cold files, and files that change meanwhile.

use super::*;
use crate::body::FileBody;
use crate::report::report;
use crate::runtime::{DriverBuilder, Io};
use crate::skips::skip;
use crate::sys::caps::{Capabilities, Support};
use crate::sys::page_cache;
use http_body::Body;
use http_body_util::BodyExt;
use std::io::Write;

fn file(len: usize) -> (std::fs::File, File, Vec<u8>) {
    let bytes: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    (file.try_clone().unwrap(), File::from_std(file).unwrap(), bytes)
}

fn cool(file: &std::fs::File) {
    file.sync_all().unwrap();
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

async fn read(reader: &mut Reader, mut range: Range<u64>, bytes: &[u8]) -> io::Result<Vec<usize>> {
    let mut frames = Vec::new();
    while !range.is_empty() {
        let at = range.start as usize;
        let frame = std::future::poll_fn(|cx| reader.poll_next(cx, &mut range)).await?;
        assert!(frame[..] == bytes[at..at + frame.len()], "wrong bytes at {at}");
        assert_eq!(range.start as usize, at + frame.len());
        let read_ahead = reader.read_ahead.end().map_or(0, |end| end - range.start);
        assert!(read_ahead <= 2 * CHUNK && (read_ahead == 0 || reader.job.is_none()), "{read_ahead} bytes ahead");
        frames.push(frame.len());
    }
    assert!(reader.job.is_none() && reader.read_ahead.is_empty(), "bytes were read beyond the range");
    Ok(frames)
}

#[tokio::test]
#[cfg_attr(portable, ignore = "reads may wait for the disk")]
async fn a_small_file_is_one_ready_frame() {
    let (_, file, bytes) = file(SMALL as usize);
    let mut body = FileBody::new(&file, ..).unwrap();
    let frame = futures_util::FutureExt::now_or_never(body.frame()).expect("ready").unwrap().unwrap();
    assert!(frame.into_data().unwrap() == bytes);
    assert!(body.is_end_stream());
}

#[tokio::test]
async fn a_cached_file_is_mapped_in_frames_of_4_mib() {
    if let Support::No(why) = Capabilities::get().cachestat() {
        return skip("cachestat", why);
    }
    let (_, file, bytes) = file(9 << 20);
    let mut reader = Reader::new(file);
    let frames = read(&mut reader, 5..9 << 20, &bytes).await.unwrap();
    assert_eq!(frames, [4 << 20, 4 << 20, (1 << 20) - 5]);
}

#[tokio::test]
#[cfg_attr(portable, ignore = "files are not mapped")]
async fn a_cold_file_is_warmed_step_by_step_with_the_same_bytes() {
    let (std, file, bytes) = file(3 << 20);
    cool(&std);
    let mut reader = Reader::new(file.clone());
    if page_cache::is_resident(std.as_fd(), 0, 3 << 20) {
        return crate::skips::tell("a cold file: this file system ignores POSIX_FADV_DONTNEED");
    }
    let mut range = 0..3u64 << 20;
    let first = std::future::poll_fn(|cx| reader.poll_next(cx, &mut range)).await.unwrap();
    let step = if programs::has_ring() { 256 << 10 } else { 1 << 20 };
    assert_eq!(first.len(), step);
    let read_ahead = page_cache::is_resident(std.as_fd(), step as u64, step as u64);
    assert!(
        read_ahead || reader.job.is_some() || !reader.read_ahead.is_empty(),
        "the next step was not loaded while this one is sent"
    );
    assert!(first[..] == bytes[..step]);
    read(&mut reader, range, &bytes).await.unwrap();
    cool(&std);
    let small = FileBody::new(&file, 100..5000).unwrap().collect().await.unwrap().to_bytes();
    assert!(small[..] == bytes[100..5000]);
}

#[tokio::test]
async fn without_mappings_the_bytes_are_the_same() {
    let (_, file, bytes) = file(1 << 20);
    let mut reader = Reader::new(file);
    reader.maps = false;
    let frames = read(&mut reader, 100..(1 << 20) - 7, &bytes).await.unwrap();
    assert_eq!(frames.iter().sum::<usize>(), (1 << 20) - 107);
    assert!(frames.iter().all(|&len| len <= CHUNK as usize));
}

#[test]
fn a_body_that_moves_to_a_thread_without_a_ring_is_whole() {
    let (_, file, bytes) = file(2 << 20);
    let on = |mut builder: tokio::runtime::Builder, io| {
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async { DriverBuilder::new().io(io).install().unwrap() });
        runtime
    };
    let one = on(tokio::runtime::Builder::new_multi_thread(), Io::Uring);
    let other = on(tokio::runtime::Builder::new_current_thread(), Io::Epoll);
    let mut reader = Reader::new(file);
    reader.maps = false;
    let first = one.spawn(async move {
        let mut range = 0..2 << 20;
        let first = std::future::poll_fn(|cx| reader.poll_next(cx, &mut range)).await.unwrap();
        (reader, range, first)
    });
    let (mut reader, range, first) = one.block_on(first).unwrap();
    assert!(first[..] == bytes[..first.len()]);
    other.block_on(read(&mut reader, range, &bytes)).unwrap();
}

#[tokio::test]
async fn ranges_across_windows_are_whole() {
    let len = origin::WINDOW as u64 * 2 + 1000;
    let sparse = tempfile::tempfile().unwrap();
    sparse.set_len(len).unwrap();
    let mark = origin::WINDOW as u64 - 50_000;
    std::os::unix::fs::FileExt::write_all_at(&sparse, &[9; 100_000], mark).unwrap();
    let file = File::from_std(sparse).unwrap();
    let got = FileBody::new(&file, mark - 10..mark + 100_010).unwrap().collect().await.unwrap().to_bytes();
    assert_eq!(got.len(), 100_020);
    assert!(got[..10] == [0; 10] && got[100_010..] == [0; 10]);
    assert!(got[10..100_010].iter().all(|&b| b == 9));
    let end = FileBody::new(&file, len - 100_000..).unwrap().collect().await.unwrap().to_bytes();
    assert_eq!(end.len(), 100_000);
}

#[test]
fn short_ranges_across_windows_are_whole_from_the_disk() {
    for io in [Io::Auto, Io::Uring, Io::Epoll] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            DriverBuilder::new().io(io).install().unwrap();
            let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
            let sparse = std::fs::File::create_new(dir.path().join("sparse")).unwrap();
            sparse.set_len(origin::WINDOW as u64 * 2).unwrap();
            let start = origin::WINDOW as u64 - 20_000;
            for len in [30_000, 60_000, 100_000] {
                let bytes: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
                std::os::unix::fs::FileExt::write_all_at(&sparse, &bytes, start).unwrap();
                cool(&sparse);
                let file = File::open(dir.path().join("sparse")).await.unwrap();
                let body = FileBody::new(&file, start..start + len as u64).unwrap();
                assert!(body.collect().await.unwrap().to_bytes() == bytes, "{io} {len}");
            }
        });
    }
}

#[tokio::test]
async fn a_file_that_shrank_is_an_error_on_every_path() {
    for (len, maps) in [(20_000, true), (200_000, true), (200_000, false), (9 << 20, true), (9 << 20, false)] {
        for left in [len - 5, 0] {
            let (std, file, bytes) = file(len);
            let mut reader = Reader::new(file);
            reader.maps = maps;
            std.set_len(left as u64).unwrap();
            let error = read(&mut reader, 0..len as u64, &bytes).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{len} {maps} {left}: {error}");
            let text = report(&error);
            assert!(text.contains(&format!("the open file: read: the file is shorter than the {len} bytes")), "{text}");
        }
    }
}

#[tokio::test]
async fn a_file_that_shrinks_between_frames_is_an_error() {
    for maps in [true, false] {
        let (std, file, bytes) = file(9 << 20);
        let mut reader = Reader::new(file);
        reader.maps = maps;
        let mut range = 0..9u64 << 20;
        std::future::poll_fn(|cx| reader.poll_next(cx, &mut range)).await.unwrap();
        std.set_len(range.start + (1 << 20)).unwrap();
        assert!(read(&mut reader, range, &bytes).await.is_err());
    }
}

#[tokio::test]
async fn a_window_that_was_torn_is_an_error_though_the_file_is_long_again() {
    let (std, file, bytes) = file(9 << 20);
    let mut reader = Reader::new(file);
    let mut range = 0..9u64 << 20;
    let first = std::future::poll_fn(|cx| reader.poll_next(cx, &mut range)).await.unwrap();
    if reader.window.is_none() {
        return; // Nothing is mapped on this machine.
    }
    std.set_len(0).unwrap();
    assert_eq!(first[100], 0);
    std.set_len(9 << 20).unwrap();
    let error = read(&mut reader, range, &bytes).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

fn cached_pages(file: &std::fs::File, len: u64) -> usize {
    (0..len / PAGE).filter(|page| page_cache::is_resident(file.as_fd(), page * PAGE, PAGE)).count()
}

/// Reads a cold file and one that is in memory. Returns the numbers of pages of both in the page cache afterwards.
fn pages_after(io: Io, cache: Cache) -> Option<(usize, usize)> {
    const LEN: u64 = 8 << 20;
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    runtime.block_on(async {
        DriverBuilder::new().io(io).install().unwrap();
        let mut pages = Vec::new();
        for cold in [true, false] {
            let (std, file, bytes) = file(LEN as usize);
            std.sync_all().unwrap();
            for _ in 0..40 {
                if cold && cached_pages(&std, LEN) > 0 {
                    cool(&std);
                    tokio::time::sleep(std::time::Duration::from_millis(25)).await;
                }
            }
            if cold && cached_pages(&std, LEN) > 0 {
                return None;
            }
            let mut reader = Reader::new(file);
            reader.set_uncached(cache != Cache::Keep);
            if cache == Cache::Drop {
                reader.cache = Cache::Drop;
                reader.read_ahead.set_uncached(false);
            }
            let frames = read(&mut reader, 100..LEN, &bytes).await.unwrap();
            assert!(cache == Cache::Keep || frames.iter().all(|&len| len <= CHUNK as usize));
            if reader.cache != cache {
                return None;
            }
            // Pages are dropped by jobs on the blocking pool.
            for _ in 0..400 {
                if cache == Cache::Drop && cold && cached_pages(&std, LEN) >= 2048 / 8 {
                    tokio::time::sleep(std::time::Duration::from_millis(25)).await;
                }
            }
            pages.push(cached_pages(&std, LEN));
        }
        Some((pages[0], pages[1]))
    })
}

#[test]
fn an_uncached_body_leaves_the_page_cache_to_others() {
    const ALL: usize = 2048;
    if let Support::No(why) = Capabilities::get().cachestat() {
        return skip("cachestat", why);
    }
    for io in [Io::Uring, Io::Epoll] {
        let Some((cold, _)) = pages_after(io, Cache::Keep) else {
            return crate::skips::tell("a cold file: this file system keeps pages that it was told to drop");
        };
        assert_eq!(cold, ALL, "{io:?}: otherwise nothing is shown");
        match pages_after(io, Cache::Pass) {
            Some((cold, cached)) => assert!(cold < ALL / 8 && cached == ALL, "{io:?}: {cold} and {cached} pages"),
            None => crate::skips::tell("reads past the page cache: this kernel or file system lacks RWF_DONTCACHE"),
        }
        // Pages that were there before stay if they belong to a folio that is longer than a read.
        let (cold, _) = pages_after(io, Cache::Drop).unwrap();
        assert!(cold < ALL / 8, "{io:?}: {cold} pages");
    }
}

#[tokio::test]
async fn a_file_without_rwf_dontcache_is_read_all_the_same() {
    // A memory file does not support it.
    let fd = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut std = std::fs::File::from(fd);
    let bytes: Vec<u8> = (0..3 << 20).map(|i| (i * 31 % 251) as u8).collect();
    std.write_all(&bytes).unwrap();
    let file = File::from_std(std).unwrap();
    for range in [0..3 << 20, 100..5000, 1_000_000..2_000_001] {
        let mut reader = Reader::new(file.clone());
        reader.set_uncached(true);
        read(&mut reader, range, &bytes).await.unwrap();
    }
}

#[tokio::test]
async fn each_range_of_an_uncached_body_drops_its_own_pages() {
    let (_, file, bytes) = file(4 << 20);
    let mut reader = Reader::new(file);
    reader.set_uncached(true);
    reader.cache = Cache::Drop;
    reader.read_ahead.set_uncached(false);
    // Backwards, and forwards with a gap.
    for range in [3_000_000..3_001_000, 0..700_000, 3_500_000..3_500_100] {
        let front = range.start / PAGE * PAGE;
        let mut rest = range.clone();
        std::future::poll_fn(|cx| reader.poll_next(cx, &mut rest)).await.unwrap();
        assert!(rest.is_empty() || reader.undropped == Some(front), "{range:?}: {:?}", reader.undropped);
        read(&mut reader, rest, &bytes).await.unwrap();
        assert_eq!(reader.undropped, None, "{range:?}");
    }
}
