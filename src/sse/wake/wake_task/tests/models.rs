//! Senders that meet readers, in every order: `.ci/run models`.

use std::future::poll_fn;
use std::sync::atomic::AtomicU64 as Plain;

use loom::future::block_on;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::super::super::sinks::{Frames, Outcome};
use super::super::*;

/// A hub of one event, and how many events its readers know.
#[derive(Default)]
struct Hub {
    head: AtomicU64,
}

impl Hub {
    fn publish(&self) {
        self.head.store(1, Ordering::Release);
    }

    fn has_news(&self) -> bool {
        self.head.load(Ordering::Acquire) == 1
    }
}

#[test]
fn a_reader_sees_an_event_or_is_woken() {
    loom::model(|| {
        let (hub, group) = (Arc::<Hub>::default(), Group::new(None, 0, Beat::new(None, None), SinkList::default()));
        let mut member = group.join(None);
        let sender = thread::spawn({
            let (hub, group) = (Arc::clone(&hub), Arc::clone(&group));
            move || {
                hub.publish();
                group.wake();
            }
        });
        // A reader that waits without a wake-up blocks here, which fails the model.
        block_on(poll_fn(|cx| match member.wait(cx.waker(), || hub.has_news()) {
            Wait::News => Poll::Ready(()),
            _ => Poll::Pending,
        }));
        sender.join().unwrap();
    });
}

/// A reader without a task, which counts the passes that have sent its event.
struct Sink {
    hub: Arc<Hub>,
    sent: Arc<Plain>,
}

impl ReaderSink for Sink {
    fn send(&mut self, _: &mut Frames) -> Outcome {
        if self.hub.has_news() {
            self.sent.store(1, Ordering::Relaxed);
        }
        Outcome::Sent
    }

    fn send_comment(&mut self, _: &mut Frames) -> Outcome {
        Outcome::Idle
    }

    fn is_current(&self) -> bool {
        !self.hub.has_news()
    }

    fn is_aged(&self, _: Instant) -> bool {
        false
    }
}

#[test]
fn a_sink_gets_an_event_or_stays_with_its_task() {
    loom::model(|| {
        let (hub, sent) = (Arc::<Hub>::default(), Arc::<Plain>::default());
        let (list, waits) = (Arc::<SinkList>::default(), Arc::new(AtomicBool::new(false)));
        let sender = thread::spawn({
            let (hub, list, waits) = (Arc::clone(&hub), Arc::clone(&list), Arc::clone(&waits));
            move || {
                hub.publish();
                if waits.swap(false, Ordering::AcqRel) {
                    block_on(list.send(News::Events, &waits, &mut Turn::default()));
                }
            }
        });
        let sink = Box::new(Sink { hub, sent: Arc::clone(&sent) });
        let attached = list.enter(sink, Waker::noop(), &waits);
        sender.join().unwrap();
        assert!(attached.is_err() || sent.load(Ordering::Relaxed) == 1, "the event was not sent");
    });
}
