//! Statistics of topics.

/// Statistics of [`Topics`](crate::Topics) at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicsStats {
    /// Number of topics that exist.
    pub topics: usize,
    /// Number of bodies that exist, polled or not.
    pub readers: usize,
    /// Number of requests that were refused because there were too many readers, here or of a topic.
    pub refused: u64,
    /// Number of ids of readers that were ignored.
    pub bad_ids: u64,
}
