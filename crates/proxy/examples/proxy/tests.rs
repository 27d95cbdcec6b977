//! Bytes between two sockets, and the end of the program.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use millstream::net::{Connector, TcpListener};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::options::Options;
use crate::relay::{Target, relay};
use crate::{cli, pass};
use testkit::alone;
use testkit::http::{on_both, raw_upstream, sha256};
use testkit::noise;

/// Timeout of operations that must complete.
const SOON: Duration = Duration::from_secs(10);

async fn relay_to(target: Target) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move { relay(listener, Connector::new(), target, &mut JoinSet::new()).await });
    addr
}

#[test]
fn bytes_pass_both_ways_and_each_end_by_itself() {
    on_both(async || {
        let bytes = noise(2 << 20);
        let answer = bytes.clone();
        // Responds only after the end of the request: the relay must forward that end and keep the other direction
        // open.
        let upstream = raw_upstream(move |mut stream| {
            let answer = answer.clone();
            async move {
                let mut question = Vec::new();
                stream.read_to_end(&mut question).await.unwrap();
                stream.write_all(&sha256(question)).await.unwrap();
                stream.write_all(&answer).await.unwrap();
            }
        })
        .await;
        let addr = relay_to(Target::Tcp("127.0.0.1".into(), upstream.port())).await;
        let mut client = TcpStream::connect(addr).await.unwrap();
        client.write_all(&bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.unwrap();
        assert_eq!(got[..32], sha256(&bytes));
        assert!(got[32..] == bytes);
    });
}

#[test]
fn a_relay_passes_on_what_goes_wrong() {
    on_both(async || {
        let nobody = testkit::Reserved::new();
        let resets = raw_upstream(async |mut stream| {
            stream.write_all(b"part").await.unwrap();
            stream.read_u8().await.unwrap();
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        })
        .await;
        let dir = tempfile::tempdir().unwrap();
        for (target, part) in [
            (Target::Tcp("127.0.0.1".into(), nobody.addr.port()), ""),
            (Target::Unix(dir.path().join("none")), ""),
            (Target::Tcp("127.0.0.1".into(), resets.port()), "part"),
        ] {
            let addr = relay_to(target).await;
            let talk = async {
                let mut client = TcpStream::connect(addr).await?;
                let mut got = vec![0; part.len()];
                client.read_exact(&mut got).await?;
                assert_eq!(got, part.as_bytes());
                if !part.is_empty() {
                    client.write_all(b"x").await?;
                }
                client.read(&mut [0]).await
            };
            // The error may appear in any of the calls.
            let error = timeout(SOON, talk).await.unwrap().expect_err("no clean end");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
    });
}

/// Answers each connection when it has been told to.
async fn slow_upstream(go_on: Arc<Notify>, asked: Arc<Notify>) -> SocketAddr {
    raw_upstream(move |mut stream| {
        let (go_on, asked) = (Arc::clone(&go_on), Arc::clone(&asked));
        async move {
            // A client that only tries to connect sends nothing.
            if stream.read(&mut [0; 4096]).await.unwrap() == 0 {
                return;
            }
            asked.notify_one();
            go_on.notified().await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
            stream.shutdown().await.unwrap();
            let _ = stream.read(&mut [0]).await;
        }
    })
    .await
}

#[test]
fn a_signal_does_not_cut_off_what_is_in_progress() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        for how in ["--tcp", "--stamp=x:y"] {
            let (go_on, asked) = (Arc::<Notify>::default(), Arc::<Notify>::default());
            let upstream = slow_upstream(Arc::clone(&go_on), Arc::clone(&asked)).await;
            let options = Options::parse_from(["proxy", "--to", &upstream.to_string(), how]);
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let passing = tokio::spawn(pass(listener, options, cli::interrupted().unwrap()));
            let mut client = TcpStream::connect(addr).await.unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nHost: mill\r\n\r\n").await.unwrap();
            asked.notified().await;
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
            // The listener is closed at the signal.
            while TcpStream::connect(addr).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            go_on.notify_one();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            assert!(answer.starts_with(b"HTTP/1.1 200 OK") && answer.ends_with(b"ok"), "{how}");
            drop(client);
            passing.await.unwrap().unwrap();
        }
    });
}
