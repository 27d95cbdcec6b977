//! One instance of the service.
//!
//! ```text
//!  POST /answers/NAME   starts the model in this instance; its tokens go into the stream NAME
//!  GET  /answers/NAME   streams the tokens, from the first one or after Last-Event-ID, from any instance
//! ```

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use millstream::net::TcpListener;
use millstream::server::serve;
use millstream::sse::{Event, Hub};
use millstream_redis::Redis;
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::report::report;

/// Text of the model. A token is a word with the space before it.
pub(crate) const ANSWER: &str = "\
    A mill by a stream grinds what is brought to it, and the stream asks nobody where the grain is from. When the first \
    mill stands still, the grain goes on to the next one down the water: not a sack is left behind, and none is ground \
    twice, for each has its number in chalk, and the miller who takes over begins behind the last that his neighbour \
    has crossed out. So the baker in the village, who only wants flour, never learns how many mills there are, nor which \
    of them it was that ground his bread.";

/// Time between two tokens.
const PACE: Duration = Duration::from_millis(15);
/// Time that an answer is kept after its last token.
const KEPT: Duration = Duration::from_secs(60);
/// Maximum number of open answers; each has its own connections to Redis.
const ANSWERS_MAX: usize = 64;

/// Returns the tokens of [`ANSWER`].
pub(crate) fn tokens() -> impl Iterator<Item = &'static str> {
    ANSWER.split_inclusive(' ')
}

#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) name: &'static str,
    pub(crate) addr: SocketAddr,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

struct Answers {
    redis: String,
    open: Mutex<HashMap<String, Hub>>,
}

impl Instance {
    pub(crate) async fn start(name: &'static str, redis: &str) -> Result<Self, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|e| format!("no port for {name}: {e}"))?;
        let addr = listener.local_addr().map_err(|e| format!("no address for {name}: {e}"))?;
        let answers = Arc::new(Answers { redis: redis.to_owned(), open: Mutex::default() });
        // Reports an unreachable Redis now, not at the first request.
        answers.connect("start").await?;
        let service = tower::service_fn(move |request| {
            let answers = Arc::clone(&answers);
            async move { Ok::<_, Infallible>(answers.respond(&request).await) }
        });
        tokio::spawn(serve(listener, service).into_future());
        Ok(Self { name, addr })
    }
}

impl Answers {
    async fn respond<B>(self: Arc<Self>, request: &Request<B>) -> Response<Body> {
        let Some(name) = request.uri().path().strip_prefix("/answers/").filter(|name| is_name(name)) else {
            return text(StatusCode::NOT_FOUND, "use /answers/NAME");
        };
        let hub = match self.hub(name).await {
            Ok(hub) => hub,
            Err(error) => return text(StatusCode::SERVICE_UNAVAILABLE, &error),
        };
        match *request.method() {
            Method::POST => {
                tokio::spawn(self.think(name.to_owned(), hub));
                text(StatusCode::ACCEPTED, "the answer has started")
            }
            Method::GET if request.headers().contains_key("last-event-id") => {
                hub.subscribe(request).map(BodyExt::boxed_unsync)
            }
            Method::GET => {
                // No entry has this id, and all entries come after it.
                let mut first = Request::get(request.uri()).body(()).unwrap_or_default();
                first.headers_mut().insert("last-event-id", HeaderValue::from_static("0-0"));
                hub.subscribe(&first).map(BodyExt::boxed_unsync)
            }
            _ => text(StatusCode::METHOD_NOT_ALLOWED, "GET or POST"),
        }
    }

    /// Returns the hub of an answer, and creates it on first use: another instance may write its stream.
    async fn hub(&self, name: &str) -> Result<Hub, String> {
        let mut open = self.open.lock().await;
        if let Some(hub) = open.get(name) {
            return Ok(hub.clone());
        }
        // Answers without readers make room: their tokens are in Redis.
        if open.len() >= ANSWERS_MAX {
            open.retain(|_, hub| hub.stats().subscribers > 0);
        }
        if open.len() >= ANSWERS_MAX {
            return Err(format!("all {ANSWERS_MAX} answers are in use"));
        }
        let hub = Hub::builder().log(self.connect(name).await?).build();
        open.insert(name.to_owned(), hub.clone());
        Ok(hub)
    }

    async fn connect(&self, name: &str) -> Result<Redis, String> {
        let redis = Redis::builder(&self.redis).key(format!("tokens_fleet:{name}")).expire_after(KEPT);
        redis.connect().await.map_err(|e| report(&e))
    }

    async fn think(self: Arc<Self>, name: String, hub: Hub) {
        let tokens = tokens().map(|token| Event::new().event("token").data(token));
        for event in tokens.chain([Event::new().event("done").data(name)]) {
            if let Err(e) = hub.send(event) {
                eprintln!("the answer is cut short: {}", report(&e));
                return;
            }
            sleep(PACE).await;
        }
    }
}

fn is_name(name: &str) -> bool {
    (1..=32).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn text(status: StatusCode, text: &str) -> Response<Body> {
    let mut answer = Response::new(Full::new(Bytes::from(format!("{text}\n"))).boxed_unsync());
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_the_answer() {
        assert_eq!(tokens().collect::<String>(), ANSWER);
        assert!(tokens().count() > 80);
    }

    #[test]
    fn names_are_harmless() {
        assert!(is_name("1-a"));
        assert!(["", "a/b", "a:b", "*", &"x".repeat(33)].iter().all(|name| !is_name(name)));
    }
}
