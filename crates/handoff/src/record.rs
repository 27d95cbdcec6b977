//! The records of the control socket.
//!
//! ```text
//!  length of the payload (4 bytes, little-endian) · kind (1) · number of descriptors (1) · payload
//!
//!  successor                                     process that serves
//!   Hello, the versions it knows ──────────────▶
//!                     ◀────────────── Listeners, their names and sockets; the control socket is the last one
//!                                     Refused, why
//!   Ready, the names of its hubs, and a socket ▶ accepts no further connection, and drains
//!                     ◀────────────── Events of a hub, several times, and Prepend, for each hub
//!                     ◀────────────── Serve
//!                     ◀────────────── Connections of one listener, idle or of readers of hubs ┐
//!   Taken ─────────────────────────────────────▶                                              │ repeated
//!                     ◀────────────── Yours, or Keeps                                         ┘
//!                     ◀────────────── Events that were sent late, at any time between them
//!                     ◀────────────── Done
//!   Taken ─────────────────────────────────────▶ ends
//!
//!   over the socket of Ready, since Serve:
//!   Events of its own, and late ones ──────────▶ for the readers that are still there
//! ```
//!
//! Each process goes on if the other one ends before the last record. Sockets that were sent are the successor's after `Yours`, or when the connection ends behind `Taken`: the process
//! that serves then has died, because it decides before it closes the connection. If it goes on, it says `Refused` first. Readers come behind all events that they have got.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use millstream::sse::HandedEvent;

/// The version of this module.
pub(crate) const VERSION: u16 = 1;
const MAGIC: &[u8; 8] = b"msthndof";
/// Length of what precedes a payload.
pub(crate) const HEAD: usize = 6;
/// Largest payload.
pub(crate) const PAYLOAD_MAX: usize = 64 << 20;
/// Takes the place of the number of a hub.
const IDLE: u16 = u16::MAX;
/// Most hubs of a process.
pub(crate) const HUBS_MAX: usize = 10_000;
/// Longest name of a listener or a hub.
pub(crate) const NAME_MAX: usize = 255;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The lowest and the highest version that the sender knows.
    Hello(u16, u16),
    /// The names of the listeners, in the order of their sockets.
    Listeners(Vec<String>),
    Refused(String),
    /// The names of the hubs. Later records have their numbers.
    Ready(Vec<String>),
    /// The number of the listener that has accepted the connections. For each: the number of the hub and the description
    /// of its reader, unless it is idle.
    Connections(u8, Vec<Option<(u16, Vec<u8>)>>),
    Taken,
    Yours,
    Keeps,
    Done,
    Events(u16, Vec<HandedEvent>),
    /// The events of this hub so far precede its own, and follow the event with this id.
    Prepend(u16, String),
    Serve,
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
        let [a, b, c, d, kind, fds] = bytes;
        let payload = u32::from_le_bytes([a, b, c, d]) as usize;
        if payload > PAYLOAD_MAX {
            return Err(invalid("it is too long"));
        }
        Ok(Self { payload, kind, fds: fds.into() })
    }
}

/// The rest of a payload.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or_else(|| invalid("it is cut off"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.take(N).map(|bytes| bytes.try_into().expect("internal: as long"))
    }

    fn number(&mut self) -> io::Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Takes bytes behind their length.
    fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let len = u32::from_le_bytes(self.array()?);
        self.take(len as usize)
    }

    fn text(&mut self) -> io::Result<String> {
        self.bytes().and_then(text)
    }

    fn reader(&mut self) -> io::Result<Option<(u16, Vec<u8>)>> {
        match self.number()? {
            IDLE => Ok(None),
            hub => Ok(Some((hub, self.bytes()?.to_vec()))),
        }
    }

    fn event(&mut self) -> io::Result<HandedEvent> {
        let age = Duration::from_millis(u64::from_le_bytes(self.array()?));
        Ok(HandedEvent { id: self.text()?, bytes: Bytes::copy_from_slice(self.bytes()?), age })
    }

    /// Takes items to the end.
    fn all<T>(&mut self, item: impl Fn(&mut Self) -> io::Result<T>) -> io::Result<Vec<T>> {
        let mut items = Vec::new();
        while !self.0.is_empty() {
            items.push(item(self)?);
        }
        Ok(items)
    }
}

