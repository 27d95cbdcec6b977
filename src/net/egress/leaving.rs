//! How a peer leaves.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// The peer has closed its sending side, behind bytes that were not read.
    Unread,
    /// The peer has closed its sending side. It may still read.
    Half,
    Gone,
}
