//! The cost of an event for a reader of topics: CPU time with 1 and with 20 topics in one response, beside a reader of
//! a hub.
//!
//! ```sh
//! cargo run --release -p millstream-topics --example cost
//! ```
//!
//! | row | |
//! |---|---|
//! | hub | `Hub::subscribe`, whose body is polled by the task of its connection, as topics are |
//! | 1 topic | a hub as the only topic of a response |
//! | 20 topics, one sends | the same, with 19 hubs that are silent |
//! | 20 topics, by turns | 20 hubs, of which another one sends each time |
//!
//! Each row has as many connections, over HTTP/1.1 on loopback, to a runtime with one thread. An event is sent to all
//! readers of a row, and the next one when all clients have it. The figures are the CPU time of the server's thread for
//! an event and reader: medians of short slices that alternate between the rows. The ratios are medians of the ratios
//! of slices that follow each other.

use std::convert::Infallible;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use clap::Parser;
use http::Request;
use http_body_util::BodyExt;
use measuring::cpus;
use measuring::statistics::median;
use millstream::net::TcpListener;
use millstream::server::{RequestBody, serve};
use millstream::sse::{Event, Hub};
use millstream_topics::Topics;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc;

type BoxError = Box<dyn Error + Send + Sync>;

/// The CPU time of an event for a reader of topics, beside a reader of a hub.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Connections of each row
    #[arg(long, default_value_t = 100)]
    readers: usize,
    /// Events of a slice
    #[arg(long, default_value_t = 50)]
    events: usize,
    /// Slices of each row
    #[arg(long, default_value_t = 40)]
    slices: usize,
    /// Bytes of the data of an event
    #[arg(long, default_value_t = 100)]
    bytes: usize,
}

/// A row: its name, its topics, and how many of these send. Without topics it is a hub.
const ROWS: [(&str, usize, usize); 4] =
    [("hub", 0, 1), ("1 topic", 1, 1), ("20 topics, one sends", 20, 1), ("20 topics, by turns", 20, 20)];

/// Comments would count as events.
const NO_COMMENTS: Duration = Duration::from_secs(24 * 60 * 60);

/// What the server is asked for.
enum Ask {
    /// Sends an event to a row.
    Send(usize, String),
    /// Tells the CPU time of its thread.
    Time(Sender<Duration>),
}

struct Row {
    hubs: Vec<Hub>,
    topics: Topics,
    is_hub: bool,
    turn: usize,
    senders: usize,
}

impl Row {
    fn new(&(_, topics, senders): &(&str, usize, usize)) -> Result<Self, BoxError> {
        let hubs = (0..topics.max(1)).map(|_| Hub::builder().keep_alive(NO_COMMENTS).build());
        let (hubs, all) = (hubs.collect::<Vec<_>>(), Topics::public().keep_alive(NO_COMMENTS).build());
        for (n, hub) in hubs.iter().enumerate() {
            all.insert(&format!("topic/{n}"), hub.clone())?;
        }
        Ok(Self { hubs, topics: all, is_hub: topics == 0, turn: 0, senders })
    }

    fn query(&self) -> String {
        (0..self.hubs.len()).map(|n| format!("topic=topic/{n}&")).collect()
    }
}

