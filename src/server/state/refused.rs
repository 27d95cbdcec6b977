//! How many refused connections of a server are being answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Connections answered at a time. Further ones are reset at once, which bounds the cost of a flood.
const AT_ONCE: usize = 128;

#[derive(Debug, Default)]
pub(in crate::server) struct Refused(AtomicUsize);

#[derive(Debug)]
pub(in crate::server) struct RefusalPlace(Arc<Refused>);

impl Refused {
    /// Returns `None` if as many are answered as allowed.
    pub(in crate::server) fn place(self: &Arc<Self>) -> Option<RefusalPlace> {
        let taken = RefusalPlace(Arc::clone(self));
        // Dropped at once if it is beyond the limit.
        (self.0.fetch_add(1, Ordering::Relaxed) < AT_ONCE).then_some(taken)
    }
}

impl Drop for RefusalPlace {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_at_a_time_are_limited() {
        let refused = Arc::<Refused>::default();
        for _ in 0..2 {
            let places: Vec<_> = (0..AT_ONCE).map(|_| refused.place().unwrap()).collect();
            assert!(refused.place().is_none());
            assert!(refused.place().is_none());
            drop(places);
        }
    }
}
