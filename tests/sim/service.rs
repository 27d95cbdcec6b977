//! The service behind the simulated server. All of its bodies follow from the path.
//!
//! | path | response |
//! |---|---|
//! | `/fixed/TAG/LEN` | a body with a length |
//! | `/shrinks/TAG/LEN/PAGES/MILLIS` | the same, of a file that has PAGES pages after a time |
//! | `/stream/TAG/COUNT/LEN/GAP` | COUNT pieces of LEN bytes, one each GAP milliseconds; over HTTP/1 with trailer fields |
//! | `/torn/TAG/COUNT/LEN/GAP` | the same, with an error behind them |
//! | `/late/TAG/MILLIS` | a small body, after a time |
//! | `/events/TAG` | the events of a hub, compressed for clients that accept gzip |
//! | `/layered/TAG` | the same, with a comment before each frame |
//! | `/lines/TAG` | the same as JSON lines |
//! | `/tokens/TAG/GAP` | a stream of events with comments between them, a piece each GAP milliseconds |
//! | `/drained/TAG/GAP` | the same, until the server drains |
//! | `/upload/TAG/MILLIS` | the body of the request, a time after its end, and 500 if it ends early |
//! | `/hoard/TAG/MILLIS` | the same, read after a time |
//! | `/unread/TAG` | 413 at once; the body of the request is not read |
//! | `/brief/TAG` | the events of a hub that is dropped at once |
//! | `/gone/TAG` | a small body; a task waits until the client has left |
//!
//! The calls are counted by their tags. No client asks for another path.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TRAILER, TRANSFER_ENCODING};
use hyper::{Request, Response, StatusCode, Version};
use millstream::body::FileBody;
use millstream::fs::File;
use millstream::server::{Connection, RequestBody, until_drain};
use millstream::sse::{Event, FramedHub, Hub, JsonLines, KeepAlive, LagPolicy};
use testkit::http::{Answer, AnyBody, BoxError, boxed};
use testkit::sim::{bytes_of, from};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::hub::HubTerms;
use crate::patience::Patience;
use crate::tokens;

/// The trailer fields that a client gets that takes them.
pub(crate) const TRAILERS: &str = "x-sum: 1\r\n";

/// Returns that one, one that no trailer may have, and one that is not announced.
fn trailers() -> HeaderMap {
    let names = [HeaderName::from_static("x-sum"), CONTENT_TYPE, HeaderName::from_static("x-other")];
    names.map(|name| (name, HeaderValue::from_static("1"))).into_iter().collect()
}

#[derive(Clone, Debug)]
pub(crate) struct Service {
    hub: Hub,
    lines: FramedHub,
    /// Readers that the hub takes.
    subscribers: usize,
    /// Whether senders wait for readers, of whose bodies others are made.
    watches: bool,
    pub(crate) calls: Arc<Calls>,
    /// Watches most of the readers of text.
    pub(crate) patience: Arc<Patience>,
    /// A file of [`all_bytes`](testkit::sim::all_bytes), from which half of the bodies with a length are.
    file: Option<File>,
    /// Tasks that wait until a client has left.
    pub(crate) waiting: Arc<AtomicUsize>,
}

/// How often the service was called for each request.
#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    made: BTreeMap<u64, u32>,
    forbidden: BTreeSet<u64>,
    /// Calls that are in progress, with their responses.
    open: BTreeSet<u64>,
    /// Paths that no client asks for.
    strange: Vec<String>,
    /// Readers that the hub has refused, and should not have taken or refused.
    refused: u64,
    wrong: Vec<String>,
    /// Ids of readers that are too long.
    bad_ids: u64,
}

/// A call in progress.
struct Call(u64, Arc<Calls>);

impl Drop for Call {
    fn drop(&mut self) {
        self.1.0.lock().unwrap().open.remove(&self.0);
    }
}

impl Calls {
    fn begin(self: &Arc<Self>, tag: u64) -> Call {
        let mut counts = self.0.lock().unwrap();
        *counts.made.entry(tag).or_default() += 1;
        counts.open.insert(tag);
        Call(tag, Arc::clone(self))
    }

    /// Returns whether the service works on a request, or has not sent all of its response.
    pub(crate) fn is_open(&self, tag: u64) -> bool {
        self.0.lock().unwrap().open.contains(&tag)
    }

    pub(crate) fn of(&self, tag: u64) -> u32 {
        self.0.lock().unwrap().made.get(&tag).copied().unwrap_or(0)
    }

    /// Returns the number of requests that were executed.
    pub(crate) fn count(&self) -> u64 {
        self.0.lock().unwrap().made.len() as u64
    }

