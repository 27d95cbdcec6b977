//! Amounts of credit.

/// A number of frames, and of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credit {
    pub(crate) frames: u32,
    pub(crate) bytes: u64,
}

impl Credit {
    /// Returns the sum, if `limit` allows it.
    pub(crate) fn plus(self, other: Self, limit: Self) -> Option<Self> {
        let frames = self.frames.checked_add(other.frames).filter(|&frames| frames <= limit.frames)?;
        let bytes = self.bytes.checked_add(other.bytes).filter(|&bytes| bytes <= limit.bytes)?;
        Some(Self { frames, bytes })
    }

    /// Adds a frame to a total, which has no limit; the number of frames wraps around.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.frames = self.frames.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(bytes);
    }

    /// Returns the difference, if it is not negative.
    pub(crate) fn minus(self, other: Self) -> Option<Self> {
        let frames = self.frames.checked_sub(other.frames)?;
        let bytes = self.bytes.checked_sub(other.bytes)?;
        Some(Self { frames, bytes })
    }
}
