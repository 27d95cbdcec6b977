//! Unit tests of `stream`.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};

use crate::net::listen::TcpListener;
use crate::net::stream::stream::Rewind;
use crate::net::stream::tcp::TcpStream;
use crate::runtime::Flush;
use crate::sys::receive::receive;

/// Returns a connection with a small receive buffer and `bytes` unsent bytes, some of them in the stream's queue.
async fn loaded(bytes: usize) -> (TcpStream, tokio::net::TcpStream) {
    let listener = TcpListener::builder().high_mark(16 << 20).bind("127.0.0.1:0").await.unwrap();
    socket2::SockRef::from(&listener).set_send_buffer_size(64 << 10).unwrap();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    let client = socket.connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    for _ in 0..bytes / 1000 {
        stream.write_all(&[7; 1000]).await.unwrap();
    }
    (stream, client)
}

#[tokio::test(start_paused = true)]
async fn a_dropped_stream_is_kept_for_a_slow_reader() {
    const BYTES: usize = 1_000_000;
    let (stream, mut client) = loaded(BYTES).await;
    let socket = socket2::SockRef::from(&stream).try_clone().unwrap();
    drop(stream);
    tokio::task::yield_now().await;
    // The timeout would also count time with a closed window although the peer reads.
    assert_eq!(socket.tcp_user_timeout().unwrap(), None);
    drop(socket);
    let (mut piece, mut got) = ([0; 20_000], 0);
    loop {
        match client.read(&mut piece).await.unwrap() {
            0 => break,
            n => got += n,
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(got, BYTES);
}

/// `splice` receives so. The kernel returns a reset once, here to the flusher.
#[tokio::test]
async fn a_caller_that_receives_the_end_gets_the_error_that_the_flusher_got() {
    let (mut stream, client) = loaded(0).await;
    for _ in 0..2 {
        stream.write_all(b"bytes that wait").await.unwrap();
    }
    let queued = stream.queued();
    client.set_zero_linger().unwrap();
    drop(client);
    stream.readable().await.unwrap();
    Arc::clone(&stream.stream.egress).flush();
    assert!(queued > 0 && stream.queued() == 0, "{queued} bytes, which the flusher tried to send");
    let mut ended = 0;
    let mut take = |cx: &mut Context<'_>| {
        stream.poll_receive_with(cx, |fd| {
            ended += 1;
            receive(fd, &mut ReadBuf::new(&mut [0; 10]))
        })
    };
    let error = poll_fn(&mut take).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(poll_fn(&mut take).await.unwrap(), 0, "an error is returned once");
    assert_eq!(ended, 2, "the kernel returned the end both times");
}

/// The kernel returns the error once, so it is not asked before the bytes have left.
#[tokio::test]
async fn bytes_that_were_given_back_precede_a_reset() {
    let (mut stream, client) = loaded(0).await;
    client.set_zero_linger().unwrap();
    drop(client);
    stream.readable().await.unwrap();
    stream.unread(b"head ");
    let mut got = [0; 100];
    assert_eq!(stream.read(&mut got).await.unwrap(), 5);
    assert_eq!(&got[..5], b"head ");
    assert_eq!(stream.read(&mut got).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}
