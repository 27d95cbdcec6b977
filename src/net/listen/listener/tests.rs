//! Unit tests of `listener`.

use std::time::Duration;

use super::super::accept_failures::FAILED_MAX;
use super::*;
use crate::sys::errno::Errno;
use crate::sys::socket;

#[tokio::test]
async fn the_kernel_probes_the_peers_of_accepted_connections() {
    let seconds = Duration::from_secs;
    let builder = crate::net::listen::tcp::TcpListener::builder;
    for (builder, expected) in [
        (builder(), Some((seconds(60), seconds(15)))),
        (builder().keep_alive(Some(Duration::from_millis(2500))), Some((seconds(2), seconds(1)))),
        (builder().keep_alive(Some(Duration::MAX)), Some((seconds(32_767), seconds(32_767)))),
        (builder().keep_alive(None), None),
    ] {
        let listener = builder.bind("127.0.0.1:0").await.unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let socket = socket2::SockRef::from(&stream);
        assert_eq!(socket.keepalive().unwrap(), expected.is_some());
        if let Some((idle, interval)) = expected {
            assert_eq!(socket.tcp_keepalive_time().unwrap(), idle);
            assert_eq!(socket.tcp_keepalive_interval().unwrap(), interval);
            assert_eq!(socket.tcp_keepalive_retries().unwrap(), 4);
        }
    }
}

/// A supervisor that activates a server hands over a listener on which connections wait.
#[tokio::test]
async fn connections_that_wait_when_a_listener_is_taken_over_have_its_options() {
    let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listening.local_addr().unwrap();
    let connect = || std::net::TcpStream::connect(addr).unwrap();
    let early = [connect(), connect()];
    let idle = Duration::from_secs(7);
    let builder = crate::net::listen::tcp::TcpListener::builder().keep_alive(Some(idle));
    let listener = builder.from_std(listening).unwrap();
    let options = async || {
        let (stream, _) = listener.accept().await.unwrap();
        let socket = socket2::SockRef::from(&stream);
        (socket.tcp_nodelay().unwrap(), socket.keepalive().unwrap(), socket.tcp_keepalive_time().unwrap())
    };
    let late = connect();
    for _ in 0..early.len() {
        assert_eq!(options().await, (true, true, idle));
    }
    let early_connections = listener.listener.early.as_ref().unwrap();
    assert!(!early_connections.all_accepted());
    assert_eq!(options().await, (true, true, idle));
    drop((early, late));
    // None is left.
    assert!(tokio::time::timeout(Duration::from_millis(1), listener.accept()).await.is_err());
    assert!(early_connections.all_accepted());
    let _later = connect();
    assert_eq!(options().await, (true, true, idle), "inherited");
}

fn listener() -> (Listener, std::net::TcpStream) {
    let socket = socket::listen(([127, 0, 0, 1], 0).into(), 8, false).unwrap();
    let client = std::net::TcpStream::connect(socket::local_addr(&socket).unwrap()).unwrap();
    (Listener::new(socket, Options::default(), ProfileSwitch::default(), None).unwrap(), client)
}

#[tokio::test(start_paused = true)]
async fn connections_that_fail_one_after_the_other_do_not_make_it_spin() {
    let (listener, _client) = listener();
    let (start, calls) = (tokio::time::Instant::now(), std::cell::Cell::new(0));
    let accepted = listener.accept(|fd| {
        calls.set(calls.get() + 1);
        if calls.get() <= 10 * (FAILED_MAX + 1) { Err(Errno::PERM.into()) } else { socket::accept(fd) }
    });
    accepted.await.unwrap();
    assert!(listener.accept::<()>(|_| Err(Errno::IO.into())).await.is_err());
    assert_eq!(start.elapsed().as_millis() / PAUSE.as_millis(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_polled_listener_pauses_too() {
    let (listener, _client) = listener();
    let (start, calls) = (tokio::time::Instant::now(), std::cell::Cell::new(0));
    let accepted = std::future::poll_fn(|cx| {
        listener.poll_accept(cx, |fd| {
            calls.set(calls.get() + 1);
            if calls.get() <= 3 { Err(Errno::MFILE.into()) } else { socket::accept(fd) }
        })
    });
    accepted.await.unwrap();
    assert_eq!((calls.get(), start.elapsed().as_millis() / PAUSE.as_millis()), (4, 3));
    let broken = std::future::poll_fn(|cx| listener.poll_accept::<()>(cx, |_| Err(Errno::IO.into())));
    assert!(broken.await.is_err());
}
