//! Opens a log: locks the directory, and finds the end of the last segment. **Waits for the disk.**
//!
//! Only the last segment is read. An incomplete record usually belongs to a commit that was not confirmed: the segment
//! is truncated before it, and the log ends there. If a later commit begins behind the record, its commit was
//! confirmed. Then opening fails, because truncating would lose confirmed events.

use std::fs::File;
use std::sync::Arc;
use std::time::SystemTime;

use super::builder::DiskBuilder;
use super::directory::{Directory, Kind};
use super::error::DiskError;
use super::index::Index;
use super::scan;
use super::segments::{Reading, Segment, Segments};
use crate::fs::Durability;
use crate::sys::call;
use crate::sys::fd::AsFd;
use crate::sys::file;
use crate::sys::file::Access;

/// A log and the segment that is written.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) directory: Directory,
    pub(super) segments: Segments,
    pub(super) file: Arc<File>,
    /// Number of bytes that were cut off.
    pub(super) cut: u64,
}

pub(super) fn open(options: &DiskBuilder) -> Result<Opened, DiskError> {
    let directory = Directory::open(&options.path)?;
    let (mut firsts, indexes) = directory.firsts()?;
    let Some(last) = firsts.pop() else { return create(directory, options.durability) };
    let mut list = Vec::with_capacity(firsts.len() + 1);
    for &first in &firsts {
        let found = directory.status(first).map_err(directory.failed(first, Kind::Events, "look at the file"))?;
        let changed = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        list.push(Segment { first, len: found.len(), changed, reading: Arc::default() });
    }
    let failed = |step| directory.failed(last, Kind::Events, step);
    let file = directory.open_file(last, Kind::Events, Access::Change).map_err(failed("open the file"))?;
    let found = directory.status(last).map_err(failed("look at the file"))?;
    let len = found.len();
    let mut index = Index::default();
    let scanned = scan::scan(&file, len, (last, 0), |id, offset| index.add(id - last, offset));
    let scanned = scanned.map_err(failed("read"))?;
    if let Some(reason) = scanned.wrong {
        // Without syncs, a later record may be on the disk although an earlier one is not.
        let was_complete = options.durability != Durability::None
            && scan::has_later_commit(&file, len, scanned.id, scanned.offset).map_err(failed("read"))?;
        if was_complete {
            let path = directory.path_of(last, Kind::Events);
            return Err(DiskError::Damaged { path, offset: scanned.offset, reason });
        }
        file::set_len(file.as_fd(), scanned.offset).map_err(failed("set the length"))?;
    }
    if options.durability != Durability::None {
        // The last writes of a killed process may be only in the page cache.
        if let Err(error) = file::sync_data(file.as_fd()) {
            // The kernel reports the failure once and keeps the pages. The next opening reads what the disk has.
            call::drop_cached(file.as_fd(), 0, len);
            return Err(failed("sync the file")(error));
        }
        directory.sync()?;
    }
    // Left by segments whose removal was not completed.
    for first in indexes.into_iter().filter(|first| firsts.binary_search(first).is_err()) {
        let _ = directory.remove(first, Kind::Index);
    }
    let changed = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    list.push(Segment { first: last, len: scanned.offset, changed, reading: Reading::new(index, &file) });
    let segments = Segments::new(list, scanned.id);
    Ok(Opened { directory, segments, file, cut: len - scanned.offset })
}

fn create(directory: Directory, durability: Durability) -> Result<Opened, DiskError> {
    let first = 1;
    let file =
        directory.create(first, Kind::Events).map_err(directory.failed(first, Kind::Events, "create the file"))?;
    if durability != Durability::None {
        directory.sync()?;
    }
    let reading = Reading::new(Index::default(), &file);
    let segment = Segment { first, len: 0, changed: SystemTime::now(), reading };
    Ok(Opened { segments: Segments::new(vec![segment], first), directory, file, cut: 0 })
}
