//! Memory of readers that wait for the next event, over HTTP/1.1: resident bytes of the process for each, without the
//! kernel's, and beside them the bytes of the heap, as its users request them.
//!
//! | row | |
//! |---|---|
//! | millstream Hub | [`Hub`] on [`server::serve`](millstream::server::serve()) |
//! | millstream Hub, boxed body | the same with `BoxBody`: each reader has a task |
//! | millstream Hub, by hyper | the same without takeover |
//! | axum Sse | `axum::serve` on tokio's listener, each stream with a receiver of one `tokio::sync::broadcast` |
//!
//! The second case is the same over TLS 1.3, with axum behind `tokio-rustls`.
//!
//! Each server is a child process, so that the clients do not count: this program with `--memory-child`. Its allocator
//! counts the heap of its only thread. The first readers pay for what exists once. All readers have had some events.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use http_body_util::BodyExt;
use millstream::sse::{EventBody, Hub};
use tokio::sync::broadcast;
use tokio::time::sleep;

use super::hub::{axum_app, data, send, serve_hub};
use super::readers::connect_all;
use super::tls;
use crate::common::contest::{Case, Measured};
use crate::common::options::options;
use crate::common::suite::Suite;
use crate::common::{listener, more_files, runtime};

/// Selects the child; neither cargo nor criterion uses this option.
const CHILD: &str = "--memory-child";

const WAYS: [&str; 4] = ["millstream Hub", "millstream Hub, boxed body", "millstream Hub, by hyper", "axum Sse"];

/// Argument of the child: whether it serves over TLS.
const OVER_TLS: &str = "tls";

/// Readers that come before the measurement.
const FIRST: usize = 100;
/// Events that each reader gets.
const EVENTS: usize = 3;
/// Longer than a server needs to come to rest.
const REST: Duration = Duration::from_secs(2);

/// Task of a child process.
pub(crate) struct Child {
    way: String,
    over_tls: bool,
    readers: usize,
}

/// Returns the task if this process is a child.
pub(crate) fn child() -> Option<Child> {
    let mut args = std::env::args().skip(1);
    (args.next()? == CHILD).then(|| Child {
        way: args.next().unwrap(),
        over_tls: args.next().unwrap() == OVER_TLS,
        readers: args.next().unwrap().parse().unwrap(),
    })
}

/// The readers of a server.
struct Served {
    count: Box<dyn Fn() -> usize>,
    send: Box<dyn Fn()>,
}

impl Served {
    /// Sends events to this many readers, and waits until all have come to rest.
    async fn settled(&self, readers: usize) {
        while (self.count)() < readers {
            sleep(Duration::from_millis(1)).await;
        }
        for _ in 0..EVENTS {
            sleep(Duration::from_millis(20)).await;
            (self.send)();
        }
        sleep(REST).await;
    }
}

impl Child {
    /// Serves the readers, and prints the growth of the process and of its heap in bytes.
    pub(crate) fn run(self) {
        more_files();
        let listener = listener();
        listener.set_nonblocking(true).unwrap();
        println!("{}", listener.local_addr().unwrap());
        let certificate = if self.over_tls { tls::certificate() } else { &[] };
        println!("{}", certificate.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        let runtime = runtime();
        let served = runtime.block_on(async {
            let served = self.serve(listener);
            served.settled(FIRST).await;
            served
        });
        println!("ready");
        let before = resident();
        let heap = allocation_counter::measure(|| runtime.block_on(served.settled(FIRST + self.readers)));
        println!("{} {}", resident().saturating_sub(before), heap.bytes_current);
        // Until the parent has ended.
        let _ = io::stdin().lines().next();
    }

    fn serve(&self, listener: std::net::TcpListener) -> Served {
        if self.way == "axum Sse" {
            let (sender, _) = broadcast::channel(1000);
            let app = axum_app(sender.clone());
            let events = sender.clone();
            if self.over_tls {
                tokio::spawn(tls::serve_axum(listener, app));
            } else {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                tokio::spawn(axum::serve(listener, app).into_future());
            }
            return Served {
                count: Box::new(move || sender.receiver_count()),
                send: Box::new(move || drop(events.send(data()))),
            };
        }
        let hub = Hub::new();
        let (served, events) = (hub.clone(), hub.clone());
        let tls = self.over_tls.then(tls::tls);
        match &*self.way {
            "millstream Hub, boxed body" => {
                tokio::spawn(serve_hub(listener, served, EventBody::boxed_unsync, true, tls))
            }
            way => tokio::spawn(serve_hub(listener, served, |body| body, way == "millstream Hub", tls)),
        };
        Served { count: Box::new(move || hub.stats().subscribers), send: Box::new(move || send(&events)) }
    }
}

/// Returns the resident bytes of this process that are no file.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    anonymous.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Returns the resident bytes and those of the heap for each reader.
fn measure(way: &str, over_tls: bool, readers: usize) -> [f64; 2] {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let wire = if over_tls { OVER_TLS } else { "plain" };
    command.args([CHILD, way, wire, &readers.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let addr = lines.next().expect("the child prints its address").parse().unwrap();
    let certificate = lines.next().expect("the child prints its certificate");
    let client = over_tls.then(|| tls::client(&from_hex(&certificate)));
    let first = connect_all(addr, FIRST, client.as_ref());
    assert_eq!(lines.next().as_deref(), Some("ready"));
    let others = connect_all(addr, readers, client.as_ref());
    let grown = lines.next().expect("the child prints its size");
    let (resident, heap) = grown.split_once(' ').unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    drop((first, others));
    [resident, heap].map(|bytes| bytes.parse::<f64>().unwrap() / readers as f64)
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

pub(crate) fn run(suite: &mut Suite) {
    let readers = options().pick(100, 1000, 2000).min(more_files().saturating_sub(500) as usize);
    case(suite, &format!("memory of readers, {readers} readers"), false, readers);
    case(suite, &format!("memory of readers over TLS, {readers} readers"), true, readers);
}

fn case(suite: &mut Suite, title: &str, over_tls: bool, readers: usize) {
    if !suite.begins(title) {
        return;
    }
    let mut measured = WAYS.map(|way| Measured { name: way.to_owned(), ..Measured::default() });
    for _ in 0..options().pick(1, 1, 3) {
        for measured in &mut measured {
            let [resident, heap] = measure(&measured.name, over_tls, readers);
            measured.cpu.push(resident);
            measured.wall.push(heap);
        }
    }
    suite.record(&Case { other: "heap B", ..Case::new(title, "bytes each", 1) }, measured.into());
}
