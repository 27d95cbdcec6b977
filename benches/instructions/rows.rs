//! The counted rows: two servers each, which do the same work.

use crate::client::Work;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Names of [`servers`](crate::servers): ours, and the rival's.
    pub(crate) servers: [&'static str; 2],
    pub(crate) work: Work,
    pub(crate) connections: u32,
}

const fn row(name: &'static str, servers: [&'static str; 2], work: Work, connections: u32) -> Row {
    Row { name, servers, work, connections }
}

pub(crate) const ROWS: [Row; 23] = [
    row("/hello, our stream under hyper, 1", ["hyper-ours", "hyper"], Work::Hello, 1),
    row("/hello, our stream under hyper, 64", ["hyper-ours", "hyper"], Work::Hello, 64),
    row("/hello, serve, 1", ["serve", "stock"], Work::Hello, 1),
    row("/hello, serve, 64", ["serve", "stock"], Work::Hello, 64),
    row("/hello, serve with Measure, 1", ["serve-measured", "stock"], Work::Hello, 1),
    row("/hello, serve with Measure, 64", ["serve-measured", "stock"], Work::Hello, 64),
    row("/hello, axum on our listener, 64", ["axum-ours", "axum"], Work::Hello, 64),
    row("/hello, axum's Router under serve, 1", ["axum-serve", "axum"], Work::Hello, 1),
    row("/hello, axum's Router under serve, 64", ["axum-serve", "axum"], Work::Hello, 64),
    row("/hello, stock without a timer, 64", ["serve", "stock-untimed"], Work::Hello, 64),
    row("echo of 64 B, 1", ["echo-ours", "echo"], Work::Echo, 1),
    row("echo of 64 B, 64", ["echo-ours", "echo"], Work::Echo, 64),
    row("WebSockets, 1 message a turn, 64", ["axum-ours", "axum"], Work::WebSocket(1), 64),
    row("WebSockets, 8 messages a turn, 64", ["axum-ours", "axum"], Work::WebSocket(8), 64),
    row("WebSockets under serve, 1 message a turn, 64", ["axum-serve", "axum"], Work::WebSocket(1), 64),
    row("gRPC, 1 message a turn, a connection each, 64", ["grpc-ours", "grpc"], Work::Grpc, 64),
    row("gRPC, as fast as it goes, 1", ["grpc-ours", "grpc"], Work::GrpcFull, 1),
    row("100 tokens in a burst, 1", ["serve", "stock"], Work::Tokens, 1),
    row("100 tokens in a burst, 64", ["serve", "stock"], Work::Tokens, 64),
    row("a token a turn, bodies of their own, 64", ["serve", "stock"], Work::Token, 64),
    row("an event of a hub a turn, 64 readers", ["serve", "axum"], Work::Event, 64),
    row("the same in its pass, a loop of send, 64", ["hub", "sent"], Work::Event, 64),
    row("the same over TLS, a loop of rustls and send, 64", ["hub-tls", "sealed"], Work::EventOverTls, 64),
];