fn text(bytes: &[u8]) -> io::Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| invalid("a text is not UTF-8"))
}

impl Record {
    /// Returns the record with this head and payload.
    pub(crate) fn parse(head: Head, payload: &[u8]) -> io::Result<Self> {
        let mut rest = Rest(payload);
        let record = match head.kind {
            1 => {
                if rest.take(MAGIC.len())? != MAGIC {
                    return Err(invalid("the greeting is another one"));
                }
                Self::Hello(rest.number()?, rest.number()?)
            }
            2 => Self::Listeners(rest.all(Rest::text)?),
            3 => Self::Refused(text(std::mem::take(&mut rest.0))?),
            4 => Self::Ready(rest.all(Rest::text)?),
            5 => Self::Connections(rest.array::<1>()?[0], rest.all(Rest::reader)?),
            6 => Self::Taken,
            7 => Self::Yours,
            8 => Self::Keeps,
            9 => Self::Done,
            10 => Self::Events(rest.number()?, rest.all(Rest::event)?),
            11 => Self::Prepend(rest.number()?, rest.text()?),
            12 => Self::Serve,
            _ => return Err(invalid("its kind is not known")),
        };
        if !rest.0.is_empty() {
            return Err(invalid("it is too long for its kind"));
        }
        // Descriptors that no one expects would stay open.
        let fits = match &record {
            Self::Listeners(names) => head.fds == names.len() + 1,
            Self::Ready(_) => head.fds == 1,
            Self::Connections(_, readers) => head.fds > 0 && head.fds == readers.len(),
            _ => head.fds == 0,
        };
        fits.then_some(record).ok_or_else(|| invalid("the number of descriptors is wrong"))
    }

    /// Returns the bytes of the record, which is sent with `fds` descriptors.
    ///
    /// # Errors
    ///
    /// It is longer than a record may be.
    pub(crate) fn encode(&self, fds: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; HEAD];
        bytes[4] = match self {
            Self::Hello(low, high) => {
                bytes.extend(MAGIC);
                bytes.extend([low.to_le_bytes(), high.to_le_bytes()].as_flattened());
                1
            }
            Self::Listeners(names) => {
                names.iter().for_each(|name| put(&mut bytes, name.as_bytes()));
                2
            }
            Self::Refused(why) => {
                bytes.extend(why.bytes());
                3
            }
            Self::Ready(hubs) => {
                hubs.iter().for_each(|name| put(&mut bytes, name.as_bytes()));
                4
            }
            Self::Connections(listener, readers) => {
                bytes.push(*listener);
                for reader in readers {
                    match reader {
                        None => bytes.extend(IDLE.to_le_bytes()),
                        Some((hub, description)) => {
                            bytes.extend(hub.to_le_bytes());
                            put(&mut bytes, description);
                        }
                    }
                }
                5
            }
            Self::Taken => 6,
            Self::Yours => 7,
            Self::Keeps => 8,
            Self::Done => 9,
            Self::Events(hub, events) => {
                bytes.extend(hub.to_le_bytes());
                for event in events {
                    bytes.extend(u64::try_from(event.age.as_millis()).unwrap_or(u64::MAX).to_le_bytes());
                    put(&mut bytes, event.id.as_bytes());
                    put(&mut bytes, &event.bytes);
                }
                10
            }
            Self::Prepend(hub, before) => {
                bytes.extend(hub.to_le_bytes());
                put(&mut bytes, before.as_bytes());
                11
            }
            Self::Serve => 12,
        };
        let payload = bytes.len() - HEAD;
        if payload > PAYLOAD_MAX {
            let why = format!("a record of a handoff has {payload} bytes; at most {PAYLOAD_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        bytes[..4].copy_from_slice(&(payload as u32).to_le_bytes());
        bytes[5] = u8::try_from(fds).unwrap_or(u8::MAX);
        Ok(bytes)
    }
}

/// Appends bytes behind their length. Longer ones make the record too long.
fn put(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    to.extend(bytes);
}

#[cfg(test)]
mod tests;
