//! The records of the control socket.
//!
//! ```text
//!  length of the payload (2 bytes, little-endian) · kind (1) · number of descriptors (1) · payload
//!
//!  successor                                     process that serves
//!   Hello, the versions it knows ──────────────▶
//!                     ◀────────────── Listeners, their names and sockets; the control socket is the last one
//!                                     Refused, why
//!   Ready ─────────────────────────────────────▶ accepts no further connection, and drains
//!                     ◀────────────── Sockets, idle connections of one listener ┐
//!   Taken ─────────────────────────────────────▶                                │ repeated
//!                     ◀────────────── Yours, or Keeps                           ┘
//!                     ◀────────────── Done
//!   Taken ─────────────────────────────────────▶ ends
//! ```
//!
//! Each process goes on if the other one ends before the last record. Sockets that were sent are the successor's after `Yours`, or when the connection ends behind `Taken`: the process
//! that serves then has died, because it decides before it closes the connection.

use std::io;

/// The version of this module.
pub(crate) const VERSION: u16 = 1;
const MAGIC: &[u8; 8] = b"msthndof";
/// Length of what precedes a payload.
pub(crate) const HEAD: usize = 4;
/// Largest payload.
pub(crate) const PAYLOAD_MAX: usize = 4096;
/// Longest name of a listener.
pub(crate) const NAME_MAX: usize = 255;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The lowest and the highest version that the sender knows.
    Hello(u16, u16),
    /// The names of the listeners, in the order of their sockets.
    Listeners(Vec<String>),
    Refused(String),
    Ready,
    /// The number of the listener that has accepted the connections.
    Sockets(u8),
    Taken,
    Yours,
    Keeps,
    Done,
}

/// The head of a record: length of the payload, kind, and number of descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) payload: usize,
    kind: u8,
    pub(crate) fds: usize,
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a record of a handoff: {why}"))
}

impl Head {
    pub(crate) fn parse(bytes: [u8; HEAD]) -> io::Result<Self> {
        let [low, high, kind, fds] = bytes;
        let payload = usize::from(u16::from_le_bytes([low, high]));
        if payload > PAYLOAD_MAX {
            return Err(invalid("it is too long"));
        }
        Ok(Self { payload, kind, fds: fds.into() })
    }
}

impl Record {
    /// Returns the record with this head and payload.
    pub(crate) fn parse(head: Head, payload: &[u8]) -> io::Result<Self> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| invalid("a text is not UTF-8"));
        let record = match (head.kind, payload) {
            (1, _) => {
                let versions = payload.strip_prefix(MAGIC).and_then(|rest| <[u8; 4]>::try_from(rest).ok());
                let [a, b, c, d] = versions.ok_or_else(|| invalid("the greeting is another one"))?;
                Self::Hello(u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
            }
            (2, _) => {
                let (mut names, mut rest) = (Vec::new(), payload);
                while let Some((&len, behind)) = rest.split_first() {
                    let (name, behind) =
                        behind.split_at_checked(len.into()).ok_or_else(|| invalid("a name is cut off"))?;
                    names.push(text(name)?);
                    rest = behind;
                }
                Self::Listeners(names)
            }
            (3, _) => Self::Refused(text(payload)?),
            (4, []) => Self::Ready,
            (5, &[listener]) => Self::Sockets(listener),
            (6, []) => Self::Taken,
            (7, []) => Self::Yours,
            (8, []) => Self::Keeps,
            (9, []) => Self::Done,
            _ => return Err(invalid("its kind is not known")),
        };
        // Descriptors that no one expects would stay open.
        let fits = match &record {
            Self::Listeners(names) => head.fds == names.len() + 1,
            Self::Sockets(_) => head.fds > 0,
            _ => head.fds == 0,
        };
        fits.then_some(record).ok_or_else(|| invalid("the number of descriptors is wrong"))
    }

    /// Returns the bytes of the record, which is sent with `fds` descriptors. Texts are as long as they may be.
    pub(crate) fn encode(&self, fds: usize) -> Vec<u8> {
        let mut bytes = vec![0; HEAD];
        bytes[2] = match self {
            Self::Hello(low, high) => {
                bytes.extend(MAGIC);
                bytes.extend([low.to_le_bytes(), high.to_le_bytes()].as_flattened());
                1
            }
            Self::Listeners(names) => {
                for name in names {
                    debug_assert!(name.len() <= NAME_MAX, "internal: checked when the listener was named");
                    bytes.push(name.len() as u8);
                    bytes.extend(name.as_bytes());
                }
                2
            }
            Self::Refused(why) => {
                bytes.extend(why.bytes());
                3
            }
            Self::Ready => 4,
            Self::Sockets(listener) => {
                bytes.push(*listener);
                5
            }
            Self::Taken => 6,
            Self::Yours => 7,
            Self::Keeps => 8,
            Self::Done => 9,
        };
        let payload = u16::try_from(bytes.len() - HEAD).unwrap_or(u16::MAX);
        bytes[..2].copy_from_slice(&payload.to_le_bytes());
        bytes[3] = u8::try_from(fds).unwrap_or(u8::MAX);
        bytes
    }
}

#[cfg(test)]
mod tests;
