//! What a hub has done, in numbers.

/// The numbers of a [`Hub`](super::Hub) at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Bodies that are there, polled or not.
    pub subscribers: usize,
    /// Subscribers that were refused because there were as many as there may be.
    pub refused: u64,
    /// Events sent by this hub; with a log, those that the log has taken.
    pub sent: u64,
    /// Events handed to connections, counted for each reader.
    pub delivered: u64,
    /// Events that readers have missed because they were slow, counted for each reader.
    pub dropped: u64,
    /// Gaps that readers were told.
    pub gaps: u64,
    /// Ids of readers that were ignored: not UTF-8, too long, or with a NUL or line break in them.
    pub bad_ids: u64,
    /// Events in the ring.
    pub ring_events: usize,
    /// Their bytes, as they are sent.
    pub ring_bytes: usize,
}
