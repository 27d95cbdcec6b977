//! Dropped and forgotten futures, and failing streams: nothing is left.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use testkit::report::report;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use millstream::fs::{Durability, Prepend, Replace, Step, append, replace};

use super::child::{self, Proc, Work};
use super::{HEADER, NEW, OLD, block_on, fds_beneath, holds, listing, only, with_header};

/// Waits until no temporary file is left; a watchdog limits the time.
async fn settled(dir: &Path) {
    let settled = async {
        while !fds_beneath(dir).is_empty() || listing(dir).len() > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let late = tokio::time::timeout(Duration::from_secs(30), settled).await;
    late.unwrap_or_else(|_| panic!("left: {:?}, open: {:?}", listing(dir), fds_beneath(dir)));
}

/// Polls `work` up to `polls` times. Returns whether it is done.
async fn poll_times(mut work: Pin<&mut impl Future>, polls: usize) -> bool {
    for _ in 0..polls {
        let once = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_ready()));
        if once.await {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

fn with_old() -> (tempfile::TempDir, std::path::PathBuf) {
    child::with_old()
}

#[test]
fn futures_dropped_after_any_number_of_polls_leave_nothing() {
    let (dir, path) = with_old();
    block_on(async {
        for polls in 0..64 {
            let replacing = Replace::new(&path).durability(Durability::Data);
            poll_times(pin!(replacing.clone().run(NEW.clone())), polls).await;
            let pieces = NEW.chunks(50_000).map(|piece| Ok::<_, Infallible>(Bytes::from_static(piece)));
            // Two pieces, then a wait, so that one job has run and the next has not started.
            let stream = stream::iter(pieces).then(async |piece| {
                tokio::task::yield_now().await;
                piece
            });
            poll_times(pin!(replacing.run_stream(stream)), polls).await;
            settled(dir.path()).await;
            let bytes = std::fs::read(&path).unwrap();
            assert!(bytes == *OLD || bytes == *NEW, "after {polls} polls");
            std::fs::write(&path, &*OLD).unwrap();
            let prepending = Prepend::new(&path).durability(Durability::Data);
            poll_times(pin!(prepending.run(HEADER.clone())), polls).await;
            settled(dir.path()).await;
            let bytes = std::fs::read(&path).unwrap();
            assert!(bytes == *OLD || bytes == with_header(), "after {polls} polls");
            std::fs::write(&path, &*OLD).unwrap();
        }
    });
    only(dir.path(), &["file"]);
}

async fn becomes(path: &Path, bytes: &[u8]) {
    let there = async {
        while std::fs::read(path).unwrap() != bytes {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), there).await.unwrap();
    settled(path.parent().unwrap()).await;
}

/// Leaks a future like `mem::forget`, but returns a reference to poll it.
fn forgotten<F: Future>(work: F) -> &'static mut Pin<Box<F>> {
    Box::leak(Box::new(Box::pin(work)))
}

#[test]
fn forgotten_futures_end_by_themselves() {
    let (dir, path) = with_old();
    let headed = [b"head", &NEW[..]].concat();
    let both = [&headed[..], b"tail"].concat();
    block_on(async {
        poll_times(forgotten(replace(path.clone(), NEW.clone())).as_mut(), 1).await;
        becomes(&path, &NEW).await;
        poll_times(forgotten(millstream::fs::prepend(path.clone(), "head")).as_mut(), 1).await;
        becomes(&path, &headed).await;
        poll_times(forgotten(append(path.clone(), "tail")).as_mut(), 1).await;
        becomes(&path, &both).await;
        // A future forgotten before its first poll has not begun.
        forgotten(replace(path.clone(), OLD.clone()));
    });
    holds(&path, &both);
    only(dir.path(), &["file"]);
}

#[test]
fn a_prepend_whose_caller_leaves_stops_at_the_next_piece_and_before_the_rename() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    // Many pieces; and one piece, after which only the rename can be stopped.
    for len in [64u64 << 20, 1 << 20] {
        std::fs::File::create(&path).unwrap().set_len(len).unwrap();
        let told = Arc::new(AtomicUsize::new(0));
        block_on(left_at_the_first_piece(&path, &told));
        assert_eq!(told.load(Ordering::Relaxed), 1);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), len);
        only(dir.path(), &["file"]);
    }
}

async fn left_at_the_first_piece(path: &Path, told: &Arc<AtomicUsize>) {
    let (tell, mut first) = tokio::sync::mpsc::channel(1);
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let count = Arc::clone(told);
    let prepending = Prepend::new(path).durability(Durability::None).on_progress(move |_, _| {
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            tell.try_send(()).unwrap();
            wait.recv().unwrap();
        }
    });
    {
        let mut work = pin!(prepending.run("head"));
        tokio::select! {
            done = &mut work => panic!("{done:?}"),
            _ = first.recv() => {}
        }
    }
    go.send(()).unwrap();
    settled(path.parent().unwrap()).await;
}

