//! A log in a directory: events that survive restarts, without a server beside the hubs (features `fs` and `sse`).
//!
//! ```text
//!  Hub::send ─▶ queue ─▶ one job: write, fdatasync ─▶ segments in a directory
//!                            └─▶ Sink of each hub       │
//!  reader ◀─ replay ◀──────── pages of a segment ───────┘
//! ```
//!
//! Contract:
//!
//! 1. An event is delivered, counted and confirmed only after its commit (`writer`). A job on the blocking pool commits
//!    all waiting events. A job that has begun completes, even if its hub or its runtime ends.
//! 2. A segment changes only at its end, under the lock of the writer. Bytes of committed records are never changed, so
//!    readers may have them mapped.
//! 3. After a failed sync nothing more is committed.
//! 4. A page is checked before it is handed out (`replay`).
//!
//! The format is described in
//! [docs/disk-log.md](https://github.com/millstream-rs/millstream/blob/main/docs/disk-log.md).

mod builder;
mod directory;
mod error;
mod handle;
mod index;
mod record;
mod recover;
mod replay;
pub(crate) mod scan;
mod segments;
mod shared;
mod state;
mod writer;

pub use builder::DiskBuilder;
pub use error::DiskError;
pub use handle::Disk;
pub use state::DiskState;
