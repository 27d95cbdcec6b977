//! Rings: no-ops, files written by linked operations, and single operations.
//!
//! | case | method |
//! |---|---|
//! | millstream uring, epoll, auto | [`Chain`] or [`File`] on a runtime with this driver |
//! | tokio::fs | calls of `tokio::fs` in sequence, each on the blocking pool |
//! | one job | the same with `std::fs` in one `spawn_blocking` |
//!
//! All on a current-thread runtime. A *chain* creates a file, writes 1 KiB, and renames it over another, whose contents
//! are compared once at the end. One *that reads* opens a file, reads 1 KiB, compares it, and closes the file. Nothing
//! is synced, because a disk would hide everything else. *Alone* means that no other task runs.
//!
//! The figures are the CPU time of the whole process; the numbers of `io_uring_enter` calls for a batch are exact.
//! **Noise**: single-digit percentages; the file system itself is most of the cost of a chain.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::join_all;
use millstream::fs::chain::Chain;
use millstream::fs::{File, OpenOptions};
use millstream::metrics::Snapshot;
use millstream::runtime::Io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

use super::on;
use crate::common::contest::{Case, Contender, Run, Spent};
use crate::common::options::options;
use crate::common::suite::Suite;
use crate::common::{noise, runtime};

const LEN: usize = 1024;

const WAYS: [(&str, Io); 3] =
    [("millstream auto", Io::Auto), ("millstream uring", Io::Uring), ("millstream epoll", Io::Epoll)];

/// Creates a contender that runs `work` in `batch` concurrent tasks, or awaits it if `batch` is one.
fn contender<'a, F, R>(name: &'static str, runtime: Runtime, batch: usize, work: F) -> Contender<'a>
where
    F: Fn(usize) -> R + 'a,
    R: Future<Output = ()> + Send + 'static,
{
    let run = move |operations| {
        let mut spent = Spent::default();
        spent.on(|| {
            runtime.block_on(async {
                for _ in 0..operations {
                    if batch == 1 {
                        work(0).await;
                        continue;
                    }
                    let tasks: Vec<_> = (0..batch).map(|n| tokio::spawn(work(n))).collect();
                    for task in tasks {
                        task.await.unwrap();
                    }
                }
            });
        });
        spent
    };
    Contender::new(name, run)
}

/// All in one task: the cost of a ring without the cost of tasks.
fn joined(batch: usize) -> Contender<'static> {
    let runtime = on(Io::Uring);
    let run = move |operations| {
        let mut spent = Spent::default();
        spent.on(|| {
            runtime.block_on(async {
                for _ in 0..operations {
                    let all = join_all((0..batch).map(|_| Chain::new().nop().run()));
                    assert!(all.await.iter().all(Result::is_ok));
                }
            });
        });
        spent
    };
    Contender::new("millstream uring, one task", run)
}

fn nops(suite: &mut Suite, batch: usize) {
    let title = format!("nothing, {batch} at once");
    suite.run(&Case::new(&title, "CPU us/operation", batch as u64), || {
        let way =
            |(name, io)| contender(name, on(io), batch, |_| async { drop(Chain::new().nop().run().await.unwrap()) });
        let job = |_| async { tokio::task::spawn_blocking(|| ()).await.unwrap() };
        vec![way(WAYS[1]), joined(batch), way(WAYS[2]), contender("one job", runtime(), batch, job)]
    });
}

/// Returns the name that a task writes to, and the name it renames that to.
fn names(dir: &Path, task: usize) -> (PathBuf, PathBuf) {
    (dir.join(format!("{task}.new")), dir.join(format!("{task}")))
}

