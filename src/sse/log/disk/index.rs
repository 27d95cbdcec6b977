//! Sparse index of a segment: the offsets of some of its records.
//!
//! The index of a full segment is also a file beside it. It is a shortcut only: a file that is missing, damaged or of
//! another length of the segment is ignored and rebuilt.

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
mod tests {
    use super::*;

    #[test]
    fn entries_are_sparse_and_found() {
        let mut index = Index::default();
        assert_eq!(index.find(5), (0, 0));
        for event in 0..100 {
            index.add(event, event * STRIDE / 4);
        }
        assert_eq!(index.0.len(), 25);
        assert_eq!(index.find(0), (0, 0));
        assert_eq!(index.find(3), (0, 0));
        assert_eq!(index.find(4), (4, STRIDE));
        assert_eq!(index.find(1000), (96, 24 * STRIDE));
    }

    #[test]
    fn a_file_is_read_only_if_it_is_whole_and_of_this_segment() {
        let mut index = Index::default();
        (0..10).for_each(|event| index.add(event, event * STRIDE));
        let segment = 10 * STRIDE;
        let file = index.encode(segment);
        assert!(file.len() <= Index::len_max(segment));
        assert_eq!(Index::decode(&file, segment), Some(index));
        assert_eq!(Index::decode(&file, segment + 1), None);
        for len in 0..file.len() {
            assert_eq!(Index::decode(&file[..len], segment), None, "{len}");
            let mut wrong = file.clone();
            wrong[len] ^= 1;
            assert_eq!(Index::decode(&wrong, segment), None, "{len}");
        }
    }

    #[test]
    fn entries_that_no_segment_has_are_refused() {
        let decoded = |pairs: &[(u32, u32)]| Index::decode(&Index(pairs.to_vec()).encode(100), 100).is_some();
        assert!(decoded(&[]) && decoded(&[(0, 0), (1, 50), (7, 99)]));
        assert!(!decoded(&[(0, 0), (1, 100)]), "behind the end");
        assert!(!decoded(&[(0, 0), (1, 50), (1, 60)]) && !decoded(&[(1, 50), (2, 50)]), "not in order");
    }

    #[test]
    fn the_length_of_any_segment_gives_one_of_the_index() {
        assert_eq!(Index::len_max(0), 28);
        assert!(Index::len_max(i64::MAX as u64) > 1 << 50);
    }
}
