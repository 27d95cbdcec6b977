//! The first 64 bytes of a file. All calls **wait for the disk**.
//!
//! The times are milliseconds since 1970. Processes write them without a lock: a field is one word, which the latest
//! call decides.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) const HEADER: u64 = 64;
const MAGIC: [u8; 8] = *b"mstream1";

/// A field that changes, by its offset.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    /// When the file may be removed.
    RemoveAt = 16,
    /// When an instance had readers.
    ReadAt = 24,
    /// When the instance that writes has renewed its claim.
    ClaimedAt = 32,
    /// Whether a stop was requested.
    Stops = 40,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    bytes: [u8; HEADER as usize],
}

impl Header {
    /// Reads the header; `None` if the file has none yet.
    pub(super) fn read(file: &File) -> io::Result<Option<Self>> {
        let mut bytes = [0; HEADER as usize];
        match file.read_exact_at(&mut bytes, 0) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let is_header = bytes[..8] == MAGIC && bytes[12..16] == crc32c::crc32c(&bytes[..12]).to_le_bytes();
        Ok(is_header.then_some(Self { bytes }))
    }

    /// Writes the header of a new file.
    pub(super) fn create(file: &File, epoch: u32, remove_at: u64) -> io::Result<()> {
        let mut bytes = [0; HEADER as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&epoch.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..12]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        let at = Field::RemoveAt as usize;
        bytes[at..at + 8].copy_from_slice(&remove_at.to_le_bytes());
        file.write_all_at(&bytes, 0)
    }

    pub(super) fn epoch(&self) -> u32 {
        u32::from_le_bytes([self.bytes[8], self.bytes[9], self.bytes[10], self.bytes[11]])
    }

    pub(super) fn get(&self, field: Field) -> u64 {
        let at = field as usize;
        self.bytes[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
    }

    pub(super) fn set(file: &File, field: Field, word: u64) -> io::Result<()> {
        file.write_all_at(&word.to_le_bytes(), field as u64)
    }
}

/// Returns the time of now.
pub(super) fn now() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
