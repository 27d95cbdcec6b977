//! A received frame: a sealed file, returned as slices of its mapping or as copies.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use bytes::Bytes;

use super::ledger::HeldFrame;
use super::memfd;
use millstream::internal::{WINDOW, map_file};

/// Minimum length of a piece that is mapped. Copying a shorter one costs less than mapping it.
const MAP_MIN: usize = 32 << 10;
/// Maximum length of a piece that is copied.
const COPY_MAX: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Frame {
    file: Arc<File>,
    at: u64,
    len: u64,
    held: Arc<HeldFrame>,
}

/// Bytes that were copied from a frame. They count as the frame does.
struct Copied {
    bytes: Vec<u8>,
    _held: Arc<HeldFrame>,
}

impl AsRef<[u8]> for Copied {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Frame {
    /// `file` must be sealed, and have `len` bytes, at least one.
    pub(crate) fn new(file: File, len: u64, held: HeldFrame) -> Self {
        Self { file: Arc::new(file), at: 0, len, held: Arc::new(held) }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether all pieces were given out.
    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.len
    }

    /// Returns the next piece. The frame must not be empty.
    pub(crate) fn next(&mut self) -> io::Result<Bytes> {
        let left = usize::try_from(self.len - self.at).unwrap_or(usize::MAX).min(WINDOW);
        if left >= MAP_MIN
            // The contract of `bytes` is kept by the seals: nothing can write to the file, and it cannot shrink.
            && let Ok(bytes) = map_file(Arc::clone(&self.file), self.at, left, Arc::clone(&self.held) as _)
        {
            self.at += left as u64;
            return Ok(bytes);
        }
        let mut bytes = vec![0; left.min(COPY_MAX)];
        let n = memfd::read_at(self.file.as_fd(), &mut bytes, self.at)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.truncate(n);
        self.at += n as u64;
        Ok(Bytes::from_owner(Copied { bytes, _held: Arc::clone(&self.held) }))
    }
}
