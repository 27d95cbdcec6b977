//! Prepends a header to the contents of files: many small ones at once, and a large one.
//!
//! | case | method |
//! |---|---|
//! | millstream prepend | [`Prepend`], a new file that replaces the old one, without a sync |
//! | tokio five calls | `tokio::fs`: read, create, write, flush, rename, each on the blocking pool |
//! | floor, std on the runtime | the same with `std::fs` on the runtime's thread, which does nothing else meanwhile |
//! | millstream blocks | [`PrependStrategy::InsertRange`]: the file system moves the blocks (ext4, xfs; skipped elsewhere) |
//! | millstream copies | [`PrependStrategy::Atomic`]: the kernel copies the contents |
//! | tokio copies | `tokio::io::copy` to a new file and a rename |
//!
//! None of them syncs. The small files are created again before every operation, and the header is removed from the
//! large one after it; neither is measured. Ours also preserves owner, mode and attributes, which the rivals do not.
//!
//! The figures are the CPU time of the whole process for each file. **Noise**: the disk's writes after the copies of
//! the large file.

use std::cell::OnceCell;
use std::fs::File as StdFile;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use millstream::fs::{Durability, Prepend, PrependStrategy};
use rustix::fs::{FallocateFlags, fallocate};
use tokio::io::AsyncWriteExt;

use crate::common::contest::{Case, Contender, Spent};
use crate::common::options::options;
use crate::common::suite::Suite;
use crate::common::{noise, runtime};

const FILES: usize = 64;
const SMALL: usize = 1 << 10;
const HEADER: &[u8; 32] = b"thirty-two bytes before the rest";
const BLOCK: usize = 4096;

/// Returns the temporary name of a new file.
fn beside(path: &Path) -> PathBuf {
    path.with_extension("new")
}

async fn by_millstream(path: PathBuf) {
    let prepend = Prepend::new(path).durability(Durability::None);
    assert_eq!(prepend.run(&HEADER[..]).await.unwrap().body_len(), SMALL as u64);
}

async fn by_tokio(path: PathBuf) {
    let contents = tokio::fs::read(&path).await.unwrap();
    let new = beside(&path);
    let mut file = tokio::fs::File::create(&new).await.unwrap();
    file.write_all(&[HEADER, &contents[..]].concat()).await.unwrap();
    file.flush().await.unwrap();
    tokio::fs::rename(&new, &path).await.unwrap();
}

async fn by_std(path: PathBuf) {
    let contents = std::fs::read(&path).unwrap();
    let new = beside(&path);
    std::fs::write(&new, [HEADER, &contents[..]].concat()).unwrap();
    std::fs::rename(&new, &path).unwrap();
}

/// Creates a contender that prepends to 64 files at once.
fn small<'a, R>(name: &'static str, dir: &'a Path, prepend: fn(PathBuf) -> R) -> Contender<'a>
where
    R: Future<Output = ()> + Send + 'static,
{
    let runtime = runtime();
    let paths: Vec<PathBuf> = (0..FILES).map(|n| dir.join(n.to_string())).collect();
    let contents = noise(SMALL);
    let run = move |operations| {
        let mut spent = Spent::default();
        for _ in 0..operations {
            paths.iter().for_each(|path| std::fs::write(path, &contents).unwrap());
            spent.on(|| {
                runtime.block_on(async {
                    let tasks: Vec<_> = paths.iter().map(|path| tokio::spawn(prepend(path.clone()))).collect();
                    for task in tasks {
                        task.await.unwrap();
                    }
                })
            });
            for path in &paths {
                let got = std::fs::read(path).unwrap();
                assert!(got == [HEADER, &contents[..]].concat(), "wrong bytes in {}", path.display());
            }
        }
        spent
    };
    Contender::new(name, run)
}

/// The large file, whose contents repeat.
struct Large {
    path: PathBuf,
    len: usize,
    header: Vec<u8>,
}

