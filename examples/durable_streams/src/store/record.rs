//! Records of the journal and of the snapshot.
//!
//! | bytes | contents, little-endian |
//! |---|---|
//! | 0 to 3 | length of the bytes after the header |
//! | 4 to 7 | CRC32C of all other bytes, begun with a part of the salt of the store |
//! | 8 to 15 | number of the record |
//! | 16 | 1 if the record is the first of its commit |
//! | 17 to 19 | the mark: `DS3`, combined with the rest of the salt |
//! | from 20 | the [`Record`] as postcard writes it, then the data |
//!
//! Clients do not know the salt. So what they append is not taken for a record, and not even for a header, whose
//! checksum would have to be computed.

use std::collections::HashMap;

use bytes::{BufMut, BytesMut};
use memchr::memmem;
use serde::{Deserialize, Serialize};

const HEADER: usize = 20;
/// The version of the format. The snapshot begins with it, because its salt is 0.
const MAGIC: [u8; 3] = *b"DS3";
/// Bytes of a file that have a checksum of their own.
pub(crate) const BLOCK: u64 = 256 << 10;

/// When a stream ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Expiry {
    Never,
    /// After so many seconds without a read or a write.
    Idle(u64),
    /// At a time in milliseconds of the Unix epoch.
    At(i64),
}

/// The configuration of a stream, set at its creation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub(crate) id: u64,
    pub(crate) path: Box<str>,
    pub(crate) content_type: Box<str>,
    pub(crate) expiry: Expiry,
    /// The source of a fork, and the position at which it branches.
    pub(crate) origin: Option<(u64, u64)>,
}

/// A request of an idempotent producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Producer<'a> {
    pub(crate) id: &'a str,
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
}

/// The state of a stream that is in the snapshot.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Saved {
    pub(crate) len: u64,
    /// End of the bytes in its file. The others are in the journal.
    pub(crate) written: u64,
    /// Checksums of the blocks of its file; see [`sum`].
    pub(crate) sums: Vec<u32>,
    /// Number of the last record about the stream.
    pub(crate) last: u64,
    pub(crate) closed: bool,
    /// Whether it was deleted. Its forks may need its bytes.
    pub(crate) deleted: bool,
    /// The last `Stream-Seq`.
    pub(crate) seq: Option<Box<str>>,
    /// The producer that has closed it.
    pub(crate) closer: Option<(Box<str>, u64, u64)>,
    /// The epoch and the last number of each producer.
    pub(crate) producers: HashMap<Box<str>, (u64, u64)>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Record<'a> {
    /// The first record of a segment or of a snapshot.
    Begin {
        next_id: u64,
        salt: u64,
    },
    /// With the first data.
    Create {
        meta: Meta,
        closed: bool,
    },
    /// With the data.
    Append {
        id: u64,
        at: u64,
        close: bool,
        seq: Option<&'a str>,
        #[serde(borrow)]
        producer: Option<Producer<'a>>,
    },
    Delete {
        id: u64,
    },
    /// A stream in the snapshot.
    Stream {
        meta: Meta,
        saved: Saved,
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
    pub(crate) data: &'a [u8],
}

/// Adds a record to `out`. The snapshot, which has the salt, is written with 0.
pub(crate) fn encode(record: &Record<'_>, data: &[u8], number: u64, first: bool, salt: u64, out: &mut BytesMut) {
    let start = out.len();
    out.put_u64_le(0);
    out.put_u64_le(number);
    out.put_u8(u8::from(first));
    out.put_slice(&mark(salt));
    postcard::to_io(record, out.writer()).expect("memory takes all records");
    out.put_slice(data);
    let len = u32::try_from(out.len() - start - HEADER).expect("bodies are limited").to_le_bytes();
    out[start..start + 4].copy_from_slice(&len);
    let crc = checksum(&out[start..], salt).to_le_bytes();
    out[start + 4..start + 8].copy_from_slice(&crc);
}

