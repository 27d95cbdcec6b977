//! One request from its head to the head of its response.

use std::pin::pin;
use std::sync::Arc;

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tokio::time::timeout;

use super::body::ResponseBody;
use super::builder::Options;
use super::failure::Failure;
use super::fields;
use super::gate::{Full, Gate, Place};
use super::health::Health;
use super::http1::Http1;
use super::http2::{self, Http2, Sender};
use super::origin::Origin;
use super::pool::Pool;
use super::request::{Outgoing, again, into_http1, into_http2};
use super::request_body::{OutBody, Progress};
use super::stream::Stream;
use super::tunnel::tunnel;

/// What a client is told of a change to no protocol, or to one that may not be asked for.
const UNASKED: &str = "the server behind this proxy changed the protocol without a request";

/// A proxy, as its clones share it.
pub(super) struct Shared {
    pub(super) origin: Origin,
    pub(super) options: Options,
    pub(super) pool: Arc<Pool>,
    pub(super) gate: Gate,
    pub(super) health: Health,
    http2: Http2,
}

/// A connection for a request.
enum Link {
    Http1(Http1),
    Http2(Sender),
}

type Answered = Result<Response<ResponseBody>, Failure>;

impl Shared {
    pub(super) fn new(origin: Origin, options: Options) -> Self {
        let pool = Arc::new(Pool::new(options.idle, options.idle_timeout, options.heads));
        let gate = Gate::new(options.requests, options.queue.0, options.queue.1);
        let health = Health::new(options.breaker.0, options.breaker.1);
        Self { origin, options, pool, gate, health, http2: Http2::default() }
    }

    pub(super) async fn answer(&self, outgoing: Outgoing) -> Answered {
        let place = match self.gate.try_enter() {
            Some(place) => place,
            None => Box::pin(self.gate.enter()).await.map_err(|Full| Failure::Full)?,
        };
        let trial = self.health.admit().map_err(Failure::Open)?;
        let Outgoing { request, upload, change } = outgoing;
        let answered = match change {
            None => self.send(request, upload.clone(), place).await,
            // The rare ways have futures of their own, so that the common one is small.
            Some(client) => Box::pin(self.upgrade(request, upload.clone(), client, place)).await,
        };
        match &answered {
            Ok(_) => trial.answered(),
            // The client may be what is slow.
            Err(Failure::Timeout) if upload.is_some_and(|upload| !upload.has_ended()) => drop(trial),
            Err(failure) if failure.is_of_upstream() => trial.failed(),
            Err(_) => drop(trial),
        }
        answered
    }

