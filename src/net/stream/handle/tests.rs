//! Unit tests of `handle`.

use crate::net::listen::TcpListener;
use crate::net::stream::tcp::TcpStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
#[cfg_attr(portable, ignore = "the end of the stream reaches the peer before the reset")]
async fn a_handle_counts_both_ways_and_resets() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let handle = stream.handle();
    client.write_all(b"hello").await.unwrap();
    let mut got = [0; 5];
    stream.read_exact(&mut got).await.unwrap();
    stream.write_all(b"an answer").await.unwrap();
    stream.flushed().await.unwrap();
    let numbers = handle.stats().unwrap();
    assert_eq!((numbers.received, numbers.sent, numbers.writes, numbers.queued), (5, 9, 1, 0));
    assert!(!numbers.blocked);
    handle.reset();
    client.read_exact(&mut [0; 9]).await.unwrap();
    assert!(client.read(&mut got).await.is_err(), "a reset must not read as an end");
    assert!(matches!(stream.read(&mut got).await, Ok(0) | Err(_)), "the waiting reader is woken");
    drop(stream);
    assert_eq!(handle.stats(), None);
    assert_eq!((handle.id(), numbers.id > 0), (numbers.id, true));
    assert_ne!(client.handle().id(), numbers.id);
}
