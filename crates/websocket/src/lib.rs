//! The events of a [`Hub`](millstream::sse::Hub) as WebSocket messages ([RFC 6455](https://www.rfc-editor.org/rfc/rfc6455)):
//! each is encoded once, and written to all readers in the pass that writes server-sent events.
//!
//! ```no_run
//! use axum::extract::{Request, State};
//! use axum::response::Response;
//! use axum::{Router, routing::get};
//! use millstream::net::TcpListener;
//! use millstream::server::serve;
//! use millstream::sse::{Event, Hub};
//! use millstream_websocket::{Message, WebSocketHub};
//!
//! #[derive(Clone)]
//! struct Chat {
//!     hub: Hub,
//!     sockets: WebSocketHub,
//! }
//!
//! async fn chat(State(chat): State<Chat>, mut request: Request) -> Response {
//!     let hub = chat.hub.clone();
//!     chat.sockets.subscribe_with(&mut request, |mut client| async move {
//!         while let Some(Message::Text(text)) = client.next().await {
//!             if hub.send(Event::new().data(text)).is_err() {
//!                 break;
//!             }
//!         }
//!     })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let hub = Hub::new();
//! let sockets = WebSocketHub::text(&hub);
//! let app = Router::new().route("/chat", get(chat)).with_state(Chat { hub, sockets });
//! serve(TcpListener::bind("127.0.0.1:8080").await?, app).await
//! # }
//! ```
//!
//! # Closing
//!
//! | why | code |
//! |---|---|
//! | the hub was closed, or the function of [`WebSocketHub::subscribe_with`] has ended | 1000 |
//! | the server drains, or the reader has reached its [age](millstream::sse::HubBuilder::max_age) | 1001 |
//! | the reader is too slow for [`LagPolicy::Disconnect`](millstream::sse::LagPolicy::Disconnect) | 1013 |
//! | the client violates the protocol, sends a text that is not UTF-8, or a message that is too long | 1002, 1007, 1009 |
//!
//! If the hub or the server ends it, the reason of the close frame is `retry: 1500`: the milliseconds after which the
//! client should return. A client has 5 s to answer a close frame. One that is silent for
//! [`WebSocketHub::idle_timeout`] is disconnected.
//!
//! # Connections that the hub writes to
//!
//! The hub writes to streams of [`millstream::net`] itself, which needs HTTP/1.1 and a server that gives the stream away:
//! [`millstream::server`], or `axum::serve` with a listener of this crate. Over TLS, and with other streams, the task of
//! each connection writes the shared frames.
//!
//! Messages are not compressed (`permessage-deflate`), and WebSockets over HTTP/2 (RFC 8441) are not supported.

// From the top down:
//
//   hub         answering handshakes, and the stream of a connection
//   session     one WebSocket: events, messages of the client, replies, the end
//   socket      reads, and writes of whole frames
//   handshake   the request and its response
//   framing     events as frames
//   client      what the service has of a client

mod client;
mod framing;
mod handshake;
mod hub;
mod session;
mod socket;

pub use client::{Client, ClientSender, Closed, Message};
pub use hub::WebSocketHub;

// The examples of the README are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