fn chains(suite: &mut Suite, batch: usize) {
    let title = format!("chains, {batch} at once");
    if !suite.wants(&title) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let contents = bytes::Bytes::from(noise(LEN));
    let root: Arc<Path> = dir.path().into();
    let mut contenders = Vec::new();
    for (name, io) in WAYS {
        let (root, contents) = (Arc::clone(&root), contents.clone());
        let chains = contender(name, on(io), batch, move |task| {
            let ((new, path), contents) = (names(&root, task), contents.clone());
            let options = OpenOptions::new().write(true).create(true).truncate(true);
            async move {
                let chain = Chain::new().open(&new, options).write(contents).rename(&new, &path);
                chain.run().await.unwrap();
            }
        });
        // Only this driver calls `io_uring_enter` for nothing else.
        let counted = Counted { run: chains.run, batch: (io == Io::Uring).then_some(batch) };
        contenders.push(Contender { name, run: Box::new(counted) });
    }
    {
        let (root, contents) = (Arc::clone(&root), contents.clone());
        contenders.push(contender("tokio::fs", runtime(), batch, move |task| {
            let ((new, path), contents) = (names(&root, task), contents.clone());
            async move {
                let mut file = tokio::fs::File::create(&new).await.unwrap();
                file.write_all(&contents).await.unwrap();
                file.flush().await.unwrap();
                drop(file);
                tokio::fs::rename(new, path).await.unwrap();
            }
        }));
    }
    {
        let (root, contents) = (Arc::clone(&root), contents.clone());
        contenders.push(contender("one job", runtime(), batch, move |task| {
            let ((new, path), contents) = (names(&root, task), contents.clone());
            async move {
                let job = tokio::task::spawn_blocking(move || {
                    std::fs::File::create(&new)?.write_all(&contents)?;
                    std::fs::rename(new, path)
                });
                job.await.unwrap().unwrap();
            }
        }));
    }
    suite.run(&Case::new(&title, "CPU us/chain", batch as u64), || contenders);
    // None has run if the cases are only listed.
    for task in 0..if options().list { 0 } else { batch } {
        assert!(std::fs::read(names(&root, task).1).unwrap() == contents, "wrong contents");
    }
}

/// Opens, reads and closes files in the page cache: the savings of a chain without a disk.
fn reads(suite: &mut Suite, batch: usize) {
    let title = format!("chains that read, {batch} at once");
    if !suite.wants(&title) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root: Arc<Path> = dir.path().into();
    let path = |root: &Path, task: usize| root.join(format!("{task}"));
    (0..batch).for_each(|task| std::fs::write(path(&root, task), noise(LEN)).unwrap());
    let expected = bytes::Bytes::from(noise(LEN));
    let mut contenders = Vec::new();
    for (name, io) in WAYS {
        let (root, expected) = (Arc::clone(&root), expected.clone());
        contenders.push(contender(name, on(io), batch, move |task| {
            let chain = Chain::new().open(path(&root, task), OpenOptions::new().read(true)).read(LEN);
            let expected = expected.clone();
            async move { assert!(chain.run().await.unwrap().reads()[0] == expected) }
        }));
    }
    {
        let (root, expected) = (Arc::clone(&root), expected.clone());
        contenders.push(contender("tokio::fs", runtime(), batch, move |task| {
            let (path, expected) = (path(&root, task), expected.clone());
            async move {
                let mut file = tokio::fs::File::open(path).await.unwrap();
                let mut bytes = vec![0; LEN];
                file.read_exact(&mut bytes).await.unwrap();
                assert!(bytes == expected);
            }
        }));
    }
    contenders.push(contender("one job", runtime(), batch, move |task| {
        let (path, expected) = (path(&root, task), expected.clone());
        async move {
            let bytes = tokio::task::spawn_blocking(move || std::fs::read(path)).await.unwrap().unwrap();
            assert!(bytes == expected);
        }
    }));
    suite.run(&Case::new(&title, "CPU us/chain", batch as u64), || contenders);
}

/// Chains, with a note of the calls for a batch.
struct Counted<'a> {
    run: Box<dyn Run + 'a>,
    batch: Option<usize>,
}

