//! Processes under a service manager, whose part the tests play: it passes sockets, and gets messages.

use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Instant;

use millstream_handoff::Handoff;
use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use testkit::child;
use tokio::runtime::Builder;

use super::processes::{asked, free};
use super::{HANGS, Place, Process, moves, run_by};

/// The environment of a service, and what it says.
pub(crate) struct Manager {
    pub(crate) place: Place,
    notify: UnixDatagram,
}

/// Killed at its end.
pub(crate) struct Service(pub(crate) Child);

impl Drop for Service {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Service {
    fn ready(&self) -> String {
        format!("READY=1\nMAINPID={}", self.0.id())
    }
}

impl Manager {
    pub(crate) fn new() -> Self {
        let place = Place::new();
        let notify = UnixDatagram::bind(place.dir.path().join("notify")).unwrap();
        notify.set_read_timeout(Some(HANGS)).unwrap();
        Self { place, notify }
    }

    /// Starts the test `name` as a service that is told `what` behind the path of the control socket, with at most two
    /// sockets and their names.
    pub(crate) fn start(&self, name: &str, what: &str, sockets: Vec<(&str, OwnedFd)>) -> Service {
        let own = child::command(name, &format!("{} {what}", self.place.path().display()));
        // The only descriptors that a command leaves open are the standard ones.
        let moved = ["", "exec 3<&0 </dev/null;", "exec 3<&0 4<&2 </dev/null 2>/dev/null;"][sockets.len()];
        let names = sockets.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(":");
        let script = format!("{moved} export LISTEN_PID=$$; exec \"$@\"");
        let mut command = run_by("sh", ["-c", &script, "sh"], &own);
        command.env("NOTIFY_SOCKET", self.place.dir.path().join("notify"));
        command.env("LISTEN_FDS", sockets.len().to_string()).env("LISTEN_FDNAMES", names);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        for ((_, socket), at) in sockets.into_iter().zip(0..) {
            match at {
                0 => command.stdin(socket),
                _ => command.stderr(socket),
            };
        }
        Service(command.spawn().unwrap())
    }

    /// Waits for the next message, and returns it with its descriptors.
    pub(crate) fn message(&self) -> (String, Vec<OwnedFd>) {
        let (mut bytes, mut fds) = ([0; 512], Vec::new());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        // Signals interrupt a call with a time limit.
        let received = retry_on_intr(|| {
            recvmsg(&self.notify, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)
        });
        let n = received.expect("a message").bytes;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        (String::from_utf8(bytes[..n].to_vec()).unwrap(), fds)
    }

    /// Expects this message, without descriptors.
    pub(crate) fn expect(&self, message: &str) {
        let (found, fds) = self.message();
        assert_eq!((&*found, fds.len()), (message, 0));
    }

    /// Returns the message that has come, if there is one.
    fn come(&self) -> Option<String> {
        self.notify.set_nonblocking(true).unwrap();
        let mut bytes = [0; 512];
        let come = self.notify.recv(&mut bytes).ok();
        self.notify.set_nonblocking(false).unwrap();
        come.map(|n| String::from_utf8(bytes[..n].to_vec()).unwrap())
    }
}

/// In the child: a process with this number, and a listener that is called `http`.
fn serve(what: &str) {
    let words: Vec<_> = what.split(' ').collect();
    let &[path, how, number, addr] = &*words else { panic!("{what}") };
    let (path, addr, number) = (PathBuf::from(path), addr.parse().unwrap(), number.parse().unwrap());
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut handoff = Handoff::open(&path).await.unwrap();
        match how {
            "serves" => {}
            "stores" => handoff.store_listeners(),
            // Another one has the listeners of the manager.
            "opens-again" => handoff = Handoff::open(path.with_file_name("other")).await.unwrap(),
            "dies" => {
                let _serving = handoff.ready().await.unwrap();
                std::process::exit(3);
            }
            "dies-early" => std::process::exit(3),
            _ => panic!("{how}"),
        }
        Process::serve(handoff, number, addr).await.ended().await;
    });
}

/// A client that has asked, also if no process serves now.
fn asking(addr: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(addr).unwrap();
    write!(client, "GET /waits HTTP/1.1\r\nHost: mill\r\n\r\n").unwrap();
    client
}