    /// Returns the number of readers that the hub has refused at its limit.
    pub(crate) fn refused(&self) -> u64 {
        self.0.lock().unwrap().refused
    }

    /// Returns the number of readers whose ids the hub has ignored.
    pub(crate) fn bad_ids(&self) -> u64 {
        self.0.lock().unwrap().bad_ids
    }

    /// Records a request that must not be executed.
    pub(crate) fn forbid(&self, tag: u64) {
        self.0.lock().unwrap().forbidden.insert(tag);
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        let counts = self.0.lock().unwrap();
        let calls = counts.made.iter().filter_map(|(tag, &calls)| match counts.forbidden.contains(tag) {
            true => Some(format!("request {tag} was executed, which must not be")),
            false => (calls > 1).then(|| format!("request {tag} was executed {calls} times")),
        });
        let calls = calls.chain(counts.wrong.iter().cloned());
        calls.chain(counts.strange.iter().map(|path| format!("a request that no client sends: {path:?}"))).collect()
    }
}

/// Counts a waiting task until it ends.
struct Waits(Arc<AtomicUsize>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Service {
    pub(crate) fn new(hub: &Hub, terms: &HubTerms, file: Option<File>) -> Self {
        let lines = hub.framed(JsonLines::new().with_ids());
        let (calls, patience, waiting) = (Arc::default(), Arc::default(), Arc::default());
        let watches = terms.policy == LagPolicy::Block && !terms.past_layers;
        Self { hub: hub.clone(), lines, subscribers: terms.subscribers, watches, calls, patience, file, waiting }
    }

    /// Returns the same service with another hub.
    #[cfg(not(portable))]
    pub(crate) fn of(&self, hub: &Hub) -> Self {
        Self { hub: hub.clone(), lines: hub.framed(JsonLines::new().with_ids()), ..self.clone() }
    }

    /// Returns the events of the hub, which refuses a reader if it has as many as it takes, or is closed.
    fn subscribe(&self, kind: &str, tag: u64, request: &Request<RequestBody>) -> Answer {
        let before = self.hub.stats();
        let response = match kind {
            "lines" => self.lines.subscribe(request),
            _ => self.hub.subscribe(request),
        };
        let after = self.hub.stats();
        let is_full = before.subscribers >= self.subscribers;
        let is_refused = response.status() == StatusCode::SERVICE_UNAVAILABLE;
        let mut counts = self.calls.0.lock().unwrap();
        counts.refused += after.refused - before.refused;
        let has_bad_id = request.headers().get("last-event-id").is_some_and(|id| id.len() > 1_024);
        counts.bad_ids += u64::from(has_bad_id && !is_refused);
        let taken = (after.subscribers - before.subscribers, after.refused - before.refused);
        let is_right = match (is_refused, is_full) {
            (true, true) if taken == (0, 1) => true,
            // Closed.
            (true, _) => taken == (0, 0) && self.hub.send(Event::new().data("")).is_err(),
            (false, _) => taken == (1, 0) && !is_full,
        };
        if !is_right {
            counts.wrong.push(format!("a reader is refused or not, {is_refused}: {before:?}, {after:?}"));
        }
        let mut response = match kind {
            "layered" => response.map(|body| boxed(body.map_frame(commented))),
            "events"
                if !tag.is_multiple_of(4) && self.watches && !response.headers().contains_key(CONTENT_ENCODING) =>
            {
                let patience = Arc::clone(&self.patience);
                response.map(|body| boxed(body.map_frame(move |frame| patience.takes(tag, frame))))
            }
            _ => response.map(boxed),
        };
        response.headers_mut().insert("x-tag", tag.into());
        response
    }

    /// Waits for a time. Only a drain is announced meanwhile.
    async fn wait(&self, request: &Request<RequestBody>, time: Duration) {
        let (until, connection) = (Instant::now() + time, request.extensions().get::<Connection>());
        let signal = connection.expect("a connection").drain_signal().expect("a server");
        if timeout_at(until, signal.draining()).await.is_ok() {
            if !signal.is_draining() {
                self.calls.0.lock().unwrap().wrong.push("a drain is announced, which there is not".to_owned());
            }
            sleep_until(until).await;
        }
    }

    pub(crate) async fn answer(self, request: Request<RequestBody>) -> Result<Answer, BoxError> {
        let path = request.uri().path().to_owned();
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let number = |at: usize| parts.get(at).and_then(|part| part.parse::<u64>().ok()).unwrap_or(0);
        let tag = number(1);
        let call = self.calls.begin(tag);
        let small = || boxed(Full::new(Bytes::from(bytes_of(tag, 5))));
        let body = match parts[0] {
            "fixed" if tag % 2 == 0 && self.file.is_some() => {
                let (file, begin) = (self.file.as_ref().expect("a file"), from(tag) as u64);
                boxed(FileBody::new(file, begin..begin + number(2))?)
            }
            "shrinks" if self.file.is_some() => shrinking(tag, number(2), number(3) * 4_096, number(4)).await?,
            "fixed" | "shrinks" => boxed(Full::new(Bytes::from(bytes_of(tag, number(2) as usize)))),
            kind @ ("stream" | "torn") => {
                let (count, len, gap) = (number(2), number(3) as usize, Duration::from_millis(number(4)));
                let all = bytes_of(tag, len * count as usize);
                let (torn, is_two) = (kind == "torn", request.version() == Version::HTTP_2);
                let pieces = stream::unfold((0, Bytes::from(all), call), move |(at, mut rest, call)| async move {
                    if at == count {
                        let trailers = (!is_two).then(|| Ok(Frame::trailers(trailers())));
                        let end = if torn { Some(Err(io::Error::other("torn"))) } else { trailers };
                        return end.map(|end| (end, (at + 1, rest, call)));
                    }
                    if at > count {
                        return None;
                    }
                    if !gap.is_zero() {
                        sleep(gap).await;
                    }
                    let piece = rest.split_to(len.min(rest.len()));
                    Some((Ok(Frame::data(piece)), (at + 1, rest, call)))
                });
                boxed(StreamBody::new(pieces))
            }
            "late" => {
                self.wait(&request, Duration::from_millis(number(2))).await;
                small()
            }
            kind @ ("events" | "layered" | "lines") => return Ok(self.subscribe(kind, tag, &request)),
            kind @ ("tokens" | "drained") => {
                let mut response = Response::new(KeepAlive::new(tokens::body(tag, number(2)), tokens::PERIOD));
                let fields = response.headers_mut();
                fields.insert("x-tag", tag.into());
                fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
                return Ok(match kind {
                    "tokens" => response.map(boxed),
                    _ => until_drain(response).map(boxed),
                });
            }
            kind @ ("upload" | "hoard") => {
                if kind == "hoard" {
                    sleep(Duration::from_millis(number(2))).await;
                }
                let body = request.into_body().collect().await?;
                let body = body.to_bytes();
                if kind == "upload" {
                    sleep(Duration::from_millis(number(2))).await;
                }
                let mut response = Response::new(match tag % 3 {
                    // Of unknown length. It is pending first, as a body is that waits for others.
                    0 => boxed(StreamBody::new(stream::once(async {
                        yield_now().await;
                        Ok::<_, io::Error>(Frame::data(body))
                    }))),
                    _ => boxed(Full::new(body)),
                });
                response.headers_mut().insert("x-tag", tag.into());
                return Ok(response);
            }
            "brief" => {
                let hub = Hub::builder().build();
                let response = hub.subscribe(&request).map(boxed);
                hub.send(Event::new().data("brief")).expect("an open hub");
                return Ok(response);
            }
            "unread" => {
                let mut response = Response::new(small());
                *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
                response.headers_mut().insert("x-tag", tag.into());
                return Ok(response);
            }
            "gone" => {
                let connection = request.extensions().get::<Connection>().expect("a connection").clone();
                self.waiting.fetch_add(1, Ordering::Relaxed);
                let waits = Waits(Arc::clone(&self.waiting));
                tokio::spawn(async move {
                    connection.gone().await;
                    drop(waits);
                });
                small()
            }
            _ => {
                self.calls.0.lock().unwrap().strange.push(path.clone());
                small()
            }
        };
        let mut response = Response::new(body);
        response.headers_mut().insert("x-tag", tag.into());
        // The service chooses the framing itself, which it can for HTTP/1.1.
        if parts[0] == "late" && tag.is_multiple_of(2) && request.version() == Version::HTTP_11 {
            response.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        if parts[0] == "stream" {
            response.headers_mut().insert(TRAILER, HeaderValue::from_static("x-sum, content-type"));
        }
        Ok(response)
    }
}

/// Returns the body of a file that has `to` bytes in `soon` milliseconds.
async fn shrinking(tag: u64, len: u64, to: u64, soon: u64) -> io::Result<AnyBody> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), bytes_of(tag, len as usize))?;
    let body = FileBody::new(&File::open(file.path()).await?, ..)?;
    tokio::spawn(async move {
        sleep(Duration::from_millis(soon)).await;
        file.as_file().set_len(to).expect("a file that can shrink");
    });
    Ok(boxed(body))
}

/// A layer that adds a comment.
fn commented(frame: Frame<Bytes>) -> Frame<Bytes> {
    frame.map_data(|data| [b":\n", &data[..]].concat().into())
}
