//! Real processes, which are killed at each of their calls.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use millstream_handoff::Handoff;
use rustix::process::{Pid, Signal, kill_process_group};
use testkit::{child, skip};
use tokio::runtime::Builder;

use super::{HANGS, Place, Process, moves, run_by};

/// Calls of the two processes on the control socket, and what follows from them.
const CALLS: &str = "sendmsg,recvmsg,accept4,shutdown";
const CLIENTS: usize = 10;
const READERS: usize = 3;

/// In the child: serves until another process takes its place.
fn serve(what: &str) {
    let mut words = what.split(' ');
    let mut word = || words.next().expect("a path, a number and an address");
    let (path, number, addr) = (PathBuf::from(word()), word().parse().unwrap(), word().parse().unwrap());
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let handoff = Handoff::open(path).await.unwrap();
        let process = Process::serve(handoff, number, addr).await;
        println!("\nserves");
        process.ended().await;
    });
}

struct Started {
    process: Child,
    /// Kept open: the test program in the child prints its result at its end.
    lines: Lines<BufReader<ChildStdout>>,
}

impl Started {
    /// Starts process `number` with this address, under strace with `options`, if there are any. Does not wait until it
    /// serves.
    fn start(name: &str, place: &Place, number: usize, addr: SocketAddr, options: &[String]) -> Self {
        let own = child::command(name, &format!("{} {number} {addr}", place.path().display()));
        let quiet = ["-f", "-qq", "-o", "/dev/null"].map(str::to_owned);
        let mut command = match options {
            [] => own,
            options => run_by("strace", quiet.iter().chain(options), &own),
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// Returns whether it serves; `false` if it has ended before.
    fn serves(&mut self) -> bool {
        self.lines.by_ref().map_while(Result::ok).any(|line| line == "serves")
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().unwrap()
    }

    fn wait(&mut self) -> ExitStatus {
        until("it ends", || self.ended())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // With the process that strace runs, which would go on without it.
        if self.process.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = kill_process_group(Pid::from_child(&self.process), Signal::KILL);
        }
        let _ = self.process.wait();
    }
}

pub(crate) fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(done) = done() {
            return done;
        }
        assert!(start.elapsed() < HANGS, "{what}");
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// An address that is free, and stays so: no other process uses this host, and no other call returns this port. No socket
/// looks for it: a process that another test starts at that moment would have the socket until it runs its program.
pub(crate) fn free() -> SocketAddr {
    static PORT: AtomicU16 = AtomicU16::new(10_000);
    let [.., high, low] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 77, high, low], PORT.fetch_add(1, Ordering::Relaxed)))
}

/// Asks, and returns the number of the process that has answered; `None` if the connection has ended.
pub(crate) fn asked(client: &mut TcpStream, path: &str) -> Option<usize> {
    client.set_read_timeout(Some(HANGS)).unwrap();
    write!(client, "GET {path} HTTP/1.1\r\nHost: mill\r\n\r\n").ok()?;
    let (mut answer, mut bytes) = (Vec::new(), [0; 512]);
    loop {
        let n = match client.read(&mut bytes) {
            Ok(0) => 0,
            Ok(n) => n,
            Err(e) => match e.kind() {
                std::io::ErrorKind::WouldBlock => panic!("no answer and no end"),
                // A process that is stopped and continued: signal(7) names reads with a timeout.
                std::io::ErrorKind::Interrupted => continue,
                _ => 0,
            },
        };
        if n == 0 {
            assert!(answer.is_empty(), "a part of an answer");
            return None;
        }
        answer.extend_from_slice(&bytes[..n]);
        let text = String::from_utf8(answer.clone()).unwrap();
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && let Some((number, asked)) = body.split_once(' ')
            && asked.len() >= path.len()
        {
            assert!(head.starts_with("HTTP/1.1 200 ") && asked == path, "{text}");
            return Some(number.parse().unwrap());
        }
    }
}

/// Asks on a new connection. One process listens at any time.
fn asked_anew(addr: SocketAddr) -> usize {
    // A connection that the dead process had accepted is reset.
    until("an answer", || asked(&mut TcpStream::connect(addr).ok()?, "/new"))
}