    async fn send(&self, request: Request<OutBody>, upload: Option<Arc<Progress>>, place: Place) -> Answered {
        let mut response = self.exchange(request, upload).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Failure::Refused(StatusCode::BAD_GATEWAY, UNASKED));
        }
        response.body_mut().hold(place);
        self.finish(&mut response)?;
        Ok(response)
    }

    /// Sends a request by the connection that is there, or by a new one.
    async fn exchange(&self, request: Request<OutBody>, upload: Option<Arc<Progress>>) -> Answered {
        if self.origin.has_http2()
            && let Some(sender) = self.http2.current()
        {
            return Box::pin(self.by_shared(sender, request, upload)).await;
        }
        let Some(kept) = self.pool.take() else { return Box::pin(self.by_new(request, upload)).await };
        // Sent again if the upstream has just closed the connection.
        let may_repeat = upload.is_none() && request.method().is_idempotent();
        let again = may_repeat.then(|| again(&request));
        let request = match (self.by_http1(kept, request, upload.clone()).await, again) {
            (Err(Failure::Unsent(request)), _) => *request,
            (Err(Failure::Upstream(_)), Some(request)) => request,
            (done, _) => return done,
        };
        Box::pin(self.by_new(request, upload)).await
    }

    async fn by_new(&self, request: Request<OutBody>, upload: Option<Arc<Progress>>) -> Answered {
        match self.connect().await? {
            Link::Http1(connection) => self.by_http1(connection, request, upload).await,
            Link::Http2(sender) => self.by_shared(sender, request, upload).await,
        }
    }

    /// Sends a request over HTTP/2, and once more if hyper has given it back, because the upstream has ended the connection
    /// before.
    async fn by_shared(&self, sender: Sender, request: Request<OutBody>, upload: Option<Arc<Progress>>) -> Answered {
        let request = match self.by_http2(sender, request, upload.as_deref()).await {
            Err(Failure::Unsent(request)) => *request,
            done => return done,
        };
        self.http2.forget();
        match self.connect().await? {
            Link::Http1(connection) => self.by_http1(connection, request, upload).await,
            Link::Http2(sender) => self.by_http2(sender, request, upload.as_deref()).await,
        }
    }

    async fn connect(&self) -> Result<Link, Failure> {
        let mut connecting = None;
        if self.origin.expects_http2() {
            // All wait for one connection.
            let turn = timeout(self.origin.limit, self.http2.connecting()).await.map_err(|_| Failure::Timeout)?;
            if let Some(sender) = self.http2.current() {
                return Ok(Link::Http2(sender));
            }
            // Unless the first has agreed on HTTP/1.1.
            connecting = Some(turn).filter(|_| self.origin.expects_http2());
        }
        let (stream, is_http2) = self.origin.connect(false).await?;
        let link = match is_http2 {
            true => Link::Http2(self.http2.begin(stream, self.options.heads.bytes).await?),
            false => Link::Http1(self.begin(stream)),
        };
        drop(connecting);
        Ok(link)
    }

    fn begin(&self, stream: Stream) -> Http1 {
        self.pool.begin(stream).expect("internal: hyper takes every stream")
    }

    /// Waits for the head of a response, as long as the upload makes progress.
    async fn in_time<T>(&self, upload: Option<&Progress>, answered: impl Future<Output = T>) -> Result<T, Failure> {
        let mut answered = pin!(answered);
        let mut seen = 0;
        loop {
            match timeout(self.options.timeout, answered.as_mut()).await {
                Ok(answer) => return Ok(answer),
                Err(_) => match upload.map_or(0, Progress::frames) {
                    frames if frames != seen => seen = frames,
                    _ => return Err(Failure::Timeout),
                },
            }
        }
    }

    /// Sends a request over a connection, and receives the head of the response.
    async fn by_http1(
        &self,
        mut connection: Http1,
        mut request: Request<OutBody>,
        upload: Option<Arc<Progress>>,
    ) -> Answered {
        into_http1(&mut request, &self.origin);
        let answered = self.in_time(upload.as_deref(), connection.send(request)).await?;
        let response = answered.map_err(|mut failed| match failed.take_message() {
            Some(request) => Failure::Unsent(Box::new(request)),
            None => Failure::Upstream(failed.into_error()),
        })?;
        let persists = response.version() == Version::HTTP_11 && !fields::closes(response.headers());
        let pool = persists.then(|| Arc::clone(&self.pool));
        let silence = self.options.silence;
        let is_held = connection.holds_body() && fields::is_chunked(response.headers());
        Ok(response.map(|body| {
            // hyper may hold bytes of an upload.
            if is_held && upload.is_none() && !body.is_end_stream() {
                ResponseBody::chunked(connection.into_chunked(body, self.options.heads), silence, pool)
            } else {
                connection.release();
                ResponseBody::http1(connection, body, silence, pool, upload.is_some())
            }
        }))
    }

    async fn by_http2(&self, sender: Sender, mut request: Request<OutBody>, upload: Option<&Progress>) -> Answered {
        into_http2(&mut request, &self.origin);
        let response = self.in_time(upload, http2::send(sender, request)).await;
        if let Err(Failure::Timeout) = response {
            // The connection may be dead.
            self.http2.forget();
        }
        Ok(response??.map(|body| self.spawned(body)))
    }

    fn spawned(&self, body: Incoming) -> ResponseBody {
        ResponseBody::spawned(body, self.options.silence)
    }

    /// Asks for another protocol. If the upstream agrees, the connections become a tunnel.
    async fn upgrade(
        &self,
        mut request: Request<OutBody>,
        upload: Option<Arc<Progress>>,
        client: OnUpgrade,
        place: Place,
    ) -> Answered {
        into_http1(&mut request, &self.origin);
        let (stream, _) = self.origin.connect(true).await?;
        let connection = self.begin(stream);
        let answered = self.in_time(upload.as_deref(), connection.upgrade(request)).await?;
        let mut response = answered.map_err(Failure::Upstream)?;
        let has_changed = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let protocol = fields::upgrade(response.headers()).filter(|_| has_changed);
        if has_changed && protocol.is_none() {
            return Err(Failure::Refused(StatusCode::BAD_GATEWAY, UNASKED));
        }
        let mut place = Some(place);
        if has_changed && let Some(place) = place.take() {
            tokio::spawn(tunnel(client, hyper::upgrade::on(&mut response), place));
        }
        let mut response = response.map(|body| self.spawned(body));
        if let Some(place) = place {
            response.body_mut().hold(place);
        }
        self.finish(&mut response)?;
        if let Some(protocol) = protocol {
            fields::set_upgrade(response.headers_mut(), protocol);
        }
        Ok(response)
    }

    /// Changes the fields of a response for the client.
    fn finish(&self, response: &mut Response<ResponseBody>) -> Result<(), Failure> {
        let came_by = response.version();
        let fields = response.headers_mut();
        if fields.len() > self.options.heads.fields {
            return Err(Failure::Fields(fields.len()));
        }
        if fields.contains_key(TRANSFER_ENCODING) {
            // RFC 9112 §6.3: the coding overrides the length.
            fields.remove(CONTENT_LENGTH);
        }
        fields::remove_hop_by_hop(fields);
        fields::add_via(fields, came_by);
        for name in self.options.stamps.keys() {
            fields.remove(name);
        }
        fields.extend(self.options.stamps.clone());
        Ok(())
    }
}
