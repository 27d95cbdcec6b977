//! The builder: steps in order, each on the current file or directory.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::super::open::{Close, Dir, Open};
use super::super::operation::Operation;
use super::super::path::{HardLink, Rename, Unlink};
use super::super::program::Program;
use super::super::rw::{Nop, Read, Write};
use super::super::step::StepLink;
use super::super::sync::{Allocate, Sync as FileSync};
use super::super::target::Target;
use super::super::transfer::{Send as SocketSend, Splice};
use super::report::{ChainError, StepLabel, Steps};
use super::{ChainReport, OpenOptions};
use crate::sys::fd;
use crate::sys::fd::AsFd;
use crate::sys::flags::{FallocateFlags, RenameFlags};
use crate::sys::path;
use crate::sys::path::NameBuf;

/// File operations that run in order without returning to the task in between: on io_uring, together with the chains of
/// other tasks, or by plain system calls in one job on the blocking pool. The outcomes are the same.
///
/// ```text
///  Chain::new()            any number of tasks                       once per turn
///  .open(temp, options)  ┐
///  .write(bytes)         │
///  .sync()               ├─▶ run() ─▶ program ─▶ ring ─▶ one io_uring_enter for all of them ─▶ kernel
///  .rename(temp, path)   │                  └──▶ blocking pool, if there is no ring
///  (close)               ┘
/// ```
///
/// A step begins when the previous one has completed in full, or has ended in any way if marked by
/// [`hardlink`](Self::hardlink). A step that moved a part of its bytes is resumed; it ends early only at the end of a
/// file, by an error or by its [`timeout`](Self::timeout). Steps after an incomplete one are skipped.
///
/// On a ring the steps are linked, so the kernel runs them in sequence. It does not stop after a failed `sync`,
/// `allocate` or step on names (at least Linux 5.19 to 6.18), so later steps are submitted once these have completed:
/// the chain above takes two submissions.
///
/// Chains that may wait for a peer (on a pipe, socket, terminal, FIFO, network or FUSE file system) share a quarter of
/// each ring and [`waiting_jobs`](crate::runtime::DriverBuilder::waiting_jobs). Other chains never wait for them.
///
/// [`open`](Self::open) and [`on`](Self::on) set the file of later steps, [`at`](Self::at) the base of their relative
/// paths. On a ring, opened files are not descriptors of this process. They are closed when the chain ends.
///
/// ```
/// use millstream::fs::OpenOptions;
/// use millstream::fs::chain::Chain;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// let (temp, path) = (dir.path().join("state.tmp"), dir.path().join("state.json"));
/// let new = OpenOptions::new().write(true).create_new(true);
/// Chain::new().open(&temp, new).write("{}").sync().rename(&temp, &path).run().await?;
///
/// let report = Chain::new().open(&path, OpenOptions::new().read(true)).read(100).run().await?;
/// assert_eq!(report.reads()[0], "{}");
///
/// let missing = dir.path().join("missing");
/// let error = Chain::new().unlink(&missing).run().await.unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// assert!(error.to_string().starts_with(&format!("unlink {} (step 1 of 1)", missing.display())));
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing happens until it is run"]
pub struct Chain {
    program: Box<Program>,
    labels: Vec<StepLabel>,
    dir: Dir,
    file: Option<Current>,
    open: Vec<usize>,
    mistake: Option<(usize, &'static str)>,
}

#[derive(Clone, Debug)]
struct Current {
    target: Target,
    name: Box<str>,
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.labels.iter().map(|label| format!("{} {}", label.verb, label.what));
        f.debug_struct("Chain").field("steps", &steps.collect::<Vec<_>>()).field("mistake", &self.mistake).finish()
    }
}

impl Default for Chain {
    fn default() -> Self {
        Self {
            program: Box::new(Program::new()),
            labels: Vec::new(),
            dir: Dir::default(),
            file: None,
            open: Vec::new(),
            mistake: None,
        }
    }
}

impl Chain {
    /// Maximum number of steps. A chain that needs more entries than a ring has (128 by default) runs on the blocking
    /// pool; each step, time limit and final close needs one entry.
    pub const STEPS_MAX: usize = 128;

