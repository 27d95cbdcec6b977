//! A file system in memory that records what is done to it, and what a crash may leave of that.
//!
//! ```text
//!  operation ─▶ kernel ─▶ fuse ─▶ recorder ─▶ history: changes and syncs, in order
//!                                                │
//!        check ◀── tree ◀── image ◀── each set of changes that may be on the disk, after each step
//! ```
//!
//! One run is recorded. Its crashes are computed in memory, without a mount.
//!
//! **The model.** A change that was followed by a sync of its file or directory is on the disk. Of the others, any set
//! may be there:
//!
//! * Bytes are written in sectors of 512 bytes, in any order. A sector has all that was written to it before, because
//!   the page cache has.
//! * The length of a file is a change of its own, before or after its bytes. Bytes that are not there are zeros.
//! * Permissions, owner and extended attributes are changes of their own, which `fdatasync` does not wait for.
//! * Each call on names is one change, so a rename is atomic. Calls are independent of each other, even in one
//!   directory. A sync of a directory waits for its names, and a sync of a file does not wait for its own name.
//! * A new file has its first permissions and no bytes when its name arrives.
//!
//! Few file systems lose as much. All sets are tried if few changes are open; otherwise each beginning of them, each one
//! alone, all but each one, all sets of the changes that are no bytes, with and without all bytes, and random ones from a
//! fixed seed.
//!
//! **Not in the model**: sectors that are torn or damaged, old bytes of other files in new sectors, disks and file
//! systems that do not honour syncs, and syncs that fail. Files have no times. `FALLOC_FL_INSERT_RANGE`, shared blocks
//! and writable mappings are not recorded: the kernel refuses the first two here, and nothing tested writes by the third.

mod image;
mod recorder;
mod requests;
mod states;
mod tree;

pub use states::{Crash, History, Tried};
pub use tree::{FileItem, Item, Tree};

use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::fuse::session::Session;
use recorder::Recorder;

/// A mounted file system that records. It is unmounted on drop.
#[derive(Debug)]
pub struct RecordedDisk {
    session: Session,
    recorder: Arc<Mutex<Recorder>>,
}

/// Records what the program under test has confirmed.
#[derive(Clone, Debug)]
pub struct Confirm(Arc<Mutex<Recorder>>);

impl RecordedDisk {
    /// Mounts a file system that has `tree` on its disk. Returns `None`, and reports a skip, if this process may not
    /// mount one. Without `unnamed_files`, `O_TMPFILE` is not supported.
    pub fn mount(tree: &Tree, unnamed_files: bool) -> Option<Self> {
        let recorder = Arc::new(Mutex::new(Recorder::new(tree)));
        let serving = Arc::clone(&recorder);
        let session = Session::mount(move |request| match request.operation {
            requests::TMPFILE if !unnamed_files => Err(libc::EOPNOTSUPP),
            _ => requests::answer(&mut serving.lock().unwrap(), request),
        })?;
        Some(Self { session, recorder })
    }

    pub fn path(&self) -> &Path {
        self.session.path()
    }

    pub fn confirm(&self) -> Confirm {
        Confirm(Arc::clone(&self.recorder))
    }

    /// Returns what was done so far.
    pub fn history(&self) -> History {
        self.recorder.lock().unwrap().history()
    }
}

impl Confirm {
    /// Records that the program has confirmed this number of things: a [`Crash`] from now on has it.
    pub fn confirm(&self, things: u64) {
        self.0.lock().unwrap().confirm(things);
    }
}