impl Run for Counted<'_> {
    fn run(&mut self, operations: u64) -> Spent {
        self.run.run(operations)
    }

    fn note(&mut self) -> String {
        self.batch.map(enters).unwrap_or_default()
    }
}

/// Returns the number of `io_uring_enter` calls for a batch of chains.
fn enters(batch: usize) -> String {
    let dir = tempfile::tempdir().unwrap();
    let runtime = on(Io::Uring);
    let round = || {
        runtime.block_on(async {
            let before = Snapshot::now();
            let tasks: Vec<_> = (0..batch)
                .map(|task| {
                    let (new, path) = names(dir.path(), task);
                    let options = OpenOptions::new().write(true).create(true).truncate(true);
                    let chain = Chain::new().open(&new, options).write(noise(LEN)).rename(&new, &path);
                    tokio::spawn(chain.run())
                })
                .collect();
            for task in tasks {
                task.await.unwrap().unwrap();
            }
            Snapshot::now().since(&before)
        })
    };
    round();
    let counts = round();
    format!("{} enters, {} entries for {batch}", counts.ring_enters, counts.ring_submissions)
}

/// One operation at a time: the round trip of a ring compared with that of a thread.
fn alone(suite: &mut Suite) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, noise(1 << 20)).unwrap();
    let path: Arc<Path> = path.into();
    let std = Arc::new(std::fs::File::options().read(true).write(true).open(&path).unwrap());
    let mut sync = Vec::new();
    let mut open = Vec::new();
    let mut write = Vec::new();
    for (name, io) in WAYS {
        let file = || File::from_std(std.try_clone().unwrap()).unwrap();
        let (synced, written, path) = (file(), file(), Arc::clone(&path));
        let contents = bytes::Bytes::from(noise(4096));
        sync.push(contender(name, on(io), 1, move |_| {
            let file = synced.clone();
            async move { file.sync_data().await.unwrap() }
        }));
        write.push(contender(name, on(io), 1, move |_| {
            let (file, contents) = (written.clone(), contents.clone());
            async move { file.write_at(0, contents).await.unwrap() }
        }));
        open.push(contender(name, on(io), 1, move |_| {
            let path = Arc::clone(&path);
            let read = OpenOptions::new().read(true);
            async move { drop(Chain::new().open(&*path, read).read(4096).run().await.unwrap()) }
        }));
    }
    let (synced, written, opened) = (Arc::clone(&std), Arc::clone(&std), Arc::clone(&path));
    sync.push(contender("one job", runtime(), 1, move |_| {
        let file = Arc::clone(&synced);
        async move { tokio::task::spawn_blocking(move || file.sync_data()).await.unwrap().unwrap() }
    }));
    let contents = bytes::Bytes::from(noise(4096));
    write.push(contender("one job", runtime(), 1, move |_| {
        let (file, contents) = (Arc::clone(&written), contents.clone());
        async move {
            use std::os::unix::fs::FileExt;
            tokio::task::spawn_blocking(move || file.write_all_at(&contents, 0)).await.unwrap().unwrap();
        }
    }));
    open.push(contender("one job", runtime(), 1, move |_| {
        let path = Arc::clone(&opened);
        async move {
            use std::os::unix::fs::FileExt;
            let job = move || -> std::io::Result<Vec<u8>> {
                let mut page = vec![0; 4096];
                std::fs::File::open(&path)?.read_exact_at(&mut page, 0)?;
                Ok(page)
            };
            drop(tokio::task::spawn_blocking(job).await.unwrap().unwrap());
        }
    }));
    for (title, contenders) in
        [("alone: write 4 KiB", write), ("alone: open, read 4 KiB, close", open), ("alone: sync what is clean", sync)]
    {
        suite.run(&Case::new(title, "CPU us/operation", 1), || contenders);
    }
}

pub(crate) fn run(suite: &mut Suite) {
    for batch in [1, 8, 32] {
        nops(suite, batch);
    }
    for batch in [1, 32] {
        chains(suite, batch);
    }
    reads(suite, 32);
    alone(suite);
}
