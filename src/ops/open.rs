//! Opening and closing of files, as descriptors of the process or in the table of a ring.
//!
//! A file in the table has no descriptor. Later entries of the same chain refer to it by its place.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::{FileUse, Files, Operation, Progress};
use crate::sys::errno::Errno;
use crate::sys::fd::{AsFd, OwnedFd};
use crate::sys::path;
use crate::sys::path::{At, CWD, How, Name, NameBuf};

#[cfg(uring)]
mod submit;

/// The base of relative paths: a directory, or the working directory of the process.
#[derive(Clone, Default)]
pub(crate) struct Dir(Option<Arc<dyn AsFd + Send + Sync>>);

impl fmt::Debug for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(dir) => write!(f, "Dir({:?})", dir.as_fd()),
            None => f.write_str("Dir(cwd)"),
        }
    }
}

impl Dir {
    pub(crate) fn of<F: AsFd + Send + Sync + 'static>(dir: Arc<F>) -> Self {
        Self(Some(dir))
    }

    pub(crate) fn at(&self) -> At<'_> {
        self.0.as_ref().map_or(CWD, |dir| path::at(dir.as_ref().as_fd()))
    }
}

#[derive(Debug)]
pub(crate) struct Open {
    dir: Dir,
    path: NameBuf,
    how: How,
    #[cfg(uring)]
    raw: io_uring::types::OpenHow,
    /// Number of the file in its program, if it is opened for the program.
    place: Option<usize>,
    fd: Option<OwnedFd>,
}

impl Open {
    pub(crate) fn new(dir: Dir, path: NameBuf, how: How) -> Self {
        Self {
            dir,
            path,
            how,
            #[cfg(uring)]
            raw: io_uring::types::OpenHow::new(),
            place: None,
            fd: None,
        }
    }

    /// Opens the `n`th file of the program: see [`super::super::program::Program::open_next`].
    pub(crate) fn for_program(dir: Dir, path: NameBuf, how: How, n: usize) -> Self {
        Self { place: Some(n), ..Self::new(dir, path, how) }
    }

    pub(crate) fn what(&self) -> (&Dir, &Name, How) {
        (&self.dir, &self.path, self.how)
    }

    pub(crate) fn into_fd(self) -> Option<OwnedFd> {
        self.fd
    }
}

impl Operation for Open {
    fn perform(&mut self, files: &mut Files, _: usize) -> io::Result<u32> {
        let fd = path::open_blocking(self.dir.at(), &self.path, &self.how)?;
        match self.place {
            Some(n) => files.store(n, fd),
            None => self.fd = Some(fd),
        }
        Ok(0)
    }

    fn file(&self) -> FileUse {
        self.place.map_or(FileUse::None, FileUse::Opens)
    }

    #[cfg(uring)]
    fn advance(&mut self, result: u32) -> Progress {
        self.own(result);
        Progress::Done
    }
}

/// Closes a file. Does not guarantee that the bytes are on the disk: sync first.
#[derive(Debug)]
pub(crate) struct Close(Closing);

#[derive(Debug)]
enum Closing {
    Place(usize),
    /// A descriptor that was passed in; `None` once it is closed.
    Fd(Option<OwnedFd>),
}

impl Close {
    /// Closes a descriptor of the process, exactly once, with any outcome of the step.
    pub(crate) fn fd(fd: OwnedFd) -> Self {
        Self(Closing::Fd(Some(fd)))
    }

    pub(crate) fn of_program(n: usize) -> Self {
        Self(Closing::Place(n))
    }
}

impl Operation for Close {
    fn perform(&mut self, files: &mut Files, _: usize) -> io::Result<u32> {
        let fd = match &mut self.0 {
            Closing::Place(n) => files.take(*n),
            Closing::Fd(fd) => fd.take(),
        };
        path::close_blocking(fd.ok_or(Errno::BADF)?)?;
        Ok(0)
    }

    fn file(&self) -> FileUse {
        match self.0 {
            Closing::Place(n) => FileUse::Closes(n),
            Closing::Fd(_) => FileUse::None,
        }
    }

    #[cfg(uring)]
    fn advance(&mut self, _: u32) -> Progress {
        self.forget();
        Progress::Done
    }
}

#[cfg(all(test, uring))]
mod tests;
