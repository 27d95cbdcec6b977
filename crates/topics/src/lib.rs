//! Several event streams of [millstream](millstream::sse) in one response.
//!
//! A browser opens at most six connections to an origin over HTTP/1.1, and each `EventSource` takes one. [`Topics`] are
//! event streams by name: hubs, streams with a key, or bodies of your own. One response follows those that a request
//! names. After a lost connection it continues in each topic where it was.
//!
//! ```no_run
//! use std::convert::Infallible;
//!
//! use http::Request;
//! use millstream::net::TcpListener;
//! use millstream::server::{RequestBody, serve};
//! use millstream::sse::{Event, Hub};
//! use millstream_topics::Topics;
//!
//! #[derive(Clone)]
//! struct User(String);
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Each request, and each topic of it. A layer of yours has put the user into the extensions.
//! let topics = Topics::builder(|request, topic| match topic.strip_prefix("user/") {
//!     Some(name) => request.extensions.get::<User>().is_some_and(|user| user.0 == name),
//!     None => topic == "news",
//! })
//! .wait_for_topics(true)
//! .build();
//!
//! let news = Hub::new();
//! topics.insert("news", news.clone())?;
//! news.send(Event::new().data("hello"))?;
//!
//! // GET /?topic=news&topic=user/alice
//! let service = tower::service_fn(move |request: Request<RequestBody>| {
//!     let topics = topics.clone();
//!     async move { Ok::<_, Infallible>(topics.answer(request).await) }
//! });
//! serve(TcpListener::bind("127.0.0.1:8080").await?, service).await?;
//! # Ok(())
//! # }
//! ```
//!
//! In a browser:
//!
//! ```js
//! const events = new EventSource("/?topic=news&topic=user/alice");
//! events.onmessage = (event) => {
//!   const topic = decodeURIComponent(event.lastEventId.split("=")[0]);
//!   console.log(topic, event.data);
//! };
//! ```

mod asked;
mod body;
mod builder;
mod composite;
mod error;
mod events;
mod frames;
mod merged;
mod readers;
mod refusal;
mod registry;
mod seat;
mod shared;
mod source;
mod source_event;
mod stats;
mod topics;
mod wakes;

pub use body::TopicsBody;
pub use builder::TopicsBuilder;
pub use error::NameError;
pub use source::{Source, SourceError};
pub use stats::TopicsStats;
pub use topics::Topics;

// The examples of the README are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
