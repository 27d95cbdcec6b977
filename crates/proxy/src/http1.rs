//! An HTTP/1 connection to the upstream, driven by hyper. The request that uses the connection polls it. There is no
//! separate task, so a head or a frame needs no wake-up between tasks.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use tokio::task::unconstrained;

use super::chunked::Chunked;
use super::head_first::{BodyHold, HeadFirst};
use super::request_body::OutBody;
use super::stream::Stream;
use millstream::internal::Framing;

/// Bytes of a response that hyper reads ahead of the client.
const AHEAD: usize = 64 << 10;

/// Boxed, because it moves between the pool, the request and the body of the response.
pub(crate) struct Http1(Box<Http1Inner>);

struct Http1Inner {
    sender: SendRequest<OutBody>,
    /// `None` after its end: hyper gives an unsent request back when the connection is dropped.
    connection: Option<Connection<HeadFirst, OutBody>>,
    hold: BodyHold,
    is_plain: bool,
}

/// Limits of the heads of responses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadLimits {
    pub(crate) bytes: usize,
    pub(crate) fields: usize,
}

/// The number of fields for which hyper needs no allocation.
pub(crate) const FIELDS: usize = 100;

impl Http1 {
    /// Returns the connection; `None` if hyper refuses the stream, which it never does.
    pub(crate) fn new(stream: Stream, limits: HeadLimits) -> Option<Self> {
        let is_plain = stream.is_plain();
        let mut builder = Builder::new();
        builder.max_buf_size(limits.bytes.max(AHEAD)).max_header_size(limits.bytes);
        if limits.fields != FIELDS {
            builder.max_headers(limits.fields);
        }
        let hold = BodyHold::new();
        let handshake = pin!(builder.handshake(HeadFirst::new(stream, hold.clone())));
        // An HTTP/1 handshake exchanges no bytes.
        match handshake.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok((sender, connection))) => {
                Some(Self(Box::new(Http1Inner { sender, connection: Some(connection), hold, is_plain })))
            }
            Poll::Ready(Err(_)) | Poll::Pending => None,
        }
    }

    /// Reads and writes what the connection can.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) {
        // An error is also that of the request or of its body.
        if let Some(connection) = &mut self.0.connection
            && Pin::new(connection).poll(cx).is_ready()
        {
            self.0.connection = None;
        }
    }

    /// Polls the connection and returns whether it may carry a request. Polls without a waker, because the connection
    /// has no user now.
    pub(crate) fn poll_idle(&mut self) -> bool {
        self.poll(&mut Context::from_waker(Waker::noop()));
        self.is_ready()
    }

    /// As [`poll_idle`](Self::poll_idle), if hyper has noticed the end of the last response.
    pub(crate) fn is_ready(&self) -> bool {
        self.0.connection.is_some() && self.0.sender.is_ready()
    }

    /// Sends a request and receives the head of its response. Its body may be [held](Self::holds_body).
    pub(crate) async fn send(
        &mut self,
        mut request: Request<OutBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<OutBody>>> {
        // Only polling the connection makes progress, and the response is polled after it each time. So the response
        // needs no waker, which would cause a second poll of the task. It is also polled outside of the task's budget.
        self.0.hold.begin();
        let length = request.body().size_hint().exact();
        let framing = Framing::of_request(request.headers(), length);
        request.body_mut().count_in(&self.0.hold, framing);
        let mut answered = pin!(unconstrained(self.0.sender.try_send_request(request)));
        poll_fn(|cx| {
            self.poll(cx);
            answered.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        })
        .await
    }

    /// Returns whether the response has a chunked body of which hyper has read nothing, and hyper holds no bytes of the
    /// request. hyper may hold some, because an upstream may answer before it has received the whole request.
    pub(crate) fn holds_body(&self) -> bool {
        self.0.connection.is_some() && self.0.hold.is_held() && self.is_settled()
    }

    /// Returns whether hyper holds no bytes that it was given for the upstream.
    pub(crate) fn is_settled(&self) -> bool {
        self.0.hold.is_settled()
    }

    /// Lets hyper read the body.
    pub(crate) fn release(&mut self) {
        self.0.hold.end();
    }

    /// Sends a request that asks for another protocol. A task of its own drives the connection, up to the change.
    pub(crate) async fn upgrade(self, request: Request<OutBody>) -> hyper::Result<Response<Incoming>> {
        let Http1Inner { mut sender, connection, .. } = *self.0;
        if let Some(connection) = connection {
            tokio::spawn(connection.with_upgrades());
        }
        sender.send_request(request).await
    }

    /// Returns whether the socket carries the bytes of a body unencrypted.
    pub(crate) fn is_plain(&self) -> bool {
        self.0.is_plain
    }

    /// Takes the connection from hyper, at the start of a chunked body that is held.
    pub(crate) fn into_chunked(self, body: Incoming, limits: HeadLimits) -> Chunked {
        // hyper would report the end of the connection as an error of the body.
        drop(body);
        let (mut stream, rest) = self.into_stream().expect("internal: a connection that holds a body");
        stream.unread(&rest);
        Chunked::new(stream, limits.bytes, limits.fields)
    }

    /// Takes the connection from hyper, with the bytes that hyper has read but not used; `None` if the connection has
    /// ended.
    pub(crate) fn into_stream(self) -> Option<(Stream, Bytes)> {
        let parts = self.0.connection?.into_parts();
        Some((parts.io.into_inner(), parts.read_buf))
    }
}

#[cfg(test)]
mod tests;