/// Reads the record at the start of `bytes`, if it is whole and undamaged.
pub(crate) fn decode(bytes: &[u8], salt: u64) -> Option<Found<'_>> {
    let header = bytes.get(..HEADER).filter(|header| header[17..] == mark(salt))?;
    let len = HEADER + u32::from_le_bytes(header[..4].try_into().ok()?) as usize;
    let whole = bytes.get(..len)?;
    if checksum(whole, salt) != u32::from_le_bytes(header[4..8].try_into().ok()?) {
        return None;
    }
    let (record, data) = postcard::take_from_bytes(&whole[HEADER..]).ok()?;
    let number = u64::from_le_bytes(header[8..16].try_into().ok()?);
    Some(Found { number, first: header[16] == 1, len, record, data })
}

/// Returns whether a record is anywhere in the bytes that proves that `number` was synced.
pub(crate) fn has_later(bytes: &[u8], number: u64, salt: u64) -> bool {
    let mark = mark(salt);
    let starts = memmem::find_iter(bytes, &mark).filter_map(|at| at.checked_sub(17));
    let mut records = starts.filter_map(|start| decode(&bytes[start..], salt));
    records.any(|found| found.first && found.number > number)
}

/// Returns whether a snapshot has an earlier format.
pub(crate) fn is_old(snapshot: &[u8]) -> bool {
    snapshot.get(17..HEADER).is_some_and(|mark| mark[..2] == MAGIC[..2] && mark[2] < MAGIC[2])
}

fn mark(salt: u64) -> [u8; 3] {
    let [.., s0, s1, s2, _] = salt.to_le_bytes();
    let [m0, m1, m2] = MAGIC;
    [m0 ^ s0, m1 ^ s1, m2 ^ s2]
}

fn checksum(record: &[u8], salt: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(salt as u32, &record[..4]), &record[8..])
}

/// Adds `data`, which begins at `at` of a file, to the checksums of its blocks. The last block may be a part.
pub(crate) fn sum(sums: &mut Vec<u32>, mut at: u64, mut data: &[u8]) {
    while !data.is_empty() {
        let room = BLOCK - at % BLOCK;
        if room == BLOCK {
            sums.push(0);
        }
        let (part, rest) = data.split_at(usize::try_from(room).map_or(data.len(), |room| room.min(data.len())));
        if let Some(last) = sums.last_mut() {
            *last = crc32c::crc32c_append(*last, part);
        }
        (at, data) = (at + part.len() as u64, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_found() {
        let producer = Some(Producer { id: "p", epoch: 1, seq: 2 });
        let append = Record::Append { id: 7, at: 9, close: true, seq: Some("a"), producer };
        let mut bytes = BytesMut::new();
        encode(&append, b"data", 5, true, 3, &mut bytes);
        let found = decode(&bytes, 3).unwrap();
        for other in [4, 3 + (1 << 32)] {
            assert!(decode(&bytes, other).is_none(), "of another store");
        }
        assert_eq!((found.number, found.first, found.len, found.data), (5, true, bytes.len(), &b"data"[..]));
        assert!(matches!(
            found.record,
            Record::Append { id: 7, at: 9, close: true, seq: Some("a"), producer: Some(_) }
        ));
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 4;
            assert!(decode(&damaged, 3).is_none(), "byte {at}");
            assert!(decode(&bytes[..at], 3).is_none(), "{at} bytes");
        }
    }

    #[test]
    fn later_records_are_found_anywhere() {
        let mut bytes = BytesMut::new();
        bytes.put_bytes(b'x', 50);
        encode(&Record::Delete { id: 1 }, b"", 7, true, 3, &mut bytes);
        assert!(has_later(&bytes, 6, 3) && has_later(&bytes[50..], 6, 3));
        assert!(!has_later(&bytes, 7, 3) && !has_later(&bytes[51..], 6, 3) && !has_later(&bytes, 6, 4));
    }

    #[test]
    fn sums_do_not_depend_on_the_pieces() {
        let data: Vec<u8> = (0..2 * BLOCK + 9).map(|n| (n % 251) as u8).collect();
        let expected: Vec<_> = data.chunks(BLOCK as usize).map(crc32c::crc32c).collect();
        for piece in [1000, BLOCK as usize, data.len()] {
            let mut sums = Vec::new();
            for (n, piece_of) in data.chunks(piece).enumerate() {
                sum(&mut sums, (n * piece) as u64, piece_of);
            }
            assert_eq!(sums, expected, "{piece}");
        }
    }
}
