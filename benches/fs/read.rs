//! Reading files: 4 KiB at random offsets by 64 tasks at once, and front to back; in memory and from the disk.
//!
//! | case | method |
//! |---|---|
//! | millstream auto, uring, epoll | [`File::read_at`], or [`File::reader`], on a runtime with this driver |
//! | tokio File | at random: each task seeks in its own `tokio::fs::File`; front to back: `tokio::io::copy` |
//! | tokio File 256 KiB | the same through a `BufReader` of 256 KiB, and `copy_buf` |
//! | spawn_blocking | `pread` in a closure on the blocking pool, for each read |
//!
//! All on a current-thread runtime. Every byte of the random reads is compared; front to back, the length and the start
//! of every piece. *Cold* drops the file from the page cache before every operation, which is not measured.
//!
//! The figures are the CPU time of the whole process for each read or MiB. **Noise**: cold reads from a shared disk.

use std::cell::LazyCell;
use std::fs::File as StdFile;
use std::io::{self, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use millstream::fs::File;
use millstream::runtime::Io;
use rustix::fs::{Advice, fadvise};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWrite, BufReader};
use tokio::runtime::Runtime;

use super::on;
use crate::common::contest::{Case, Contender, Spent};
use crate::common::options::options;
use crate::common::suite::Suite;
use crate::common::{PERIOD, noise, runtime};

const TASKS: usize = 64;
const PAGE: usize = 4096;

struct Sample {
    path: PathBuf,
    len: usize,
    /// One period of its contents, and one more page.
    bytes: Vec<u8>,
    _dir: tempfile::TempDir,
}

impl Sample {
    fn new() -> Self {
        let len = options().pick(4 << 20, 16 << 20, 64 << 20);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sample");
        std::fs::write(&path, noise(len)).unwrap();
        StdFile::open(&path).unwrap().sync_all().unwrap();
        Self { path, len, bytes: noise(PERIOD + PAGE), _dir: dir }
    }

    /// Drops the file from the page cache, or loads all of it.
    fn prepare(&self, cold: bool) {
        let file = StdFile::open(&self.path).unwrap();
        if cold {
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        } else {
            std::io::copy(&mut &file, &mut std::io::sink()).unwrap();
        }
    }

    fn check(&self, offset: u64, got: &[u8]) {
        let at = offset as usize % PERIOD;
        assert!(got == &self.bytes[at..at + PAGE], "wrong bytes at {offset}");
    }

    /// Returns the offset of a page: pseudo-random, different for each task.
    fn offset(&self, task: usize, n: usize) -> u64 {
        let page = (n * TASKS + task).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        (page % (self.len / PAGE) * PAGE) as u64
    }
}

const WAYS: [(&str, Io); 3] =
    [("millstream auto", Io::Auto), ("millstream uring", Io::Uring), ("millstream epoll", Io::Epoll)];

/// Creates a contender that runs `operation` on a runtime. If it is `cold`, the file is dropped from the page cache
/// before each operation.
fn contender<'a, R, F>(
    name: &'static str,
    runtime: Runtime,
    sample: &'a Arc<Sample>,
    cold: bool,
    operation: F,
) -> Contender<'a>
where
    F: Fn(Arc<Sample>) -> R + 'a,
    R: Future<Output = ()>,
{
    let run = move |operations| {
        let mut spent = Spent::default();
        for n in 0..operations {
            if cold || n == 0 {
                sample.prepare(cold);
            }
            spent.on(|| runtime.block_on(operation(Arc::clone(sample))));
        }
        spent
    };
    Contender::new(name, run)
}

/// Runs `task` for each number below 64 concurrently, to their end.
async fn at_once<R: Future<Output = ()> + Send + 'static>(task: impl Fn(usize) -> R) {
    let tasks: Vec<_> = (0..TASKS).map(|n| tokio::spawn(task(n))).collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Each of 64 tasks reads `reads` pages.
