//! What measuring costs: `/hello`, 12 bytes, and 100 tokens one by one, with [`Measure`](millstream::middleware::Measure)
//! around the service and without, in one run; and with what it has measured read by the same thread, as text for
//! Prometheus, 40 times a second, so that each turn has its share of it.
//!
//! Each server is [`http::serve`](millstream::server::serve()) on a current-thread runtime, a thread and a CPU of its own; the
//! load is this program's main thread. They take turns of a few milliseconds, so that what else the machine does meets
//! both alike. **Look at** the CPU time of the server's thread for each request, and at the last lines, which say whether
//! it is what it may be. There is no criterion here: wall time is that of both ends together.

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
use millstream::middleware::Measure;
use millstream::server::RequestBody;
use tower::Layer;

#[path = "common/mod.rs"]
mod common;

use common::{Row, bar, is_test, table};

const HELLO: &[u8] = br#"{"msg":"ok"}"#;
const TOKEN: &[u8] = b"data: {\"token\": \"hello world this is\"}\n\n";
const TOKENS: usize = 100;
/// Turns of each, of some ten milliseconds.
const TURNS: usize = 301;

/// Many small frames with a yield to the runtime between each two.
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

/// A server on a thread of its own, which tells its CPU time when it is asked. It lives as long as this program.
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
            if let Some([server, _]) = common::cpus::ends().unwrap() {
                common::cpus::pin(server).unwrap();
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

/// Asks for `path` on each of the connections, `rounds` times, and reads the answers to their end.
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

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn compare(title: &str, path: &str, clients: usize, rounds: u64, end: &[u8], most: f64) -> String {
    let servers = [Way::Without, Way::Measured, Way::Read].map(Server::start);
    let mut clients: Vec<_> = servers.iter().map(|server| common::connect(server.address, clients)).collect();
    let requests = clients[0].len() as u64;
    let mut turn = |contender: usize| {
        let before = servers[contender].cpu();
        ask(&mut clients[contender], path, rounds, end);
        (servers[contender].cpu() - before).as_secs_f64() * 1e6 / (requests * rounds) as f64
    };
    let turns: Vec<[f64; 3]> = (0..if is_test() { 1 } else { TURNS }).map(|_| [0, 1, 2].map(&mut turn)).collect();
    let cpu = [0, 1, 2].map(|contender| median(turns.iter().map(|turn| turn[contender])));
    // Of turns that followed each other: what else the machine does changes more slowly than that.
    let [measured, read] = [1, 2].map(|contender| median(turns.iter().map(|turn| turn[contender] / turn[0])));
    let names = ["without", "with Measure", "with Measure, read"];
    let rows: Vec<_> =
        names.iter().zip(&cpu).map(|(name, &cpu)| Row { name: (*name).to_owned(), cpu, note: String::new() }).collect();
    table(title, "request", &rows)
        + &bar(&format!("{title}: with it, as a part of without"), measured, most)
        + &bar(&format!("{title}: with it and read, as a part of without"), read, most)
}

fn main() {
    common::cpus::pin_load().unwrap();
    let hello = compare("12 bytes, 64 connections", "/hello", 64, 16, HELLO, 1.02);
    let alone = compare("12 bytes, 1 connection", "/hello", 1, 200, HELLO, 1.02);
    let tokens = compare("100 tokens, 64 connections", "/tokens", 64, 2, b"\r\n0\r\n\r\n", 1.02);
    if is_test() {
        println!("\n(a test run, one operation each: the figures mean nothing)");
    }
    println!("{hello}{alone}{tokens}");
}
