//! `Last-Event-ID` of any text, and events with any fields, through a hub: an independent reader of event streams sees every
//! event behind the id once, in order, or is told of a gap.
#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body_util::BodyExt;
use libfuzzer_sys::fuzz_target;
use millstream::sse::{Event, Hub};
use millstream_fuzz::events::{Seen, read};
use millstream_fuzz::run;

/// Number of events that the ring keeps.
const KEPT: usize = 8;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    gzip: bool,
    steps: Vec<Step<'a>>,
}

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    Send {
        data: Option<&'a str>,
        name: Option<&'a str>,
        id: Option<&'a str>,
        retry: Option<u16>,
        comment: Option<&'a str>,
    },
    /// A reader that has the event with this number, counted from the last one.
    After {
        back: u8,
        by_query: bool,
    },
    /// A reader with any id.
    With {
        id: &'a [u8],
        by_query: bool,
    },
    New,
}

#[derive(Debug)]
struct Sent {
    seen: Seen,
    /// Browsers dispatch nothing without.
    has_data: bool,
}

/// Decodes a stream. One that has not ended is cut behind a flush, so that all of it can be decoded.
fn unpack(bytes: &[u8], has_ended: bool) -> Vec<u8> {
    let mut plain = Vec::new();
    match std::io::copy(&mut flate2::read::MultiGzDecoder::new(bytes), &mut plain) {
        Ok(_) => {}
        Err(e) => assert!(!has_ended && e.kind() == std::io::ErrorKind::UnexpectedEof, "{e}"),
    }
    plain
}

/// Encodes all bytes for a query.
fn query(id: &[u8]) -> String {
    id.iter().map(|byte| format!("%{byte:02X}")).collect()
}

fuzz_target!(|input: Input<'_>| {
    let mut hub = Hub::builder().replay(KEPT).queue(KEPT).keep_alive(Duration::ZERO);
    if input.gzip {
        hub = hub.gzip(1);
    }
    let hub = hub.build();
    let mut sent: Vec<Sent> = Vec::new();
    let mut readers = Vec::new();
    run(async {
        for step in input.steps.iter().take(50) {
            let (id, by_query) = match step {
                Step::Send { data, name, id, retry, comment } => {
                    let mut event = Event::new();
                    if let Some(data) = data {
                        event = event.data(*data);
                    }
                    if let Some(name) = name {
                        event = event.event(*name);
                    }
                    if let Some(id) = id {
                        event = event.id(*id);
                    }
                    if let Some(retry) = retry {
                        event = event.retry(Duration::from_millis((*retry).into()));
                    }
                    if let Some(comment) = comment {
                        event = event.comment(*comment);
                    }
                    let is_line = |text: &str| !text.contains(['\r', '\n', '\0']);
                    // A reader sends it back in a header.
                    let is_id = |id: &str| {
                        let is_field = id.trim_matches(' ') == id && !id.contains(|c: char| c.is_ascii_control());
                        (1..=1024).contains(&id.len()) && is_field
                    };
                    let is_good = id.is_none_or(is_id) && name.is_none_or(is_line);
                    let answer = hub.send(event);
                    assert_eq!(answer.is_ok(), is_good, "{step:?}");
                    if let Ok(id) = answer {
                        let has_data = data.is_some();
                        let data = data.unwrap_or_default().replace("\r\n", "\n").replace('\r', "\n");
                        let (name, id) = (name.unwrap_or_default().to_owned(), id.id().unwrap());
                        sent.push(Sent { seen: Seen { name, data, id }, has_data });
                    }
                    continue;
                }
                Step::After { back, by_query } => {
                    let Some(at) = sent.len().checked_sub(usize::from(*back % 16) + 1) else { continue };
                    (sent[at].seen.id.clone().into_bytes(), *by_query)
                }
                Step::With { id, by_query } => (id.to_vec(), *by_query),
                Step::New => (Vec::new(), false),
            };
            let mut request = Request::new(());
            if by_query {
                *request.uri_mut() = format!("/?lastEventId={}", query(&id)).parse().unwrap();
            } else if let Ok(value) = HeaderValue::from_bytes(&id) {
                request.headers_mut().insert("last-event-id", value);
            } else {
                continue;
            }
            request.headers_mut().insert("accept-encoding", HeaderValue::from_static("gzip"));
            let response = hub.subscribe(&request);
            assert_eq!(response.headers().contains_key("content-encoding"), input.gzip);
            // An id without meaning starts with the next event.
            let id = String::from_utf8(id).ok();
            readers.push((id.unwrap_or_default(), sent.len(), response.into_body()));
            if readers.len() >= 8 {
                check(readers.remove(0), &sent, input.gzip).await;
            }
        }
        hub.close();
        for reader in readers {
            check(reader, &sent, input.gzip).await;
        }
    });
});

async fn check((id, at, body): (String, usize, millstream::sse::EventBody), sent: &[Sent], gzip: bool) {
    let mut body = body;
    let mut stream = Vec::new();
    let mut frames = async || {
        while let Some(frame) = body.frame().await {
            let frame: Bytes = frame.expect("no error").into_data().expect("data");
            stream.extend_from_slice(&frame);
        }
    };
    // A hub that is still open does not end the stream: what is ready is taken.
    let has_ended = futures_util::future::poll_immediate(std::pin::pin!(frames())).await.is_some();
    let stream = if gzip { unpack(&stream, has_ended) } else { stream };
    let mut seen = read(&stream);
    // What the hub reports of itself comes first: that events behind an id are gone, and that the reader was too slow. An
    // event of the service may have the same name, but has an id.
    let gaps = seen.iter().take_while(|seen| seen.name == "gap" && seen.id.is_empty()).count();
    assert!(gaps <= 2, "{seen:?}");
    let gap = seen.drain(..gaps).next();
    let known = sent[..at].iter().rposition(|event| event.seen.id == id && !id.is_empty());
    let oldest = at.saturating_sub(KEPT);
    let visible = |events: &[Sent]| {
        events.iter().filter(|event| event.has_data).map(|event| event.seen.clone()).collect::<Vec<_>>()
    };
    if sent.len() - at > KEPT {
        // The reader was too slow: it has seen nothing of what was sent since.
        assert!(gap.is_some(), "{seen:?} of {sent:?} from {at}");
        assert!(
            visible(&sent[sent.len() - KEPT..]).ends_with(&seen[..]) || visible(sent).ends_with(&seen[..]),
            "{seen:?} of {sent:?}"
        );
        return;
    }
    match known {
        Some(known) if known + 1 >= oldest => {
            // The ring may have dropped events since the reader came.
            let first = (known + 1).max(sent.len().saturating_sub(KEPT));
            assert_eq!(gap.is_some(), first > known + 1, "{gap:?} behind {known} of {sent:?}");
            assert_eq!(seen, visible(&sent[first..]), "behind {known} of {sent:?}");
        }
        // Nothing is repeated or out of order.
        _ => assert!(visible(sent).ends_with(&seen[..]), "{seen:?} of {sent:?}"),
    }
}
