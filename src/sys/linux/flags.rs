//! Flags of calls on files.

pub(crate) use rustix::event::PollFlags;
pub(crate) use rustix::fs::{FallocateFlags, Mode, OFlags, RenameFlags, ResolveFlags};
