//! Streamed answers: each is a keyed stream, which outlives the request that has started it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, Request};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use millstream::body::GracefulClose;
use millstream::sse::{Event, EventBody};
use millstream_resumable::{StreamSender, Streams};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::error::ApiError;
use crate::events::Parser;
use crate::keys::Key;
use crate::upstream::Upstreams;

/// The field with the id of a generation.
pub(crate) const GENERATION_ID: HeaderName = HeaderName::from_static("x-generation-id");

/// Shortest time without readers. The first one attaches after the start.
const GRACE_LEAST: Duration = Duration::from_secs(1);
/// Answers of a key that are kept.
const STREAMS: usize = 1000;
/// Events of the longest answer, and their bytes. An event of one token has about 250.
const EVENTS: usize = 200_000;
const BYTES: usize = 64 << 20;

const DONE: &str = "[DONE]";

/// The generations of a key in the last minutes.
#[derive(Debug)]
pub(crate) struct Generations {
    streams: Streams,
    /// Running generations by id.
    running: Arc<Mutex<HashMap<String, Running>>>,
}

#[derive(Debug)]
struct Running {
    sender: StreamSender,
    model: String,
}

impl Generations {
    pub(crate) fn new(grace: Duration, ping: Duration, ttl: Duration) -> Self {
        let streams = Streams::builder()
            .streams(STREAMS)
            .events(EVENTS)
            .bytes(BYTES)
            .abandoned(grace.max(GRACE_LEAST))
            .keep_alive(ping);
        Self { streams: streams.ttl(ttl).past_layers(true).build(), running: Arc::default() }
    }

    /// Starts a generation from the events of an upstream, and answers with them. `permit` is dropped at its end.
    pub(crate) fn start(
        &self,
        key: &Key,
        model: String,
        upstreams: Arc<Upstreams>,
        body: Body,
        permit: OwnedSemaphorePermit,
    ) -> Result<Response, ApiError> {
        let id = new_id()?;
        let listed = Listed { running: Arc::clone(&self.running), id: id.clone() };
        let stream = self.streams.get_or_start(&id, key.owner(), |sender| {
            listed.running().insert(id.clone(), Running { sender: sender.clone(), model });
            async move {
                let _until_the_end = (listed, permit);
                relay(&upstreams, body, &sender).await
            }
        })?;
        let body = stream.attach_from(None)?;
        let fields = [
            (CONTENT_TYPE, "text/event-stream".to_owned()),
            (CACHE_CONTROL, "no-cache, no-transform".to_owned()),
            (HeaderName::from_static("x-accel-buffering"), "no".to_owned()),
            (GENERATION_ID, id),
        ];
        Ok((fields, Body::new(body)).into_response())
    }

    /// Answers a request for the events of a generation, from the first one or behind `Last-Event-ID`.
    pub(crate) fn attach(&self, request: &Request<Body>, id: &str, key: &Key) -> Result<Response<EventBody>, ApiError> {
        let mut response = self.streams.get(id, key.owner())?.attach(request);
        // A generation ends soon, and another process does not have it: it is served during a drain.
        response.extensions_mut().remove::<GracefulClose>();
        Ok(response)
    }

    /// Ends a generation. Its readers get the end of a shorter answer.
    pub(crate) fn stop(&self, id: &str, key: &Key) -> Result<(), ApiError> {
        let stream = self.streams.get(id, key.owner())?;
        let running = lock(&self.running).remove(id);
        if let Some(Running { sender, model }) = running {
            for data in [last_chunk(id, &model), DONE.to_owned()] {
                // It may have ended meanwhile.
                let _ = sender.send(Event::new().data(data));
            }
        }
        stream.stop();
        Ok(())
    }

    /// Returns the number of generations that run.
    pub(crate) fn running(&self) -> usize {
        self.streams.stats().running
    }

    #[cfg(test)]
    pub(crate) fn listed(&self) -> usize {
        lock(&self.running).len()
    }
}

/// Takes a generation out of the list at its end.
struct Listed {
    running: Arc<Mutex<HashMap<String, Running>>>,
    id: String,
}

impl Listed {
    fn running(&self) -> MutexGuard<'_, HashMap<String, Running>> {
        lock(&self.running)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let running = self.running().remove(&self.id);
        // Without the lock.
        drop(running);
    }
}

fn lock(running: &Mutex<HashMap<String, Running>>) -> MutexGuard<'_, HashMap<String, Running>> {
    running.lock().expect("never poisoned")
}

/// Passes events on as they come. An error becomes the last event, because the status has been sent.
async fn relay(upstreams: &Upstreams, body: Body, sender: &StreamSender) -> Result<(), String> {
    match pass(upstreams, body, sender).await {
        Ok(body) => {
            // The rest of the framing, so that the connection can be used again.
            tokio::spawn(timeout(Duration::from_secs(1), discard(body)));
            Ok(())
        }
        Err(error) => {
            // The stream may be the one that ended.
            let _ = sender.send(Event::new().data(error.json()));
            Err(error.message().to_owned())
        }
    }
}

/// Most bytes behind the last event for which a connection is kept.
const REST_MAX: usize = 64 << 10;

/// Reads the rest of a body. A long rest is dropped with its connection.
async fn discard(mut body: Body) {
    let mut left = REST_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        let len = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(len) else { return };
        left = rest;
    }
}

/// Returns the rest of the body after the last event.
async fn pass(upstreams: &Upstreams, mut body: Body, sender: &StreamSender) -> Result<Body, ApiError> {
    let mut parser = Parser::default();
    while let Some(bytes) = upstreams.bytes(&mut body).await? {
        for event in parser.push(&bytes).map_err(ApiError::upstream)? {
            let is_last = event.data == DONE;
            sender.send(event.into()).map_err(|error| ApiError::upstream(error.to_string()))?;
            if is_last {
                return Ok(body);
            }
        }
    }
    Err(ApiError::upstream("the answer of the upstream ended before its last event"))
}

/// Returns the id of a new generation. Without keys the id protects the answer.
fn new_id() -> Result<String, ApiError> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| ApiError::upstream(format!("there are no random numbers: {error}")))?;
    Ok(format!("gen-{:032x}", u128::from_ne_bytes(id)))
}

/// Returns the last chunk of an answer that was stopped.
fn last_chunk(id: &str, model: &str) -> String {
    let created = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_secs());
    let choice = json!({"index": 0, "delta": {}, "finish_reason": "stop"});
    json!({"id": id, "object": "chat.completion.chunk", "created": created, "model": model, "choices": [choice]})
        .to_string()
}
