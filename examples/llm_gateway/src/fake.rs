//! A model that answers with the words of the prompt: the same answer to the same prompt, at a pace.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::chat::{self, ChatRequest, Content, Message};
use crate::error::ApiError;
use crate::gateway::{COMPLETIONS, LONGEST, MODELS};

/// The options of the model, and its requests in progress.
#[derive(Clone, Debug)]
pub(crate) struct Fake {
    /// Time between two tokens.
    pub(crate) pace: Duration,
    /// Time before the first token.
    pub(crate) think: Duration,
    running: Arc<AtomicUsize>,
}

impl Fake {
    pub(crate) fn new(pace: Duration, think: Duration) -> Self {
        Self { pace, think, running: Arc::default() }
    }

    /// Returns the service of the model.
    pub(crate) fn router(self) -> Router {
        let models = json!({"object": "list", "data": [
            {"id": "fake", "object": "model", "created": 0, "owned_by": "llm_gateway"}
        ]});
        let models = ([(CONTENT_TYPE, "application/json")], models.to_string());
        Router::new()
            .route(COMPLETIONS, post(complete))
            .route(MODELS, get(async move || models))
            .route("/running", get(async |State(fake): State<Self>| fake.running().to_string()))
            .layer(DefaultBodyLimit::max(LONGEST))
            .with_state(self)
    }

    /// Returns the number of requests in progress.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Acquire)
    }

    fn start(&self) -> InProgress {
        self.running.fetch_add(1, Ordering::AcqRel);
        InProgress(Arc::clone(&self.running))
    }
}

/// A request in progress. Dropped with its answer.
struct InProgress(Arc<AtomicUsize>);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

async fn complete(
    State(fake): State<Fake>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let (request, _) = chat::parse(&headers, body)?;
    let in_progress = fake.start();
    let answer = Answer::new(&request);
    if request.stream {
        return Ok(([(CONTENT_TYPE, "text/event-stream")], streamed(&fake, in_progress, &answer)).into_response());
    }
    sleep(fake.think.saturating_add(fake.pace.saturating_mul(answer.tokens.len() as u32))).await;
    Ok(([(CONTENT_TYPE, "application/json")], answer.whole()).into_response())
}

/// Returns a body with each token at its time.
fn streamed(fake: &Fake, in_progress: InProgress, answer: &Answer) -> Body {
    let pace = fake.pace;
    let events = answer.chunks().into_iter();
    Body::from_stream(stream::unfold(
        (events, fake.think, in_progress),
        move |(mut events, wait, in_progress)| async move {
            let event = events.next()?;
            if !wait.is_zero() {
                sleep(wait).await;
            }
            Some((Ok::<_, Infallible>(Bytes::from(event)), (events, pace, in_progress)))
        },
    ))
}

struct Answer {
    id: String,
    created: u64,
    model: String,
    prompt: usize,
    tokens: Vec<String>,
    finish: &'static str,
}

impl Answer {
    fn new(request: &ChatRequest) -> Self {
        let prompt = request.messages.last().map(text).unwrap_or_default();
        let words: Vec<_> = prompt.split_whitespace().collect();
        let count = format!("These are {} words.", words.len());
        let all = ["You", "said:"].into_iter().chain(words.iter().copied()).chain(count.split(' '));
        let mut tokens: Vec<_> =
            all.enumerate().map(|(n, word)| if n == 0 { word.to_owned() } else { format!(" {word}") }).collect();
        let max = request.max_tokens.unwrap_or(usize::MAX);
        let finish = if tokens.len() > max { "length" } else { "stop" };
        tokens.truncate(max);
        let mut hash = DefaultHasher::new();
        prompt.hash(&mut hash);
        Self {
            id: format!("chatcmpl-{:016x}", hash.finish()),
            created: SystemTime::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_secs()),
            model: request.model.clone(),
            prompt: words.len(),
            tokens,
            finish,
        }
    }

    /// Returns the events of the answer.
    fn chunks(&self) -> Vec<String> {
        let first = self.chunk(json!({"role": "assistant", "content": ""}), None);
        let tokens = self.tokens.iter().map(|token| self.chunk(json!({"content": token}), None));
        let last = [self.chunk(json!({}), Some(self.finish)), "data: [DONE]\n\n".to_owned()];
        [first].into_iter().chain(tokens).chain(last).collect()
    }

    fn chunk(&self, delta: Value, finish: Option<&str>) -> String {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish});
        format!("data: {}\n\n", self.object("chat.completion.chunk", choice))
    }

    fn whole(&self) -> String {
        let message = json!({"role": "assistant", "content": self.tokens.concat(), "refusal": null});
        let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": self.finish});
        let mut object = self.object("chat.completion", choice);
        let tokens = self.tokens.len();
        object["usage"] =
            json!({"prompt_tokens": self.prompt, "completion_tokens": tokens, "total_tokens": self.prompt + tokens});
        object.to_string()
    }

    fn object(&self, kind: &str, choice: Value) -> Value {
        json!({"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": [choice]})
    }
}

/// Returns the text of a message.
fn text(message: &Message) -> String {
    match &message.content {
        None => String::new(),
        Some(Content::Text(text)) => text.clone(),
        Some(Content::Parts(parts)) => parts.iter().filter_map(|part| part.text.as_deref()).collect(),
    }
}
