//! Ten thousand idle keep-alive clients cost the server little memory, and none after they have disconnected.
//!
//! The server is this program started anew, so that the clients' memory and descriptors are not counted.
//!
//! Cost of an idle HTTP/1 connection: hyper allocates 8 KiB for reading and 8 KiB for response heads; small requests
//! and responses touch the first page of each. Task and stream take less than 3 KiB. The kernel's socket memory is not
//! part of the process and not counted.

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

use testkit::http::{Flavour, watched};
use testkit::served::{Server, until_ended};
use testkit::{child, skip};

const NAME: &str = "idle::an_idle_connection_costs_little_and_nothing_once_it_has_gone";

const CONNECTIONS: usize = 10_000 / EACH;
/// Descriptors that a connection takes.
const EACH: usize = if cfg!(millstream_portable) { 2 } else { 1 };
const RESIDENT: usize = 14 << 10;
/// Maximum allocated memory of a connection, including hyper's buffers of 8 KiB.
const ALLOCATED: u64 = 22 << 10;
/// Maximum number of bytes still allocated at the end: grown tables and globals of the process.
const LEFT: i64 = 1 << 20;

#[test]
fn an_idle_connection_costs_little_and_nothing_once_it_has_gone() {
    // For the listener, the runtime and other descriptors of a test program.
    let enough = (EACH * CONNECTIONS) as u64 + 500;
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < enough) {
        return skip(NAME, format!("RLIMIT_NOFILE cannot be raised to {enough}"));
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    if let Some(flavour) = child::task() {
        return serve(Flavour::BOTH[flavour.parse::<usize>().unwrap()]);
    }
    watched(|| {
        for (index, flavour) in Flavour::BOTH.into_iter().enumerate() {
            let mut server = Server::start(&mut child::command(NAME, &index.to_string()));
            visit(flavour, &server);
            let told = server.end();
            let allocated = told.iter().find_map(|line| line.strip_prefix("allocated "));
            // Only a single thread counts all allocations.
            assert_eq!(allocated.is_some(), flavour == Flavour::CurrentThread, "{told:?}");
            let Some((peak, left)) = allocated.and_then(|numbers| numbers.split_once(' ')) else { continue };
            let (each, left) = (peak.parse::<u64>().unwrap() / CONNECTIONS as u64, left.parse::<i64>().unwrap());
            println!("{each} bytes allocated for each, {left} left");
            assert!(each <= ALLOCATED, "{each} bytes allocated for each");
            assert!(left < LEFT, "{left} bytes are left of {peak}");
        }
    });
}

fn visit(flavour: Flavour, server: &Server) {
    let addr = server.addr;
    let sockets = || server.open("socket:");
    let quiet = sockets();
    // Excludes memory that is set up once.
    ask(&mut TcpStream::connect(addr).unwrap());
    // A worker creates its ring, which has a task, for its first connection. A response that a worker gives while another
    // creates its ring counts one less, and one with the task of the connection before counts one more.
    let tasks = || ask(&mut TcpStream::connect(addr).unwrap()) - server.open("anon_inode:[io_uring]");
    let before = (0..50).map(|_| tasks()).max().unwrap();
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
        return skip(NAME, "connecting took longer than the server's keep-alive time");
    }
    println!("{flavour:?}: {resident} bytes resident for each of {CONNECTIONS} connections");
    assert!(tasks() >= CONNECTIONS, "one task per connection");
    assert!(resident <= RESIDENT, "{flavour:?}: {resident} bytes resident for each connection");
    drop(clients);
    // Resident memory is not checked: the allocator keeps pages for reuse.
    while tasks() > before {}
    while sockets() > quiet {}
}

/// Serves the number of live tasks until the end of the standard input, then prints the allocated bytes.
fn serve(flavour: Flavour) {
    let allocated = measure(|| {
        flavour.runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let tasks = tower::service_fn(async |_| {
                let tasks = Handle::current().metrics().num_alive_tasks();
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(format!("{tasks:>8}")))))
            });
            // More connections than the default, kept for as long as the setup takes.
            let limits = Limits::default().connections(2 * CONNECTIONS).keep_alive(Duration::from_secs(600));
            tokio::spawn(server::serve(listener, tasks).limits(limits).into_future());
            until_ended(addr).await;
        });
    });
    if flavour == Flavour::CurrentThread {
        println!("allocated {} {}", allocated.bytes_max, allocated.bytes_current);
    }
}

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
