//! One request from its head to the head of its response.

use std::pin::pin;
use std::sync::Arc;

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE};
use http::{Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::body::ResponseBody;
use super::builder::Options;
use super::client_header::ClientHeader;
use super::failure::RequestFailure;
use super::fields;
use super::gate::{Full, Gate, RequestPlace};
use super::health::Health;
use super::http1::Http1;
use super::http2::{self, Connections, Http2, Processed, Sender};
use super::origin::Origin;
use super::pool::{Pool, PoolReturn};
use super::request::{Outgoing, head, into_http1, into_http2};
use super::request_body::{ALL_KEPT, OutBody, Upload};
use super::stream::Stream;
use super::tunnel::tunnel;

/// Text for the client if the upstream switches protocols without a request, or to a protocol that this proxy does not
/// forward.
const UNASKED: &str = "the server behind this proxy changed the protocol without a request";

/// How often a request is sent again because an HTTP/2 connection ended before it was processed. This can happen
/// several times in a row: an upstream that ends each connection after a few requests leaves some concurrent requests
/// unprocessed each time.
const AGAIN: usize = 16;
/// Cost of any other attempt, in units of [`AGAIN`]. Such an attempt sends one more request to an upstream that refuses
/// requests, or opens one more connection.
const REFUSED: usize = 4;

/// The part of a proxy that its clones share.
pub(crate) struct ProxyShared {
    pub(crate) origin: Origin,
    pub(crate) options: Options,
    pub(crate) pool: Arc<Pool>,
    pub(crate) gate: Gate,
    pub(crate) health: Health,
    http2: Arc<Connections>,
    /// For bodies of requests, in bytes.
    room: Arc<Semaphore>,
}

/// A connection for a request.
enum UpstreamLink {
    Http1(Http1),
    Http2(Sender),
}

type Answered = Result<Response<ResponseBody>, RequestFailure>;

impl ProxyShared {
    pub(crate) fn new(origin: Origin, options: Options) -> Self {
        let pool = Arc::new(Pool::new(options.idle, options.idle_timeout, options.heads));
        let gate = Gate::new(options.requests, options.queue.0, options.queue.1);
        let health = Health::new(options.breaker.0, options.breaker.1);
        let room = Arc::new(Semaphore::new(ALL_KEPT));
        Self { origin, options, pool, gate, health, http2: Arc::default(), room }
    }

    pub(crate) async fn answer(&self, outgoing: Outgoing) -> Answered {
        let has_body = outgoing.upload.is_some();
        let place = match self.gate.try_enter() {
            Some(place) => place,
            None => {
                // An open circuit refuses the request without waiting for a place.
                self.health.check(has_body).map_err(RequestFailure::Open)?;
                Box::pin(self.gate.enter()).await.map_err(|Full| RequestFailure::Full)?
            }
        };
        let trial = self.health.admit(has_body).map_err(RequestFailure::Open)?;
        let Outgoing { request, upload, change, header } = outgoing;
        let mut answered = match change {
            None => self.send(request, upload.clone(), header, place).await,
            // The rare cases have separate futures, so that the common future is small.
            Some(client) => Box::pin(self.upgrade(request, upload.clone(), client, header, place)).await,
        };
        if let Some(upload) = &upload {
            upload.settle();
            if let Some(status) = upload.failed().filter(|_| answered.is_err()) {
                answered = Err(RequestFailure::Upload(status));
            }
        }
        match &answered {
            Ok(_) => trial.answered(),
            // The client may be the slow one.
            Err(RequestFailure::Timeout) if upload.is_some_and(|upload| !upload.has_ended()) => drop(trial),
            Err(failure) if failure.is_of_upstream() => trial.failed(),
            Err(_) => drop(trial),
        }
        answered
    }

    async fn send(
        &self,
        request: Request<OutBody>,
        upload: Option<Arc<Upload>>,
        header: ClientHeader,
        place: RequestPlace,
    ) -> Answered {
        let mut response = self.exchange(request, upload, header).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(RequestFailure::Refused(StatusCode::BAD_GATEWAY, UNASKED));
        }
        response.body_mut().hold(place);
        self.finish(&mut response)?;
        Ok(response)
    }

    /// Sends a request over a kept connection or a new one. Sends it again if the upstream has certainly not processed
    /// it, or if a kept connection fails and the request is idempotent.
    async fn exchange(
        &self,
        mut request: Request<OutBody>,
        upload: Option<Arc<Upload>>,
        header: ClientHeader,
    ) -> Answered {
        let connections = match self.origin.has_http2() && header.is_some() {
            true => self.pool.http2(&header, &self.http2),
            false => Arc::clone(&self.http2),
        };
        let (http2, wide) = connections.choose();
        let mut kept = self.reuse(http2, &header);
        let mut may_fail = request.method().is_idempotent();
        let (mut left, mut failing_since) = (AGAIN, None);
        loop {
            let (link, is_kept) = match kept.take() {
                Some(link) => (link, true),
                None => Box::pin(self.connect(http2, &header)).await?,
            };
            may_fail &= is_kept;
            let is_http2 = matches!(link, UpstreamLink::Http2(_));
            let copy = (is_http2 || may_fail).then(|| head(&request));
            if let Some(upload) = &upload
                && copy.is_some()
            {
                upload.keep_for_retry(&self.room);
            }
            let sent = match link {
                UpstreamLink::Http1(connection) => {
                    self.by_http1(connection, request, upload.clone(), header.clone()).await
                }
                UpstreamLink::Http2(sender) => Box::pin(self.by_http2(http2, sender, request, upload.as_deref())).await,
            };
            let failure = match sent {
                Err(failure @ (RequestFailure::Unsent(_) | RequestFailure::Upstream(_))) => failure,
                Err(failure) => return Err(failure),
                Ok(mut response) => {
                    response.body_mut().hold_window(wide, http2::NARROW.into());
                    return Ok(response);
                }
            };
            let cost = match &failure {
                RequestFailure::Unsent(_) if is_http2 => 1,
                RequestFailure::Unsent(_) => REFUSED,
                RequestFailure::Upstream(error) => match http2::processed(error) {
                    Processed::Unseen => 1,
                    Processed::Refused => REFUSED,
                    Processed::Maybe if std::mem::take(&mut may_fail) => REFUSED,
                    Processed::Maybe => return Err(failure),
                },
                _ => return Err(failure),
            };
            if cost > left || failing_since.get_or_insert_with(Instant::now).elapsed() > self.options.timeout {
                return Err(failure);
            }
            left -= cost;
            request = match (failure, copy) {
                (RequestFailure::Unsent(request), _) => *request,
                (failure, None) => return Err(failure),
                (failure, Some(head)) => {
                    let body = upload.as_ref().map_or_else(|| Some(OutBody::empty()), Upload::again);
                    let Some(body) = body else { return Err(failure) };
                    head.map(|()| body)
                }
            };
        }
    }

    /// Returns an existing connection.
    fn reuse(&self, http2: &Http2, header: &ClientHeader) -> Option<UpstreamLink> {
        let shared = if self.origin.has_http2() { http2.current(self.options.age) } else { None };
        shared.map(UpstreamLink::Http2).or_else(|| self.pool.take(header).map(UpstreamLink::Http1))
    }

    /// Returns the shared connection if there is one now, or a new connection. The flag is `true` for an existing one.
    async fn connect(&self, http2: &Http2, header: &ClientHeader) -> Result<(UpstreamLink, bool), RequestFailure> {
        let mut connecting = None;
        if self.origin.expects_http2() {
            // All requests wait for the same connection.
            let turn = http2.connecting(self.origin.limit).await.ok_or(RequestFailure::Timeout)?;
            if let Some(sender) = http2.current(self.options.age) {
                return Ok((UpstreamLink::Http2(sender), true));
            }
            // If the first connection has agreed on HTTP/1.1, requests do not wait for each other.
            connecting = Some(turn).filter(|_| self.origin.expects_http2());
        }
        self.make_room();
        let (stream, is_http2) = self.origin.connect(false, header).await?;
        let link = match is_http2 {
            true => {
                let begun = http2.begin(stream, self.options.heads.bytes, connecting).await;
                UpstreamLink::Http2(begun.map_err(RequestFailure::Upstream)?)
            }
            false => UpstreamLink::Http1(self.begin(stream)),
        };
        Ok((link, false))
    }

    /// Closes an idle connection, which is no use for the request, if there would be too many with a new one.
    fn make_room(&self) {
        if self.gate.is_exceeded_by(self.pool.len()) {
            self.pool.close_oldest();
        }
    }

    fn begin(&self, stream: Stream) -> Http1 {
        self.pool.begin(stream).expect("internal: hyper takes every stream")
    }

    /// Waits for the head of a response, as long as the upload makes progress.
    async fn in_time<T>(
        &self,
        upload: Option<&Upload>,
        answered: impl Future<Output = T>,
    ) -> Result<T, RequestFailure> {
        let (mut answered, limit) = (pin!(answered), self.options.timeout);
        let mut left = limit;
        loop {
            if let Ok(answer) = timeout(left, answered.as_mut()).await {
                return Ok(answer);
            }
            // Counted from the last piece of the upload.
            let rest = upload.and_then(Upload::pause).and_then(|pause| limit.checked_sub(pause));
            left = rest.filter(|rest| !rest.is_zero()).ok_or(RequestFailure::Timeout)?;
        }
    }

    /// Sends a request over a connection, and receives the head of the response.
    async fn by_http1(
        &self,
        mut connection: Http1,
        mut request: Request<OutBody>,
        upload: Option<Arc<Upload>>,
        header: ClientHeader,
    ) -> Answered {
        into_http1(&mut request, &self.origin);
        let answered = self.in_time(upload.as_deref(), connection.send(request)).await?;
        let response = answered.map_err(RequestFailure::of_attempt)?;
        let persists = response.version() == Version::HTTP_11 && !fields::closes(response.headers());
        let pool = persists.then(|| PoolReturn { pool: Arc::clone(&self.pool), header });
        let silence = self.options.silence;
        Ok(response.map(|body| {
            // An upload may continue during the response.
            if connection.holds_body() && upload.is_none() && !body.is_end_stream() {
                ResponseBody::chunked(connection.into_chunked(body, self.options.heads), silence, pool)
            } else {
                connection.release();
                ResponseBody::http1(connection, body, silence, pool, upload.is_some())
            }
        }))
    }

    async fn by_http2(
        &self,
        http2: &Http2,
        sender: Sender,
        mut request: Request<OutBody>,
        upload: Option<&Upload>,
    ) -> Answered {
        into_http2(&mut request, &self.origin);
        let number = sender.number;
        let answered = self.in_time(upload, http2::send(sender, request)).await;
        let answered = answered.and_then(|answered| answered.map_err(RequestFailure::of_attempt));
        match &answered {
            Ok(_) => {}
            Err(RequestFailure::Upstream(error)) if http2::is_of_stream(error) => {}
            // The connection has ended, or may be dead.
            Err(_) => http2.forget(number),
        }
        Ok(answered?.map(|body| self.spawned(body)))
    }

    fn spawned(&self, body: Incoming) -> ResponseBody {
        ResponseBody::spawned(body, self.options.silence)
    }

    /// Asks for another protocol. If the upstream agrees, the connections become a tunnel.
    async fn upgrade(
        &self,
        mut request: Request<OutBody>,
        upload: Option<Arc<Upload>>,
        client: OnUpgrade,
        header: ClientHeader,
        place: RequestPlace,
    ) -> Answered {
        into_http1(&mut request, &self.origin);
        let asked = request.headers().get(UPGRADE).cloned();
        // An idle connection may no longer be able to change its protocol.
        self.make_room();
        let (stream, _) = self.origin.connect(true, &header).await?;
        let connection = self.begin(stream);
        let answered = self.in_time(upload.as_deref(), connection.upgrade(request)).await?;
        let response = answered.map_err(RequestFailure::Upstream)?;
        let has_changed = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let protocol = asked.and_then(|asked| fields::agreed(&asked, response.headers())).filter(|_| has_changed);
        if has_changed && protocol.is_none() {
            return Err(RequestFailure::Refused(StatusCode::BAD_GATEWAY, UNASKED));
        }
        let mut response = response.map(|body| self.spawned(body));
        self.finish(&mut response)?;
        match protocol {
            Some(protocol) => {
                fields::set_upgrade(response.headers_mut(), protocol);
                tokio::spawn(tunnel(client, hyper::upgrade::on(&mut response), self.options.tunnel, place));
            }
            None => response.body_mut().hold(place),
        }
        Ok(response)
    }

    /// Changes the fields of a response for the client.
    fn finish(&self, response: &mut Response<ResponseBody>) -> Result<(), RequestFailure> {
        let came_by = response.version();
        let fields = response.headers_mut();
        if fields.len() > self.options.heads.fields {
            return Err(RequestFailure::Invalid(format!("the response has {} header fields", fields.len())));
        }
        if fields::has_other_coding(fields) {
            return Err(RequestFailure::Invalid("the response has a transfer coding other than chunked".to_owned()));
        }
        if fields.contains_key(TRANSFER_ENCODING) {
            // RFC 9112 §6.3: the coding overrides the length.
            fields.remove(CONTENT_LENGTH);
        }
        if !fields::normalize_length(fields) {
            return Err(RequestFailure::Invalid("the response has no valid length".to_owned()));
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

#[cfg(test)]
mod tests;
