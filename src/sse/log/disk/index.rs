//! Sparse index of a segment: the offsets of some of its records.
//!
//! The index of a full segment is also a file beside it. The file is only a shortcut. If it is missing, damaged, or
//! written for another length of the segment, the index is rebuilt.

/// Minimum distance of two entries in bytes.
pub(super) const STRIDE: u64 = 64 << 10;

const MAGIC: &[u8; 8] = b"MSINDEX1";

/// Pairs of an event, counted from the first of the segment, and the offset of its record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index(Vec<(u32, u32)>);

impl Index {
    /// Adds a record if it is far enough behind the last entry.
    pub(super) fn add(&mut self, event: u64, offset: u64) {
        let is_due = self.0.last().is_none_or(|&(_, last)| offset >= u64::from(last) + STRIDE);
        if is_due && let (Ok(event), Ok(offset)) = (u32::try_from(event), u32::try_from(offset)) {
            self.0.push((event, offset));
        }
    }

    /// Returns the last entry at or before `event`.
    pub(super) fn find(&self, event: u64) -> (u64, u64) {
        let after = self.0.partition_point(|&(found, _)| u64::from(found) <= event);
        let entry = after.checked_sub(1).map_or((0, 0), |at| self.0[at]);
        (entry.0.into(), entry.1.into())
    }

    /// Returns the contents of the file for a segment of `len` bytes.
    pub(super) fn encode(&self, len: u64) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        file.extend_from_slice(&len.to_le_bytes());
        for (event, offset) in &self.0 {
            file.extend_from_slice(&event.to_le_bytes());
            file.extend_from_slice(&offset.to_le_bytes());
        }
        let sum = crc32c::crc32c(&file);
        file.extend_from_slice(&sum.to_le_bytes());
        file
    }

    /// Returns the maximum length of the file for a segment of `len` bytes.
    pub(super) fn len_max(len: u64) -> usize {
        MAGIC.len() + 8 + 8 * (len / STRIDE + 1) as usize + 4
    }

    /// Reads the file of a segment of `len` bytes.
    pub(super) fn decode(file: &[u8], len: u64) -> Option<Self> {
        let (file, sum) = file.split_last_chunk::<4>()?;
        let entries = file.strip_prefix(MAGIC)?.strip_prefix(&len.to_le_bytes())?;
        if crc32c::crc32c(file).to_le_bytes() != *sum {
            return None;
        }
        let number = |bytes: &[u8]| Some(u32::from_le_bytes(bytes.try_into().ok()?));
        entries
            .chunks(8)
            .map(|entry| Some((number(entry.get(..4)?)?, number(entry.get(4..)?)?)))
            .collect::<Option<Vec<_>>>()
            .filter(|pairs| pairs.is_sorted_by(|one, next| one.0 < next.0 && one.1 < next.1))
            .filter(|pairs| pairs.last().is_none_or(|&(_, offset)| u64::from(offset) < len))
            .map(Self)
    }
}

#[cfg(test)]
mod tests;
