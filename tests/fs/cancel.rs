//! Futures of file operations dropped or forgotten after each number of polls: no descriptor is left open, no
//! completion is lost, and later operations work.
//!
//! Descriptors and counters belong to the process, so the test runs in its own process.

use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use millstream::fs::chain::Chain;
use millstream::fs::{File, OpenOptions};
use millstream::metrics::Snapshot;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::yield_now;

use testkit::http::{Flavour, watched};
use testkit::ways::{WAYS, cool, on_way};
use testkit::{alone, noise};

const POLLS: usize = 8;
const LEN: usize = 1 << 20;

type Any = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;
/// Name and constructor of an operation, given an open file and its path.
type Case = (&'static str, fn(File, PathBuf) -> Any);

const CASES: &[Case] = &[
    ("read", |file, _| Box::pin(async move { file.read_at(5, 4096).await.map(drop).map_err(io::Error::from) })),
    ("read much", |file, _| Box::pin(async move { file.read_at(0, LEN).await.map(drop).map_err(io::Error::from) })),
    ("read pieces", |file, _| {
        Box::pin(async move { file.read_vectored_at(0, &[100_000; 8]).await.map(drop).map_err(io::Error::from) })
    }),
    ("write", |file, _| Box::pin(async move { Ok(file.write_at(5, noise(10_000)).await?) })),
    ("write pieces", |file, _| {
        Box::pin(async move { Ok(file.write_vectored_at(9, vec![Bytes::from(noise(5000)); 9]).await?) })
    }),
    ("sync", |file, _| Box::pin(async move { Ok(file.sync().await?) })),
    ("allocate", |file, _| Box::pin(async move { Ok(file.allocate(0, LEN as u64).await?) })),
    ("set length", |file, _| Box::pin(async move { Ok(file.set_len(LEN as u64).await?) })),
    ("look", |file, _| Box::pin(async move { file.metadata().await.map(drop).map_err(io::Error::from) })),
    ("close", |file, _| Box::pin(async move { Ok(file.close().await?) })),
    ("open", |_, path| Box::pin(async move { File::open(path).await.map(drop).map_err(io::Error::from) })),
    ("make", |_, path| {
        Box::pin(async move { File::create(path.with_extension("made")).await.map(drop).map_err(io::Error::from) })
    }),
    ("chain that reads", |_, path| {
        let chain = Chain::new().open(path, OpenOptions::new().read(true)).read(4096).read_at(5, 4096);
        Box::pin(async move { chain.run().await.map(drop).map_err(io::Error::from) })
    }),
    ("chain that writes", |_, path| {
        let (new, named) = (path.with_extension("new"), path.with_extension("named"));
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        let chain = Chain::new().open(&new, options).write(noise(10_000)).sync_data().rename(&new, named);
        // A forgotten future may have renamed it; this test ignores that.
        Box::pin(async move {
            let _ = chain.run().await;
            Ok(())
        })
    }),
    ("reader", |file, _| Box::pin(async move { file.reader().read_to_end(&mut Vec::new()).await.map(drop) })),
    ("writer", |file, _| {
        Box::pin(async move {
            let mut writer = file.writer();
            writer.write_all(&noise(700_000)).await?;
            writer.shutdown().await
        })
    }),
];

fn descriptors() -> Vec<PathBuf> {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap();
    let mut leads: Vec<_> = fds.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok()).collect();
    leads.sort();
    leads
}

/// Polls `future` up to `polls` times, with other tasks running in between. Returns it unless it has ended.
async fn polled(mut future: Any, polls: usize) -> Option<Any> {
    for _ in 0..polls {
        if poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await {
            return None;
        }
        yield_now().await;
    }
    Some(future)
}

/// Runs every case with every number of polls, and passes the unfinished future to `leave`. Returns their number.
async fn all(path: PathBuf, leave: fn(Any)) -> usize {
    let mut left = 0;
    for (name, case) in CASES {
        for polls in 0..=POLLS {
            let file = OpenOptions::new().read(true).write(true).open(&path).await.unwrap();
            if polls % 2 == 0 {
                cool(&std::fs::File::open(&path).unwrap());
            }
            if let Some(future) = polled(case(file.clone(), path.clone()), polls).await {
                left += 1;
                leave(future);
            }
            // Other operations still work.
            assert_eq!(file.read_at(0, 1).await.unwrap().len(), 1, "after {name} and {polls} polls");
        }
    }
    left
}

/// Drops writers without bytes, with 1000 unflushed bytes, and with flushed bytes.
async fn unflushed(path: PathBuf) {
    let file = OpenOptions::new().write(true).open(&path).await.unwrap();
    let (empty, mut unflushed, mut flushed) = (file.writer(), file.writer(), file.writer());
    unflushed.write_all(&noise(1000)).await.unwrap();
    flushed.write_all(&noise(1000)).await.unwrap();
    flushed.flush().await.unwrap();
    drop((empty, unflushed, flushed));
}

#[test]
fn nothing_is_left_of_futures_that_are() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        // Creates the resources that exist once per process.
        for io in WAYS {
            std::fs::write(&path, noise(LEN)).unwrap();
            on_way(Flavour::CurrentThread, io, all(path.clone(), drop));
        }
        for flavour in Flavour::BOTH {
            for io in WAYS {
                let (before, counted) = (descriptors(), Snapshot::now());
                let left = on_way(flavour, io, all(path.clone(), drop));
                let after = Snapshot::now().since(&counted);
                println!("{flavour:?}, {io}: {left} futures dropped\n{after}");
                assert!(left > CASES.len(), "only {left} futures were dropped before they ended");
                assert_eq!(descriptors(), before, "{flavour:?}, {io}: descriptors");
                assert_eq!(after.ring_submissions, after.ring_completions, "{after}");
                assert_eq!((after.ring_strays, after.ring_leaks), (0, 0), "{after}");
            }
        }
        for io in WAYS {
            let counted = Snapshot::now();
            on_way(Flavour::CurrentThread, io, unflushed(path.clone()));
            assert_eq!(Snapshot::now().since(&counted).bytes_lost, 1000, "{io}: what a dropped writer had accepted");
        }
        for flavour in Flavour::BOTH {
            for io in WAYS {
                let (before, counted) = (descriptors(), Snapshot::now());
                #[expect(clippy::disallowed_methods, reason = "the test covers forgotten values")]
                let left = on_way(flavour, io, all(path.clone(), std::mem::forget));
                let after = Snapshot::now().since(&counted);
                // A forgotten future keeps its file, given or opened, and the runtime's descriptors.
                let now = descriptors();
                let files = |all: &[PathBuf]| all.iter().filter(|leads| leads.starts_with(dir.path())).count();
                let kept = files(&now) - files(&before);
                println!("{flavour:?}, {io}: {left} futures forgotten, {kept} files kept");
                assert!(kept <= left, "{kept} files of {left} futures");
                assert!(!now.iter().any(|leads| leads.ends_with("anon_inode:[io_uring]")), "a ring is open: {now:?}");
                assert_eq!(after.ring_submissions, after.ring_completions, "{after}");
                assert_eq!((after.ring_strays, after.ring_leaks), (0, 0), "{after}");
            }
        }
    });
}
