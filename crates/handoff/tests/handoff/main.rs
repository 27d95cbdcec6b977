//! Processes that take each other's place, here in one process: clients notice nothing.
#![cfg(unix)]

use std::convert::Infallible;
use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::{Request, Response};
use millstream::net::{Accept, TcpListener};
use millstream::server::{Drained, HttpService, RequestBody, Server, serve};
use millstream::sse::{Event, Hub};
use millstream_handoff::{Handoff, HandoffListener, Serving};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep, timeout};

use testkit::http::{Raw, on_both};
use testkit::skips::tell;

mod drained;
mod managed;
mod processes;
mod readers;
mod replaced;

const HANGS: Duration = Duration::from_secs(60);
const DEADLINE: Duration = Duration::from_secs(30);

/// The directory of the control socket.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("control")
    }
}

/// A process that serves. Its answers have its number.
struct Process {
    addr: SocketAddr,
    ended: JoinHandle<io::Result<(Drained, Option<usize>)>>,
}

impl Process {
    async fn start(path: &Path, number: usize) -> Self {
        let handoff = Handoff::open(path).await.unwrap();
        assert_eq!(handoff.is_successor(), number > 1);
        Self::serve(handoff, number, "127.0.0.1:0".parse().unwrap()).await
    }

    async fn serve(mut handoff: Handoff, number: usize, addr: SocketAddr) -> Self {
        let listener = handoff.tcp("http", addr).await.unwrap();
        let addr = listener.get_ref().local_addr().unwrap();
        let hub = Hub::builder().keep_alive(Duration::ZERO).past_layers(true).replay(10_000).queue(10_000).build();
        handoff.hub("events", &hub).unwrap();
        let serving = handoff.ready().await.unwrap();
        tokio::spawn(send(hub.clone(), number));
        let ended = tokio::spawn(run(listener, serving, hub, number));
        Self { addr, ended }
    }

    async fn ended(self) -> (Drained, Option<usize>) {
        timeout(HANGS, self.ended).await.expect("it ends").unwrap().unwrap()
    }
}

/// Sends the number of the process and the number of the event until the hub is closed.
async fn send(hub: Hub, process: usize) {
    let mut ticks = interval(Duration::from_millis(20));
    for n in 0.. {
        ticks.tick().await;
        if hub.send(Event::new().data(format!("{process}:{n}"))).is_err() {
            return;
        }
    }
}

async fn run(
    listener: HandoffListener<TcpListener>,
    serving: Serving,
    hub: Hub,
    number: usize,
) -> io::Result<(Drained, Option<usize>)> {
    let service = tower::service_fn(move |request: Request<RequestBody>| {
        let response = match request.uri().path() {
            "/events" => hub.subscribe(&request).map(Either::Left),
            path => Response::new(Either::Right(Full::new(Bytes::from(format!("{number} {path}"))))),
        };
        async { Ok::<_, Infallible>(response) }
    });
    let server = || serve(listener.clone(), service.clone()).move_connections(listener.give());
    until_replaced(&serving, server, || serving.successor()).await
}

/// Runs `server` until the next process serves. `signal` begins its drain.
async fn until_replaced<L: Accept, S: HttpService, F: Future + Send + 'static>(
    serving: &Serving,
    server: impl Fn() -> Server<L, S>,
    signal: impl Fn() -> F,
) -> io::Result<(Drained, Option<usize>)> {
    loop {
        let drained = server().drain(signal(), DEADLINE).await?;
        if let Ok(given) = serving.finish().await {
            return Ok((drained, given));
        }
    }
}