/// The number of the process that answers what was asked before.
fn answered(mut client: TcpStream) -> usize {
    // Its answer comes after the one that is owed.
    let mut answer = [0; 4096];
    let mut text = String::new();
    client.set_read_timeout(Some(HANGS)).unwrap();
    while !text.contains("/waits") {
        let n = std::io::Read::read(&mut client, &mut answer).expect("an answer");
        assert!(n > 0, "an end in place of an answer: {text}");
        text.push_str(std::str::from_utf8(&answer[..n]).unwrap());
    }
    text.rsplit_once("\r\n").unwrap().1.split_once(' ').unwrap().0.parse().unwrap()
}

#[test]
fn a_listener_of_a_manager_outlives_a_crash_with_the_clients_that_wait() {
    const NAME: &str = "managed::a_listener_of_a_manager_outlives_a_crash_with_the_clients_that_wait";
    if let Some(what) = child::task() {
        return serve(&what);
    }
    let (manager, socket) = (Manager::new(), TcpListener::bind(free()).unwrap());
    let addr = socket.local_addr().unwrap();
    // By its name, and by its address.
    for (number, name, wanted) in [(1, "http", "127.0.0.1:0".to_owned()), (2, "web.socket", addr.to_string())] {
        let waiting = asking(addr);
        let what = format!("serves {number} {wanted}");
        let service = manager.start(NAME, &what, vec![(name, socket.try_clone().unwrap().into())]);
        manager.expect(&service.ready());
        assert_eq!(answered(waiting), number);
        assert_eq!(asked(&mut TcpStream::connect(addr).unwrap(), "/a"), Some(number));
        assert_eq!(manager.come(), None, "all listeners are claimed");
        // Programs that it starts do not get the listener.
        if let Ok(info) = std::fs::read_to_string(format!("/proc/{}/fdinfo/3", service.0.id())) {
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
            assert_eq!(u32::from_str_radix(flags, 8).unwrap() & 0o2_000_000, 0o2_000_000, "O_CLOEXEC");
        }
    }
}

#[test]
fn a_listener_that_is_stored_outlives_a_crash() {
    const NAME: &str = "managed::a_listener_that_is_stored_outlives_a_crash";
    if let Some(what) = child::task() {
        return serve(&what);
    }
    let (manager, addr) = (Manager::new(), free());
    let service = manager.start(NAME, &format!("stores 1 {addr}"), vec![]);
    manager.expect(&service.ready());
    let (message, mut stored) = manager.message();
    assert_eq!((&*message, stored.len()), ("FDSTORE=1\nFDNAME=http", 1));
    assert_eq!(asked(&mut TcpStream::connect(addr).unwrap(), "/a"), Some(1));
    drop(service);
    let waiting = asking(addr);
    let stored = stored.remove(0);
    // Beside it one that the program does not have any more.
    let gone = TcpListener::bind(free()).unwrap();
    let gone_addr = gone.local_addr().unwrap();
    let sockets = vec![("http", stored.try_clone().unwrap()), ("gone", gone.into())];
    let service = manager.start(NAME, "stores 2 127.0.0.1:0", sockets);
    manager.expect(&service.ready());
    assert_eq!(answered(waiting), 2);
    assert_eq!(manager.message().0, "FDSTORE=1\nFDNAME=http");
    manager.expect("FDSTOREREMOVE=1\nFDNAME=gone");
    // A child that another test starts has the socket, too, until it begins its program.
    let since = Instant::now();
    while TcpStream::connect(gone_addr).is_ok() {
        assert!(since.elapsed() < HANGS, "it is closed");
        std::thread::yield_now();
    }
}

#[test]
fn listeners_are_stored_when_the_process_before_has_given_everything() {
    const NAME: &str = "managed::listeners_are_stored_when_the_process_before_has_given_everything";
    if let Some(what) = child::task() {
        return serve(&what);
    }
    let manager = Manager::new();
    // This process is the one before, and has a listener that the next one does not want.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (addr, serving) = runtime.block_on(async {
        let mut handoff = Handoff::open(manager.place.path()).await.unwrap();
        let listener = handoff.tcp("http", free()).await.unwrap();
        handoff.tcp("gone", free()).await.unwrap();
        (listener.get_ref().local_addr().unwrap(), handoff.ready().await.unwrap())
    });
    let successor = runtime.spawn(serving.successor());
    let service = manager.start(NAME, "stores 2 127.0.0.1:0", vec![]);
    manager.expect(&service.ready());
    runtime.block_on(successor).unwrap();
    assert_eq!(asked(&mut TcpStream::connect(addr).unwrap(), "/a"), Some(2));
    assert_eq!(manager.come(), None, "this process may still go on");
    assert_eq!(runtime.block_on(serving.finish()).unwrap(), Some(0));
    assert_eq!(manager.message().0, "FDSTORE=1\nFDNAME=http");
    manager.expect("FDSTOREREMOVE=1\nFDNAME=gone");
}