/// A reader of events, which reconnects as browsers do.
struct Reader {
    end: Arc<AtomicBool>,
    has_event: Arc<AtomicBool>,
    thread: thread::JoinHandle<Got>,
}

/// What a reader has got, in its order.
#[derive(Debug, Default)]
struct Got {
    /// The number of the process and that of the event.
    events: Vec<(usize, usize)>,
    /// The process that has sent the last event before a gap.
    gaps: Vec<Option<usize>>,
    connections: usize,
}

impl Reader {
    fn start(addr: SocketAddr) -> Self {
        let [end, has_event] = [(); 2].map(|()| Arc::<AtomicBool>::default());
        let (ends, has) = (Arc::clone(&end), Arc::clone(&has_event));
        Self { end, has_event, thread: thread::spawn(move || read_events(addr, &ends, &has)) }
    }

    fn end(self) -> Got {
        self.end.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn read_events(addr: SocketAddr, end: &AtomicBool, has_event: &AtomicBool) -> Got {
    let (mut got, mut last) = (Got::default(), String::new());
    while !end.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect(addr) else {
            thread::park_timeout(Duration::from_millis(2));
            continue;
        };
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let id = if last.is_empty() { String::new() } else { format!("Last-Event-ID: {last}\r\n") };
        if write!(stream, "GET /events HTTP/1.0\r\nHost: mill\r\n{id}\r\n").is_err() {
            continue;
        }
        got.connections += 1;
        let (mut text, mut bytes) = (String::new(), [0; 4096]);
        while !end.load(Ordering::Relaxed) {
            match stream.read(&mut bytes) {
                Ok(0) => break,
                Ok(n) => text.push_str(std::str::from_utf8(&bytes[..n]).unwrap()),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
            while let Some((event, rest)) = text.split_once("\n\n") {
                let line = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                if line("event: ") == Some("gap") {
                    got.gaps.push(got.events.last().map(|event| event.0));
                } else if let Some((process, number)) = line("data: ").and_then(|data| data.split_once(':')) {
                    got.events.push((process.parse().unwrap(), number.parse().unwrap()));
                    last = line("id: ").expect("an id").to_owned();
                    has_event.store(true, Ordering::Relaxed);
                }
                text = rest.to_owned();
            }
        }
    }
    got
}

/// Checks the events of a reader: those of each process come once, in order, and none is left out. Only behind a gap may
/// they come again. A gap is due only behind events that a killed process alone had.
fn check_events(got: &Got, killed: usize, whole: bool) {
    assert!(got.gaps.iter().all(|before| *before == Some(killed) && !whole), "{got:?}");
    if !got.gaps.is_empty() {
        return;
    }
    for process in 1..=3 {
        let numbers: Vec<_> = got.events.iter().filter(|event| event.0 == process).map(|event| event.1).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "process {process}: {got:?}");
    }
    // Those of a process come before those of the next, but for late ones, whose order the next one has decided.
    assert!(!whole || got.connections == 1, "the reader has noticed a whole handoff: {got:?}");
}

fn can_trace() -> bool {
    let works =
        Command::new("strace").args(["-o", "/dev/null", "true"]).output().is_ok_and(|tried| tried.status.success());
    if !works {
        skip("processes killed by strace", "strace does not work here");
    }
    works
}

/// Kills process 1 or 2 at each of its calls, while the second takes the place of the first.
fn killed_at_each_call(name: &str, killed: usize) {
    if let Some(what) = child::task() {
        return serve(&what);
    }
    if !can_trace() || !moves() {
        return;
    }
    let mut point = 0;
    loop {
        point += 1;
        let (place, addr) = (Place::new(), free());
        let inject = ["-e".to_owned(), format!("inject={CALLS}:signal=KILL:when={point}")];
        let options = |number| if number == killed { &inject[..] } else { &[] };
        let mut old = Started::start(name, &place, 1, addr, options(1));
        if !old.serves() {
            // Before there was anything to hand over.
            continue;
        }
        // The first one may be killed when it accepts a client, and then refuses those that come later.
        let mut clients: Vec<_> = (0..CLIENTS).filter_map(|_| TcpStream::connect(addr).ok()).collect();
        assert!(killed == 1 || clients.len() == CLIENTS, "a process that was not killed refuses clients");
        let first: Vec<_> = clients.iter_mut().map(|client| asked(client, "/first")).collect();
        let readers: Vec<_> = (0..READERS).map(|_| Reader::start(addr)).collect();
        // A server knows only from its first event on that the layers pass a body on unchanged.
        let has_event = |reader: &Reader| reader.has_event.load(Ordering::Relaxed);
        until("events", || (old.ended().is_some() || readers.iter().all(has_event)).then_some(()));
        let mut new = Started::start(name, &place, 2, addr, options(2));
        let serves = new.serves();
        // The first one ends as it should, or one of them is killed.
        let whole = until("an end", || match (old.ended(), new.ended()) {
            (Some(old), _) => Some(old.success()),
            // The first one may be about to end, or to serve on.
            (None, Some(_)) => asked(&mut TcpStream::connect(addr).ok()?, "/").map(|by| by != 1),
            (None, None) => None,
        });
        if whole && killed == 2 {
            // The next call that kills it comes after it has confirmed the end.
            readers.into_iter().for_each(|reader| check_events(&reader.end(), killed, whole));
            break;
        }
        let serving = if killed == 1 || whole { 2 } else { 1 };
        if serving == 2 && !serves {
            // It has failed with the first one: nothing is left, and a further one starts from nothing.
            assert_eq!(killed, 1);
        } else {
            assert_eq!(asked_anew(addr), serving, "killed process {killed} at call {point}");
        }
        let mut kept = 0;
        for (client, _) in clients.iter_mut().zip(&first).filter(|(_, first)| first.is_some()) {
            if let Some(by) = asked(client, "/next") {
                assert_eq!(by, serving);
                kept += 1;
            }
        }
        if whole {
            assert_eq!(kept, CLIENTS, "a connection was lost in a whole handoff");
        }
        // A further process takes the place of the one that is left.
        let mut third = Started::start(name, &place, 3, addr, &[]);
        assert!(third.serves());
        // For a moment both accept.
        until("the third one answers", || (asked_anew(addr) == 3).then_some(()));
        readers.into_iter().for_each(|reader| check_events(&reader.end(), killed, whole));
        if whole {
            break;
        }
    }
    println!("process {killed} was killed at {} calls", point - 1);
    // The greeting, the listeners, the start and the connections.
    assert!(point > 5, "only {point} calls");
}

#[test]
fn a_new_process_that_is_killed_at_any_call_leaves_the_old_one_in_place() {
    killed_at_each_call("processes::a_new_process_that_is_killed_at_any_call_leaves_the_old_one_in_place", 2);
}

#[test]
fn an_old_process_that_is_killed_at_any_call_is_replaced() {
    killed_at_each_call("processes::an_old_process_that_is_killed_at_any_call_is_replaced", 1);
}

#[test]
fn processes_in_a_row_leave_no_descriptor_open() {
    const NAME: &str = "processes::processes_in_a_row_leave_no_descriptor_open";
    if let Some(what) = child::task() {
        return serve(&what);
    }
    if !moves() {
        return;
    }
    let (place, addr) = (Place::new(), free());
    let mut process = Started::start(NAME, &place, 1, addr, &[]);
    assert!(process.serves());
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(addr).unwrap()).collect();
    let mut open = Vec::new();
    for number in 2..=21 {
        clients.iter_mut().for_each(|client| assert_eq!(asked(client, "/a"), Some(number - 1)));
        let mut next = Started::start(NAME, &place, number, addr, &[]);
        assert!(next.serves());
        assert!(process.wait().success());
        clients.iter_mut().for_each(|client| assert_eq!(asked(client, "/b"), Some(number)));
        open.push(until("all connections have arrived", || {
            let count = descriptors(next.process.id());
            (count >= CLIENTS).then_some(count)
        }));
        process = next;
    }
    assert!(open.iter().all(|count| *count == open[0]), "{open:?}");
}

fn descriptors(process: u32) -> usize {
    std::fs::read_dir(Path::new("/proc").join(process.to_string()).join("fd")).unwrap().count()
}
