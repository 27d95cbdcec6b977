//! Records of the journal and of the snapshot.
//!
//! | bytes | contents, little-endian |
//! |---|---|
//! | 0 to 3 | length of the payload |
//! | 4 to 7 | CRC32C of all other bytes |
//! | 8 to 15 | number of the record |
//! | 16 | kind |
//! | 17 | 1 if the record is the first of its commit |
//! | 18, 19 | `DS` |
//! | from 20 | payload |

use bytes::{BufMut, Bytes, BytesMut};

pub(crate) const HEADER: usize = 20;
const MAGIC: [u8; 2] = *b"DS";

/// When a stream ends by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    Never,
    /// After so many seconds without a read or a write.
    Idle(u64),
    /// At a time in milliseconds of the Unix epoch.
    At(i64),
}

/// What a stream is created with.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    pub(crate) id: u64,
    pub(crate) path: Box<str>,
    pub(crate) content_type: Box<str>,
    pub(crate) expiry: Expiry,
    /// The source of a fork, and the position at which it branches.
    pub(crate) origin: Option<(u64, u64)>,
}

/// A request of an idempotent producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Producer<'a> {
    pub(crate) id: &'a str,
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
}

/// The writers of a stream, as the snapshot has them.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    pub(crate) seq: Option<Box<str>>,
    pub(crate) closer: Option<(Box<str>, u64, u64)>,
    pub(crate) producers: Vec<(Box<str>, u64, u64)>,
}

#[derive(Debug)]
pub(crate) enum Record<'a> {
    /// The first record of a segment or of a snapshot.
    Begin {
        next_id: u64,
    },
    Create {
        meta: Meta,
        closed: bool,
        data: &'a [u8],
    },
    Append {
        id: u64,
        at: u64,
        close: bool,
        seq: Option<&'a str>,
        producer: Option<Producer<'a>>,
        data: &'a [u8],
    },
    Delete {
        id: u64,
    },
    /// A stream in the snapshot.
    Stream {
        meta: Meta,
        len: u64,
        last: u64,
        closed: bool,
        deleted: bool,
        writers: Writers,
    },
    /// The last record of a snapshot.
    End {
        streams: u64,
    },
}

/// A record that was found.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    pub(crate) number: u64,
    pub(crate) first: bool,
    pub(crate) len: usize,
    pub(crate) record: Record<'a>,
}

impl Record<'_> {
    /// Adds the record to `out`. Its data are the last bytes.
    pub(crate) fn encode(&self, number: u64, first: bool, out: &mut BytesMut) {
        let start = out.len();
        out.put_slice(&[0; 8]);
        out.put_u64_le(number);
        out.put_slice(&[self.kind(), u8::from(first), MAGIC[0], MAGIC[1]]);
        self.encode_payload(out);
        let len = u32::try_from(out.len() - start - HEADER).expect("bodies are limited").to_le_bytes();
        out[start..start + 4].copy_from_slice(&len);
        let crc = checksum(&out[start..]).to_le_bytes();
        out[start + 4..start + 8].copy_from_slice(&crc);
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Begin { .. } => 1,
            Self::Create { .. } => 2,
            Self::Append { .. } => 3,
            Self::Delete { .. } => 4,
            Self::Stream { .. } => 5,
            Self::End { .. } => 6,
        }
    }

    fn encode_payload(&self, out: &mut BytesMut) {
        match self {
            Self::Begin { next_id: n } | Self::Delete { id: n } | Self::End { streams: n } => out.put_u64_le(*n),
            Self::Create { meta, closed, data } => {
                put_meta(out, meta);
                out.put_u8(u8::from(*closed));
                out.put_slice(data);
            }
            Self::Append { id, at, close, seq, producer, data } => {
                out.put_u64_le(*id);
                out.put_u64_le(*at);
                out.put_u8(u8::from(*close) | u8::from(seq.is_some()) << 1 | u8::from(producer.is_some()) << 2);
                if let Some(seq) = seq {
                    put_str(out, seq);
                }
                if let Some(Producer { id, epoch, seq }) = producer {
                    put_producer(out, id, *epoch, *seq);
                }
                out.put_slice(data);
            }
            Self::Stream { meta, len, last, closed, deleted, writers } => {
                put_meta(out, meta);
                out.put_u64_le(*len);
                out.put_u64_le(*last);
                let some = u8::from(writers.seq.is_some()) << 2 | u8::from(writers.closer.is_some()) << 3;
                out.put_u8(u8::from(*closed) | u8::from(*deleted) << 1 | some);
                if let Some(seq) = &writers.seq {
                    put_str(out, seq);
                }
                for (id, epoch, seq) in writers.closer.iter().chain(&writers.producers) {
                    put_producer(out, id, *epoch, *seq);
                }
            }
        }
    }
}