#[test]
fn what_is_passed_to_another_process_or_is_no_listener_is_left_alone() {
    const NAME: &str = "managed::what_is_passed_to_another_process_or_is_no_listener_is_left_alone";
    if let Some(what) = child::task() {
        return serve(&what);
    }
    let (manager, addr) = (Manager::new(), free());
    let other = tempfile::tempfile().unwrap();
    let service = manager.start(NAME, &format!("serves 1 {addr}"), vec![("http", other.into())]);
    manager.expect(&service.ready());
    assert_eq!(asked(&mut TcpStream::connect(addr).unwrap(), "/a"), Some(1), "it has bound its own one");
    let is_file = |fd: &str| {
        let path = std::fs::read_link(format!("/proc/{}/fd/{fd}", service.0.id()));
        cfg!(not(target_os = "linux")) || path.is_ok_and(|path| path.to_string_lossy().contains("(deleted)"))
    };
    assert!(is_file("3"), "the program may look for its file");
    // The environment is the one of the first process.
    let next = manager.start(NAME, "serves 2 127.0.0.1:0", vec![]);
    manager.expect(&next.ready());
    let mut service = service;
    assert!(service.0.wait().unwrap().success());
    assert_eq!(asked(&mut TcpStream::connect(addr).unwrap(), "/b"), Some(2));
}

#[test]
fn what_a_manager_passes_is_taken_once() {
    const NAME: &str = "managed::what_a_manager_passes_is_taken_once";
    if let Some(what) = child::task() {
        return serve(&what);
    }
    let (manager, addr) = (Manager::new(), free());
    let sockets = vec![("http", TcpListener::bind(free()).unwrap().into())];
    let service = manager.start(NAME, &format!("opens-again 1 {addr}"), sockets);
    manager.expect(&service.ready());
    assert_eq!(asked(&mut TcpStream::connect(addr).unwrap(), "/a"), Some(1));
}

#[test]
fn a_manager_knows_the_main_process_before_the_old_one_ends() {
    const NAME: &str = "managed::a_manager_knows_the_main_process_before_the_old_one_ends";
    if let Some(what) = child::task() {
        return serve(&what);
    }
    let (manager, addr) = (Manager::new(), free());
    let mut service = manager.start(NAME, &format!("serves 1 {addr}"), vec![]);
    manager.expect(&service.ready());
    for number in 2..12 {
        let next = manager.start(NAME, &format!("serves {number} 127.0.0.1:0"), vec![]);
        assert!(service.0.wait().unwrap().success());
        // The kernel keeps what was sent before the end.
        assert_eq!(manager.come(), Some(next.ready()));
        service = next;
    }
}

#[test]
fn a_process_whose_successor_fails_is_the_main_one_again() {
    const NAME: &str = "managed::a_process_whose_successor_fails_is_the_main_one_again";
    if let Some(what) = child::task() {
        return serve(&what);
    }
    if !moves() {
        return;
    }
    let (manager, addr) = (Manager::new(), free());
    let service = manager.start(NAME, &format!("serves 1 {addr}"), vec![]);
    manager.expect(&service.ready());
    let mut client = TcpStream::connect(addr).unwrap();
    for _ in 0..5 {
        assert_eq!(asked(&mut client, "/a"), Some(1));
        let mut dying = manager.start(NAME, "dies 2 127.0.0.1:0", vec![]);
        assert_eq!(dying.0.wait().unwrap().code(), Some(3));
        manager.expect(&dying.ready());
        manager.expect(&service.ready());
        let mut dying = manager.start(NAME, "dies-early 2 127.0.0.1:0", vec![]);
        assert_eq!(dying.0.wait().unwrap().code(), Some(3));
        manager.expect(&service.ready());
    }
    assert_eq!(asked(&mut client, "/b"), Some(1));
}
