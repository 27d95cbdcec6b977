//! Logs of streams in a directory, one file for each stream.
//!
//! - `disk_streams`: the directory, and the task that removes files in time.
//! - `disk_stream`: one stream, by jobs on the blocking pool.
//! - `stream_file`: its file: header, records, lock.
//! - `job`: work on the blocking pool.
//! - `header`, `record`: the format, described in
//!   [docs/disk-log.md](https://github.com/millstream-rs/millstream/blob/main/docs/disk-log.md#files-of-streams).
//!
//! Invariants:
//! 1. Only the holder of the lock of a file writes records, cuts the file off, or removes its name.
//! 2. A file that is locked and has a link still has its name: no other file can have it.
//! 3. A record that was whole once is never changed or cut off.
//! 4. A file that no process of this crate can have written is never changed or removed.

mod disk_stream;
mod disk_streams;
mod header;
mod job;
mod record;
mod stream_file;

pub use disk_streams::DiskStreams;
