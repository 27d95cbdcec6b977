//! Statistics of a hub.

/// Statistics of a [`Hub`](super::Hub) at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HubStats {
    /// Number of bodies that exist, polled or not.
    pub subscribers: usize,
    /// Number of readers to whose connections the hub writes itself, without a task for each. See
    /// [`Hub`](super::Hub#cost-of-a-reader).
    pub direct: usize,
    /// Number of subscribers rejected at the maximum.
    pub refused: u64,
    /// Number of events sent by this hub; with a log, accepted by the log.
    pub sent: u64,
    /// Number of events passed to connections, counted for each reader.
    pub delivered: u64,
    /// Number of events that readers missed because they were slow, counted for each reader.
    pub dropped: u64,
    /// Number of gaps sent to readers.
    pub gaps: u64,
    /// Number of ids of readers that were ignored: not UTF-8, too long, or otherwise not [valid](crate::sse::Event::id).
    pub bad_ids: u64,
    /// Number of events that were compressed, each once for all readers; see `HubBuilder::gzip`.
    pub compressed: u64,
    /// Number of events in the ring.
    pub ring_events: usize,
    /// Encoded size of the events in the ring in bytes.
    pub ring_bytes: usize,
}
