//! Readers for which the senders of a hub wait (`LagPolicy::Block`), as the service sees them: what each has taken, and
//! whether a sender has given it up. One that was given up gets no further event.

use std::collections::BTreeMap;
use std::sync::Mutex;

use bytes::Bytes;
use hyper::body::Frame;

use crate::hub::{HubTerms, PATIENCE};
use crate::world::World;

/// The readers of a hub whose events are plain text, by their requests.
#[derive(Debug, Default)]
pub(crate) struct Patience(Mutex<Readers>);

#[derive(Debug, Default)]
struct Readers {
    all: BTreeMap<u64, Reader>,
    wrong: Vec<String>,
}

#[derive(Debug, Default)]
struct Reader {
    /// The number of the event that it takes next, once it has taken one.
    next: Option<u64>,
    is_given_up: bool,
}

/// Returns the numbers of the events in a frame.
fn numbers(frame: &Bytes) -> impl Iterator<Item = u64> {
    let text = String::from_utf8_lossy(frame);
    let data = text.lines().filter_map(|line| line.strip_prefix("data: [")?.split(',').next()?.parse().ok());
    data.collect::<Vec<_>>().into_iter()
}

impl Patience {
    /// Records a frame that a reader takes.
    pub(crate) fn takes(&self, tag: u64, frame: Frame<Bytes>) -> Frame<Bytes> {
        let mut readers = self.0.lock().unwrap();
        let Readers { all, wrong } = &mut *readers;
        let reader = all.entry(tag).or_default();
        for number in frame.data_ref().into_iter().flat_map(numbers) {
            if reader.is_given_up {
                wrong.push(format!("reader {tag}, which was given up, gets event {number}"));
            }
            reader.next = Some(number + 1);
        }
        frame
    }

    /// Records that a sender has given up all readers that leave no room for an event behind `sent` others.
    fn gives_up(&self, terms: &HubTerms, sent: u64) {
        let mut readers = self.0.lock().unwrap();
        let slow = readers.all.values_mut().filter(|reader| reader.next.is_some_and(|next| next + terms.queue <= sent));
        slow.for_each(|reader| reader.is_given_up = true);
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.0.lock().unwrap().wrong.clone()
    }
}

impl World {
    /// Judges the time that a sender has waited for readers since `began`, before it sent an event behind `sent` others.
    pub(crate) fn has_waited(&self, began: u64, sent: u64) {
        let waited = self.net.now() - began;
        if waited >= PATIENCE {
            self.net.note(0, "a reader is given up", sent);
            self.gives_up();
            self.patience.gives_up(&self.terms.hub, sent);
        }
        if waited > PATIENCE + 1 {
            self.fault(0, format_args!("a sender has waited {waited} ms for readers"));
        }
    }
}
