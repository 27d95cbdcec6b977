//! Unit tests of `stats`.

use std::sync::Arc;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, subscriber};

use super::*;

struct Curious(Arc<Stats>, Mutex<Vec<bool>>);

impl Subscriber for Curious {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {
        assert!(self.0.0.try_lock().is_ok(), "logged under the lock");
        self.1.lock().unwrap().push(self.0.state((0, 0)).connected);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn who_is_told_may_ask_how_it_is() {
    let stats = Arc::new(Stats::default());
    let curious = Arc::new(Curious(Arc::clone(&stats), Mutex::default()));
    let error = (redis::ErrorKind::Io, "gone").into();
    subscriber::with_default(Arc::clone(&curious), || {
        (0..2).for_each(|_| stats.down(Part::Reader, "here", &error));
        (0..2).for_each(|_| stats.up(Part::Reader, "here"));
    });
    assert_eq!(*curious.1.lock().unwrap(), [false, true]);
}
