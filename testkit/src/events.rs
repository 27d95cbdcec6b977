//! Readers of event streams.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::time::timeout;

/// An event as a browser sees it, or a comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Got {
    pub id: Option<String>,
    pub event: Option<String>,
    pub data: String,
}

impl Got {
    pub fn is_gap(&self) -> bool {
        self.event.as_deref() == Some("gap")
    }
}

/// A reader of a body that remembers the last id.
#[derive(Debug)]
pub struct Reader<B> {
    body: B,
    text: String,
    ready: VecDeque<Got>,
    pub last: Option<String>,
    pub comments: usize,
}

impl<B: Body<Data = Bytes> + Unpin> Reader<B> {
    pub fn new(body: B) -> Self {
        Self { body, text: String::new(), ready: VecDeque::new(), last: None, comments: 0 }
    }

    /// Returns the next event; `None` if the stream ends or fails.
    pub async fn try_next(&mut self) -> Option<Got> {
        loop {
            if let Some(got) = self.ready.pop_front() {
                self.last = got.id.clone().or(self.last.take());
                return Some(got);
            }
            let frame = self.body.frame().await?.ok()?;
            self.take(&frame.into_data().ok()?);
        }
    }

    /// Returns the next event. Panics after a long timeout.
    pub async fn next(&mut self) -> Got {
        let next = timeout(crate::HANGS, self.try_next()).await;
        next.expect("an event comes").expect("the stream goes on")
    }

    /// Returns the data of this many events. Panics on a gap.
    pub async fn data(&mut self, events: usize) -> Vec<String> {
        let mut all = Vec::with_capacity(events);
        for _ in 0..events {
            let got = self.next().await;
            assert!(!got.is_gap(), "{got:?} after {all:?}");
            all.push(got.data);
        }
        all
    }

    /// Returns the events up to the one with this data. Panics after a long timeout.
    pub async fn until(&mut self, data: &str) -> Vec<Got> {
        let mut all = Vec::new();
        while all.last().is_none_or(|got: &Got| got.data != data) {
            all.push(self.next().await);
        }
        all
    }

    /// Returns all events up to the end.
    pub async fn all(&mut self) -> Vec<Got> {
        let mut all = Vec::new();
        while let Some(got) = self.try_next().await {
            all.push(got);
        }
        all
    }

    /// Returns all events until nothing has arrived for `quiet`: for events that must not come. Those that must may be
    /// late.
    pub async fn rest(&mut self, quiet: Duration) -> Vec<Got> {
        let mut all = Vec::new();
        while let Ok(Some(got)) = timeout(quiet, self.try_next()).await {
            all.push(got);
        }
        all
    }

    fn take(&mut self, bytes: &[u8]) {
        self.text.push_str(std::str::from_utf8(bytes).expect("frames hold whole characters"));
        loop {
            // A comment between two events ends with its line.
            if self.text.starts_with(':')
                && let Some(end) = self.text.find('\n')
            {
                self.text.drain(..=end);
                self.comments += 1;
                continue;
            }
            let Some(end) = self.text.find("\n\n") else { return };
            let text: String = self.text.drain(..end + 2).collect();
            let mut got = Got::default();
            let mut is_event = false;
            for line in text.lines() {
                match line.split_once(':').map(|(field, value)| (field, value.strip_prefix(' ').unwrap_or(value))) {
                    Some(("", _)) => self.comments += 1,
                    Some(("id", id)) => got.id = Some(id.to_owned()),
                    Some(("event", event)) => (got.event, is_event) = (Some(event.to_owned()), true),
                    Some(("data", data)) => {
                        got.data.push_str(if !got.data.is_empty() { "\n" } else { "" });
                        got.data.push_str(data);
                        is_event = true;
                    }
                    _ => {}
                }
            }
            if is_event {
                self.ready.push_back(got);
            }
        }
    }
}
