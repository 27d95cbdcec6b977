//! A parser of event streams that follows the HTML standard literally, and a reader that polls a body by hand.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use hyper::body::Body;
use millstream::sse::EventBody;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub name: String,
    pub data: String,
    pub id: String,
}

impl Seen {
    /// Returns the number of missed events that a gap event reports.
    pub fn missed(&self) -> Option<u64> {
        self.field("missed").parse().ok()
    }

    pub fn reason(&self) -> &str {
        self.field("reason").trim_matches('"')
    }

    fn field(&self, name: &str) -> &str {
        assert_eq!(self.name, "gap", "{self:?}");
        let rest = &self.data[self.data.find(&format!("\"{name}\":")).expect("the field") + name.len() + 3..];
        &rest[..rest.find([',', '}']).expect("the end of the field")]
    }
}

/// The parser: "process the queue: if the field is".
#[derive(Debug, Default)]
pub struct Parser {
    text: Vec<u8>,
    event: Seen,
    has_data: bool,
    pub last_id: String,
    pub retry: Option<u64>,
    pub comments: usize,
}

impl Parser {
    /// Returns whether the stream has named a time of the default range.
    pub fn has_retry(&self) -> bool {
        self.retry.is_some_and(|retry| (1000..=3000).contains(&retry))
    }

    /// Parses bytes. Returns the completed events.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Seen> {
        self.text.extend_from_slice(bytes);
        let mut seen = Vec::new();
        // The hub ends its lines with LF.
        while let Some(end) = self.text.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.text.drain(..=end).collect();
            let line = String::from_utf8(line[..end].to_vec()).unwrap();
            assert!(!line.contains('\r'), "{line:?}");
            seen.extend(self.line(&line));
        }
        seen
    }

    fn line(&mut self, line: &str) -> Option<Seen> {
        if line.is_empty() {
            self.last_id.clone_from(&self.event.id);
            let mut event = std::mem::take(&mut self.event);
            self.event.id.clone_from(&event.id);
            if !std::mem::take(&mut self.has_data) {
                return None;
            }
            assert_eq!(event.data.pop(), Some('\n'));
            return Some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => self.comments += 1,
            "event" => self.event.name = value.to_owned(),
            "data" => {
                self.event.data += value;
                self.event.data.push('\n');
                self.has_data = true;
            }
            "id" if !value.contains('\0') => self.event.id = value.to_owned(),
            "retry" if value.bytes().all(|b| b.is_ascii_digit()) => self.retry = value.parse().ok(),
            _ => panic!("unexpected field: {line:?}"),
        }
        None
    }
}

#[derive(Debug, Default)]
pub struct Woken(AtomicUsize);

impl Woken {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[derive(Debug)]
pub struct Hand {
    pub body: EventBody,
    pub parser: Parser,
    pub ended: bool,
    pub frames: usize,
    woken: Arc<Woken>,
}

impl Hand {
    pub fn new(body: EventBody) -> Self {
        Self { body, parser: Parser::default(), ended: false, frames: 0, woken: Arc::default() }
    }

    pub fn woken(&self) -> usize {
        self.woken.count()
    }

    /// Reads one frame, if there is one. Returns its events.
    pub fn frame(&mut self) -> Option<Vec<Seen>> {
        let waker = Waker::from(Arc::clone(&self.woken));
        match Pin::new(&mut self.body).poll_frame(&mut Context::from_waker(&waker)) {
            Poll::Pending => None,
            Poll::Ready(None) => {
                self.ended = true;
                None
            }
            Poll::Ready(Some(Ok(frame))) => {
                self.frames += 1;
                Some(self.parser.feed(&frame.into_data().unwrap()))
            }
        }
    }

    pub fn read(&mut self) -> Vec<Seen> {
        let mut seen = Vec::new();
        while let Some(more) = self.frame() {
            seen.extend(more);
        }
        seen
    }

    pub fn data(&mut self) -> Vec<String> {
        self.read().into_iter().map(|seen| seen.data).collect()
    }
}
