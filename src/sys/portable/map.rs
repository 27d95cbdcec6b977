//! No address range: nothing is mapped, and no granule exists.

use std::io;
use std::sync::OnceLock;

use super::fd::BorrowedFd;
use super::unsupported;

/// Files are read in windows of this many bytes.
pub(crate) const GRANULE: usize = 64 << 20;
pub(crate) const GRANULES: usize = 0;

#[derive(Debug)]
pub(crate) enum Range {}

#[derive(Debug)]
pub(crate) enum Granule {}

/// The granularity of mappings. It has no effect, because nothing is mapped.
pub(crate) fn page_size() -> usize {
    4096
}

/// The error is created once, because every slice that is sent calls this.
pub(crate) fn range() -> Result<&'static Range, &'static io::Error> {
    static NONE: OnceLock<io::Error> = OnceLock::new();
    Err(NONE.get_or_init(|| unsupported("files are not mapped")))
}

impl Range {
    pub(crate) fn granule_of(&self, _: usize) -> Option<usize> {
        match *self {}
    }

    pub(crate) fn available(&self) -> usize {
        match *self {}
    }

    pub(crate) fn take(&'static self) -> io::Result<Granule> {
        match *self {}
    }
}

impl Granule {
    pub(crate) fn index(&self) -> usize {
        match *self {}
    }

    pub(crate) fn start(&self) -> *mut u8 {
        match *self {}
    }

    pub(crate) fn is_torn(&self) -> bool {
        match *self {}
    }

    pub(crate) fn map_file(&mut self, _: BorrowedFd<'_>, _: u64, _: usize) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn map_memory(&mut self, _: usize) -> io::Result<()> {
        match *self {}
    }
}
