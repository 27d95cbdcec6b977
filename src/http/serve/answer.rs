//! The bodies of answers: those of the service, or none where the server answers for it.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::{CONNECTION, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::limits::Pressure;
use super::watch::{Open, Protocol, Told};
use crate::http::Ending;
use crate::observe::counters::{Counter, count};

pin_project! {
    /// The body of an answer, which notes when it is done with.
    pub(super) struct Answered<B> {
        #[pin]
        body: Option<B>,
        open: Open,
    }
}

/// The answer of a service.
pub(super) fn answered<B>(mut response: Response<B>, mut open: Open) -> Response<Answered<B>> {
    if open.watch().limits.pressure() >= Pressure::High {
        count(Counter::ClosedUnderPressure, 1);
        last(&mut response, &open);
    } else if open.watch().is_draining() {
        last(&mut response, &open);
    }
    if let Some(ending) = response.extensions().get::<Ending>() {
        open.ends_by(ending.clone());
    }
    response.map(|body| Answered { body: Some(body), open })
}

/// An answer of the server's own, after which an HTTP/1 connection is closed: nobody has read the request.
pub(super) fn refused<B>(status: StatusCode, open: Open) -> Response<Answered<B>> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        last(&mut response, &open);
    } else if open.watch().protocol() != Protocol::Two {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response.map(|()| Answered { body: None, open })
}

/// Has the connection take no further requests.
fn last<T>(response: &mut Response<T>, open: &Open) {
    match open.watch().protocol() {
        Protocol::Two => open.watch().tell(Told::Finish),
        _ => drop(response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"))),
    }
}

impl<B: Body> Body for Answered<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let me = self.project();
        let Some(body) = me.body.as_pin_mut() else { return Poll::Ready(None) };
        let frame = body.poll_frame(cx);
        me.open.asked(matches!(frame, Poll::Ready(Some(Ok(_)))));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}
