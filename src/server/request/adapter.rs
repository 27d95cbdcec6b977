//! Adapts a tower service to hyper, and applies limits before each call. Unlike `TowerToHyperService` of hyper-util, it
//! does not move the request into the future first: a service that is ready, as nearly all are, is called at once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use http::{Extensions, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body_error::status_of;
use super::head::Fields;
use super::host;
use super::http_service::HttpService;
use super::request_body::{Bounds, RequestBody};
use crate::counters::{Counter, count};
use crate::server::drain::DrainSignal;
use crate::server::error::BoxError;
use crate::server::limits::{Limits, Pressure};
use crate::server::response::{Answered, Exchange, answered, bare, refused};
use crate::server::state::{ConnState, Open, Protocol};

pub(in crate::server) struct Adapter<S> {
    service: S,
    /// Added to each request. With `identify`, it is empty until the first request, and while the connection rests.
    extensions: Extensions,
    /// Makes the extensions. `None` if others have been added to them.
    pub(in crate::server) identify: Option<Identify>,
    conn_state: Arc<ConnState>,
}

/// Adds the values that identify a client to the extensions of its requests.
type Identify = Box<dyn Fn(&Arc<ConnState>, &mut Extensions) + Send>;

impl<S> Adapter<S> {
    pub(in crate::server) fn new(service: S, conn_state: Arc<ConnState>) -> Self {
        Self { service, extensions: Extensions::new(), identify: None, conn_state }
    }

    /// Frees what only requests need.
    pub(in crate::server) fn rest(&mut self) {
        if self.identify.is_some() {
            self.extensions = Extensions::new();
        }
    }

    /// Makes what requests need, which come next.
    pub(in crate::server) fn make_extensions(&mut self) {
        if let Some(identify) = self.identify.as_ref().filter(|_| self.extensions.is_empty()) {
            identify(&self.conn_state, &mut self.extensions);
        }
    }

    pub(in crate::server) fn conn_state(&self) -> &Arc<ConnState> {
        &self.conn_state
    }

    /// Returns what is added to each request.
    pub(in crate::server) fn extensions_mut(&mut self) -> &mut Extensions {
        self.make_extensions();
        self.identify = None;
        &mut self.extensions
    }
}

impl<S: HttpService> hyper::service::Service<Request<Incoming>> for Adapter<S> {
    type Response = Response<Answered<S::ResponseBody>>;
    type Error = BoxError;
    type Future = Answer<S>;

    fn call(&self, request: Request<Incoming>) -> Answer<S> {
        let open = Some(Open::begin(&self.conn_state));
        let version = request.version();
        let fields = Fields::of(request.headers());
        let grpc = fields.is_grpc;
        let (connects, is_head) = (request.method() == Method::CONNECT, request.method() == Method::HEAD);
        let tunnels = request.extensions().get::<OnUpgrade>().is_some();
        let handover = &self.conn_state.handover;
        let exchange = handover.is_enabled().then(|| {
            handover.begin_response();
            fields.exchange(&request)
        });
        let asks_for_tunnel = connects || fields.upgrades;
        // The request is borrowed up to here, and then moves once.
        let state = match check(&request, &fields, &self.conn_state.limits) {
            Ok(()) => self.begin(request, grpc, asks_for_tunnel),
            Err(status) => self.refuse(&request, status),
        };
        Answer { state, open, version, is_head, tunnels, connects, switching: None, grpc, exchange }
    }
}

impl<S: HttpService> Adapter<S> {
    /// Calls the service.
    #[inline]
    fn begin(&self, mut request: Request<Incoming>, grpc: bool, asks_for_tunnel: bool) -> CallState<S> {
        let mut bounds = Bounds::default();
        if !request.body().is_end_stream() {
            let limits = &self.conn_state.limits;
            let streams = match &limits.streaming {
                Some(select) => {
                    let (head, body) = request.into_parts();
                    let streams = (select.0)(&head);
                    request = Request::from_parts(head, body);
                    streams
                }
                None => grpc && request.version() == Version::HTTP_2,
            };
            let (left, rate) = if streams { (u64::MAX, 1) } else { (limits.body, limits.body_rate) };
            bounds = Bounds { left, rate, grpc };
        }
        let mut request = request.map(|body| RequestBody::new(body, bounds, &self.conn_state));
        if asks_for_tunnel {
            request.extensions_mut().insert(DrainSignal::new(&self.conn_state));
        }
        if !self.extensions.is_empty() {
            request.extensions_mut().extend(self.extensions.clone());
        }
        let mut service = self.service.clone();
        // A no-op waker: the future polls a service that is not ready again.
        match service.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => CallState::Called { future: service.call(request) },
            Poll::Ready(Err(error)) => CallState::Failed { error: Some(error.into()) },
            Poll::Pending => CallState::Waiting { call: Some(Box::new((service, request))) },
        }
    }

    #[cold]
    fn refuse(&self, request: &Request<Incoming>, status: StatusCode) -> CallState<S> {
        if !request.body().is_end_stream() {
            let number = self.conn_state.requests.arrives();
            self.conn_state.requests.leaves_unread(number);
        }
        CallState::Refused { status }
    }
}

