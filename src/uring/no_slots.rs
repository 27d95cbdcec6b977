//! Replaces `slots` in builds without io_uring: no program is on a ring.

use super::program::Program;

#[derive(Debug)]
pub(crate) enum Ended {
    Finished(Box<Program>),
    Fallback(Box<Program>, Option<usize>),
    Lost,
}
