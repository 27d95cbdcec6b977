//! Live readers. All readers of a stream are readers of one hub, which writes each event to their connections in one
//! pass. Earlier bytes are replayed from the store.
//!
//! The id of an event is the position behind it. With [`BEHIND`] in front of it, it is that of a reader which needs a
//! replay: one that begins, and is told where it is in any case, or one that has only a part of the stream.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use http_body_util::BodyExt;
use millstream::sse::log::{Log, LogFuture, Replay, ReplayError, Sink};
use millstream::sse::{Event, EventParts, FramedHub, Framing, Hub, LagPolicy, SendError};
use tokio::time::timeout;

use crate::body::{self, Body};
use crate::fields;
use crate::refusal::Refusal;
use crate::service::App;
use crate::store::{Kind, Store, Stream, View};

const BEHIND: char = '~';
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
/// Names of events: more bytes are there already, or none follow.
const MORE: &str = "more";
const CLOSED: &str = "closed";

/// The hub of a stream, while it has readers.
#[derive(Debug)]
pub(crate) struct Live {
    hub: Hub,
    framed: FramedHub,
    /// Where appends go, once the hub has begun.
    pub(crate) sink: Option<Sink>,
}

impl Live {
    /// Gives readers an append.
    pub(crate) fn deliver(&self, kind: Kind, end: u64, data: &[u8], closed: bool) {
        if let Some(sink) = &self.sink {
            // A reader may have closed the hub, because bytes are damaged.
            let _ = sink.deliver(&end.to_string(), &event(kind, name(closed), data));
        }
    }

    pub(crate) fn is_read(&self) -> bool {
        self.sink.is_none() || self.hub.stats().subscribers > 0
    }
}

impl App {
    pub(crate) fn events(&self, stream: &Arc<Stream>, at: u64, sent: Option<u64>) -> Response<Body> {
        let cursor = fields::cursor(sent);
        let subscribe = |live: &Live| {
            let request = Request::get("/").header("last-event-id", format!("{BEHIND}{at}")).body(());
            let request = request.expect("a number");
            // A reader whose cursor is not the common one does not share framed events.
            match cursor == fields::cursor(None) {
                true => live.framed.subscribe(&request),
                false => live.hub.framed(Form(cursor)).subscribe(&request),
            }
        };
        let mut response = match self.follow(stream, subscribe) {
            Some(response) => response.map(|events| events.map_err(|never| match never {}).boxed_unsync()),
            None => Response::new(self.closed_events(stream, at, cursor)),
        };
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, EVENTS);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if stream.kind == Kind::Binary {
            headers.insert(fields::SSE_ENCODING, HeaderValue::from_static("base64"));
        }
        response
    }

    /// Returns the events of a stream that has its last one.
    fn closed_events(&self, stream: &Arc<Stream>, at: u64, cursor: u64) -> Body {
        let tail = Tail { store: Arc::clone(&self.store), stream: Arc::clone(stream) };
        body::stream(stream::unfold((tail, cursor, Some(at)), async |(tail, cursor, at)| {
            let (event, end) = tail.event(at?).await.ok()?;
            let mut out = Vec::new();
            Form(cursor).frame(event.parts(), &mut out);
            let next = Some(end).filter(|_| event.parts().event == Some(MORE));
            Some((Ok(out.into()), (tail, cursor, next)))
        }))
    }

    /// Waits until there is more than `at`, the stream is closed or gone, or the time is over.
    pub(crate) async fn wait(&self, stream: &Arc<Stream>, at: u64) -> View {
        let news = async {
            while let Some(Ok(mut reader)) = self.follow(stream, |live| live.hub.subscribe_from(Some(&at.to_string())))
                && stream.view().end == at
            {
                reader.frame().await;
            }
        };
        tokio::select! {
            _ = timeout(self.long_poll, news) => {}
            () = self.ending.cancelled() => {}
        }
        stream.touch();
        stream.view()
    }

    /// Adds a reader to the hub of a stream. Returns `None` if it gets no more appends.
    fn follow<T>(&self, stream: &Arc<Stream>, subscribe: impl FnOnce(&Live) -> T) -> Option<T> {
        let begin = || {
            let tail = Tail { store: Arc::clone(&self.store), stream: Arc::clone(stream) };
            let hub = Hub::builder().lag_policy(LagPolicy::Disconnect).max_age(self.events).past_layers(true);
            let hub = hub.keep_alive(Duration::ZERO).log(tail).build();
            Live { framed: hub.framed(Form(0)), hub, sink: None }
        };
        stream.live(|live| subscribe(live.get_or_insert_with(begin)))
    }
}

