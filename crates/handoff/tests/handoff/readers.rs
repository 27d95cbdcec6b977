//! Readers of hubs go through deploys: they get every event once, all in the same order, on the same connection.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::{Request, Response};
use millstream::fs::Durability;
use millstream::net::TcpListener;
use millstream::server::{Drained, Limits, RequestBody, serve};
use millstream::sse::log::disk::Disk;
use millstream::sse::{Event, EventBody, Hub};
use millstream_handoff::{Handoff, HandoffListener, Serving};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use testkit::http::{h2, on_both};

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
    /// Starts a process that tells the connections which stay to end within `spread`.
    async fn start(path: &Path, hub: Hub, spread: Duration) -> Self {
        Self::serve(Handoff::open(path).await.unwrap(), hub, spread).await
    }

    async fn serve(mut handoff: Handoff, hub: Hub, spread: Duration) -> Self {
        let listener = handoff.tcp("http", "127.0.0.1:0").await.unwrap();
        handoff.hub("news", &hub).unwrap();
        let addr = listener.get_ref().local_addr().unwrap();
        let serving = handoff.ready().await.unwrap();
        let ended = tokio::spawn(run(listener, serving, hub.clone(), spread));
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
    spread: Duration,
) -> io::Result<(Drained, Option<usize>)> {
    let service = tower::service_fn(move |request: Request<RequestBody>| {
        let answer = hub.subscribe(&request);
        async { Ok::<Response<EventBody>, Infallible>(answer) }
    });
    let limits = Limits::default().per_address(10_000).drain_spread(spread);
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
        let mut process = Process::start(&place.path(), hub(), Duration::ZERO).await;
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
            let hub = hub();
            // Before the process is ready: the one before may end at once.
            hubs.send_modify(|hubs| hubs.push((number, hub.clone())));
            let next = Process::start(&place.path(), hub, Duration::ZERO).await;
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

#[test]
fn readers_of_a_log_on_the_disk_move_and_the_log_follows() {
    const PROCESSES: usize = 4;
    if !moves() {
        return;
    }
    on_both(|| async {
        let place = Place::new();
        let start = async || {
            let mut handoff = Handoff::open(place.path()).await.unwrap();
            let dir = place.dir.path().join("events");
            let open = move || {
                let builder = Disk::builder(&dir).durability(Durability::None);
                async { Ok(builder.open().await?) }
            };
            let log = handoff.log(open).await.unwrap();
            let hub = Hub::builder().log(log).keep_alive(Duration::ZERO).replay(1).queue(1000).build();
            Process::serve(handoff, hub, Duration::ZERO).await
        };
        let mut process = start().await;
        let readers = [Reader::connect(process.addr, "1.1").await, Reader::connect(process.addr, "1.0").await];
        let readers = readers.map(|reader| tokio::spawn(reader.until(LAST)));
        let mut expected = Vec::new();
        let send = |hub: &Hub, data: &str| drop(hub.send(Event::new().data(data)).unwrap());
        for number in 2..=PROCESSES {
            let [before, waits] = ["before", "waits"].map(|when| (0..5).map(move |n| format!("{number} {when} {n}")));
            before.clone().for_each(|data| send(&process.hub, &data));
            let next = start().await;
            // The log of this process is not open yet: the events of the other one precede these.
            waits.clone().for_each(|data| send(&next.hub, &data));
            let (drained, given) = process.ended().await;
            assert_eq!((drained.moved, given), (2, Some(2)), "{drained:?}");
            expected.extend(before.chain(waits));
            process = next;
        }
        send(&process.hub, LAST);
        expected.push(LAST.to_owned());
        for reader in readers {
            assert_eq!(reader.await.unwrap(), expected);
        }
    });
}

/// Returns the data of the events in a text.
fn data(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
}

/// Returns the data of this many events.
async fn events(body: &mut EventBody, count: usize) -> Vec<String> {
    let mut text = String::new();
    while data(&text).len() < count {
        let frame = timeout(HANGS, body.frame()).await.unwrap_or_else(|_| panic!("nothing after {text:?}"));
        text.push_str(str::from_utf8(&frame.unwrap().unwrap().into_data().unwrap()).unwrap());
    }
    data(&text)
}

#[test]
fn readers_that_stay_get_the_events_of_both_processes_in_the_same_order() {
    on_both(|| async {
        let place = Place::new();
        let start = async || {
            let hub = Hub::builder().replay(1000).keep_alive(Duration::ZERO).build();
            let mut handoff = Handoff::open(place.path()).await.unwrap();
            handoff.hub("news", &hub).unwrap();
            (handoff.ready().await.unwrap(), hub)
        };
        let (serving, old) = start().await;
        let mut stays = old.subscribe_from(None).unwrap();
        old.send(Event::new().data("0")).unwrap();
        let (((), (_next, new)), mut expected) = (tokio::join!(serving.successor(), start()), vec!["0".to_owned()]);
        let mut local = new.subscribe_from(None).unwrap();
        for n in 1..=100 {
            // Whose event is first is left to chance. All readers see the same.
            new.send(Event::new().data(format!("new {n}"))).unwrap();
            old.send(Event::new().data(format!("old {n}"))).unwrap();
            expected.extend(events(&mut local, 2).await);
        }
        assert_eq!(events(&mut stays, expected.len()).await, expected);
        assert_eq!(serving.finish().await.unwrap(), Some(0));
    });
}

/// Reads over HTTP/2 until an event has the data [`LAST`], from one process after another. Returns the data of all events.
async fn read_again(addr: SocketAddr, subscribed: watch::Sender<usize>) -> Vec<String> {
    let mut text = String::new();
    while !text.contains(LAST) {
        let mut request = Request::get("http://a/events");
        if let Some(id) = text.lines().filter_map(|line| line.strip_prefix("id: ")).next_back() {
            request = request.header("last-event-id", id);
        }
        let mut client = h2(addr).await;
        let answer = client.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 200);
        if text.is_empty() {
            subscribed.send_modify(|readers| *readers += 1);
        }
        let mut body = answer.into_body();
        while !text.contains(LAST)
            && let Some(frame) = timeout(HANGS, body.frame()).await.expect("an event, or the end")
        {
            text.push_str(str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
        }
    }
    assert!(!text.contains("event: gap"), "{text}");
    data(&text)
}

#[test]
fn readers_over_http2_return_and_miss_nothing() {
    const READERS: usize = 20;
    const PROCESSES: usize = 4;
    if !moves() {
        return;
    }
    on_both(|| async {
        let place = Place::new();
        let spread = Duration::from_millis(100);
        let mut process = Process::start(&place.path(), hub(), spread).await;
        let (addr, end) = (process.addr, Arc::new(AtomicBool::new(false)));
        let (hubs, seen) = watch::channel(vec![(1, process.hub.clone())]);
        let (subscribed, mut subscribers) = watch::channel(0);
        let moves = tokio::spawn(Reader::connect(addr, "1.1").await.until(LAST));
        let readers: Vec<_> = (0..READERS).map(|_| tokio::spawn(read_again(addr, subscribed.clone()))).collect();
        subscribers.wait_for(|readers| *readers == READERS).await.unwrap();
        let sender = tokio::spawn(send(0, seen, Arc::clone(&end)));
        for number in 2..=PROCESSES {
            sleep(Duration::from_millis(50)).await;
            let hub = hub();
            // Before the process is ready: the one before may end at once.
            hubs.send_modify(|hubs| hubs.push((number, hub.clone())));
            let next = Process::start(&place.path(), hub, spread).await;
            let (drained, given) = process.ended().await;
            assert_eq!((drained.aborted, given), (0, Some(1)), "{drained:?}");
            hubs.send_modify(|hubs| drop(hubs.remove(0)));
            process = next;
        }
        end.store(true, Ordering::Relaxed);
        let sent = sender.await.unwrap();
        process.hub.send(Event::new().data(LAST)).unwrap();
        let all = moves.await.unwrap();
        assert_eq!(all.len(), sent + 1, "each event once");
        for reader in readers {
            assert_eq!(reader.await.unwrap(), all);
        }
    });
}
