//! Heap of connections that wait.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;

use allocation_counter::measure;
use millstream::net::TcpListener;
use millstream::server::serve;
use millstream::sse::Hub;

use crate::support::alone::ran_in_child;
use crate::support::http::Flavour;

const CONNECTIONS: usize = 1000;

/// Connects on another thread, whose heap is not counted.
fn connect(addr: SocketAddr, until: &'static [u8]) -> mpsc::Receiver<Vec<TcpStream>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let all = (0..CONNECTIONS).map(|_| {
            let mut client = TcpStream::connect(addr).unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nHost: mill\r\n\r\n").unwrap();
            let mut got = Vec::new();
            while !got.ends_with(until) {
                let mut byte = [0];
                assert_eq!(client.read(&mut byte).unwrap(), 1);
                got.push(byte[0]);
            }
            client
        });
        sender.send(all.collect()).unwrap();
    });
    receiver
}

#[test]
fn a_reader_of_a_hub_needs_less_than_three_kilobytes() {
    if ran_in_child() {
        return;
    }
    let runtime = Flavour::CurrentThread.runtime();
    let hub = Hub::new();
    let (addr, _server) = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let hub = hub.clone();
        let service = tower::service_fn(move |request| {
            let answer = hub.subscribe(&request);
            async { Ok::<_, Infallible>(answer) }
        });
        (addr, tokio::spawn(serve(listener, service).into_future()))
    });
    let mut clients = None;
    let heap = measure(|| {
        runtime.block_on(async {
            let connected = connect(addr, b"\r\n\r\n");
            while hub.stats().direct < CONNECTIONS {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            clients = Some(connected.recv().unwrap());
        });
    });
    let each = heap.bytes_current / CONNECTIONS as i64;
    println!("{each} bytes each");
    // hyper's state of the connection alone has 10 000. All features are on: the map of extensions has 500.
    assert!(each <= 3000, "{each} bytes each");
}
