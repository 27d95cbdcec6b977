//! A second worker: CPU-bound responses from servers with one thread and with two.
//!
//! | case | threads |
//! |---|---|
//! | millstream Cores, one / two | [`Cores`]: a runtime, a listener and a CPU for each thread |
//! | multi_thread, two | tokio's runtime, whose threads share everything, and one listener |
//!
//! All use [`millstream::server::serve`] over loopback. A response is 64 digests (SHA-256), each of another MiB, so the
//! server alone is the bottleneck. The client is one thread with blocking sockets; it checks every byte and is nearly
//! idle; its share is in the note. Four responses are requested at a time, two from each of two cores. The kernel
//! chooses the core of a connection, so connections are made until each core has two.
//!
//! The figures are wall time for each MiB. Two workers must have at least 1.8 times the throughput of one, on a machine
//! with two CPUs and no other load. **Noise**: other load slows two workers and not one.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use hyper::{Request, Response};
use millstream::net::TcpListener;
use millstream::runtime::{Core, Cores, Run};
use millstream::server::{RequestBody, serve, serve_cores};
use sha2::{Digest, Sha256};
use tokio::runtime::Runtime;

use crate::common::contest::{By, Case, Contender, Goal, Run as Work, Spent};
use crate::common::suite::Suite;
use crate::common::{cpu_of_others, cpu_of_this_thread, noise};

/// Bytes digested at a time.
const PIECE: usize = 1 << 20;
const PIECES: usize = 64;
const DIGEST: usize = 32;
const CONNECTIONS: usize = 4;

/// A CPU-bound body.
struct Digests {
    piece: Arc<[u8]>,
    done: usize,
}

impl Digests {
    fn next(&mut self) -> Option<[u8; DIGEST]> {
        (self.done < PIECES).then(|| {
            self.done += 1;
            let mut sum = Sha256::new();
            sum.update([self.done as u8]);
            sum.update(&*self.piece);
            sum.finalize().into()
        })
    }
}

impl Body for Digests {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next().map(|digest| Ok(Frame::data(Bytes::copy_from_slice(&digest)))))
    }
}

/// Responds with the number of the core first, 0 without cores.
async fn answer(piece: Arc<[u8]>) -> Result<Response<Digests>, Infallible> {
    let core = Core::current().map_or(0, |core| core.index());
    Ok(Response::builder().header("core", core).body(Digests { piece, done: 0 }).unwrap())
}

/// A server that ends on drop.
#[expect(dead_code, reason = "kept, not read")]
enum Server {
    OnCores(Run<(), std::io::Error, ()>, Cores),
    Shared(Runtime),
}

fn on_cores(workers: usize, piece: Arc<[u8]>) -> (SocketAddr, Server) {
    let service = tower::service_fn(move |_: Request<RequestBody>| answer(Arc::clone(&piece)));
    let cores = Cores::new(workers).unwrap();
    let listeners = TcpListener::builder().bind_each("127.0.0.1:0", workers).unwrap();
    (listeners.local_addr(), Server::OnCores(serve_cores(&cores, listeners, service).run(), cores))
}

fn shared(workers: usize, piece: Arc<[u8]>) -> (SocketAddr, Server) {
    let service = tower::service_fn(move |_: Request<RequestBody>| answer(Arc::clone(&piece)));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let addr = listener.local_addr().unwrap();
    runtime.spawn(serve(listener, service).into_future());
    (addr, Server::Shared(runtime))
}

/// A connection that repeats its request.
struct Client(TcpStream);

impl Client {
    fn ask(&mut self) {
        self.0.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    }

    /// Reads a chunked response. Returns the number of the core.
    fn take(&mut self, expected: &[u8]) -> usize {
        let mut got = Vec::with_capacity(8 << 10);
        while !got.ends_with(b"\r\n0\r\n\r\n") {
            let mut buf = [0; 8 << 10];
            let n = self.0.read(&mut buf).unwrap();
            assert!(n > 0, "the server closed the connection");
            got.extend_from_slice(&buf[..n]);
        }
        let body = got.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        let head = std::str::from_utf8(&got[..body]).unwrap();
        let core = head.lines().find_map(|line| line.strip_prefix("core: ")).unwrap().parse().unwrap();
        let mut rest = &got[body..];
        for digest in expected.chunks(DIGEST) {
            rest = rest.strip_prefix(b"20\r\n").unwrap().strip_prefix(digest).expect("another digest");
            rest = rest.strip_prefix(b"\r\n").unwrap();
        }
        assert_eq!(rest, b"0\r\n\r\n");
        core
    }
}

struct Served {
    workers: usize,
    clients: Vec<Client>,
    expected: Arc<[u8]>,
    /// Sums of all rounds: the client's CPU time, the server's, and wall time.
    client: Duration,
    server: Duration,
    wall: Duration,
    _server: Server,
}

impl Served {
    fn new(workers: usize, (addr, server): (SocketAddr, Server), expected: &Arc<[u8]>) -> Self {
        let cores = if let Server::OnCores(..) = server { workers } else { 1 };
        let mut clients: Vec<Vec<Client>> = (0..cores).map(|_| Vec::new()).collect();
        while clients.iter().any(|own| own.len() < CONNECTIONS / cores) {
            let mut client = Client(TcpStream::connect(addr).unwrap());
            client.ask();
            let own = &mut clients[client.take(expected)];
            if own.len() < CONNECTIONS / cores {
                own.push(client);
            }
        }
        let clients = clients.into_iter().flatten().collect();
        let [client, of_server, wall] = [Duration::ZERO; 3];
        Self { workers, clients, expected: Arc::clone(expected), client, server: of_server, wall, _server: server }
    }
}

impl Work for Served {
    fn run(&mut self, operations: u64) -> Spent {
        let (start, server, client) = (Instant::now(), cpu_of_others(), cpu_of_this_thread());
        for _ in 0..operations {
            self.clients.iter_mut().for_each(Client::ask);
            for client in &mut self.clients {
                client.take(&self.expected);
            }
        }
        let spent = Spent { wall: start.elapsed(), cpu: cpu_of_others().saturating_sub(server) };
        self.client += cpu_of_this_thread() - client;
        self.server += spent.cpu;
        self.wall += spent.wall;
        spent
    }

    fn note(&mut self) -> String {
        let part = |time: Duration| time.as_secs_f64() / self.wall.as_secs_f64();
        let (server, client) = (part(self.server), part(self.client) * 100.0);
        format!("{server:.2} of {} CPUs, client {client:.1}%", self.workers)
    }
}

pub(crate) fn run(suite: &mut Suite) {
    let goals = [Goal { against: "millstream Cores, one", by: By::Wall, most: 0.56 }];
    let units = (CONNECTIONS * PIECES * PIECE / (1 << 20)) as u64;
    let case = Case { goals: &goals, ..Case::by_wall("two workers, digests", "wall us/MiB", units) };
    suite.run(&case, || {
        let piece: Arc<[u8]> = noise(PIECE).into();
        let mut digests = Digests { piece: Arc::clone(&piece), done: 0 };
        let expected: Vec<u8> = std::iter::from_fn(|| digests.next()).flatten().collect();
        let expected = expected.into();
        let served = |workers, server| Box::new(Served::new(workers, server, &expected));
        vec![
            Contender { name: "millstream Cores, two", run: served(2, on_cores(2, Arc::clone(&piece))) },
            Contender { name: "millstream Cores, one", run: served(1, on_cores(1, Arc::clone(&piece))) },
            Contender { name: "multi_thread, two", run: served(2, shared(2, piece)) },
        ]
    });
}
