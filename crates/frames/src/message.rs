//! Messages over the socket: 16 bytes each.

use super::credit::Credit;

pub(crate) const LEN: usize = 16;

/// Kinds: the first four bytes of a message. The first one also names the version of the protocol.
const HELLO: [u8; 4] = *b"MSF1";
const FRAME: [u8; 4] = *b"FRAM";
const CREDIT: [u8; 4] = *b"CRED";
const DONE: [u8; 4] = *b"DONE";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The first message of each side. A receiver grants credit, a sender none.
    Hello(Credit),
    /// A frame of this many bytes. Its descriptor comes with this message.
    Frame(u64),
    /// Frames that the receiver no longer needs.
    Credit(Credit),
    /// The last message of each side, with the total of its frames: those that the sender has sent, or those that the
    /// receiver has taken.
    Done(Credit),
}

impl Message {
    /// Returns the message, or a description of its fault.
    pub(crate) fn parse(bytes: &[u8; LEN]) -> Result<Self, &'static str> {
        let [k0, k1, k2, k3, f0, f1, f2, f3, rest @ ..] = *bytes;
        let credit = Credit { frames: u32::from_le_bytes([f0, f1, f2, f3]), bytes: u64::from_le_bytes(rest) };
        match ([k0, k1, k2, k3], credit) {
            (HELLO, credit) if (credit.frames == 0) == (credit.bytes == 0) => Ok(Self::Hello(credit)),
            (FRAME, Credit { frames: 1, bytes: bytes @ 1.. }) => Ok(Self::Frame(bytes)),
            (CREDIT, Credit { frames: 1.., bytes: 1.. }) => Ok(Self::Credit(credit)),
            (DONE, credit) => Ok(Self::Done(credit)),
            (HELLO | FRAME | CREDIT, _) => Err("a message has wrong numbers"),
            _ => Err("a message is of no known kind"),
        }
    }

    pub(crate) fn encode(self) -> [u8; LEN] {
        let (kind, credit) = match self {
            Self::Hello(credit) => (HELLO, credit),
            Self::Frame(bytes) => (FRAME, Credit { frames: 1, bytes }),
            Self::Credit(credit) => (CREDIT, credit),
            Self::Done(credit) => (DONE, credit),
        };
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&kind);
        bytes[4..8].copy_from_slice(&credit.frames.to_le_bytes());
        bytes[8..].copy_from_slice(&credit.bytes.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests;
