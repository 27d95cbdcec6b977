//! How a peer leaves.

/// How a peer leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Leaving {
    /// The peer has closed its sending side, behind bytes that were not read.
    Unread,
    /// The peer has closed its sending side. It may still read.
    Half,
    /// The connection was reset, or both sides have closed.
    Gone,
}