/// Applies the limits of the head, or returns the status to answer with.
#[inline]
fn check<B>(request: &Request<B>, fields: &Fields<'_>, limits: &Limits) -> Result<(), StatusCode> {
    if limits.pressure() == Pressure::Full {
        count(Counter::RequestsShed, 1);
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    }
    if !host::is_valid(request.version(), request.uri(), fields.host) {
        return Err(StatusCode::BAD_REQUEST);
    }
    if request.uri().path_and_query().is_some_and(|path| path.as_str().len() > limits.uri) {
        count(Counter::HeadsTooLarge, 1);
        return Err(StatusCode::URI_TOO_LONG);
    }
    if request.headers().len() > limits.fields {
        count(Counter::HeadsTooLarge, 1);
        return Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    Ok(())
}

pin_project! {
    pub(in crate::server) struct Answer<S: Service<Request<RequestBody>>> {
        #[pin]
        state: CallState<S>,
        // Moved into the response.
        open: Option<Open>,
        version: Version,
        is_head: bool,
        // Whether hyper may make a tunnel of the connection or stream, and whether the request is a `CONNECT`.
        tunnels: bool,
        connects: bool,
        // HTTP/1: the response that makes it one, until hyper may hand the stream over.
        switching: Option<Box<S::Response>>,
        grpc: bool,
        // Present if responses of the connection may be taken over.
        exchange: Option<Exchange>,
    }
}

pin_project! {
    #[project = CallStateProjection]
    enum CallState<S: Service<Request<RequestBody>>> {
        Called { #[pin] future: S::Future },
        Waiting { call: Option<Box<(S, Request<RequestBody>)>> },
        Failed { error: Option<BoxError> },
        Refused { status: StatusCode },
    }
}

impl<S: HttpService> Future for Answer<S> {
    type Output = Result<Response<Answered<S::ResponseBody>>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut me = self.project();
        let done = match me.switching.take() {
            Some(response) => Ok(Ok(*response)),
            None => ready!(me.state.as_mut().poll_answer(cx)),
        };
        let open = me.open.take().expect("polled after it was ready");
        let mut response = match done {
            Ok(Ok(response)) => {
                let conn_state = open.conn_state();
                if *me.tunnels && switches(&response, *me.connects) && !conn_state.is_tunnel() {
                    if conn_state.protocol() == Protocol::One {
                        // The connection polls hyper again, and so this, once it is a tunnel.
                        conn_state.mark_switching();
                        (*me.switching, *me.open) = (Some(Box::new(response)), Some(open));
                        return Poll::Pending;
                    }
                    conn_state.mark_tunnel();
                }
                Ok(answered(response, open, *me.version, *me.exchange))
            }
            Ok(Err(status)) => Ok(refused(status, *me.grpc, open)),
            Err(error) => match status_of(&*error) {
                Some(status) => Ok(refused(status, *me.grpc, open)),
                None => Err(error),
            },
        };
        if let Ok(response) = &mut response {
            bare(response, *me.version, *me.is_head);
        }
        Poll::Ready(response)
    }
}

/// Returns whether a request that asks for a tunnel gets one by this response.
fn switches<B>(response: &Response<B>, connects: bool) -> bool {
    response.status() == StatusCode::SWITCHING_PROTOCOLS || connects && response.status().is_success()
}

impl<S> CallState<S>
where
    S: Service<Request<RequestBody>, Error: Into<BoxError>>,
{
    /// Returns the service's response, or the status to answer without it.
    fn poll_answer(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Result<S::Response, StatusCode>, BoxError>> {
        loop {
            let called = match self.as_mut().project() {
                CallStateProjection::Called { future } => {
                    return future.poll(cx).map(|done| done.map(Ok).map_err(Into::into));
                }
                CallStateProjection::Refused { status } => return Poll::Ready(Ok(Err(*status))),
                CallStateProjection::Failed { error } => {
                    return Poll::Ready(Err(error.take().expect("polled after it was ready")));
                }
                CallStateProjection::Waiting { call } => {
                    let (service, _) = &mut **call.as_mut().expect("internal: taken only when it is replaced");
                    ready!(service.poll_ready(cx)).map_err(Into::into)?;
                    call.take().map(|call| {
                        let (mut service, request) = *call;
                        service.call(request)
                    })
                }
            };
            if let Some(future) = called {
                self.set(CallState::Called { future });
            }
        }
    }
}
