//! The PROXY protocol, versions 1 and 2, on the listeners of [millstream](millstream::net).
//!
//! A load balancer that passes on bytes hides the address of the client. With the [PROXY
//! protocol](https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt) it sends a header first, before TLS and HTTP.
//! HAProxy, nginx, Envoy and the load balancers of clouds can send it. [`ProxyListener`] reads it and removes it.
//!
//! ```no_run
//! use axum::extract::ConnectInfo;
//! use axum::{Router, routing::get};
//! use millstream::net::TcpListener;
//! use millstream::server::serve;
//! use millstream_proxy_protocol::ProxyListener;
//! use std::net::SocketAddr;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let app = Router::new().route("/", get(async |ConnectInfo(client): ConnectInfo<SocketAddr>| client.to_string()));
//! let listener = TcpListener::bind("0.0.0.0:8080").await?;
//! // The addresses of the load balancers.
//! let listener = ProxyListener::new(listener, "10.1.0.0/24".parse()?);
//! serve(listener, app).await
//! # }
//! ```
//!
//! All parts that read the address of a client then get the address of the header: `ConnectInfo`,
//! [`Connection::peer`](millstream::server::Connection::peer), the limits for one address, and layers that trust
//! networks. The inner listener makes the connections. The extensions of each request hold the
//! other fields of the header, as a [`ProxyHeader`].
//!
//! A program that passes on connections sends a header itself: [`ProxyHeader::encode`]. The reverse proxy of
//! `millstream-proxy` does so by its option `proxy_protocol`.

#[cfg(feature = "axum-08")]
mod axum_serve;
mod builder;
mod encode;
mod error;
mod events;
mod fields;
mod header;
mod listener;
#[cfg(test)]
#[path = "../tests/proxy-protocol/made.rs"]
mod made;
mod parse;
mod peer;
#[cfg(feature = "tonic-014")]
mod tonic_incoming;

pub use builder::ProxyHeaderBuilder;
pub use encode::ProxyVersion;
pub use error::HeaderError;
pub use header::{Addresses, ProxyHeader, Ssl};
pub use listener::ProxyListener;
pub use peer::ProxyPeer;
#[cfg(feature = "tonic-014")]
pub use tonic_incoming::ProxyStream;

// The examples of the README are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
