//! Ten thousand clients that have asked once and stay connected cost the server little memory, and nothing once they have
//! gone.
//!
//! The server is a process of its own, this program started anew, so that the clients' memory and descriptors are not
//! counted.
//!
//! What an idle connection of HTTP/1 costs: hyper allocates 8 KiB to read into and 8 KiB for heads of responses, of which
//! small requests and answers touch the first page each; the rest, task and stream, is below 3 KiB. The kernel's memory
//! for the socket is not the process's and not counted.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use allocation_counter::measure;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use millstream::net::TcpListener;
use millstream::server;
use millstream::server::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Handle;

use crate::support::http::{Flavour, watched};
use crate::support::served::{Server, until_ended};
use crate::support::{child, skip};

const NAME: &str = "idle::an_idle_connection_costs_little_and_nothing_once_it_has_gone";

const CONNECTIONS: usize = 10_000;
/// Most that one may cost in resident memory.
const RESIDENT: usize = 14 << 10;
/// What it may cost besides where the ring receives for it.
const BY_RING: usize = 1 << 10;
/// Most that one may cost in memory that is allocated, hyper's buffers of 8 KiB included.
const ALLOCATED: u64 = 22 << 10;
/// Most bytes that may be left of them all: tables that have grown, and what is made once for the process.
const LEFT: i64 = 1 << 20;

#[test]
fn an_idle_connection_costs_little_and_nothing_once_it_has_gone() {
    // For the listener, the runtime and what a test program has open besides.
    let enough = CONNECTIONS as u64 + 500;
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < enough) {
        return skip(NAME, format!("RLIMIT_NOFILE cannot be raised to {enough}"));
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    if let Some(flavour) = child::told() {
        return serve(Flavour::BOTH[flavour.parse::<usize>().unwrap()]);
    }
    watched(|| {
        for (index, flavour) in Flavour::BOTH.into_iter().enumerate() {
            let mut server = Server::start(&mut child::command(NAME, &index.to_string()));
            visit(flavour, &server);
            let told = server.end();
            let allocated = told.iter().find_map(|line| line.strip_prefix("allocated "));
            // Counted by the thread that does everything.
            assert_eq!(allocated.is_some(), flavour == Flavour::CurrentThread, "{told:?}");
            let Some((peak, left)) = allocated.and_then(|numbers| numbers.split_once(' ')) else { continue };
            let (each, left) = (peak.parse::<u64>().unwrap() / CONNECTIONS as u64, left.parse::<i64>().unwrap());
            println!("{each} bytes allocated for each, {left} left");
            assert!(each <= ALLOCATED, "{each} bytes allocated for each");
            assert!(left < LEFT, "{left} bytes are left of {peak}");
        }
    });
}

/// Connects many clients that ask once each, and lets them go.
fn visit(flavour: Flavour, server: &Server) {
    let addr = server.addr;
    let sockets = || server.open("socket:");
    let quiet = sockets();
    // What is set up once is not a connection's.
    ask(&mut TcpStream::connect(addr).unwrap());
    // A worker makes its ring, which has a task, when it first has a connection.
    let tasks = || ask(&mut TcpStream::connect(addr).unwrap()) - server.open("anon_inode:[io_uring]");
    let before = tasks();
    let memory = server.memory()["VmRSS"];
    let clients: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let mut client = TcpStream::connect(addr).unwrap();
            ask(&mut client);
            client
        })
        .collect();
    let resident = (server.memory()["VmRSS"] - memory) as usize * 1024 / CONNECTIONS;
    if sockets() < CONNECTIONS {
        return skip(NAME, "connecting has taken longer than the server keeps idle connections");
    }
    println!("{flavour:?}: {resident} bytes resident for each of {CONNECTIONS} connections");
    assert!(tasks() >= CONNECTIONS, "a task for each");
    let by_ring = std::env::var_os("MILLSTREAM_IO").is_some_and(|io| io == "uring");
    let most = RESIDENT + if by_ring { BY_RING } else { 0 };
    assert!(resident <= most, "{flavour:?}: {resident} bytes resident for each connection");
    drop(clients);
    // Pages that the allocator keeps for the next are not asked for here: what is allocated tells more.
    while tasks() > before {}
    while sockets() > quiet {}
}

/// Serves the number of tasks there are until the standard input ends, and says what was allocated.
fn serve(flavour: Flavour) {
    let allocated = measure(|| {
        flavour.runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let tasks = tower::service_fn(async |_| {
                let tasks = Handle::current().metrics().num_alive_tasks();
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(format!("{tasks:>8}")))))
            });
            // These few more than a server has by default, and for as long as connecting them takes.
            let limits = Limits::default().connections(2 * CONNECTIONS).keep_alive(Duration::from_secs(600));
            tokio::spawn(server::serve(listener, tasks).limits(limits).into_future());
            until_ended(addr).await;
        });
    });
    if flavour == Flavour::CurrentThread {
        println!("allocated {} {}", allocated.bytes_max, allocated.bytes_current);
    }
}

/// How many tasks the server says it has.
fn ask(client: &mut TcpStream) -> usize {
    client.write_all(b"GET / HTTP/1.1\r\nHost: mill\r\n\r\n").unwrap();
    let (mut answer, mut got) = ([0; 1024], 0);
    loop {
        let n = client.read(&mut answer[got..]).unwrap();
        assert!(n > 0, "the server has closed the connection");
        got += n;
        let head = answer[..got].windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(head) = head.filter(|head| got == head + 4 + 8) {
            return std::str::from_utf8(&answer[head + 4..got]).unwrap().trim().parse().unwrap();
        }
    }
}
