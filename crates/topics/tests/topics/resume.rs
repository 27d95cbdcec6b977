//! A client that is cut at any byte, and comes back with the last id of a whole event, gets what an undisturbed one gets.

use std::collections::HashMap;

use millstream::sse::{Event, Hub};
use millstream_topics::{Topics, TopicsBody};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const NAMES: [&str; 4] = ["a", "b,c=", "später", "later"];
/// The topic that does not exist in the beginning.
const LATER: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    /// Sends so many events of this length to a topic.
    Send(usize, usize, usize),
    /// Receives so many frames.
    Receive(usize),
    /// Receives one more frame, is cut behind this part of it, and comes back.
    Cut(prop::sample::Index),
    Insert,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..NAMES.len(), 1..20_usize, prop_oneof![1..200_usize, 5000..9000_usize]).prop_map(|(at, n, len)| Step::Send(at, n, len)),
        3 => (1..4_usize).prop_map(Step::Receive),
        3 => any::<prop::sample::Index>().prop_map(Step::Cut),
        1 => Just(Step::Insert),
    ]
}

/// A client, with what it has of whole events.
struct Client<'a> {
    topics: &'a Topics,
    body: TopicsBody,
    /// Bytes behind the last whole event.
    part: Vec<u8>,
    last: String,
    got: HashMap<String, Vec<String>>,
}

impl<'a> Client<'a> {
    fn query() -> String {
        NAMES
            .iter()
            .map(|name| format!("topic={}&", name.replace(',', "%2C").replace('=', "%3D").replace('ä', "%C3%A4")))
            .collect()
    }

    fn new(topics: &'a Topics) -> Self {
        let body = subscribe(topics, &Self::query(), None);
        let mut client = Self { topics, body, part: Vec::new(), last: String::new(), got: HashMap::new() };
        // The first frame has the first position.
        assert!(client.receive(1));
        client
    }

    fn take(&mut self, bytes: &[u8]) {
        self.part.extend_from_slice(bytes);
        let end = self.part.windows(2).rposition(|end| end == b"\n\n").map_or(0, |at| at + 2);
        let whole: Vec<u8> = self.part.drain(..end).collect();
        for got in events(std::str::from_utf8(&whole).unwrap()).0 {
            self.last.clone_from(&got.id);
            if !got.data.is_empty() {
                assert_eq!(got.name, "", "{got:?}");
                let text = got.data.trim_end_matches('x').to_owned();
                self.got.entry(got.topic().to_owned()).or_default().push(text);
            }
        }
    }

    /// Returns whether there were so many frames.
    fn receive(&mut self, frames: usize) -> bool {
        (0..frames).all(|_| frame(&mut self.body).map(|frame| self.take(&frame)).is_some())
    }

    fn come_back(&mut self, cut: prop::sample::Index) {
        if let Some(frame) = frame(&mut self.body) {
            self.take(&frame[..cut.index(frame.len())]);
        }
        self.part.clear();
        self.body = subscribe(self.topics, &Self::query(), Some(&self.last));
    }
}

proptest! {
    #[test]
    fn nothing_is_lost_or_doubled_by_cuts(steps in vec(step(), 1..60)) {
        let topics = Topics::public().wait_for_topics(true).build();
        let hubs = NAMES.map(|_| Hub::builder().queue(10_000).replay(10_000).build());
        for at in 0..LATER {
            topics.insert(NAMES[at], hubs[at].clone()).unwrap();
        }
        // Sent before the first reader, which does not get it.
        send(&hubs[0], "before");
        let mut client = Client::new(&topics);
        let mut sent = NAMES.map(|_| Vec::new());
        let mut is_inserted = false;
        for step in steps {
            match step {
                Step::Send(at, n, len) => {
                    for _ in 0..n {
                        let data = format!("{}:", sent[at].len());
                        let event = Event::new().data(data.clone() + &"x".repeat(len));
                        // One topic has ids of its own.
                        let event = if at == 1 { event.id(format!("id,{}=", sent[at].len())) } else { event };
                        if at != LATER || is_inserted {
                            hubs[at].send(event).unwrap();
                            sent[at].push(data);
                        }
                    }
                }
                Step::Receive(frames) => drop(client.receive(frames)),
                Step::Cut(cut) => client.come_back(cut),
                Step::Insert if is_inserted => {}
                Step::Insert => {
                    send(&hubs[LATER], "before");
                    topics.insert(NAMES[LATER], hubs[LATER].clone()).unwrap();
                    is_inserted = true;
                }
            }
        }
        client.receive(usize::MAX);
        for (at, topic) in ["a", "b%2Cc%3D", "sp%C3%A4ter", "later"].iter().enumerate() {
            prop_assert_eq!(client.got.remove(*topic).unwrap_or_default(), sent[at].clone(), "{}", topic);
        }
        prop_assert!(client.got.is_empty());
        drop(client);
        prop_assert_eq!(hubs.map(|hub| hub.stats().subscribers), [0; 4]);
    }
}
