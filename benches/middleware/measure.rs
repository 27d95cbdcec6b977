//! The cost of measuring: `/hello`, 12 bytes, and 100 tokens one by one, with and without
//! [`Measure`](millstream::middleware::Measure) around the service. The same thread formats the metrics for Prometheus
//! 40 times a second, so that each turn contains its share.
//!
//! Each server is [`server::serve`](millstream::server::serve()) on a current-thread runtime on its own thread and CPU;
//! the load is this program's main thread. The figures are the CPU time of the server's thread. Turns last some
//! milliseconds, so that neighbours can be compared: the cost is about one per cent.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::{Pin, pin};
use std::sync::mpsc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame};
use hyper::{Request, Response};
use measuring::cpus;
use millstream::middleware::Measure;
use millstream::server::RequestBody;
use tower::Layer;

use crate::common;
use crate::common::contest::{By, Case, Contender, Goal, Measured, Run, Spent, by_turns};
use crate::common::options::options;
use crate::common::suite::Suite;

const HELLO: &[u8] = br#"{"msg":"ok"}"#;
const TOKEN: &[u8] = b"data: {\"token\": \"hello world this is\"}\n\n";
const TOKENS: usize = 100;
/// Maximum cost of measuring, as a share of the whole.
const MOST: f64 = 1.02;

/// Many small frames with a yield to the runtime between them.
struct Tokens {
    left: usize,
    yielded: bool,
}

impl Body for Tokens {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if !std::mem::replace(&mut self.yielded, true) {
            ready!(pin!(tokio::task::yield_now()).poll(cx));
        }
        self.yielded = false;
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(TOKEN)))))
    }
}

type Answer = Response<Either<Full<Bytes>, Tokens>>;

async fn answer(request: Request<RequestBody>) -> Result<Answer, Infallible> {
    Ok(Response::new(match request.uri().path() {
        "/hello" => Either::Left(Full::from(HELLO)),
        _ => Either::Right(Tokens { left: TOKENS, yielded: true }),
    }))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Without,
    Measured,
    Read,
}

/// A server on its own thread, which reports its CPU time on request. It runs until this program ends.
struct Server {
    address: SocketAddr,
    ask: mpsc::Sender<()>,
    cpu: mpsc::Receiver<Duration>,
    wake: tokio::sync::mpsc::Sender<()>,
}

impl Server {
    fn start(way: Way) -> Self {
        let (ask, asked) = mpsc::channel::<()>();
        let (tell, cpu) = mpsc::channel();
        let (wake, mut woken) = tokio::sync::mpsc::channel(1);
        let (ready, address) = mpsc::channel();
        std::thread::spawn(move || {
            if let Some([server, _]) = cpus::ends().unwrap() {
                cpus::pin(server).unwrap();
            }
            common::runtime().block_on(async {
                let listener = millstream::net::TcpListener::from_std(common::listener()).unwrap();
                ready.send(listener.local_addr().unwrap()).unwrap();
                let service = tower::service_fn(answer);
                match way {
                    Way::Without => drop(tokio::spawn(millstream::server::serve(listener, service).into_future())),
                    Way::Measured | Way::Read => drop(tokio::spawn(
                        millstream::server::serve(listener, Measure::new().layer(service)).into_future(),
                    )),
                }
                if way == Way::Read {
                    tokio::spawn(async {
                        let mut ticks = tokio::time::interval(Duration::from_millis(25));
                        loop {
                            ticks.tick().await;
                            std::hint::black_box(millstream::metrics::prometheus_text());
                        }
                    });
                }
                while woken.recv().await.is_some() && asked.recv().is_ok() {
                    tell.send(common::cpu_of_this_thread()).unwrap();
                }
            });
        });
        Self { address: address.recv().unwrap(), ask, cpu, wake }
    }

    fn cpu(&self) -> Duration {
        self.ask.send(()).unwrap();
        self.wake.blocking_send(()).unwrap();
        self.cpu.recv().unwrap()
    }
}

/// Requests `path` on each of the connections, `rounds` times, and reads the responses to their end.
fn ask(connections: &mut [TcpStream], path: &str, rounds: u64, end: &[u8]) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: mill\r\n\r\n");
    let mut got = vec![0; 64 << 10];
    for _ in 0..rounds {
        for connection in &mut *connections {
            connection.write_all(request.as_bytes()).unwrap();
        }
        for connection in &mut *connections {
            let mut filled = 0;
            while !got[..filled].ends_with(end) {
                let n = connection.read(&mut got[filled..]).unwrap();
                assert!(n > 0, "the server has closed the connection");
                filled += n;
            }
            assert!(got.starts_with(b"HTTP/1.1 200 OK\r\n"));
        }
    }
}

struct Asked<'a> {
    server: Server,
    clients: Vec<TcpStream>,
    path: &'a str,
    end: &'a [u8],
}

impl Run for Asked<'_> {
    fn run(&mut self, rounds: u64) -> Spent {
        let (start, cpu) = (std::time::Instant::now(), self.server.cpu());
        ask(&mut self.clients, self.path, rounds, self.end);
        Spent { cpu: self.server.cpu() - cpu, wall: start.elapsed() }
    }
}

/// Runs many rounds of short turns.
fn compare(suite: &mut Suite, title: &str, path: &str, clients: usize, rounds: u64, end: &[u8]) {
    if !suite.begins(title) {
        return;
    }
    let asked = |way| {
        let server = Server::start(way);
        let clients = common::connect(server.address, clients);
        Asked { server, clients, path, end }
    };
    let mut contenders = [
        Contender { name: "millstream Measure", run: Box::new(asked(Way::Measured)) },
        Contender { name: "without", run: Box::new(asked(Way::Without)) },
        Contender { name: "millstream Measure, read", run: Box::new(asked(Way::Read)) },
    ];
    let goals = [Goal { against: "without", by: By::Cpu, most: MOST }];
    let case = Case { operations: Some(rounds), goals: &goals, ..Case::new(title, "CPU us/request", clients as u64) };
    let mut all: Vec<Measured> = Vec::new();
    let start = std::time::Instant::now();
    // Each run adds some rounds; at least three runs.
    for n in 0.. {
        let more = by_turns(&case, &mut contenders);
        if all.is_empty() {
            all = more;
        } else {
            for (all, more) in all.iter_mut().zip(more) {
                all.cpu.extend(more.cpu);
                all.wall.extend(more.wall);
            }
        }
        let is_enough = n >= 2 && start.elapsed() > options().time() * 8;
        if options().test || is_enough {
            break;
        }
    }
    suite.record(&case, all);
}

pub(crate) fn run(suite: &mut Suite) {
    let _pinned = common::pinned();
    compare(suite, "measure, 12 bytes, 64 connections", "/hello", 64, 16, HELLO);
    compare(suite, "measure, 12 bytes, 1 connection", "/hello", 1, 200, HELLO);
    compare(suite, "measure, 100 tokens, 64 connections", "/tokens", 64, 2, b"\r\n0\r\n\r\n");
}