fn at_random(suite: &mut Suite, sample: &LazyCell<Arc<Sample>>, cold: bool) {
    let title = format!("read 4 KiB at random, 64 at once, {}", if cold { "cold" } else { "hot" });
    if !suite.wants(&title) {
        return;
    }
    let reads = if cold { 16 } else { 64 };
    let mut contenders = Vec::new();
    for (name, io) in WAYS {
        let runtime = on(io);
        let file = runtime.block_on(File::open(&sample.path)).unwrap();
        contenders.push(contender(name, runtime, sample, cold, move |sample| {
            let file = file.clone();
            at_once(move |task| {
                let (file, sample) = (file.clone(), Arc::clone(&sample));
                async move {
                    for offset in (0..reads).map(|n| sample.offset(task, n)) {
                        sample.check(offset, &file.read_at(offset, PAGE).await.unwrap());
                    }
                }
            })
        }));
    }
    // Opened once for all operations, like ours.
    let files: Vec<_> = (0..TASKS).map(|_| Arc::new(StdFile::open(&sample.path).unwrap())).collect();
    let kept = files.clone();
    contenders.push(contender("tokio File", runtime(), sample, cold, move |sample| {
        let files = kept.clone();
        at_once(move |task| {
            let (std, sample) = (files[task].try_clone().unwrap(), Arc::clone(&sample));
            async move {
                let mut file = tokio::fs::File::from_std(std);
                let mut page = [0; PAGE];
                for offset in (0..reads).map(|n| sample.offset(task, n)) {
                    file.seek(SeekFrom::Start(offset)).await.unwrap();
                    file.read_exact(&mut page).await.unwrap();
                    sample.check(offset, &page);
                }
            }
        })
    }));
    contenders.push(contender("spawn_blocking", runtime(), sample, cold, move |sample| {
        let files = files.clone();
        at_once(move |task| {
            let (file, sample) = (Arc::clone(&files[task]), Arc::clone(&sample));
            async move {
                for offset in (0..reads).map(|n| sample.offset(task, n)) {
                    let file = Arc::clone(&file);
                    let read = tokio::task::spawn_blocking(move || {
                        let mut page = vec![0; PAGE];
                        file.read_exact_at(&mut page, offset).map(|()| page)
                    });
                    sample.check(offset, &read.await.unwrap().unwrap());
                }
            }
        })
    }));
    suite.run(&Case::new(&title, "CPU us/read", (TASKS * reads) as u64), || contenders);
}

/// A writer that checks the start of every piece.
struct Sink {
    sample: Arc<Sample>,
    at: usize,
}

impl AsyncWrite for Sink {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let at = self.at % PERIOD;
        let start = bytes.len().min(64);
        assert!(bytes[..start] == self.sample.bytes[at..at + start], "wrong bytes at {}", self.at);
        self.at += bytes.len();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Copies the file from start to end into a sink.
async fn read_all(sample: Arc<Sample>, copy: impl AsyncFnOnce(&Path, &mut Sink) -> io::Result<u64>) {
    let mut sink = Sink { sample: Arc::clone(&sample), at: 0 };
    assert_eq!(copy(&sample.path, &mut sink).await.unwrap(), sample.len as u64);
}

fn front_to_back(suite: &mut Suite, sample: &LazyCell<Arc<Sample>>, cold: bool) {
    let title = format!("read front to back, {}", if cold { "cold" } else { "hot" });
    if !suite.wants(&title) {
        return;
    }
    let mut contenders = Vec::new();
    for (name, io) in WAYS {
        contenders.push(contender(name, on(io), sample, cold, |sample| {
            read_all(sample, async |path, sink| tokio::io::copy_buf(&mut File::open(path).await?.reader(), sink).await)
        }));
    }
    contenders.push(contender("millstream auto, 8 KiB reads", on(Io::Auto), sample, cold, |sample| {
        read_all(sample, async |path, sink| tokio::io::copy(&mut File::open(path).await?.reader(), sink).await)
    }));
    contenders.push(contender("tokio File, 8 KiB reads", runtime(), sample, cold, |sample| {
        read_all(sample, async |path, sink| tokio::io::copy(&mut tokio::fs::File::open(path).await?, sink).await)
    }));
    contenders.push(contender("tokio File, 256 KiB", runtime(), sample, cold, |sample| {
        read_all(sample, async |path, sink| {
            let mut reader = BufReader::with_capacity(256 << 10, tokio::fs::File::open(path).await?);
            tokio::io::copy_buf(&mut reader, sink).await
        })
    }));
    suite.run(&Case::new(&title, "CPU us/MiB", (sample.len >> 20) as u64), || contenders);
}

pub(crate) fn run(suite: &mut Suite) {
    let sample = LazyCell::new((|| Arc::new(Sample::new())) as fn() -> Arc<Sample>);
    for cold in [false, true] {
        at_random(suite, &sample, cold);
        front_to_back(suite, &sample, cold);
    }
}
