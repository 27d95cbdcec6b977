//! Unit tests of `exchange`.

use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::super::proxy::Proxy;
use super::super::request_body::BoxError;
use super::*;

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn the_time_for_a_head_counts_from_the_last_piece_of_the_upload() {
    let proxy = Proxy::builder("http://127.0.0.1:1".parse().unwrap()).timeout(LIMIT).build().unwrap();
    // In seconds.
    for (pieces, expected) in [(&[][..], 30), (&[0], 30), (&[10], 40), (&[10, 29, 29], 98), (&[20, 31], 50)] {
        let (client, mut frames) = mpsc::channel(pieces.len().max(1));
        let frames = futures_util::stream::poll_fn(move |cx| frames.poll_recv(cx));
        let (mut body, upload) = OutBody::new(StreamBody::new(frames));
        let answered = async {
            for pause in pieces {
                sleep(Duration::from_secs(*pause)).await;
                client.try_send(Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"hello")))).unwrap();
                body.frame().await.unwrap().unwrap();
            }
            pending::<()>().await;
        };
        let since = Instant::now();
        let ended = proxy.0.in_time(upload.as_deref(), answered).await;
        assert!(matches!(ended, Err(RequestFailure::Timeout)));
        assert_eq!(since.elapsed().as_secs(), expected, "{pieces:?}");
    }
}
