//! Readers of hubs go through deploys: they get every event once, all in the same order, on the same connection.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::{Request, Response};
use millstream::net::TcpListener;
use millstream::server::{Drained, Limits, RequestBody, serve};
use millstream::sse::{Event, EventBody, Hub};
use millstream_handoff::{Handoff, HandoffListener, Serving};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use testkit::http::on_both;

use super::{HANGS, Place, moves, until_replaced};

/// The last event that the senders send.
const LAST: &str = "last";

/// A process with a hub.
struct Process {
    addr: SocketAddr,
    hub: Hub,
    ended: JoinHandle<io::Result<(Drained, Option<usize>)>>,
}

impl Process {
    async fn start(path: &Path, hub: Hub) -> Self {
        let mut handoff = Handoff::open(path).await.unwrap();
        let listener = handoff.tcp("http", "127.0.0.1:0").await.unwrap();
        handoff.hub("news", &hub).unwrap();
        let addr = listener.get_ref().local_addr().unwrap();
        let serving = handoff.ready().await.unwrap();
        let ended = tokio::spawn(run(listener, serving, hub.clone()));
        Self { addr, hub, ended }
    }

    async fn ended(self) -> (Drained, Option<usize>) {
        timeout(HANGS, self.ended).await.expect("it ends").unwrap().unwrap()
    }
}

async fn run(
    listener: HandoffListener<TcpListener>,
    serving: Serving,
    hub: Hub,
) -> io::Result<(Drained, Option<usize>)> {
    let service = tower::service_fn(move |request: Request<RequestBody>| {
        let answer = hub.subscribe(&request);
        async { Ok::<Response<EventBody>, Infallible>(answer) }
    });
    let limits = Limits::default().per_address(10_000).drain_spread(Duration::ZERO);
    let server = || serve(listener.clone(), service.clone()).limits(limits.clone()).move_connections(listener.give());
    until_replaced(&serving, server, || serving.successor()).await
}

/// A reader on one connection, over HTTP/1.1 or HTTP/1.0, which ends by the end of the connection.
struct Reader {
    stream: BufReader<TcpStream>,
    is_chunked: bool,
    text: String,
}

impl Reader {
    async fn connect(addr: SocketAddr, version: &str) -> Self {
        let mut stream = BufReader::new(TcpStream::connect(addr).await.unwrap());
        let request = format!("GET /events HTTP/{version}\r\nhost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(stream.read_line(&mut line).await.unwrap() > 0, "a head");
            assert!(!line.starts_with("HTTP") || line.contains("200"), "{line}");
        }
        Self { stream, is_chunked: version == "1.1", text: String::new() }
    }

    /// Reads until an event has this data. Returns the data of all events.
    async fn until(mut self, last: &str) -> Vec<String> {
        let last = format!("data: {last}\n");
        while !self.text.contains(&last) {
            let more = timeout(HANGS, self.piece()).await.unwrap_or_else(|_| panic!("nothing after {:?}", self.text));
            assert!(!more.is_empty(), "the connection has ended after {:?}", self.text);
            self.text.push_str(&more);
        }
        assert!(!self.text.contains("event: gap"), "{}", self.text);
        self.text.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
    }

    async fn piece(&mut self) -> String {
        let mut bytes = vec![0; 4096];
        let len = if self.is_chunked {
            let mut line = String::new();
            self.stream.read_line(&mut line).await.unwrap();
            let len = usize::from_str_radix(line.trim_end(), 16).unwrap_or_else(|_| panic!("{line:?}"));
            bytes.resize(len + 2, 0);
            self.stream.read_exact(&mut bytes).await.unwrap();
            assert_eq!(&bytes[len..], b"\r\n");
            len
        } else {
            self.stream.read(&mut bytes).await.unwrap()
        };
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    }
}

/// Sends numbers until `end`, to the hub of the first process that accepts them: the process before goes on sending.
async fn send(name: usize, hubs: watch::Receiver<Vec<(usize, Hub)>>, end: Arc<AtomicBool>) -> usize {
    let mut sent = 0;
    while !end.load(Ordering::Relaxed) {
        let event = |process| Event::new().data(format!("{name}:{process}:{sent}"));
        let accepts = hubs.borrow().iter().any(|(process, hub)| hub.send(event(process)).is_ok());
        assert!(accepts, "one hub is open");
        sent += 1;
        sleep(Duration::from_micros(300)).await;
    }
    sent
}

fn hub() -> Hub {
    Hub::builder().replay(100_000).queue(100_000).keep_alive(Duration::from_millis(50)).build()
}

#[test]
fn readers_get_every_event_once_and_in_order_through_many_deploys() {
    const READERS: usize = 60;
    const SENDERS: usize = 3;
    const PROCESSES: usize = 6;
    if !moves() {
        return;
    }
    on_both(|| async {
        let place = Place::new();
        let mut process = Process::start(&place.path(), hub()).await;
        let (addr, end) = (process.addr, Arc::new(AtomicBool::new(false)));
        let (hubs, seen) = watch::channel(vec![(1, process.hub.clone())]);
        let mut readers = Vec::new();
        for n in 0..READERS {
            let reader = Reader::connect(addr, ["1.1", "1.0"][n % 2]).await;
            readers.push(tokio::spawn(reader.until(LAST)));
        }
        let senders: Vec<_> = (0..SENDERS).map(|n| tokio::spawn(send(n, seen.clone(), Arc::clone(&end)))).collect();
        let mut moved = 0;
        for number in 2..=PROCESSES {
            sleep(Duration::from_millis(100)).await;
            let next = Process::start(&place.path(), hub()).await;
            hubs.send_modify(|hubs| hubs.push((number, next.hub.clone())));
            let (drained, given) = process.ended().await;
            assert_eq!((drained.aborted, drained.notified, drained.finished), (0, 0, 0), "{drained:?}");
            assert_eq!(given, Some(READERS));
            moved += drained.moved;
            hubs.send_modify(|hubs| drop(hubs.remove(0)));
            process = next;
        }
        end.store(true, Ordering::Relaxed);
        let mut sent = 0;
        for sender in senders {
            sent += sender.await.unwrap();
        }
        process.hub.send(Event::new().data(LAST)).unwrap();
        let mut all: Option<Vec<String>> = None;
        for reader in readers {
            let got = reader.await.unwrap();
            let all = all.get_or_insert_with(|| got.clone());
            assert_eq!(*all, got, "all readers get the same events in the same order");
        }
        let all = all.unwrap();
        assert_eq!(all.len(), sent + 1, "each event once");
        for (name, process) in (0..SENDERS).flat_map(|name| (1..=PROCESSES).map(move |process| (name, process))) {
            let of = format!("{name}:{process}:");
            let numbers = all.iter().filter_map(|data| data.strip_prefix(&of));
            assert!(numbers.map(|n| n.parse::<usize>().unwrap()).is_sorted(), "in the order of each sender");
        }
        assert_eq!(moved, READERS * (PROCESSES - 1));
    });
}
