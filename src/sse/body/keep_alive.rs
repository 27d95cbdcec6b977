//! Comments in the silence of any event stream.

use std::any::Any;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::runtime::Handle;

use super::boundary::Boundary;
use super::coding::COMMENT;
use crate::body::direct::Direct;
use crate::counters::{Counter, count};
use crate::sse::wake::{self, Beat, Groups, Member, Wait};

/// The bodies that wait for a tick, of all periods and runtimes.
static WAITING: LazyLock<Groups> = LazyLock::new(Groups::default);

pin_project! {
    /// A body that sends a comment when its event stream was silent for a period, so that load balancers and clients do
    /// not take the connection for dead.
    ///
    /// It wraps any [event stream], such as the tokens of a model or axum's `Sse`. A [`Hub`](crate::sse::Hub) keeps its
    /// own streams alive.
    ///
    /// - A comment (the line `:`, which clients ignore) is sent after half to all of the period. It stands between two
    ///   events. While an event is incomplete, none is sent.
    /// - Data passes unchanged, at the same addresses. Only a byte order mark at the start of the stream is removed if a
    ///   comment precedes it. Trailers, errors and the end pass unchanged. The size of the body is no longer known.
    /// - A body that is not polled, because its client reads nothing, gets at most one comment when it is polled again.
    /// - Each runtime has one task with one timer for all bodies with the same period, or one for each worker with many
    ///   bodies. A body adds about 100 bytes. Outside of a tokio runtime no comments are sent.
    ///
    /// The body must not be compressed, because a comment would be inside of the compressed stream.
    /// `KeepAliveLayer` of the crate `millstream-layers` wraps the bodies of responses. `Snapshot::event_comments` counts
    /// the comments.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use bytes::Bytes;
    /// use http::Response;
    /// use http_body::Body;
    /// use millstream::sse::KeepAlive;
    ///
    /// fn answer<B: Body<Data = Bytes>>(tokens: B) -> Response<KeepAlive<B>> {
    ///     let response = Response::builder().header("content-type", "text/event-stream");
    ///     response.body(KeepAlive::new(tokens, Duration::from_secs(15))).expect("the header is valid")
    /// }
    /// ```
    ///
    /// [event stream]: https://html.spec.whatwg.org/multipage/server-sent-events.html
    pub struct KeepAlive<B> {
        #[pin]
        body: B,
        comments: Comments,
    }
}

/// When the next comment is due.
struct Comments {
    /// `None` if there are no more comments.
    period: Option<Duration>,
    boundary: Boundary,
    member: Option<Member>,
}

impl<B> KeepAlive<B> {
    /// Wraps `body`. A `period` of zero disables the comments.
    pub fn new(body: B, period: Duration) -> Self {
        let comments = Comments { period: wake::period(period), boundary: Boundary::default(), member: None };
        Self { body, comments }
    }
}

impl Comments {
    /// Records data of the stream. Returns the bytes to send; `None` if all are held.
    fn pass(&mut self, data: Bytes) -> Option<Bytes> {
        if self.period.is_none() || data.is_empty() {
            return Some(data);
        }
        if let Some(member) = &mut self.member {
            member.had_frame();
        }
        let data = self.boundary.pass(data);
        (!data.is_empty()).then_some(data)
    }

    fn end(&mut self) {
        (self.period, self.member) = (None, None);
    }

    /// Ready if a comment is due.
    fn poll_due(&mut self, cx: &Context<'_>) -> Poll<()> {
        let Some(period) = self.period.filter(|_| self.boundary.is_between()) else { return Poll::Pending };
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        // The body may have moved to another runtime, and the one before need not run any more.
        self.member = self.member.take().filter(|member| member.runtime() == runtime);
        if runtime.is_none() {
            return Poll::Pending;
        }
        let member = self.member.get_or_insert_with(|| WAITING.join(Beat::new(Some(period), None), None));
        if member.wait(cx.waker(), || false) != Wait::Silent {
            return Poll::Pending;
        }
        self.boundary.note_comment();
        count(Counter::EventComments, 1);
        Poll::Ready(())
    }
}

impl<B: Body<Data = Bytes>> Body for KeepAlive<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut me = self.project();
        loop {
            let frame = match me.body.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(last) => {
                    me.comments.end();
                    return Poll::Ready(last);
                }
                Poll::Pending => {
                    let comment = || Some(Ok(Frame::data(Bytes::from_static(COMMENT))));
                    return me.comments.poll_due(cx).map(|()| comment());
                }
            };
            match frame.into_data().map(|data| me.comments.pass(data)) {
                Ok(None) => {}
                Ok(Some(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Err(trailers) => {
                    me.comments.end();
                    return Poll::Ready(Some(Ok(trailers)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        if self.comments.period.is_some() {
            let lower = hint.lower().saturating_sub(self.comments.boundary.most_removed());
            hint = SizeHint::new();
            hint.set_lower(lower);
        }
        hint
    }
}

/// Its bytes are never moved from socket to socket, because comments are between them.
impl<B: Body<Data = Bytes, Error = io::Error> + Send + Unpin> Direct for KeepAlive<B> {
    fn prepare_move(&mut self, _: &mut Context<'_>, _: u64) -> bool {
        false
    }

    fn poll_move(&mut self, _: &mut Context<'_>, _: &mut dyn Any) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }
}

impl<B: fmt::Debug> fmt::Debug for KeepAlive<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = &self.comments.period;
        f.debug_struct("KeepAlive").field("body", &self.body).field("period", period).finish_non_exhaustive()
    }
}
