//! Bytes that all readers of one form get.

use bytes::Bytes;

/// Events, or a text, in the form that a reader gets.
#[derive(Clone, Debug, Default)]
pub(in crate::sse) struct Piece {
    pub(in crate::sse) bytes: Bytes,
    /// `None` if the bytes are the text itself.
    pub(in crate::sse) sum: Option<Sum>,
}

/// The checksum of a compressed text. It can be combined with the checksum of the text before it.
#[cfg(feature = "compress")]
#[derive(Clone, Copy, Debug)]
pub(in crate::sse) struct Sum {
    pub(super) crc: u32,
    /// Modulo 2³².
    pub(in crate::sse) len: u32,
    /// Factor by which the CRC of the text before it is multiplied.
    pub(super) shift: u32,
}

/// There is none.
#[cfg(not(feature = "compress"))]
#[derive(Clone, Copy, Debug)]
pub(in crate::sse) enum Sum {}

impl Piece {
    pub(in crate::sse) fn plain(bytes: Bytes) -> Self {
        Self { bytes, sum: None }
    }
}