/// Reads the record at the start of `bytes`, if it is whole and undamaged.
pub(crate) fn decode(bytes: &[u8]) -> Option<Found<'_>> {
    let header = bytes.get(..HEADER).filter(|header| header[18..] == MAGIC)?;
    let len = HEADER + u32::from_le_bytes(header[..4].try_into().ok()?) as usize;
    let whole = bytes.get(..len)?;
    if checksum(whole) != u32::from_le_bytes(header[4..8].try_into().ok()?) {
        return None;
    }
    let number = u64::from_le_bytes(header[8..16].try_into().ok()?);
    Some(Found { number, first: header[17] == 1, len, record: payload(header[16], Reader(&whole[HEADER..]))? })
}

fn checksum(record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&record[..4]), &record[8..])
}

fn payload(kind: u8, mut from: Reader<'_>) -> Option<Record<'_>> {
    Some(match kind {
        1 => Record::Begin { next_id: from.number()? },
        2 => Record::Create { meta: from.meta()?, closed: from.byte()? == 1, data: from.0 },
        3 => {
            let (id, at, flags) = (from.number()?, from.number()?, from.byte()?);
            let seq = if flags & 2 != 0 { Some(from.text()?) } else { None };
            let producer = if flags & 4 != 0 { Some(from.producer()?) } else { None };
            Record::Append { id, at, close: flags & 1 != 0, seq, producer, data: from.0 }
        }
        4 => Record::Delete { id: from.number()? },
        5 => {
            let (meta, len, last, flags) = (from.meta()?, from.number()?, from.number()?, from.byte()?);
            let mut writers = Writers::default();
            if flags & 4 != 0 {
                writers.seq = Some(from.text()?.into());
            }
            let owned = |Producer { id, epoch, seq }: Producer<'_>| (id.into(), epoch, seq);
            if flags & 8 != 0 {
                writers.closer = Some(owned(from.producer()?));
            }
            while !from.0.is_empty() {
                writers.producers.push(owned(from.producer()?));
            }
            Record::Stream { meta, len, last, closed: flags & 1 != 0, deleted: flags & 2 != 0, writers }
        }
        6 => Record::End { streams: from.number()? },
        _ => return None,
    })
}

fn put_str(out: &mut BytesMut, text: &str) {
    out.put_u32_le(u32::try_from(text.len()).expect("header fields are short"));
    out.put_slice(text.as_bytes());
}

fn put_producer(out: &mut BytesMut, id: &str, epoch: u64, seq: u64) {
    put_str(out, id);
    out.put_u64_le(epoch);
    out.put_u64_le(seq);
}

fn put_meta(out: &mut BytesMut, Meta { id, path, content_type, expiry, origin }: &Meta) {
    out.put_u64_le(*id);
    put_str(out, path);
    put_str(out, content_type);
    let (kind, value) = match *expiry {
        Expiry::Never => (0, 0),
        Expiry::Idle(seconds) => (1, seconds),
        Expiry::At(at) => (2, at.cast_unsigned()),
    };
    out.put_u8(kind | u8::from(origin.is_some()) << 2);
    out.put_u64_le(value);
    if let Some((source, at)) = origin {
        out.put_u64_le(*source);
        out.put_u64_le(*at);
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<&'a str> {
        let len = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
        std::str::from_utf8(self.take(len as usize)?).ok()
    }

    fn producer(&mut self) -> Option<Producer<'a>> {
        Some(Producer { id: self.text()?, epoch: self.number()?, seq: self.number()? })
    }

    fn meta(&mut self) -> Option<Meta> {
        let (id, path, content_type) = (self.number()?, self.text()?.into(), self.text()?.into());
        let (kind, value) = (self.byte()?, self.number()?);
        let expiry = match kind & 3 {
            0 => Expiry::Never,
            1 => Expiry::Idle(value),
            2 => Expiry::At(value.cast_signed()),
            _ => return None,
        };
        let origin = if kind & 4 != 0 { Some((self.number()?, self.number()?)) } else { None };
        Some(Meta { id, path, content_type, expiry, origin })
    }
}

/// Returns the bytes of one record.
pub(crate) fn encoded(record: &Record<'_>, number: u64) -> Bytes {
    let mut out = BytesMut::new();
    record.encode(number, true, &mut out);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_found() {
        let producer = Some(Producer { id: "p", epoch: 1, seq: 2 });
        let append = Record::Append { id: 7, at: 9, close: true, seq: Some("a"), producer, data: b"data" };
        let bytes = encoded(&append, 5);
        let found = decode(&bytes).unwrap();
        assert_eq!((found.number, found.first, found.len), (5, true, bytes.len()));
        assert!(matches!(found.record, Record::Append { id: 7, at: 9, close: true, data: b"data", .. }));
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 4;
            assert!(decode(&damaged).is_none(), "byte {at}");
            assert!(decode(&bytes[..at]).is_none(), "{at} bytes");
        }
    }
}
