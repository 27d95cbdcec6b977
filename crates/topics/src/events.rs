//! Events for operators, in `tracing` under the target `millstream`, and their counts. Without the feature `tracing`
//! there are the counts.

use std::sync::atomic::Ordering;

use millstream::internal::{Counter, count};

use crate::readers::Readers;

/// A topic ends for a reader, because its ids are too long for [`TopicsBuilder::id_len`](crate::TopicsBuilder::id_len).
pub(crate) fn id_too_long(topic: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        target: "millstream",
        topic,
        "a topic ends for a reader: with the ids of its events, the id of the response exceeds TopicsBuilder::id_len"
    );
    let _ = topic;
}

/// Level `DEBUG`, because any client can cause it.
pub(crate) fn bad_id(readers: &Readers) {
    readers.bad_ids.fetch_add(1, Ordering::Relaxed);
    count(Counter::EventIdsRefused, 1);
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "millstream", "the id of a reader is ignored: it is not one of topics");
}

/// Level `DEBUG`, for the same reason.
pub(crate) fn refused(readers: &Readers) {
    readers.refused.fetch_add(1, Ordering::Relaxed);
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "millstream", "a reader is refused: there are too many, of all topics or of one");
}