impl Large {
    /// Returns `None` if the file system cannot move blocks.
    fn new(dir: &Path) -> Option<Self> {
        let (path, len) = (dir.join("large"), options().pick(8 << 20, 32 << 20, 256 << 20));
        let mut file = StdFile::create_new(&path).unwrap();
        let piece = noise(1 << 20);
        (0..len >> 20).for_each(|_| file.write_all(&piece).unwrap());
        file.sync_all().unwrap();
        let large = Self { path, len, header: noise(BLOCK) };
        if let Err(e) = fallocate(&file, FallocateFlags::INSERT_RANGE, 0, BLOCK as u64) {
            println!("skipped: prepending to a large file needs FALLOC_FL_INSERT_RANGE: {e}");
            return None;
        }
        large.take_back();
        Some(large)
    }

    fn take_back(&self) {
        let file = StdFile::options().write(true).open(&self.path).unwrap();
        fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, BLOCK as u64).unwrap();
    }

    /// Checks length, header, and the ends of some pieces.
    fn check(&self) {
        let file = StdFile::open(&self.path).unwrap();
        assert_eq!(file.metadata().unwrap().len(), (self.len + BLOCK) as u64);
        let piece = noise(1 << 20);
        let mut got = vec![0; BLOCK];
        file.read_exact_at(&mut got, 0).unwrap();
        assert!(got == self.header, "wrong header");
        for at in (0..self.len).step_by(self.len / 8).chain([self.len - BLOCK]) {
            file.read_exact_at(&mut got, (at + BLOCK) as u64).unwrap();
            let at = at % piece.len();
            assert!(got == piece[at..at + BLOCK], "wrong bytes at {at}");
        }
    }

    fn contender<'a>(
        &'a self,
        name: &'static str,
        prepend: impl AsyncFn(&Self) -> io::Result<()> + 'a,
    ) -> Contender<'a> {
        let runtime = runtime();
        let run = move |operations| {
            let mut spent = Spent::default();
            for _ in 0..operations {
                spent.on(|| runtime.block_on(prepend(self))).unwrap();
                self.check();
                self.take_back();
            }
            spent
        };
        Contender::new(name, run)
    }

    async fn by_millstream(&self, strategy: PrependStrategy) -> io::Result<()> {
        let prepend = Prepend::new(&self.path).durability(Durability::None).strategy(strategy);
        prepend.run(self.header.clone()).await?;
        Ok(())
    }

    async fn by_tokio(&self) -> io::Result<()> {
        let new = beside(&self.path);
        let mut to = tokio::fs::File::create(&new).await?;
        to.write_all(&self.header).await?;
        tokio::io::copy(&mut tokio::fs::File::open(&self.path).await?, &mut to).await?;
        to.flush().await?;
        tokio::fs::rename(&new, &self.path).await
    }
}

pub(crate) fn run(suite: &mut Suite) {
    let dir = tempfile::tempdir().unwrap();
    suite.run(&Case::new("prepend 32 B to 1 KiB, 64 at once", "CPU us/file", FILES as u64), || {
        vec![
            small("millstream prepend", dir.path(), by_millstream),
            small("tokio five calls", dir.path(), by_tokio),
            small("floor, std on the runtime", dir.path(), by_std),
        ]
    });
    let title = format!("prepend 4 KiB to {} MiB", options().pick(8, 32, 256));
    let large = OnceCell::new();
    suite.run(&Case::new(&title, "CPU us/file", 1), || {
        let Some(large) = large.get_or_init(|| Large::new(dir.path())) else { return Vec::new() };
        vec![
            large.contender("millstream blocks", async |large| large.by_millstream(PrependStrategy::InsertRange).await),
            large.contender("millstream copies", async |large| large.by_millstream(PrependStrategy::Atomic).await),
            large.contender("tokio copies", async |large| large.by_tokio().await),
        ]
    });
}
