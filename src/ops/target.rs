//! The files that operations work on.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::sys::errno::Errno;
use crate::sys::fd::{AsFd, BorrowedFd, OwnedFd};

/// The file an operation works on.
#[derive(Clone)]
pub(crate) enum Target {
    /// An open file, which stays open while the operation lives.
    Fd(Arc<dyn AsFd + Send + Sync>),
    /// The file that the `n`th open of the same program opens.
    Opened(usize),
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fd(fd) => f.debug_tuple("Fd").field(&fd.as_fd()).finish(),
            Self::Opened(n) => f.debug_tuple("Opened").field(n).finish(),
        }
    }
}

impl<T: AsFd + Send + Sync + 'static> From<Arc<T>> for Target {
    fn from(file: Arc<T>) -> Self {
        Self::Fd(file)
    }
}

impl Target {
    pub(super) fn as_fd<'a>(&'a self, files: &'a Files) -> io::Result<BorrowedFd<'a>> {
        match self {
            Self::Fd(fd) => Ok(fd.as_ref().as_fd()),
            Self::Opened(n) => files.fd(*n),
        }
    }
}

/// Files that a program opens, as places in the table of a ring or as descriptors.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(super) slots: Vec<u32>,
    fds: Vec<Option<OwnedFd>>,
}

impl Files {
    pub(super) fn store(&mut self, n: usize, fd: OwnedFd) {
        self.fds.resize_with(self.fds.len().max(n + 1), || None);
        self.fds[n] = Some(fd);
    }

    pub(super) fn take(&mut self, n: usize) -> Option<OwnedFd> {
        self.fds.get_mut(n).and_then(Option::take)
    }

    pub(super) fn close_all(&mut self) {
        self.fds.clear();
    }

    fn fd(&self, n: usize) -> io::Result<BorrowedFd<'_>> {
        Ok(self.fds.get(n).and_then(Option::as_ref).ok_or(Errno::BADF)?.as_fd())
    }
}