/// The log of a hub: the stream itself.
#[derive(Clone, Debug)]
struct Tail {
    store: Arc<Store>,
    stream: Arc<Stream>,
}

impl Tail {
    /// Returns an event with the bytes from a position on, or without any at the end, and the position behind them.
    async fn event(&self, at: u64) -> Result<(Event, u64), Refusal> {
        // The end and the closure are read together, so a closed stream has no more bytes than these.
        let View { end, closed, .. } = self.stream.view();
        let bytes = if at < end { self.store.bytes(&self.stream, at, end).await? } else { Bytes::new() };
        let at = at + bytes.len() as u64;
        let name = if at < end { MORE } else { name(closed) };
        let id = if at < end { format!("{BEHIND}{at}") } else { at.to_string() };
        Ok((event(self.stream.kind, name, &bytes).id(id), at))
    }
}

impl Log for Tail {
    /// Appends come from the journal.
    fn append(&self, _: Event) -> Result<(), SendError> {
        Err(SendError::Closed)
    }

    fn order(&self, id: &str, other: &str) -> Option<Ordering> {
        if id.starts_with(BEHIND) { Some(Ordering::Less) } else { Some(position(id)?.cmp(&position(other)?)) }
    }

    fn run(self: Arc<Self>, sink: Sink) -> LogFuture<'static, ()> {
        Box::pin(async move {
            self.stream.begin_live(&sink);
            sink.closed().await;
        })
    }

    fn replay<'a>(&'a self, after: &'a str, _: &'a str, _: usize) -> LogFuture<'a, Result<Replay, ReplayError>> {
        Box::pin(async move {
            let at = position(after).ok_or(ReplayError::Unknown)?;
            match self.event(at).await {
                Ok((event, _)) => {
                    Ok(Replay::new(vec![(event.parts().id.unwrap_or_default().to_owned(), event)]).more(true))
                }
                // Readers must not go on behind bytes that they have not got.
                Err(_) => {
                    self.stream.end_live();
                    std::future::pending().await
                }
            }
        })
    }
}

fn position(id: &str) -> Option<u64> {
    id.trim_start_matches(BEHIND).parse().ok()
}

fn name(closed: bool) -> &'static str {
    if closed { CLOSED } else { "" }
}

/// Returns an event with the bytes, whatever is in them.
fn event(kind: Kind, name: &str, bytes: &[u8]) -> Event {
    let event = Event::new().event(name);
    if bytes.is_empty() {
        return event;
    }
    let text = || String::from_utf8_lossy(bytes).replace("\r\n", "\n").replace('\r', "\n");
    event.data(match kind {
        Kind::Binary => STANDARD.encode(bytes),
        Kind::Json => format!("[\n{}\n]", text().strip_suffix(",\n").unwrap_or_default()),
        Kind::Text => text(),
    })
}

/// The form on the wire: an event with the data, and one with the offset behind them. It has the least cursor.
#[derive(Debug)]
struct Form(u64);

impl Framing for Form {
    fn content_type(&self) -> HeaderValue {
        EVENTS
    }

