//! A process that starts its successor at SIGUSR2, from its own path.

use std::convert::Infallible;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response};
use millstream::server::{RequestBody, serve};
use millstream_handoff::{Handoff, notify, start_successor};
use rustix::process::{Pid, Signal, kill_process};
use testkit::child;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use super::managed::Manager;
use super::processes::{asked, free, until};
use super::{moves, until_replaced};

/// In the child: serves until its successor does, unless there is a file `fails`. Answers have the number of the process.
fn serves(what: &str) {
    let (path, addr) = what.split_once(' ').unwrap();
    let path = PathBuf::from(path);
    Builder::new_current_thread().enable_all().build().unwrap().block_on(run(path, addr)).unwrap();
}

async fn run(path: PathBuf, addr: &str) -> std::io::Result<()> {
    assert!(!path.with_file_name("fails").exists(), "as the test wants it");
    // From here on the signal does not end the process.
    drop(signal(SignalKind::user_defined2())?);
    let mut handoff = Handoff::open(&path).await?;
    let listener = handoff.tcp("http", addr).await?;
    let serving = handoff.ready().await?;
    let service = tower::service_fn(move |request: Request<RequestBody>| async move {
        let text = format!("{} {}", std::process::id(), request.uri().path());
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
    });
    let server = || serve(listener.clone(), service).move_connections(listener.give());
    let drain = || {
        let (successor, mut replace) = (serving.successor(), signal(SignalKind::user_defined2()).unwrap());
        async move {
            let replaced = async {
                loop {
                    replace.recv().await;
                    let error = start_successor().await;
                    notify(&format!("STATUS={error}")).await.unwrap();
                }
            };
            tokio::select! {
                () = successor => {}
                () = replaced => {}
            }
        }
    };
    until_replaced(&serving, server, drain).await.map(drop)
}

/// The process that serves now, which may be no child of this one. Killed at its end.
struct Current(Option<Pid>);

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(process) = self.0 {
            // Fails only if it has ended.
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

impl Current {
    fn number(&self) -> usize {
        self.0.unwrap().as_raw_nonzero().get() as usize
    }

    /// Tells it to replace itself.
    fn signal(&self, manager: &Manager) {
        kill_process(self.0.unwrap(), Signal::USR2).unwrap();
        let (message, _) = manager.message();
        let since = message.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect(&message);
        assert!(since.parse::<u64>().unwrap() > 0);
    }

    /// Waits until a process says that it is the main one, and returns whether it is another one.
    fn changed(&mut self, manager: &Manager) -> bool {
        let (message, _) = manager.message();
        let number = message.strip_prefix("READY=1\nMAINPID=").expect(&message).parse().unwrap();
        let before = self.0.replace(Pid::from_raw(number).unwrap());
        before != self.0
    }
}

#[test]
fn no_request_fails_while_a_process_replaces_itself() {
    const NAME: &str = "replaced::no_request_fails_while_a_process_replaces_itself";
    const REPLACEMENTS: usize = 6;
    const CLIENTS: u64 = 20;
    if let Some(what) = child::task() {
        return serves(&what);
    }
    if !moves() {
        return;
    }
    let (manager, addr) = (Manager::new(), free());
    let mut current = Current(None);
    let mut first = manager.start(NAME, &addr.to_string(), vec![]);
    assert!(current.changed(&manager));
    assert_eq!(current.number(), first.0.id() as usize);
    let (end, requests) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let (end, requests) = (Arc::clone(&end), Arc::clone(&requests));
            thread::spawn(move || {
                let mut client = TcpStream::connect(addr).unwrap();
                while !end.load(Ordering::Relaxed) {
                    thread::park_timeout(Duration::from_millis(n));
                    if n % 4 == 0 {
                        client = TcpStream::connect(addr).unwrap();
                    }
                    asked(&mut client, "/load").expect("an answer on a connection that stays open");
                    requests.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let more = || {
        let before = requests.load(Ordering::Relaxed);
        until("requests", || (requests.load(Ordering::Relaxed) > before + CLIENTS as usize).then_some(()));
    };
    for round in 0..REPLACEMENTS {
        more();
        if round % 2 == 1 {
            fails_once(&manager, &mut current);
            more();
        }
        let before = current.number();
        current.signal(&manager);
        assert!(current.changed(&manager), "another process serves");
        until("the old process ends", || has_ended(before).then_some(()));
        assert_eq!(asked(&mut TcpStream::connect(addr).unwrap(), "/by"), Some(current.number()));
    }
    more();
    end.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("no request fails"));
    assert!(first.0.wait().unwrap().success());
}

/// Returns whether a process has ended, also if its parent has not noticed.
fn has_ended(number: usize) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{number}/stat"));
    status.map_or(true, |status| status.rsplit_once(") ").unwrap().1.starts_with('Z'))
}

/// Lets a successor fail before it is ready.
fn fails_once(manager: &Manager, current: &mut Current) {
    let file = manager.place.path().with_file_name("fails");
    std::fs::write(&file, "").unwrap();
    current.signal(manager);
    assert!(!current.changed(manager), "the old process is the main one");
    let (status, _) = manager.message();
    assert!(status.starts_with("STATUS=it has ended with "), "{status}");
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_process_whose_successor_cannot_start_goes_on() {
    const NAME: &str = "replaced::a_process_whose_successor_cannot_start_goes_on";
    if let Some(what) = child::task() {
        return serves(&what);
    }
    let (manager, addr) = (Manager::new(), free());
    let mut current = Current(None);
    let first = manager.start(NAME, &addr.to_string(), vec![]);
    assert!(current.changed(&manager));
    let mut client = TcpStream::connect(addr).unwrap();
    for _ in 0..3 {
        assert_eq!(asked(&mut client, "/a"), Some(current.number()));
        fails_once(&manager, &mut current);
        assert_eq!(current.number(), first.0.id() as usize);
    }
    assert_eq!(asked(&mut client, "/b"), Some(current.number()));
}
