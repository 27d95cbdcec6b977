//! Bytes of a peer, cut anywhere, through `codec::Framed` and the same codec in tokio-util's `Framed`: the same messages
//! and errors, and the same bytes written.
#![no_main]

use std::fmt::Debug;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, Stream, StreamExt};
use libfuzzer_sys::fuzz_target;
use millstream::codec::Framed;
use millstream_fuzz::{pieces, run};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::codec::{AnyDelimiterCodec, BytesCodec, Decoder, Encoder, LengthDelimitedCodec, LinesCodec};

/// Delivers pieces, and is not ready before each of them. Writes take a few bytes at a time.
#[derive(Debug)]
struct Peer {
    pieces: Vec<Vec<u8>>,
    is_ready: bool,
    written: Vec<u8>,
}

impl Peer {
    fn new(pieces: &[&[u8]]) -> Self {
        let pieces = pieces.iter().rev().filter(|piece| !piece.is_empty()).map(|piece| piece.to_vec()).collect();
        Self { pieces, is_ready: false, written: Vec::new() }
    }

    fn turn(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.is_ready = !self.is_ready;
        if self.is_ready {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl AsyncRead for Peer {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.turn(cx));
        if let Some(mut piece) = self.pieces.pop() {
            let rest = piece.split_off(piece.len().min(buf.remaining()));
            buf.put_slice(&piece);
            if !rest.is_empty() {
                self.pieces.push(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Peer {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        std::task::ready!(self.turn(cx));
        let n = buf.len().min(1000);
        self.written.extend_from_slice(&buf[..n]);
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Returns the messages up to the first error, which ends our stream and not theirs, as text.
async fn messages<T: Debug, E: Debug>(mut stream: impl Stream<Item = Result<T, E>> + Unpin) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(next) = stream.next().await {
        let is_last = next.is_err();
        all.push(format!("{next:?}"));
        if is_last {
            break;
        }
    }
    all
}

async fn check<C>(codec: C, pieces: &[&[u8]])
where
    C: Decoder<Item: Debug, Error: Debug> + Clone,
{
    let mut ours = Framed::new(Peer::new(pieces), codec.clone());
    let found = messages(&mut ours).await;
    let expected = messages(tokio_util::codec::Framed::new(Peer::new(pieces), codec)).await;
    assert_eq!(found, expected);
    assert!(ours.next().await.is_none(), "the stream has ended");
}

async fn echo<C, M>(codec: C, pieces: &[&[u8]])
where
    C: Decoder<Item = M, Error: Debug> + Encoder<M, Error: Debug> + Clone,
{
    let mut ours = Framed::new(Peer::new(pieces), codec.clone());
    while let Some(Ok(message)) = ours.next().await {
        if SinkExt::<M>::feed(&mut ours, message).await.is_err() {
            break;
        }
    }
    SinkExt::<M>::close(&mut ours).await.expect("the peer takes everything");
    let mut theirs = tokio_util::codec::Framed::new(Peer::new(pieces), codec);
    while let Some(Ok(message)) = theirs.next().await {
        if SinkExt::<M>::feed(&mut theirs, message).await.is_err() {
            break;
        }
    }
    SinkExt::<M>::close(&mut theirs).await.expect("the peer takes everything");
    assert_eq!(ours.get_ref().written, theirs.get_ref().written);
}

/// Messages of a byte that tells the length of the rest; a zero is an error.
#[derive(Clone)]
struct Short;

impl Decoder for Short {
    type Item = Bytes;
    type Error = io::Error;

    fn decode(&mut self, from: &mut BytesMut) -> io::Result<Option<Bytes>> {
        match from.first() {
            None => Ok(None),
            Some(0) => Err(io::ErrorKind::InvalidData.into()),
            Some(&len) if from.len() <= usize::from(len) => Ok(None),
            Some(&len) => Ok(Some(from.split_to(usize::from(len) + 1).freeze())),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&codec, rest)) = data.split_first() else { return };
    let pieces = pieces(rest);
    run(async {
        match codec % 7 {
            0 => check(LinesCodec::new(), &pieces).await,
            1 => check(LinesCodec::new_with_max_length(9), &pieces).await,
            2 => check(AnyDelimiterCodec::new_with_max_length(b";,".to_vec(), b";".to_vec(), 20), &pieces).await,
            3 => {
                let mut codec = LengthDelimitedCodec::builder();
                codec.length_field_length(2).max_frame_length(300).length_adjustment(-1);
                check(codec.new_codec(), &pieces).await;
            }
            4 => check(Short, &pieces).await,
            5 => echo(LinesCodec::new_with_max_length(50), &pieces).await,
            _ => echo::<_, BytesMut>(BytesCodec::new(), &pieces).await,
        }
    });
});