/// Serves row `n` at `/n`, and does what it is asked for.
#[tokio::main(flavor = "current_thread")]
async fn server(mut rows: Vec<Row>, addr: Sender<SocketAddr>, mut asks: mpsc::Receiver<Ask>) -> Result<(), BoxError> {
    let sources: Vec<_> =
        rows.iter().map(|row| (row.is_hub.then(|| row.hubs[0].clone()), row.topics.clone())).collect();
    let service = tower::service_fn(move |request: Request<RequestBody>| {
        let row = request.uri().path()[1..].parse().ok().and_then(|row: usize| sources.get(row));
        let response = match row.expect("the path is a row") {
            // In another type, so that the hub does not write to the connection by itself.
            (Some(hub), _) => hub.subscribe(&request).map(BodyExt::boxed_unsync),
            (None, topics) => topics.subscribe(&request.into_parts().0).map(BodyExt::boxed_unsync),
        };
        async { Ok::<_, Infallible>(response) }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    addr.send(listener.local_addr()?)?;
    tokio::spawn(serve(listener, service).into_future());
    while let Some(ask) = asks.recv().await {
        match ask {
            Ask::Send(row, data) => {
                let row = &mut rows[row];
                row.turn = (row.turn + 1) % row.senders;
                row.hubs[row.turn].send(Event::new().data(data))?;
            }
            Ask::Time(to) => to.send(Duration::try_from(clock_gettime(ClockId::ThreadCPUTime))?)?,
        }
    }
    Ok(())
}

/// A connection that reads events.
struct Client(TcpStream, Vec<u8>);

impl Client {
    fn new(addr: SocketAddr, row: usize, query: &str) -> Result<Self, BoxError> {
        let mut stream = TcpStream::connect(addr)?;
        write!(stream, "GET /{row}?{query} HTTP/1.1\r\nHost: mill\r\n\r\n")?;
        let mut client = Self(stream, Vec::new());
        // The first bytes of topics are an event.
        client.until(if ROWS[row].1 == 0 { b"\r\n\r\n" } else { b"\n\n\r\n" })?;
        if client.1.starts_with(b"HTTP/1.1 200 ") { Ok(client) } else { Err("no 200".into()) }
    }

    /// Reads up to these bytes, and nothing may follow.
    fn until(&mut self, end: &[u8]) -> Result<(), BoxError> {
        self.1.clear();
        let mut buf = [0; 16 << 10];
        while !self.1.ends_with(end) {
            match self.0.read(&mut buf)? {
                0 => return Err("a response has ended".into()),
                n => self.1.extend_from_slice(&buf[..n]),
            }
        }
        Ok(())
    }

    fn event(&mut self, data: &str) -> Result<(), BoxError> {
        self.until(b"\n\n\r\n")?;
        let text = String::from_utf8_lossy(&self.1);
        let is_it = text.contains(&format!("\r\ndata: {data}\nid: ")) && text.matches("\n\n").count() == 1;
        if is_it { Ok(()) } else { Err(format!("not the event that was sent: {text}").into()) }
    }
}

/// Returns the CPU time of an event and reader, in µs, of each slice of each row, and the length of an event with its chunk.
fn measure(options: &Options) -> Result<Vec<(Vec<f64>, usize)>, BoxError> {
    let (tell, told) = channel();
    let (ask, asks) = mpsc::channel(16);
    let rows = ROWS.iter().map(Row::new).collect::<Result<Vec<_>, _>>()?;
    let queries: Vec<_> = rows.iter().map(Row::query).collect();
    let server = thread::spawn(move || {
        if let Some([first, _]) = cpus::ends()? {
            cpus::pin(first)?;
        }
        server(rows, tell, asks)
    });
    cpus::pin_load()?;
    let addr = told.recv()?;
    let mut clients = Vec::new();
    for (row, query) in queries.iter().enumerate() {
        clients.push((0..options.readers).map(|_| Client::new(addr, row, query)).collect::<Result<Vec<_>, _>>()?);
    }
    let time = || {
        let (tell, told) = channel();
        ask.blocking_send(Ask::Time(tell)).map_err(|_| "the server has ended")?;
        Ok::<_, BoxError>(told.recv()?)
    };
    let mut found = vec![(Vec::new(), 0); ROWS.len()];
    let count = (options.events * options.readers) as f64;
    // The first slices warm up.
    for slice in 0..=options.slices {
        for (row, clients) in clients.iter_mut().enumerate() {
            let before = time()?;
            for n in 0..options.events {
                let data = format!("{n:0bytes$}", bytes = options.bytes);
                ask.blocking_send(Ask::Send(row, data.clone())).map_err(|_| "the server has ended")?;
                clients.iter_mut().try_for_each(|client| client.event(&data))?;
            }
            let spent = time()? - before;
            found[row].1 = clients.first().map_or(0, |client| client.1.len());
            if slice > 0 {
                found[row].0.push(spent.as_secs_f64() * 1e6 / count);
            }
        }
    }
    drop(ask);
    server.join().map_err(|_| "the server has panicked")??;
    Ok(found)
}

/// Returns the median of the ratios of two rows, slice by slice.
fn ratio(row: &[f64], to: &[f64]) -> f64 {
    median(&row.iter().zip(to).map(|(row, to)| row / to).collect::<Vec<_>>())
}

fn main() -> Result<(), BoxError> {
    let options = Options::parse();
    let found = measure(&options)?;
    let (hub, one) = (&found[0].0, &found[1].0);
    println!("{:22} {:>14} {:>13} {:>10} {:>14}", "", "bytes an event", "µs an event", "× the hub", "× 1 topic");
    for ((name, ..), (row, bytes)) in ROWS.iter().zip(&found) {
        let (to_hub, to_one) = (ratio(row, hub), ratio(row, one));
        println!("{name:22} {bytes:>14} {:>13.2} {to_hub:>10.2} {to_one:>14.2}", median(row));
    }
    Ok(())
}

#[test]
fn each_row_gets_its_events() {
    let found = measure(&Options { readers: 2, events: 41, slices: 1, bytes: 10 }).unwrap();
    assert!(found.iter().all(|(slices, _)| slices.len() == 1));
}
