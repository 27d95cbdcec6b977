//! What readers of one form are sent alike.

use bytes::Bytes;

/// The form of a reader's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Plain,
    Gzip,
}

/// Events, or a text, in the form that a reader gets.
#[derive(Clone, Debug, Default)]
pub(super) struct Piece {
    pub(super) bytes: Bytes,
    /// `None` if the bytes are the text itself.
    pub(super) sum: Option<Sum>,
}

/// The sum of a compressed text, which can be joined with that of the text before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    pub(super) crc: u32,
    /// Modulo 2³².
    pub(super) len: u32,
    /// What the CRC of the text before it is multiplied by.
    pub(super) shift: u32,
}

impl Piece {
    pub(super) fn plain(bytes: Bytes) -> Self {
        Self { bytes, sum: None }
    }
}