/// Returns the command that makes `program` run a child: behind these arguments.
fn run_by<A: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = A>, child: &Command) -> Command {
    let mut command = Command::new(program);
    command.args(args).arg(child.get_program()).args(child.get_args());
    command.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

/// Returns whether connections move: not without takeover.
fn moves() -> bool {
    let moves = !std::env::var("MILLSTREAM_DISABLE").is_ok_and(|disabled| disabled.contains("takeover"));
    if !moves {
        tell("connections that move: takeover is off");
    }
    moves
}

/// Asks on a connection that has to stay open. Returns the number of the process that has answered.
async fn asked(client: &mut Raw, path: &str) -> usize {
    let answer = async {
        client.ask(path).await;
        let head = client.head().await;
        assert_eq!((head.status, head.field("connection")), (200, None));
        client.body(head.content_length()).await.expect("a whole body")
    };
    let body = timeout(HANGS, answer).await.expect("an answer");
    let (number, asked) = std::str::from_utf8(&body).unwrap().split_once(' ').unwrap();
    assert_eq!(asked, path, "the answer to another request");
    number.parse().unwrap()
}

#[test]
fn no_request_fails_through_many_deploys_under_load() {
    const CLIENTS: usize = 100;
    const PROCESSES: usize = 8;
    if !moves() {
        return;
    }
    on_both(|| async {
        let place = Place::new();
        let mut process = Process::start(&place.path(), 1).await;
        let (addr, end) = (process.addr, Arc::new(AtomicBool::new(false)));
        let requests = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|n| {
                let (end, requests) = (Arc::clone(&end), Arc::clone(&requests));
                tokio::spawn(async move {
                    let (mut client, mut number, mut turn) = (Raw::connect(addr).await, 0, n);
                    while !end.load(Ordering::Relaxed) {
                        sleep(Duration::from_micros((turn * 7919) as u64 % 50_000)).await;
                        if n % 4 == 0 && turn % 5 == 0 {
                            // A new connection, to any of two processes.
                            client = Raw::connect(addr).await;
                            number = 0;
                        }
                        let by = asked(&mut client, &format!("/{n}/{turn}")).await;
                        assert!(by >= number, "an earlier process answers");
                        number = by;
                        turn += 1;
                        requests.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let mut given = 0;
        for number in 2..=PROCESSES {
            sleep(Duration::from_millis(150)).await;
            let next = Process::start(&place.path(), number).await;
            assert_eq!(next.addr, addr);
            let (drained, moved) = process.ended().await;
            assert_eq!((drained.aborted, drained.notified), (0, 0), "{drained:?}");
            assert_eq!(moved, Some(drained.moved));
            given += drained.moved;
            process = next;
        }
        end.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.unwrap();
        }
        // Clients that have made a new connection had one of their old ones open, at most.
        assert!(given >= (PROCESSES - 1) * CLIENTS * 3 / 4, "{given} connections moved");
        assert!(requests.load(Ordering::Relaxed) > CLIENTS);
    });
}

#[test]
fn a_process_that_dies_before_it_is_ready_changes_nothing() {
    if !moves() {
        return;
    }
    on_both(|| async {
        let place = Place::new();
        let first = Process::start(&place.path(), 1).await;
        let mut client = Raw::connect(first.addr).await;
        assert_eq!(asked(&mut client, "/a").await, 1);
        let mut dying = Handoff::open(place.path()).await.unwrap();
        let listener = dying.tcp("http", "127.0.0.1:0").await.unwrap();
        assert_eq!(listener.get_ref().local_addr().unwrap(), first.addr);
        let refused = Handoff::open(place.path()).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{refused}");
        assert!(refused.to_string().contains("another process is starting"), "{refused}");
        drop((dying, listener));
        assert_eq!(asked(&mut client, "/b").await, 1);
        assert_eq!(asked(&mut Raw::connect(first.addr).await, "/c").await, 1);
        // It may not have noticed yet that the other one has gone: a child of another test has its descriptors until it
        // runs its program.
        let opened = async {
            loop {
                match Handoff::open(place.path()).await {
                    Ok(handoff) => break handoff,
                    Err(e) => assert_eq!(e.kind(), io::ErrorKind::ConnectionRefused, "{e}"),
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        let handoff = timeout(HANGS, opened).await.expect("the other one has gone");
        let second = Process::serve(handoff, 2, "127.0.0.1:0".parse().unwrap()).await;
        first.ended().await;
        assert_eq!(asked(&mut client, "/d").await, 2);
        drop(second);
    });
}

#[test]
fn a_process_that_dies_after_it_is_ready_leaves_everything_to_the_old_one() {
    if !moves() {
        return;
    }
    on_both(|| async {
        let place = Place::new();
        let first = Process::start(&place.path(), 1).await;
        let mut client = Raw::connect(first.addr).await;
        assert_eq!(asked(&mut client, "/a").await, 1);
        // It claims no listener, and its runtime ends at once: the connections cannot be given.
        let path = place.path();
        let dies = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { drop(Handoff::open(path).await.unwrap().ready().await.unwrap()) });
        });
        dies.await.unwrap();
        assert_eq!(asked(&mut client, "/b").await, 1);
        let second = Process::start(&place.path(), 2).await;
        first.ended().await;
        assert_eq!(asked(&mut client, "/c").await, 2);
        drop(second);
    });
}

#[test]
fn the_control_socket_is_for_this_user_only_and_stays_in_its_place() {
    on_both(|| async {
        let place = Place::new();
        let first = Process::start(&place.path(), 1).await;
        let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(place.path()), 0o600);
        let second = Process::start(&place.path(), 2).await;
        first.ended().await;
        assert_eq!(mode(place.path()), 0o600);
        let third = Process::start(&place.path(), 3).await;
        second.ended().await;
        // A process that was killed leaves the file behind.
        third.ended.abort();
        drop(third);
        let mut handoff = loop {
            let handoff = Handoff::open(place.path()).await.unwrap();
            if !handoff.is_successor() {
                break handoff;
            }
            sleep(Duration::from_millis(1)).await;
        };
        handoff.tcp("http", "127.0.0.1:0").await.unwrap();
        handoff.ready().await.unwrap();
        assert_eq!(mode(place.path()), 0o600);
    });
}

#[test]
fn names_are_used_once_and_listeners_that_are_not_claimed_are_closed() {
    on_both(|| async {
        let place = Place::new();
        let mut handoff = Handoff::open(place.path()).await.unwrap();
        let one = handoff.tcp("one", "127.0.0.1:0").await.unwrap();
        let socket = place.dir.path().join("socket");
        let two = handoff.unix("two", &socket).await.unwrap();
        for name in ["one", "two", &"x".repeat(256)] {
            let error = handoff.tcp(name, "127.0.0.1:0").await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
        let mut storing = Handoff::open(place.dir.path().join("another")).await.unwrap();
        storing.tcp("one:two", "127.0.0.1:0").await.unwrap();
        storing.store_listeners();
        let error = storing.ready().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        let serving = handoff.ready().await.unwrap();
        let successor = tokio::spawn(serving.successor());
        let mut next = Handoff::open(place.path()).await.unwrap();
        let inherited = next.unix("two", place.dir.path().join("other")).await.unwrap();
        assert_eq!(inherited.get_ref().local_addr().unwrap().as_pathname(), Some(&*socket));
        let _next = next.ready().await.unwrap();
        timeout(HANGS, successor).await.expect("ready").unwrap();
        assert_eq!(serving.finish().await.unwrap(), Some(0));
        let addr = one.get_ref().local_addr().unwrap();
        drop((one, two, serving));
        assert!(socket.exists(), "the next process listens there");
        let gone = async {
            while std::net::TcpStream::connect(addr).is_ok() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(HANGS, gone).await.expect("no process listens there");
    });
}
