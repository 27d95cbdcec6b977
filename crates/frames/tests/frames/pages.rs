//! The kernel refers to sent pages. So frames are sealed, and not used again.

use std::io::Read;
use std::net::{TcpListener, TcpStream};

use hyper::Response;
use millstream::net::TcpListener as OurListener;
use millstream_frames::FrameReceiver;
use rustix::fs::SealFlags;

use crate::connected;
use crate::peers::memfd;
use testkit::http::{Raw, boxed, on_both, start};
use testkit::{lacks, noise};

const LEN: usize = 16 << 10;

/// Bytes that the peer has received, and so has acknowledged, still are the pages of the file.
#[test]
fn an_acknowledged_page_is_read_later_as_it_is_then() {
    if lacks("sendfile") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    let file = memfd(&[1; LEN], SealFlags::SHRINK);
    let mut sent = 0;
    while sent < LEN {
        let mut at = sent as u64;
        sent += rustix::fs::sendfile(&server, &file, Some(&mut at), LEN - sent).unwrap();
    }
    // All of it is in the receive queue.
    while rustix::io::ioctl_fionread(&client).unwrap() < LEN as u64 {}
    rustix::io::pwrite(&file, &[2; LEN], 0).unwrap();
    let mut got = [0; LEN];
    client.read_exact(&mut got).unwrap();
    assert!(got.iter().all(|&byte| byte == 2), "the kernel copies: frames could be used again");
}

/// Sealed frames cannot be changed, also after they were given back.
#[test]
fn frames_in_flight_cannot_be_changed() {
    on_both(async || {
        let bytes = noise(LEN * 4);
        let copy = bytes.clone();
        let (told, mut finished) = tokio::sync::mpsc::channel(1);
        let addr = start(move |_| {
            let (bytes, told) = (copy.clone(), told.clone());
            async move {
                let (mut sender, receiver) = connected(FrameReceiver::builder().frames(1)).await;
                tokio::spawn(async move {
                    // Two frames: the second one is sent when the first was given back.
                    sender.send(&bytes[..LEN * 2]).await.unwrap();
                    sender.send(&bytes[LEN * 2..]).await.unwrap();
                    told.send(sender.finish().await).await.unwrap();
                });
                let mut response = Response::new(boxed(receiver));
                response.headers_mut().insert("content-length", (LEN * 4).into());
                response
            }
        })
        .await;
        let mut client = Raw::connect(addr).await;
        client.ask("/").await;
        let head = client.head().await;
        assert!(client.body(head.content_length()).await.unwrap() == bytes);
        // hyper does not wait for the end of the frames: it has the length of the response.
        finished.recv().await.unwrap().unwrap();
    });
}

/// A frame that a plain socket sends is not read by this process.
#[test]
fn frames_leave_by_sendfile() {
    if lacks("sendfile") || lacks("mapping") {
        return;
    }
    on_both(async || {
        let listener = OurListener::bind("127.0.0.1:0").await.unwrap();
        let client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut sender, mut receiver) = connected(FrameReceiver::builder()).await;
        let bytes = noise(200_000);
        sender.send(&bytes[..]).await.unwrap();
        let frame = receiver.next().await.unwrap().unwrap();
        let reading = tokio::spawn(async move {
            let mut client = client;
            let mut got = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut client, &mut got).await.unwrap();
            got
        });
        tokio::io::AsyncWriteExt::write_all(&mut stream, &frame).await.unwrap();
        stream.flushed().await.unwrap();
        let stats = stream.handle().stats().unwrap();
        assert!(stats.by_sendfile >= 200_000, "{stats:?}");
        drop(stream);
        assert!(reading.await.unwrap() == bytes);
    });
}