#[test]
fn a_stream_that_fails_leaves_the_old_file_and_its_own_error() {
    let (dir, path) = with_old();
    block_on(async {
        for good in [0, 1, 2, 7] {
            let pieces = stream::iter((0..good).map(|n| Ok(vec![n; 400_000])));
            let stream = pieces.chain(stream::iter([Err(io::Error::other("the client went away"))]));
            let error = Replace::new(&path).run_stream(stream).await.unwrap_err();
            assert_eq!(error.step(), Step::Receive);
            assert!(report(&error).ends_with("receive the contents: the client went away"), "{error}");
            only(dir.path(), &["file"]);
            holds(&path, &OLD);
        }
    });
}

/// Measures how far the stream is read ahead of the disk.
#[test]
fn a_stream_of_any_shape_arrives_and_never_more_than_is_due_is_taken() {
    if testkit::portable("temporary files have a name") {
        return;
    }
    let (dir, path) = with_old();
    block_on(async {
        for len in [0, 1, 1000, 20_000, 300_000, 3_000_000] {
            let bytes = super::noise(5 << 20);
            let largest = Arc::new(AtomicUsize::new(0));
            let (seen, file) = (Arc::clone(&largest), dir.path().to_owned());
            let mut given = 0;
            let pieces = bytes.chunks(len.max(1)).take(if len < 1000 { 5000 } else { usize::MAX });
            let expected: Vec<u8> = if len == 0 { Vec::new() } else { pieces.clone().collect::<Vec<_>>().concat() };
            let pieces: Vec<Vec<u8>> = pieces.map(|piece| if len == 0 { Vec::new() } else { piece.to_vec() }).collect();
            let stream = stream::iter(pieces).map(|piece| {
                // All bytes that are not on the disk yet are in memory.
                seen.fetch_max(given - temp_file_len(&file), Ordering::Relaxed);
                given += piece.len();
                Ok::<_, Infallible>(piece)
            });
            let written = Replace::new(&path).run_stream(stream).await.unwrap();
            assert_eq!(written, expected.len() as u64);
            holds(&path, &expected);
            only(dir.path(), &["file"]);
            let most = (1 << 20) + len;
            assert!(largest.load(Ordering::Relaxed) <= most, "{len}: {largest:?}");
        }
    });
}

/// Returns the length of the unnamed file that this process has open.
fn temp_file_len(dir: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|link| Some(link.ok()?.path()));
    let temp_files = links.filter(|link| {
        std::fs::read_link(link).is_ok_and(|to| to.starts_with(dir) && to.to_string_lossy().ends_with("(deleted)"))
    });
    temp_files
        .filter_map(|link| std::fs::metadata(link).ok())
        .map(|found| found.len() as usize)
        .max()
        .unwrap_or_default()
}

#[test]
fn a_temp_file_that_is_abandoned_is_removed_by_another_thread() {
    // Without /proc temporary files have names, so their removal is a separate call.
    let (dir, path) = with_old();
    let Some(ended) = child::run("an abandoned temporary file", Work::Abandon, &path, &[], Proc::Missing) else {
        return;
    };
    assert_eq!((&*ended.said, ended.threads), ("done", 1), "{ended:?}");
    assert!(ended.calls.iter().any(|call| call.starts_with("unlinkat")), "{ended:?}");
    assert!(ended.hops > 0, "two jobs, one that writes and one that removes: {ended:?}");
    only(dir.path(), &["file"]);
    holds(&path, &OLD);
}

#[test]
fn a_runtime_that_ends_takes_its_temp_files_along() {
    let (dir, path) = with_old();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let waiting = path.clone();
    runtime.block_on(async {
        let (stream, mut told) = child::unfinished();
        tokio::spawn(Replace::new(waiting).run_stream(stream));
        told.recv().await.unwrap();
        // The first piece was written, and the second one never arrives.
        assert_eq!(fds_beneath(dir.path()).len(), 3, "the directory, the old file and the temporary file");
    });
    drop(runtime);
    only(dir.path(), &["file"]);
    holds(&path, &OLD);
}

#[test]
fn without_a_runtime_there_is_an_error() {
    let (dir, path) = with_old();
    let mut work = pin!(replace(&path, "new"));
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let Poll::Ready(Err(error)) = work.as_mut().poll(&mut cx) else { panic!("no error") };
    assert_eq!(error.step(), Step::Start);
    only(dir.path(), &["file"]);
}

#[test]
fn many_at_once_leave_one_whole_file() {
    let (dir, path) = with_old();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let all: Vec<_> = (0..40u8)
            .map(|n| tokio::spawn(Replace::new(&path).durability(Durability::None).run(vec![n; 100_000])))
            .collect();
        for one in all {
            one.await.unwrap().unwrap();
        }
    });
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 100_000);
    assert!(bytes.iter().all(|b| *b == bytes[0]));
    only(dir.path(), &["file"]);
}
