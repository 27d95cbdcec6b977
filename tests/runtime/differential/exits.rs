//! Processes that exit: bytes accepted by their streams reach the peer as they do with tokio's streams.

use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use millstream::net;
use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

use super::Subject;
use super::peer::{Bytes, End, Peer, payload};
use testkit::child;
use testkit::http::Flavour;
use testkit::limits::drop_capabilities;

/// Ways in which a process ends, with the state of its stream at that time.
const WAYS: [&str; 8] = [
    // Small writes, then a flush, then an exit by the task.
    "flushed, exit in a task",
    "written, exit in a task",
    "written, exit of the main thread",
    "written, main returns",
    // As many bytes as the stream accepts; the peer reads after the process has ended.
    "full, exit of the main thread",
    "full and dropped, main returns",
    "full and dropped with its runtime, main returns",
    "full, exit while a task computes",
];

/// The same with a buffer that cannot grow: the exit waits for the peer, which reads continuously.
const WAITING: [&str; 2] = ["limited, exit of the main thread", "limited and dropped, main returns"];

#[test]
fn a_process_that_exits_hands_everything_to_the_kernel() {
    for way in WAYS {
        for stream in ["tokio", "ours"] {
            for tcp in [true, false] {
                for flavour in Flavour::BOTH {
                    loses_nothing(way, stream, tcp, flavour, true);
                }
            }
        }
    }
}

#[test]
fn a_process_that_exits_waits_for_a_peer_that_reads() {
    for way in WAITING {
        for tcp in [true, false] {
            for flavour in Flavour::BOTH {
                loses_nothing(way, "ours", tcp, flavour, false);
            }
        }
    }
}

fn loses_nothing(way: &str, stream: &str, tcp: bool, flavour: Flavour, after: bool) {
    let case = format!("{way} ({stream}, {}, {flavour:?})", if tcp { "TCP" } else { "Unix" });
    let (listener, dir) = listener(tcp, after);
    let addr = match tcp {
        true => listener.local_addr().unwrap().as_socket().unwrap().to_string(),
        false => dir.path().join("socket").display().to_string(),
    };
    let what = [way, stream, if tcp { "tcp" } else { "unix" }, &format!("{flavour:?}"), &addr].join("|");
    let mut command = child::command("differential::exits::child", &what);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut peer = Peer::new(listener.accept().unwrap().0);
    let said = if after {
        let said = ends(child, &case);
        peer.read(usize::MAX);
        said
    } else {
        // The peer starts to read once the stream is full.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines.find_map(|line| line.ok().filter(|line| line.contains("taken: "))).unwrap_or_default();
        peer.read(usize::MAX);
        ends(child, &case);
        said
    };
    let taken = said.lines().rev().find_map(|line| line.split_once("taken: ")?.1.trim().parse().ok());
    let taken = taken.unwrap_or_else(|| panic!("{case}: {said}"));
    let seen = peer.seen(taken);
    assert_eq!((seen.bytes, seen.end), (Bytes::All, End::Eof), "{case}, {taken} bytes: {said}");
}

/// Returns the output of a child, once the child has ended.
fn ends(child: Child, case: &str) -> String {
    let pid = Pid::from_child(&child);
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let output = wait.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| {
        kill_process(pid, Signal::KILL).unwrap();
        panic!("{case}: does not end");
    });
    let output = output.unwrap();
    assert!(output.status.success(), "{case}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn listener(tcp: bool, narrow: bool) -> (Socket, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let (domain, addr) = match tcp {
        true => (Domain::IPV4, SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)))),
        false => (Domain::UNIX, SockAddr::unix(dir.path().join("socket")).unwrap()),
    };
    let listener = Socket::new(domain, Type::STREAM, None).unwrap();
    if narrow {
        // Connections inherit it.
        listener.set_recv_buffer_size(4096).unwrap();
    }
    listener.bind(&addr).unwrap();
    listener.listen(1).unwrap();
    (listener, dir)
}

#[test]
fn child() {
    let Some(told) = child::task() else { return };
    let [way, stream, family, flavour, addr] = told.split('|').collect::<Vec<_>>().try_into().unwrap();
    let flavour = Flavour::BOTH.into_iter().find(|known| format!("{known:?}") == flavour).unwrap();
    let socket: OwnedFd = match family {
        "tcp" => std::net::TcpStream::connect(addr).unwrap().into(),
        _ => std::os::unix::net::UnixStream::connect(addr).unwrap().into(),
    };
    rustix::io::ioctl_fionbio(&socket, true).unwrap();
    match (stream, family) {
        ("tokio", "tcp") => exits::<tokio::net::TcpStream>(way, flavour, socket),
        ("tokio", _) => exits::<tokio::net::UnixStream>(way, flavour, socket),
        (_, "tcp") => exits::<net::TcpStream>(way, flavour, socket),
        _ => exits::<net::UnixStream>(way, flavour, socket),
    }
}

/// Writes until the stream accepts no more. Returns the number of bytes accepted.
async fn fill<S: Subject>(stream: &mut S) -> usize {
    let mut taken = 0;
    let most = Duration::from_millis(50);
    while let Ok(n) = tokio::time::timeout(most, stream.write(&payload()[taken..][..1000])).await {
        taken += n.unwrap();
    }
    taken
}

/// The buffer that cannot grow shows whether the exit waits for the peer.
fn exits<S: Subject>(way: &str, flavour: Flavour, socket: OwnedFd) {
    let (what, how) = way.split_once(", ").unwrap();
    let limited = what.starts_with("limited");
    if limited {
        // The capabilities of this thread, which is the one that creates the stream, drops it or exits.
        drop_capabilities();
    }
    let buffer = if limited { 1 << 30 } else { 4096 };
    if what.starts_with("full") || limited {
        SockRef::from(&socket).set_send_buffer_size(buffer).unwrap();
    }
    let runtime = flavour.runtime();
    let mut stream = runtime.block_on(async { S::adopt(socket) });
    let taken = runtime.block_on(async {
        if what.starts_with("full") || limited {
            return fill(&mut stream).await;
        }
        stream.write_all(&payload()[..3]).await.unwrap();
        stream.write_all(&payload()[3..7]).await.unwrap();
        if what.starts_with("flushed") {
            stream.flush().await.unwrap();
        }
        7
    });
    println!("taken: {taken}");
    match how {
        "exit in a task" => runtime.block_on(async {
            let flushed = what.starts_with("flushed");
            let task = async move {
                stream.write_all(&payload()[7..9]).await.unwrap();
                stream.write_all(&payload()[9..12]).await.unwrap();
                if flushed {
                    stream.flush().await.unwrap();
                }
                println!("taken: 12");
                std::process::exit(0);
            };
            tokio::spawn(task).await.unwrap();
        }),
        "exit of the main thread" => std::process::exit(0),
        "exit while a task computes" => {
            let (tell, told) = mpsc::channel();
            std::thread::spawn(move || {
                told.recv().unwrap();
                std::process::exit(0);
            });
            runtime.block_on(async {
                let task = async move {
                    tell.send(()).unwrap();
                    loop {
                        assert!(stream.as_fd().as_fd().try_clone_to_owned().is_ok());
                    }
                };
                tokio::spawn(task).await.unwrap();
            });
        }
        "main returns" => {
            if what.ends_with("dropped") {
                drop(stream);
            } else if what.ends_with("with its runtime") {
                runtime.spawn(async move {
                    std::future::pending::<()>().await;
                    drop(stream);
                });
            } else {
                // The stream and the runtime live as long as the process.
                Box::leak(Box::new((stream, runtime)));
            }
        }
        _ => unreachable!("{how}"),
    }
}
