//! A gateway with a port of its own, an upstream whose every byte a test decides, and a client.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use clap::Parser;
use futures_util::stream;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use millstream::net::{Connector, TcpListener};
use millstream::server::{self, Drained};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::fake::Fake;
use crate::gateway::{COMPLETIONS, Gateway};
use crate::keys::Key;
use crate::{Args, gateway, open};

pub(super) const ALICE: &str = "s3cret";
pub(super) const BOB: &str = "b0b";

/// Time after which a test has failed. Nothing is measured.
pub(super) const HANGS: Duration = Duration::from_secs(30);

/// Requests and events that wait. A test sends fewer.
const QUEUE: usize = 256;

pub(super) async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(HANGS, future).await.expect("it takes too long")
}

/// Waits until `is` returns `true`.
pub(super) async fn until(is: impl Fn() -> bool, what: &str) {
    let waits = async {
        while !is() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(HANGS, waits).await.unwrap_or_else(|_| panic!("not within {HANGS:?}: {what}"));
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// A gateway that runs until it is dropped.
pub(super) struct Gate {
    pub(super) address: SocketAddr,
    pub(super) gateway: Arc<Gateway>,
    pub(super) fake: Fake,
    client: Client<Connector, Full<Bytes>>,
    drain: Option<oneshot::Sender<()>>,
    server: JoinHandle<io::Result<Drained>>,
}

impl Gate {
    pub(super) async fn before(upstreams: &[&Upstream], options: &[&str]) -> Self {
        let urls: Vec<_> = upstreams.iter().map(|upstream| format!("--upstream=http://{}", upstream.address)).collect();
        let keys = ["--key=alice=s3cret", "--key=bob=b0b:1"].into_iter();
        Self::start(keys.chain(urls.iter().map(String::as_str)).chain(options.iter().copied())).await
    }

    pub(super) async fn fake(options: &[&str]) -> Self {
        Self::before(&[], options).await
    }

    pub(super) async fn start(options: impl IntoIterator<Item = &str>) -> Self {
        let args = Args::try_parse_from(["llm_gateway"].into_iter().chain(options)).expect("options");
        let fake = Fake::new(args.pace, args.think);
        let gateway = gateway(&args, fake.clone()).await.expect("a gateway");
        let router = open(&args, Arc::clone(&gateway)).expect("hosts");
        let ((listener, address), (drain, drained)) = (listen().await, oneshot::channel());
        let signal = async { drop(drained.await) };
        let server = tokio::spawn(server::serve(listener, router).drain(signal, HANGS));
        let client = Client::builder(TokioExecutor::new()).build(Connector::new());
        Self { address, gateway, fake, client, drain: Some(drain), server }
    }

    /// Returns whether no request and no generation is in progress.
    pub(super) fn is_idle(&self) -> bool {
        let is_idle = |key: &Arc<Key>| key.running() + key.generations.running() + key.generations.listed() == 0;
        self.gateway.keys.keys.iter().all(is_idle)
    }

    /// Signals the end.
    pub(super) fn drain(&mut self) {
        drop(self.drain.take());
    }

    pub(super) async fn drained(self) -> Drained {
        within(self.server).await.expect("no panic").expect("it served")
    }

    pub(super) fn refuses(&self) -> bool {
        std::net::TcpStream::connect(self.address).is_err()
    }

    pub(super) async fn get(&self, path: &str, secret: &str, fields: &[(&str, &str)]) -> Answer {
        self.send(Method::GET, path, secret, fields, Bytes::new()).await
    }

    pub(super) fn ask(&self, secret: &str, request: &Value) -> impl Future<Output = Answer> + Send + use<> {
        let fields = [("content-type", "application/json")];
        self.send(Method::POST, COMPLETIONS, secret, &fields, request.to_string().into())
    }

    pub(super) fn send(
        &self,
        method: Method,
        path: &str,
        secret: &str,
        fields: &[(&str, &str)],
        body: Bytes,
    ) -> impl Future<Output = Answer> + Send + use<> {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        if !secret.is_empty() {
            request = request.header("authorization", format!("Bearer {secret}"));
        }
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let answer = self.client.request(request.body(Full::new(body)).expect("a request"));
        async move {
            let (head, body) = within(answer).await.expect("an answer").into_parts();
            Answer { status: head.status, fields: head.headers, body: Body::new(body), text: String::new() }
        }
    }
}

/// An answer. Dropping it closes its connection.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    fields: HeaderMap,
    body: Body,
    text: String,
}

impl Answer {
    pub(super) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    /// Returns the path of the generation.
    pub(super) fn path(&self) -> String {
        format!("/v1/generations/{}", self.field("x-generation-id"))
    }

    async fn more(&mut self) -> bool {
        let Some(frame) = self.body.frame().await else { return false };
        let bytes = frame.expect("a body to its end").into_data().expect("data");
        self.text.push_str(std::str::from_utf8(&bytes).expect("text"));
        true
    }

    /// Returns the bytes so far, at least one.
    pub(super) async fn bytes(&mut self) -> String {
        assert!(!self.text.is_empty() || within(self.more()).await, "the end");
        std::mem::take(&mut self.text)
    }

    /// Returns the next event, with its empty line.
    pub(super) async fn event(&mut self) -> String {
        // Pings are no reason to wait longer.
        let come = async {
            while !self.text.contains("\n\n") {
                assert!(self.more().await, "the end after {:?}", self.text);
            }
        };
        within(come).await;
        let rest = self.text.split_off(self.text.find("\n\n").map_or(0, |end| end + 2));
        std::mem::replace(&mut self.text, rest)
    }

    /// Returns everything to the end, without the time after which to come back, which each response draws.
    pub(super) async fn rest(&mut self) -> String {
        within(async { while self.more().await {} }).await;
        let mut text = std::mem::take(&mut self.text);
        if let Some(at) = text.rfind("retry: ").filter(|&at| text[at..].ends_with("\n\n")) {
            text.truncate(at);
        }
        text
    }

    pub(super) async fn json(&mut self) -> Value {
        serde_json::from_str(&self.rest().await).expect("JSON")
    }
}

/// An upstream that leaves its answers to a test.
pub(super) struct Upstream {
    pub(super) address: SocketAddr,
    asked: mpsc::Receiver<Asked>,
    pub(super) connections: Arc<AtomicUsize>,
}

/// A request to an upstream. The answer ends when it is dropped.
pub(super) struct Asked {
    pub(super) body: Value,
    events: mpsc::Sender<io::Result<Bytes>>,
}

impl Upstream {
    /// Starts one that answers with events.
    pub(super) async fn start() -> Self {
        let (tell, asked) = mpsc::channel(QUEUE);
        let answer = move |request: Request| {
            let tell = tell.clone();
            async move {
                let body = request.into_body().collect().await.expect("a body").to_bytes();
                let (events, sent) = mpsc::channel(QUEUE);
                let _ = tell.try_send(Asked { body: serde_json::from_slice(&body).expect("JSON"), events });
                let next = |mut sent: mpsc::Receiver<_>| async { sent.recv().await.map(|part| (part, sent)) };
                let body = Body::from_stream(stream::unfold(sent, next));
                ([(CONTENT_TYPE, "text/event-stream")], body).into_response()
            }
        };
        Self { asked, ..Self::with(Router::new().fallback(answer)).await }
    }

    /// Starts one that always answers with `response`.
    pub(super) async fn always<R: IntoResponse + Clone + Send + Sync + 'static>(response: R) -> Self {
        Self::with(Router::new().fallback(async move || -> Response { response.into_response() })).await
    }

    /// Returns one that does not listen any more.
    pub(super) async fn dead() -> Self {
        let (listener, address) = listen().await;
        drop(listener);
        Self { address, asked: mpsc::channel(QUEUE).1, connections: Arc::default() }
    }

    pub(super) async fn with(router: Router) -> Self {
        let ((listener, address), connections) = (listen().await, Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&connections);
        let server = server::serve(listener, router).on_connection(move |_, _, _| {
            count.fetch_add(1, Ordering::AcqRel);
        });
        tokio::spawn(server.into_future());
        Self { address, asked: mpsc::channel(QUEUE).1, connections }
    }

    /// Waits for the next request.
    pub(super) async fn asked(&mut self) -> Asked {
        within(self.asked.recv()).await.expect("a request")
    }
}

impl Asked {
    /// Sends an event.
    pub(super) fn send(&self, data: &str) {
        self.raw(&format!("data: {data}\n\n"));
    }

    pub(super) fn raw(&self, text: &str) {
        self.events.try_send(Ok(Bytes::copy_from_slice(text.as_bytes()))).expect("the answer is in progress");
    }

    /// Breaks the connection off.
    pub(super) fn fail(&self) {
        self.events.try_send(Err(io::Error::other("broken"))).expect("the answer is in progress");
    }

    /// Waits until the answer is dropped, because the gateway has closed the connection.
    pub(super) async fn cancelled(&self) {
        within(self.events.closed()).await;
    }
}

pub(super) fn prompt(text: &str) -> Value {
    json!({"model": "m", "stream": true, "temperature": 0.5, "messages": [{"role": "user", "content": text}]})
}

/// Returns the chunk with the token `n`.
pub(super) fn chunk(n: usize) -> String {
    json!({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": n.to_string()}}]})
        .to_string()
}
