//! Metrics on their own thread and listener: `GET /metrics` for Prometheus, and an event for the page twice a second.
//! One event is shared by all pages.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use millstream::metrics::{Histogram, Requests, Snapshot, prometheus_text};
use millstream::net::TcpListener;
use millstream::server::RequestBody;
use millstream::sse::{Event, Hub, HubBuilder, LagPolicy};
use millstream_layers::AllowedHostsLayer;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};
use tower::Layer;

/// Interval between events.
const PERIOD: Duration = Duration::from_millis(500);
/// Events sent to a page when it opens: one minute.
const KEPT: usize = 120;
const VIEWERS: usize = 1000;

/// The metrics thread. It stops on drop.
pub(crate) struct Numbers {
    address: SocketAddr,
    live: Hub,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Numbers {
    /// Listens on `metrics`, which must be a loopback address unless `anywhere` is set. `build` makes the hub of the page,
    /// before its first event. The error text names the remedy.
    pub(crate) fn start(
        metrics: SocketAddr,
        anywhere: bool,
        hosts: AllowedHostsLayer,
        build: impl AsyncFnOnce(HubBuilder) -> Result<Hub, String>,
    ) -> Result<Self, String> {
        if !anywhere && !metrics.ip().is_loopback() {
            return Err(format!(
                "--metrics {metrics}: the metrics are private; choose a loopback address, or say \
                 --metrics-anywhere"
            ));
        }
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| format!("the runtime of the metrics did not start: {e}"))?;
        let elsewhere = |e| format!("{e}; choose another address with --metrics");
        let listener = runtime.block_on(TcpListener::bind(metrics)).map_err(elsewhere)?;
        let address = listener.local_addr().map_err(|e| format!("{metrics}: {e}"))?;

        // A slow page gets the newest events; a reconnected one gets those it missed.
        let live = Hub::builder().replay(KEPT).queue(KEPT).lag_policy(LagPolicy::DropOldest);
        let live = live.subscribers(VIEWERS).past_layers(true);
        let live = runtime.block_on(build(live.gzip(6)))?;
        let (end, ended) = oneshot::channel();
        let hub = live.clone();
        let run = move || tell(&runtime, listener, hosts, &hub, ended);
        let thread = thread::Builder::new().name("numbers".to_owned()).spawn(run).map_err(|e| e.to_string())?;
        Ok(Self { address, live, end: Some(end), thread: Some(thread) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn live(&self) -> Hub {
        self.live.clone()
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // The thread has already printed its panic.
            let _ = thread.join();
        }
    }
}

fn tell(runtime: &Runtime, listener: TcpListener, hosts: AllowedHostsLayer, live: &Hub, ended: oneshot::Receiver<()>) {
    runtime.block_on(async {
        tokio::select! {
            served = millstream::server::serve(listener, hosts.layer(tower::service_fn(answer))) => {
                if let Err(e) = served {
                    eprintln!("the metrics listener failed: {e}");
                }
            }
            () = sample_for_ever(live) => {}
            _ = ended => {}
        }
    });
}

async fn answer(request: Request<RequestBody>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::default());
    let set = |response: &mut Response<_>, status| *response.status_mut() = status;
    if request.uri().path() != "/metrics" {
        set(&mut response, StatusCode::NOT_FOUND);
    } else if !matches!(*request.method(), Method::GET | Method::HEAD) {
        set(&mut response, StatusCode::METHOD_NOT_ALLOWED);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    } else {
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        *response.body_mut() = Full::from(prometheus_text());
    }
    Ok(response)
}

async fn sample_for_ever(live: &Hub) {
    let mut ticks = interval(PERIOD);
    // A sample covers the time since the last one, so late samples are not made up for.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut before = (Snapshot::now(), Requests::now());
    loop {
        ticks.tick().await;
        let now = (Snapshot::now(), Requests::now());
        let event = Event::new().data(sample(&now.0.since(&before.0), &now.1.since(&before.1)).to_string());
        if live.send(event).is_err() {
            return;
        }
        before = now;
    }
}

/// Returns a sample; a value is `null` where it cannot be computed.
fn sample(lately: &Snapshot, requests: &Requests) -> Value {
    let calls = lately.writes + lately.reads + lately.ring_enters;
    let share = |part: u64, all: u64| (all > 0).then(|| part as f64 / all as f64);
    // Lower and upper bound; the last bucket has no upper bound.
    let p99 =
        |of: Histogram| of.quantile(0.99).map(|p99| json!([p99.lower, p99.upper.is_finite().then_some(p99.upper)]));
    json!({
        "at": SystemTime::UNIX_EPOCH.elapsed().map_or(0, |at| at.as_millis() as u64),
        "bytes": lately.per_second(lately.bytes_written),
        "requests": lately.per_second(lately.requests),
        "streams": lately.active_requests,
        "connections": lately.open_connections,
        "frames": share(lately.frames, lately.writes),
        "calls": share(calls, lately.requests),
        "queued": lately.queued_bytes,
        "sendfile": share(lately.bytes_by_sendfile, lately.bytes_written),
        "gap": p99(requests.frame_gap),
        "head": requests.all(|responses| &responses.time_to_head).and_then(p99),
        "hits": share(lately.pool_hits, lately.pool_hits + lately.pool_misses),
        "pool": lately.pool_bytes,
        "errors": lately.per_second(lately.server_errors + lately.responses_failed),
        "aborted": lately.per_second(lately.responses_aborted),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::browser::status;

    async fn in_memory(live: HubBuilder) -> Result<Hub, String> {
        Ok(live.build())
    }

    fn local() -> AllowedHostsLayer {
        AllowedHostsLayer::local()
    }

    #[test]
    fn numbers_stay_on_this_machine_unless_told_otherwise() {
        let outside = SocketAddr::from(([0, 0, 0, 0], 0));
        let refused = Numbers::start(outside, false, local(), in_memory).err().expect("not a loopback address");
        assert!(refused.contains("0.0.0.0:0") && refused.contains("--metrics-anywhere"), "{refused}");
        let allowed = Numbers::start(outside, true, local(), in_memory).expect("permitted by the option");
        let taken =
            Numbers::start(SocketAddr::from(([127, 0, 0, 1], allowed.address().port())), false, local(), in_memory);
        let taken = taken.err().expect("the port is in use");
        assert!(taken.contains("--metrics") && taken.contains(&allowed.address().port().to_string()), "{taken}");
    }

    #[test]
    fn only_those_who_name_this_machine_are_told_the_numbers() {
        let numbers =
            Numbers::start(SocketAddr::from(([127, 0, 0, 1], 0)), false, local(), in_memory).expect("a free port");
        assert!(status(numbers.address(), "/metrics", "localhost").contains("200 OK"));
        assert!(status(numbers.address(), "/metrics", "evil.example").contains("421 Misdirected Request"));
    }

    #[test]
    fn what_nobody_did_is_not_a_number() {
        let nothing = Requests::now().since(&Requests::now());
        let value = sample(&Snapshot::default(), &nothing);
        assert_eq!(
            (&value["frames"], &value["sendfile"], &value["requests"]),
            (&Value::Null, &Value::Null, &json!(0.0))
        );
        let mut lately = Snapshot::now();
        (lately.writes, lately.frames, lately.requests, lately.reads) = (4, 10, 2, 4);
        (lately.bytes_written, lately.bytes_by_sendfile, lately.ring_enters) = (100, 25, 0);
        lately.elapsed = PERIOD;
        let value = sample(&lately, &nothing);
        assert_eq!((&value["frames"], &value["calls"], &value["sendfile"]), (&json!(2.5), &json!(4.0), &json!(0.25)));
        assert_eq!((&value["bytes"], &value["requests"]), (&json!(200.0), &json!(4.0)));
    }
}
