//! Ten thousand clients that have asked once and stay connected cost the server little memory, and nothing once they have
//! gone.
//!
//! The server is a process of its own, this program started anew, so that the clients' memory and descriptors are not
//! counted.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use millstream::{http, net::TcpListener};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Handle;

mod support;
use support::http::{Flavour, watched};
use support::served::{Server, until_ended};
use support::{child, skip};

const NAME: &str = "an_idle_connection_costs_little_and_nothing_once_it_has_gone";

const CONNECTIONS: usize = 10_000;

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
        return serve(flavour.parse().unwrap());
    }
    watched(|| {
        for (index, flavour) in Flavour::BOTH.into_iter().enumerate() {
            let mut server = Server::start(&mut child::command(NAME, &index.to_string()));
            let mut control = Client::connect(server.addr);
            let t = std::time::Instant::now();
            for round in 0..3 {
                let before = (server.memory(), server.fds(), control.tasks());
                let mut clients: Vec<Client> = Vec::with_capacity(CONNECTIONS);
                for _ in 0..CONNECTIONS {
                    let mut client = Client::connect(server.addr);
                    client.tasks();
                    clients.push(client);
                }
                let after = (server.memory(), server.fds(), control.tasks());
                println!(
                    "{flavour:?} {round} {before:?} {after:?} each {} {:?}",
                    (after.0["VmRSS"] - before.0["VmRSS"]) * 1024 / CONNECTIONS as u64,
                    t.elapsed()
                );
                drop(clients);
                while control.tasks() > 3 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                println!("{:?} {:?}", (server.memory(), server.fds(), control.tasks()), t.elapsed());
            }
            server.end();
        }
    });
}

/// Serves how many tasks there are, until the standard input ends.
fn serve(flavour: usize) {
    Flavour::BOTH[flavour].runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let tasks = tower::service_fn(async |_| {
            let tasks = Handle::current().metrics().num_alive_tasks();
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(format!("{tasks:>8}")))))
        });
        tokio::spawn(http::serve(listener, tasks).into_future());
        until_ended(addr).await;
    });
}

struct Client(TcpStream);

impl Client {
    fn connect(addr: SocketAddr) -> Self {
        Self(TcpStream::connect(addr).unwrap())
    }

    /// How many tasks the server has.
    fn tasks(&mut self) -> usize {
        self.0.write_all(b"GET / HTTP/1.1\r\nHost: mill\r\n\r\n").unwrap();
        let mut answer = [0; 1024];
        let mut got = 0;
        loop {
            let n = self.0.read(&mut answer[got..]).unwrap();
            assert!(n > 0, "the server has gone");
            got += n;
            if let Some(end) = answer[..got].windows(4).position(|window| window == b"\r\n\r\n")
                && got == end + 4 + 8
            {
                return std::str::from_utf8(&answer[end + 4..got]).unwrap().trim().parse().unwrap();
            }
        }
    }
}
