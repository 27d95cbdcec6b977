//! A reverse proxy, and header lines added to messages that are relayed as bytes.
//!
//! | I want to | use |
//! |---|---|
//! | put a server behind this one | [`Proxy`], [`Upstream`] |
//! | add header lines to bytes that I relay | [`Injector`] |
//!
//! ```text
//!  client ─▶ server ─▶ Proxy: fields ─▶ pool of connections ─▶ hyper's client ─▶ upstream
//!         ◀─ server ◀─ DirectBody ◀──── frames of hyper ◀───── hyper's client ◀─
//!                          ▲
//!                          ├─ or, once hyper holds nothing of it: splice from socket to socket
//!                          └─ or, for chunks of HTTP/1.1: all chunks of a read in one frame
//! ```
//!
//! # Injector
//!
//! A relay that moves HTTP/1 between two sockets without parsing it can still add header lines. It feeds each piece
//! that it reads to an [`Injector`] and writes the returned slices with one vectored write. Neither head nor body is
//! copied, and nothing is allocated.
//!
//! ```text
//!  piece ─▶ Injector::feed ─▶ Output: before │ lines │ after ─▶ one vectored write
//!            Scan finds the          ▲
//!            end of the head         before the empty line that ends the head
//! ```
//!
//! 1. The output is the input plus the lines, however the stream is cut into pieces.
//! 2. At most one byte is held back, a CR that may begin that empty line; see [`Injector::held`].
//! 3. A piece is taken whole or, with an error, not at all.
//! 4. Only the head is parsed. The caller marks the start of the next message with [`Injector::reset`].

// Modules:
//  proxy         the service
//  builder       options
//  state         what an operator sees
//  exchange      one request from its head to the head of its response
//  request       a request as the upstream gets it
//  fields        header fields that a proxy changes
//  client_header the PROXY header of a connection to the upstream
//  request_body  the body of a request, and its progress
//  gate          how many requests are at the upstream, and wait
//  health        a circuit breaker
//  failure       requests without an answer, and the responses to their clients
//  events        events for operators
//  upstream      the address of the upstream
//  origin        opens connections
//  secure        TLS of a connection
//  stream        a connection, with TLS or without
//  head_first    a connection that gives hyper the head of a chunked response without its body
//  http1         one connection, polled by the request that uses it
//  chunked       decodes a chunked body
//  http2         the connections that all requests share
//  settled       reports when an HTTP/2 connection has its settings
//  pool          idle connections
//  body          the body of a response: frames of hyper, or of the connection, or moved from the socket
//  tunnel        connections that have changed their protocol
//  injector      header lines put into a stream of bytes
//  scan          finds the end of a head

mod body;
mod builder;
mod chunked;
mod client_header;
mod error;
mod events;
mod exchange;
mod failure;
mod fields;
mod gate;
mod head_first;
mod health;
mod http1;
mod http2;
mod injector;
mod origin;
mod pool;
mod proxy;
mod request;
mod request_body;
mod scan;
#[cfg(feature = "__tls")]
mod secure;
mod settled;
mod state;
mod stream;
mod tunnel;
mod upstream;

pub use builder::ProxyBuilder;
pub use error::{ConfigError, InjectError, UpstreamError};
pub use injector::{Injector, Output};
pub use proxy::Proxy;
pub use state::{Circuit, ProxyState};
pub use upstream::Upstream;

pub use millstream_proxy_protocol::ProxyVersion;

// The examples of the README are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
