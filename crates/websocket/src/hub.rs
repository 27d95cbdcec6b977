//! The events of a hub for WebSockets.

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use millstream::internal::socket::{Outlet, TakeOver};
use millstream::net::TcpStream;
#[cfg(unix)]
use millstream::net::UnixStream;
use millstream::server::DrainSignal;
use millstream::sse::{EventBody, FramedHub, Hub};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::client::{Client, ClientEnds};
use crate::framing::{MessageFraming, Payload};
use crate::handshake::{Refusal, accept};
use crate::session::{Limits, Session};
use crate::socket::Socket;

/// A time that no connection reaches.
const NEVER: Duration = Duration::from_secs(60 * 60 * 24 * 365);

/// The events of a [`Hub`] as messages of WebSockets. Clones share the encoded messages, so that readers at the same
/// position need them encoded once.
///
/// Its readers are readers of the hub: ids and replay, slow readers and their gaps, limits, ages and statistics are the
/// same. The [keep-alive](millstream::sse::HubBuilder::keep_alive) of the hub is a ping.
#[derive(Clone, Debug)]
pub struct WebSocketHub {
    framed: FramedHub,
    limits: Limits,
    protocols: Arc<[HeaderValue]>,
}

impl WebSocketHub {
    fn new(hub: &Hub, payload: Payload) -> Self {
        let framed = hub.framed(MessageFraming(payload));
        let limits = Limits { message: 64 << 10, idle: Duration::from_secs(60) };
        Self { framed, limits, protocols: Arc::default() }
    }

    /// Creates it with text messages: the data of each event. A gap is the text `{"gap":{"reason":"slow","missed":3}}`.
    #[must_use]
    pub fn text(hub: &Hub) -> Self {
        Self::new(hub, Payload::Text)
    }

    /// Creates it with text messages that are JSON: `{"id":"1f-7","event":"tick","data":{"price":12}}`, where the data of
    /// events has to be JSON. A reader that returns with the last `id` continues behind it.
    #[must_use]
    pub fn json(hub: &Hub) -> Self {
        Self::new(hub, Payload::Json)
    }

    /// Creates it with binary messages: the data of each event. A gap is a text message, as in [`text`](Self::text).
    #[must_use]
    pub fn binary(hub: &Hub) -> Self {
        Self::new(hub, Payload::Binary)
    }

    /// Sets the maximum size of a message of a client; 64 KiB by default. A longer one closes the WebSocket with the code
    /// 1009.
    #[must_use]
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.limits.message = bytes;
        self
    }

    /// Sets the time without a byte of the client after which its connection ends; 60 s by default, zero disables it. After
    /// half of it, the client gets a ping, which it has to answer.
    #[must_use]
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.limits.idle = if limit.is_zero() { NEVER } else { limit.min(NEVER) };
        self
    }

    /// Sets the subprotocols of the service. A client gets the first one of its list that is among them, and none if no
    /// one is.
    #[must_use]
    pub fn protocols(mut self, protocols: impl IntoIterator<Item = &'static str>) -> Self {
        self.protocols = protocols.into_iter().map(HeaderValue::from_static).collect();
        self
    }

    /// Answers the handshake of a client, and sends the events to it until one of both closes the WebSocket. The messages
    /// of the client are discarded.
    ///
    /// See [`subscribe_with`](Self::subscribe_with).
    pub fn subscribe<B, R: Default>(&self, request: &mut Request<B>) -> Response<R> {
        self.subscribe_with(request, |_| pending())
    }

    /// As [`subscribe`](Self::subscribe), with a function that gets the messages of the client, and can send to it alone.
    /// The WebSocket is closed with the code 1000 when the returned future ends. The future is dropped when the connection
    /// ends.
    ///
    /// The reader starts behind the id in the header field `Last-Event-ID`, or in the query, as for
    /// [`Hub::subscribe`](millstream::sse::Hub::subscribe).
    ///
    /// The response is that of [RFC 6455 §4.2.2](https://www.rfc-editor.org/rfc/rfc6455#section-4.2.2), without a body.
    /// Other requests than handshakes of version 13 over HTTP/1.1 get 400, 405 or 426, and a hub that is closed or full
    /// answers as [`Hub::subscribe`](millstream::sse::Hub::subscribe). The `Origin` of the request is for the service to
    /// check: browsers let each page open a WebSocket to each server, with the cookies of the server.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn subscribe_with<B, R, F, Fut>(&self, request: &mut Request<B>, service: F) -> Response<R>
    where
        R: Default,
        F: FnOnce(Client) -> Fut,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let response = match accept(request, &self.protocols) {
            Ok(response) => response,
            Err(refusal) => return refusal.response(),
        };
        let (head, events) = self.framed.subscribe(request).into_parts();
        if head.status != StatusCode::OK {
            return refused(head.status, head.headers);
        }
        let Some(upgrade) = request.extensions_mut().remove::<OnUpgrade>() else {
            return Refusal::NoUpgrade.response();
        };
        let drain = request.extensions().get::<DrainSignal>().cloned();
        let (client, ends) = Client::new();
        let (limits, service) = (self.limits, service(client));
        tokio::spawn(async move {
            // A client that leaves in the handshake.
            let Ok(upgraded) = upgrade.await else { return };
            run(upgraded, Parts { events, ends, limits, drain }, service).await;
        });
        response
    }
}

/// Returns the answer of a hub that takes no reader.
fn refused<R: Default>(status: StatusCode, mut headers: HeaderMap) -> Response<R> {
    let mut response = Response::new(R::default());
    *response.status_mut() = status;
    headers.remove(header::CONTENT_TYPE);
    *response.headers_mut() = headers;
    response
}

struct Parts {
    events: EventBody,
    ends: ClientEnds,
    limits: Limits,
    drain: Option<DrainSignal>,
}

impl Parts {
    async fn run<S>(self, stream: S, outlet: fn(&S) -> Option<Outlet>, early: &[u8], service: impl Future<Output = ()>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Self { events, ends, limits, drain } = self;
        let ending = events.ending();
        Session::new(Socket::new(stream, outlet), early, events, ends, limits).run(ending, drain, service).await;
    }
}

/// Runs a WebSocket on the stream itself if that is one of this crate, and else through hyper.
async fn run(upgraded: Upgraded, parts: Parts, service: impl Future<Output = ()>) {
    let upgraded = match direct::<TcpStream>(upgraded) {
        Ok((stream, early)) => return parts.run(stream, TakeOver::outlet, &early, service).await,
        Err(other) => other,
    };
    #[cfg(unix)]
    let upgraded = match direct::<UnixStream>(upgraded) {
        Ok((stream, early)) => return parts.run(stream, TakeOver::outlet, &early, service).await,
        Err(other) => other,
    };
    parts.run(TokioIo::new(upgraded), |_| None, &[], service).await;
}

/// Returns the stream, with what was read beyond the handshake.
fn direct<S>(upgraded: Upgraded) -> Result<(S, Bytes), Upgraded>
where
    S: hyper::rt::Read + hyper::rt::Write + AsyncRead + AsyncWrite + Unpin + 'static,
{
    let upgraded = match upgraded.downcast::<S>() {
        Ok(parts) => return Ok((parts.io, parts.read_buf)),
        Err(other) => other,
    };
    // As `axum::serve` has it.
    let parts = auto::upgrade::downcast::<TokioIo<S>>(upgraded)?;
    Ok((parts.io.into_inner(), parts.read_buf))
}
