//! Copies that are interrupted after every poll, or every few polls, and resumed.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use millstream::copy::{Copier, CopyReport};
use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::yield_now;

use super::ends::{Plain, Source, Target, tcp};
use super::noise;
use testkit::http::{on_both, sha256};

/// Polls `work` at most `polls` times, each time it is woken, and drops it.
async fn polled<F: Future>(work: F, polls: usize) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut left = polls;
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => {
            left -= 1;
            if left == 0 { Poll::Ready(None) } else { Poll::Pending }
        }
    })
    .await
}

/// Copies with an interruption after every `polls` polls.
async fn interrupted<S: Source, T: Target>(
    copy: &mut Copier,
    from: &mut S,
    to: &mut T,
    polls: usize,
) -> (CopyReport, usize) {
    for interruptions in 0.. {
        let before = copy.report().bytes;
        if let Some(done) = polled(copy.run(from, to), polls).await {
            assert_eq!(copy.pending(), 0);
            return (done.unwrap(), interruptions);
        }
        assert!(copy.report().bytes >= before);
        yield_now().await;
    }
    unreachable!()
}

async fn pair<S: Source, T: Target>() {
    for len in [1000, 100_000, (3 << 20) + 11] {
        for polls in [1, 2, 3, 7] {
            let mut from = S::open(noise(len).to_vec()).await;
            let (mut to, got) = T::open().await;
            let mut copy = Copier::new();
            let (report, _) = interrupted(&mut copy, &mut from, &mut to, polls).await;
            assert_eq!(report.bytes, len as u64);
            drop(copy);
            to.close().await;
            let got = got.await.unwrap().unwrap();
            assert_eq!(got.len(), len, "interrupted after every {polls}");
            assert_eq!(sha256(&got), sha256(noise(len)), "interrupted after every {polls}");
        }
    }
}

#[test]
fn streams_are_resumed() {
    on_both(|| async {
        pair::<TcpStream, TcpStream>().await;
        pair::<UnixStream, Sender>().await;
        pair::<Receiver, millstream::net::TcpStream>().await;
        pair::<millstream::net::TcpStream, UnixStream>().await;
        pair::<Plain<tokio::io::ReadHalf<TcpStream>>, TcpStream>().await;
    });
}

#[test]
fn files_are_resumed() {
    on_both(|| async {
        pair::<tokio::fs::File, tokio::fs::File>().await;
        pair::<millstream::fs::FileReader, millstream::fs::FileWriter>().await;
        pair::<tokio::fs::File, TcpStream>().await;
        pair::<millstream::fs::FileReader, Sender>().await;
        pair::<TcpStream, tokio::fs::File>().await;
        pair::<UnixStream, millstream::fs::FileWriter>().await;
        pair::<tokio::fs::File, tokio::io::WriteHalf<TcpStream>>().await;
    });
}

/// The next run sends the bytes left in the pipe by an interruption, also to another target.
#[test]
fn what_is_in_the_pipe_goes_wherever_the_next_run_leads() {
    if testkit::lacks("splice") {
        return;
    }
    on_both(|| async {
        const LEN: usize = 4 << 20;
        let mut from = <TcpStream as Source>::open(noise(LEN).to_vec()).await;
        let (mut narrow, mut reader) = tcp().await;
        SockRef::from(&narrow).set_send_buffer_size(32 << 10).unwrap();
        SockRef::from(&reader).set_recv_buffer_size(32 << 10).unwrap();
        let (mut copy, mut got) = (Copier::new(), Vec::new());
        // The peer reads a little and then stops, so the copy can only wait for room, with a full pipe. Two reads of
        // the pump hold less than this.
        while copy.pending() < 40_000 {
            let mut piece = vec![0; 50_000];
            let mut read = pin!(reader.read_exact(&mut piece));
            while polled(&mut read, 1).await.is_none() {
                assert!(polled(copy.run(&mut from, &mut narrow), 1).await.is_none());
                yield_now().await;
            }
            got.extend(piece);
            for _ in 0..100 {
                assert!(polled(copy.run(&mut from, &mut narrow), 1).await.is_none());
                yield_now().await;
            }
        }
        let sent = copy.report().bytes as usize;
        let mut rest = Vec::new();
        copy.run(&mut from, &mut rest).await.unwrap();
        drop(narrow);
        got.extend(super::ends::collect(reader).await.unwrap().unwrap());
        assert!(got == noise(sent), "{} of {sent}", got.len());
        assert!(rest == noise(LEN)[sent..], "{} after {sent}", rest.len());
    });
}