    fn frame(&self, event: EventParts<'_>, to: &mut Vec<u8>) {
        let Some(at) = event.id.and_then(position) else { return };
        if let Some(data) = event.data {
            to.extend(b"event: data\n");
            for line in data.split('\n') {
                // A client removes one space.
                to.extend(if line.starts_with(' ') { &b"data: "[..] } else { b"data:" });
                to.extend(line.as_bytes());
                to.push(b'\n');
            }
            to.push(b'\n');
        }
        let offset = fields::offset_text(at);
        to.extend(b"event: control\ndata:{\"streamNextOffset\":\"");
        to.extend(offset.as_bytes());
        to.push(b'"');
        if event.event != Some(CLOSED) {
            let cursor = fields::cursor(None).max(self.0);
            to.extend(format!(",\"streamCursor\":\"{cursor}\"").as_bytes());
        }
        if event.event != Some(MORE) {
            to.extend(b",\"upToDate\":true");
        }
        if event.event == Some(CLOSED) {
            to.extend(b",\"streamClosed\":true");
        }
        to.extend(b"}\n\n");
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::subscriptions::Subscriptions;

    #[test]
    fn no_data_ends_an_event() {
        let event = |kind, bytes: &[u8]| {
            let (mut out, event) = (Vec::new(), event(kind, CLOSED, bytes).id("7"));
            Form(0).frame(event.parts(), &mut out);
            let control = "event: control\ndata:{\"streamNextOffset\":\"0000000000000000_0000000000000007\",";
            let end = format!("{control}\"upToDate\":true,\"streamClosed\":true}}\n\n");
            String::from_utf8(out).unwrap().strip_suffix(&end).unwrap().to_owned()
        };
        assert_eq!(event(Kind::Text, b"a\r\n\r b\n"), "event: data\ndata:a\ndata:\ndata:  b\ndata:\n\n");
        assert_eq!(event(Kind::Json, b"1,\n2,\n"), "event: data\ndata:[\ndata:1,\ndata:2\ndata:]\n\n");
        assert_eq!(event(Kind::Binary, &[0, 255]), "event: data\ndata:AP8=\n\n");
        assert_eq!(event(Kind::Binary, b""), "");
    }

    /// Reads until the text has so many control events.
    fn controls(client: &mut TcpStream, count: usize) -> String {
        let mut text = Vec::new();
        while String::from_utf8_lossy(&text).matches("streamNextOffset").count() < count {
            let mut part = [0; 1024];
            let len = client.read(&mut part).unwrap();
            assert!(len > 0, "the stream has ended");
            text.extend(&part[..len]);
        }
        String::from_utf8(text).unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_hub_writes_to_its_readers() {
        const READERS: usize = 5;
        let dir = tempfile::tempdir().unwrap();
        let (store, end) = Store::open(dir.path(), 8 << 20, 10).await.unwrap();
        let (commits, path) = (Arc::clone(&store), dir.path().to_owned());
        tokio::spawn(async move { commits.journal.run(path, end).await });
        let (hour, service) = (Duration::from_secs(3600), Arc::clone(&store));
        let subscriptions = Subscriptions::open(Arc::clone(&store), dir.path(), false, None).unwrap();
        let app = Arc::new(App::new(service, subscriptions, 1 << 20, hour, hour, None));
        let listener = millstream::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = tower::service_fn(move |request| Arc::clone(&app).answer(request));
        tokio::spawn(millstream::server::serve(listener, service).into_future());
        let ask = move |head: &str| {
            let mut client = TcpStream::connect(address).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            write!(client, "{head}host: x\r\ncontent-type: text/plain\r\n\r\n").unwrap();
            client
        };
        let begin = move || {
            let mut answer = [0; 12];
            ask("PUT /s HTTP/1.1\r\n").read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"HTTP/1.1 201");
            let mut readers: Vec<_> = (0..READERS).map(|_| ask("GET /s?offset=now&live=sse HTTP/1.1\r\n")).collect();
            readers.iter_mut().for_each(|reader| drop(controls(reader, 1)));
            readers
        };
        let mut readers = tokio::task::spawn_blocking(begin).await.unwrap();
        let stream = store.get("/s").unwrap();
        // The connections give their sockets to the hub when they wait.
        let is_direct = async {
            while stream.live(|live| live.as_ref().unwrap().hub.stats().direct).unwrap() < READERS {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(timeout(Duration::from_secs(60), is_direct).await.is_ok(), "the tasks of the connections write");
        stream.publish(b"news", false, 9);
        stream.publish(b"", true, 10);
        let read = move || readers.iter_mut().map(|reader| controls(reader, 2)).collect::<Vec<_>>();
        for text in tokio::task::spawn_blocking(read).await.unwrap() {
            assert!(
                text.contains("event: data\ndata:news\n\n") && text.contains("\"streamClosed\":true}\n\n"),
                "{text}"
            );
        }
    }
}