    /// Creates a chain without steps. Running it succeeds and does nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the base of relative paths of later steps; by default the working directory of the process. On other
    /// systems than Linux, such paths cannot leave the directory.
    pub fn at<F: AsFd + Send + Sync + 'static>(mut self, dir: Arc<F>) -> Self {
        self.dir = Dir::of(dir);
        self
    }

    /// Lets later steps work on an open file, which stays open: a file, a directory (to [`sync`](Self::sync) names), a
    /// pipe or a socket. Steps wait for it even if it is nonblocking.
    pub fn on<F: AsFd + Send + Sync + 'static>(mut self, file: Arc<F>) -> Self {
        let name = format!("descriptor {}", fd::number(file.as_fd())).into();
        let target = self.doubted(file);
        self.file = Some(Current { target, name });
        self
    }

    /// Opens a file for later steps. It is closed on exec.
    /// [openat2(2)](https://man7.org/linux/man-pages/man2/openat2.2.html)
    pub fn open(mut self, path: impl AsRef<Path>, options: OpenOptions) -> Self {
        let path = path.as_ref();
        let name: Box<str> = path.display().to_string().into();
        let n = self.program.open_next();
        let op = text(path).and_then(|path| Ok(Open::for_program(self.dir.clone(), path, options.how()?, n)));
        self.program.peer_waits.of_open(op.as_ref().ok());
        self.open.push(n);
        self.file = Some(Current { target: Target::Opened(n), name: name.clone() });
        self.add(StepLabel::new("open", name), op)
    }

    /// Closes the file that the chain opened last; later steps need another one. Files are closed at the end anyway.
    /// Does not write the data to the disk: see [`sync`](Self::sync).
    pub fn close(mut self) -> Self {
        let (name, n) = match self.file.take() {
            Some(Current { target: Target::Opened(n), name }) => (name, Ok(n)),
            Some(Current { name, .. }) => (name, Err("the chain closes only files that it opened")),
            None => (NO_FILE.0.into(), Err(NO_FILE.1)),
        };
        self.open.retain(|open| Ok(*open) != n);
        self.add(StepLabel::new("close", name), n.map(Close::of_program))
    }

    /// Reads `len` bytes at the file position; fewer only at the end of the file. [`ChainReport::reads`] returns them.
    /// Allocates their memory at once.
    pub fn read(self, len: usize) -> Self {
        self.with_file("read", len, |file| Read::next(file, len))
    }

    /// Reads `len` bytes from `offset`; fewer only at the end of the file.
    /// [pread(2)](https://man7.org/linux/man-pages/man2/pread.2.html)
    pub fn read_at(self, offset: u64, len: usize) -> Self {
        self.with_file("read", len, |file| Read::new(file, offset, len))
    }

    /// Writes all of `bytes` at the file position.
    pub fn write(self, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        self.with_file("write", bytes.len(), |file| Write::next(file, bytes))
    }

    /// Writes all of `bytes` at `offset`. [pwrite(2)](https://man7.org/linux/man-pages/man2/pwrite.2.html)
    pub fn write_at(self, offset: u64, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        self.with_file("write", bytes.len(), |file| Write::new(file, offset, bytes))
    }

    /// Waits until data and metadata are on the disk; for a directory, its names.
    /// [fsync(2)](https://man7.org/linux/man-pages/man2/fsync.2.html)
    pub fn sync(self) -> Self {
        self.with_file("sync", 0, |file| FileSync::new(file, false))
    }

    /// Waits until the data can be read back after a power failure. `fdatasync` of
    /// [fsync(2)](https://man7.org/linux/man-pages/man2/fsync.2.html)
    pub fn sync_data(self) -> Self {
        self.with_file("sync", 0, |file| FileSync::new(file, true))
    }

    /// Allocates disk space for the first `len` bytes, so that writing them does not fail for lack of it. Does not
    /// change the length of the file. [fallocate(2)](https://man7.org/linux/man-pages/man2/fallocate.2.html) with
    /// `FALLOC_FL_KEEP_SIZE`; `EOPNOTSUPP` on other systems than Linux.
    pub fn allocate(self, len: u64) -> Self {
        self.with_file("allocate", 0, |file| Allocate::new(file, FallocateFlags::KEEP_SIZE, 0, len))
    }

    /// Moves `len` bytes from the file to `to` without copying them through this process; fewer only at the end of the
    /// file. One of the two must be a pipe, and a socket must be nonblocking. On a ring, a kernel thread does the work.
    /// [splice(2)](https://man7.org/linux/man-pages/man2/splice.2.html); `EOPNOTSUPP` on other systems than Linux.
    pub fn splice_to<F: AsFd + Send + Sync + 'static>(mut self, to: Arc<F>, len: usize) -> Self {
        let to = self.doubted(to);
        self.with_file("splice", len, |file| Splice::new((file, None), (to, None), len))
    }

    /// Moves `len` bytes from `from` to the file, like [`splice_to`](Self::splice_to).
    pub fn splice_from<F: AsFd + Send + Sync + 'static>(mut self, from: Arc<F>, len: usize) -> Self {
        let from = self.doubted(from);
        self.with_file("splice", len, |file| Splice::new((from, None), (file, None), len))
    }

    /// Sends all of `bytes` to a connected stream socket. [send(2)](https://man7.org/linux/man-pages/man2/send.2.html)
    pub fn send(self, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        self.with_file("send", bytes.len(), |socket| SocketSend::new(socket, bytes))
    }

    /// Renames a file or directory and replaces an existing file.
    /// [rename(2)](https://man7.org/linux/man-pages/man2/rename.2.html)
    pub fn rename(self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Self {
        self.rename_with("rename", from.as_ref(), to.as_ref(), RenameFlags::empty())
    }

    /// Renames a file or directory. Fails with `EEXIST` if the new name exists, and with `EOPNOTSUPP`
    /// on other systems than Linux.
    pub fn rename_new(self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Self {
        self.rename_with("rename", from.as_ref(), to.as_ref(), RenameFlags::NOREPLACE)
    }

    /// Swaps the names of two files or directories; `EOPNOTSUPP` on other systems than Linux.
    pub fn exchange(self, one: impl AsRef<Path>, other: impl AsRef<Path>) -> Self {
        self.rename_with("exchange", one.as_ref(), other.as_ref(), RenameFlags::EXCHANGE)
    }

    fn rename_with(self, verb: &'static str, from: &Path, to: &Path, flags: RenameFlags) -> Self {
        let names = self.name(from).and_then(|from| Ok((from, self.name(to)?)));
        self.add(StepLabel::two(verb, from, to), names.map(|(from, to)| Rename::new(from, to, flags)))
    }

    /// Removes a name, and the file with its last name.
    /// [unlink(2)](https://man7.org/linux/man-pages/man2/unlink.2.html)
    pub fn unlink(self, path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        let name = self.name(path);
        self.add(StepLabel::new("unlink", path.display().to_string()), name.map(Unlink::new))
    }

    /// Creates a hard link. Fails with `EEXIST` if the name exists.
    /// [link(2)](https://man7.org/linux/man-pages/man2/link.2.html)
    #[doc(alias = "hard_link")]
    pub fn link(self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Self {
        let (original, link) = (original.as_ref(), link.as_ref());
        let names = self.name(original).and_then(|original| Ok((original, self.name(link)?)));
        self.add(StepLabel::two("link", original, link), names.map(|(original, link)| HardLink::new(original, link)))
    }

    /// Lets the next step begin even if the last one fails or ends short. This is still an error of the chain. On a
    /// ring, a step that moved a part of its bytes may be resumed after the next step (`IOSQE_IO_HARDLINK`).
    #[doc(alias = "IOSQE_IO_HARDLINK")]
    pub fn hardlink(self) -> Self {
        let mut chain = self.needs_a_step();
        chain.program.set_link(StepLink::Hard);
        chain
    }

    /// Limits the time of the last step, from its beginning; it then fails with `ETIMEDOUT`. Bytes that a pipe or
    /// socket accepted until then stay there. Running work on a disk, and opening a FIFO, are not interrupted. On a
    /// ring, a step that was resumed may take the time twice.
    pub fn timeout(self, limit: Duration) -> Self {
        let mut chain = self.needs_a_step();
        chain.program.set_limit(limit);
        chain
    }

    /// Adds a step that does nothing, to measure the cost of steps.
    #[doc(hidden)]
    pub fn nop(self) -> Self {
        self.add(StepLabel::new("nop", "nothing"), Ok(Nop))
    }

    /// Records a descriptor of the user, which may wait for a peer.
    fn doubted<F: AsFd + Send + Sync + 'static>(&mut self, file: Arc<F>) -> Target {
        let target = Target::from(file);
        self.program.peer_waits.of_descriptor(&target);
        target
    }

    fn name(&self, path: &Path) -> Result<(Dir, NameBuf), &'static str> {
        text(path).map(|path| (self.dir.clone(), path))
    }

    fn needs_a_step(mut self) -> Self {
        if self.labels.is_empty() {
            self.mistake.get_or_insert((0, "this is about the step before it; add a step first"));
        }
        self
    }

    fn with_file<T: Operation>(self, verb: &'static str, len: usize, make: impl FnOnce(Target) -> T) -> Self {
        let (name, op) = match &self.file {
            Some(Current { target, name }) => (name.clone(), Ok(make(target.clone()))),
            None => (NO_FILE.0.into(), Err(NO_FILE.1)),
        };
        self.add(StepLabel { want: len as u64, ..StepLabel::new(verb, name) }, op)
    }

    fn add(mut self, label: StepLabel, op: Result<impl Operation, &'static str>) -> Self {
        let step = self.labels.len();
        self.labels.push(label);
        match op {
            _ if step >= Self::STEPS_MAX => {
                self.mistake.get_or_insert((step, "a chain has at most 128 steps"));
            }
            Ok(op) => self.program.push(op),
            Err(mistake) => {
                self.mistake.get_or_insert((step, mistake));
            }
        }
        self
    }

    /// Returns the program, with a close for each file that is left open, and the steps to report on.
    pub(crate) fn ready(mut self) -> Result<(Box<Program>, Steps), ChainError> {
        let steps = Steps(self.labels);
        if let Some((step, mistake)) = self.mistake {
            let cause = io::Error::new(io::ErrorKind::InvalidInput, mistake);
            let report = ChainReport::of_none(&steps);
            return Err(ChainError::at(step, &steps, cause, report));
        }
        self.open.into_iter().for_each(|n| self.program.push_last(Close::of_program(n)));
        Ok((self.program, steps))
    }
}

/// Name of a missing file, and the error.
const NO_FILE: (&str, &str) = ("(no file)", "there is no file to work on; call `open` or `on` first");

fn text(path: &Path) -> Result<NameBuf, &'static str> {
    path::name(path).map_err(|_| "the path contains a NUL byte")
}

#[cfg(test)]
mod tests;
