//! A response whose head is sent before the service has answered.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use millstream::internal::is_plain_events;
use pin_project_lite::pin_project;
use serde_json::Value;

/// Maximum length of the text of an answer in an event.
const TEXT_MAX: usize = 4 << 10;

/// Returns whether a response with status 200 may precede the answer to this request.
pub(super) fn may_be_early<Q>(request: &Request<Q>) -> bool {
    !matches!(*request.method(), Method::HEAD | Method::CONNECT) && accepts_events(request.headers())
}

/// Returns whether `Accept` lists event streams (RFC 9110 §12.5.1), by name and with a weight above 0.
fn accepts_events(fields: &HeaderMap) -> bool {
    let lists = fields.get_all(ACCEPT);
    lists.iter().flat_map(|list| list.to_str().unwrap_or_default().split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        parts.next().is_some_and(|media| media.eq_ignore_ascii_case("text/event-stream"))
            && !parts.filter_map(|part| part.split_once('=')).any(|(name, weight)| {
                name.eq_ignore_ascii_case("q") && weight.parse().is_ok_and(|weight: f32| weight == 0.0)
            })
    })
}

/// Returns the response that precedes the answer of the service.
pub(super) fn head<B>(body: B) -> Response<B> {
    let mut head = Response::new(body);
    let fields = head.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    head
}

pin_project! {
    /// The body of a response from [`KeepAliveService`](super::KeepAliveService): the body of the service, or one that
    /// waits for the [late](super::KeepAliveLayer::early) answer of the service.
    pub struct EarlyBody<F, B> {
        #[pin]
        source: Source<F, B>,
    }
}

pin_project! {
    #[project = SourceProj]
    enum Source<F, B> {
        Answered {
            #[pin]
            body: B,
        },
        Waiting {
            future: Pin<Box<F>>,
        },
        // The answer is no event stream. Its text is read for the event.
        Failing {
            #[pin]
            body: B,
            status: StatusCode,
            text: Vec<u8>,
        },
        Ended,
    }
}

impl<F, B> EarlyBody<F, B> {
    pub(super) fn answered(body: B) -> Self {
        Self { source: Source::Answered { body } }
    }

    pub(super) fn waiting(future: Pin<Box<F>>) -> Self {
        Self { source: Source::Waiting { future } }
    }
}

/// Returns whether an event may quote the body.
fn is_text(fields: &HeaderMap) -> bool {
    let kind = fields.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_text = kind.starts_with("text/") || kind == "application/json" || kind.ends_with("+json");
    is_text && !fields.contains_key(CONTENT_ENCODING)
}

/// Returns the event that tells of another answer than an event stream.
fn error_event(status: StatusCode, text: Option<&[u8]>) -> Bytes {
    let mut event = format!("event: error\ndata: {{\"status\":{}", status.as_u16());
    if let Some(text) = text {
        event.push_str(",\"body\":");
        event.push_str(&Value::from(String::from_utf8_lossy(text)).to_string());
    }
    event.push_str("}\n\n");
    event.into()
}

impl<F, B, E> Body for EarlyBody<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Data = Bytes>,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut source = self.project().source;
        loop {
            let event = match source.as_mut().project() {
                SourceProj::Answered { body } => return body.poll_frame(cx),
                SourceProj::Ended => return Poll::Ready(None),
                SourceProj::Waiting { future } => match ready!(future.as_mut().poll(cx)) {
                    Ok(response) if is_plain_events(&response) => {
                        source.set(Source::Answered { body: response.into_body() });
                        continue;
                    }
                    Ok(response) if is_text(response.headers()) => {
                        let (status, text) = (response.status(), Vec::new());
                        source.set(Source::Failing { body: response.into_body(), status, text });
                        continue;
                    }
                    Ok(response) => error_event(response.status(), None),
                    Err(_) => error_event(StatusCode::INTERNAL_SERVER_ERROR, None),
                },
                SourceProj::Failing { body, status, text } => {
                    // A text that fails is quoted as far as it came.
                    if text.len() < TEXT_MAX
                        && let Some(Ok(frame)) = ready!(body.poll_frame(cx))
                    {
                        let data = frame.into_data().unwrap_or_default();
                        text.extend_from_slice(&data[..data.len().min(TEXT_MAX - text.len())]);
                        continue;
                    }
                    error_event(*status, Some(text))
                }
            };
            source.set(Source::Ended);
            return Poll::Ready(Some(Ok(Frame::data(event))));
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Answered { body } => body.is_end_stream(),
            source => matches!(source, Source::Ended),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Answered { body } => body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

impl<F, B> fmt::Debug for EarlyBody<F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_waiting = matches!(self.source, Source::Waiting { .. });
        f.debug_struct("EarlyBody").field("is_waiting", &is_waiting).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
