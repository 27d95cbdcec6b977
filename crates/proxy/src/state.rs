//! State of a proxy, for operators.

/// State of a [`Proxy`](super::Proxy), from [`Proxy::state`](super::Proxy::state).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyState {
    /// Requests at the upstream, up to the ends of their responses; tunnels too.
    pub in_progress: usize,
    /// Requests that [wait](super::ProxyBuilder::queue) for another one to end.
    pub waiting: usize,
    /// Requests answered with 503 since the start, because too many were in progress.
    pub refused: u64,
    /// Idle HTTP/1.1 connections.
    pub idle_connections: usize,
    /// The [circuit breaker](super::ProxyBuilder::breaker).
    pub circuit: Circuit,
    /// Failures since the last response; 0 without a breaker.
    pub failures: u32,
    /// How often the circuit has opened.
    pub trips: u64,
}

/// State of the [circuit breaker](super::ProxyBuilder::breaker) of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Circuit {
    /// Requests are sent.
    Closed,
    /// Requests are answered with 503.
    Open,
    /// One request at a time is sent.
    HalfOpen,
}
