//! Unit tests of `request_body`.

use super::*;
use futures_util::FutureExt;
use http_body_util::StreamBody;
use tokio::sync::mpsc;

/// Returns the bytes that are there, and whether the body has ended.
fn read(body: &mut OutBody) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    loop {
        match body.frame().now_or_never() {
            Some(Some(frame)) => bytes.extend(frame.unwrap().into_data().unwrap()),
            ended => return (bytes, ended.is_some()),
        }
    }
}

#[test]
fn an_attempt_gets_what_others_got_and_the_rest() {
    let room = Arc::new(Semaphore::new(ALL_KEPT));
    let (client, mut frames) = mpsc::channel(8);
    let frames = futures_util::stream::poll_fn(move |cx| frames.poll_recv(cx));
    let (mut first, upload) = OutBody::new(StreamBody::new(frames));
    let upload = upload.unwrap();
    upload.keep_for_retry(&room);
    let send = |text: &'static str| client.try_send(Ok::<_, BoxError>(Frame::data(text.into()))).unwrap();
    send("he");
    send("llo");
    assert_eq!(read(&mut first), (b"hello".to_vec(), false));
    let mut second = upload.again().unwrap();
    assert!(first.frame().now_or_never().unwrap().unwrap().is_err(), "the first attempt has ended");
    send(" wor");
    assert_eq!(read(&mut second), (b"hello wor".to_vec(), false));
    let mut third = upload.again().unwrap();
    send("ld");
    drop(client);
    assert_eq!(read(&mut third), (b"hello world".to_vec(), true));
    assert_eq!(read(&mut upload.again().unwrap()), (b"hello world".to_vec(), true));
    assert_eq!(ALL_KEPT - room.available_permits(), 16);
    upload.settle();
    assert_eq!(room.available_permits(), ALL_KEPT);
    assert!(upload.again().is_none());
}

#[test]
fn a_body_that_has_failed_or_has_trailers_is_not_sent_again() {
    let room = Arc::new(Semaphore::new(ALL_KEPT));
    for end in [Ok(Frame::trailers(http::HeaderMap::new())), Err(BoxError::from("the client has left"))] {
        let frames = futures_util::stream::iter([Ok(Frame::data(Bytes::from_static(b"hello"))), end]);
        let (mut first, upload) = OutBody::new(StreamBody::new(frames));
        let upload = upload.unwrap();
        upload.keep_for_retry(&room);
        assert!(first.frame().now_or_never().unwrap().unwrap().is_ok());
        let mut second = upload.again().unwrap();
        for _ in 0..2 {
            drop(second.frame().now_or_never().unwrap());
        }
        assert!(upload.again().is_none());
    }
}

#[test]
fn what_is_kept_is_bounded() {
    let room = Arc::new(Semaphore::new(KEPT + 100));
    let body = || {
        let frames = [40_000, KEPT - 40_000, 1].map(|len| Ok::<_, BoxError>(Frame::data(vec![b'x'; len].into())));
        let (body, upload) = OutBody::new(StreamBody::new(futures_util::stream::iter(frames)));
        upload.as_ref().unwrap().keep_for_retry(&room);
        (body, upload.unwrap())
    };
    let (mut first, upload) = body();
    for _ in 0..2 {
        first.frame().now_or_never().unwrap().unwrap().unwrap();
    }
    assert_eq!(room.available_permits(), 100);
    assert_eq!(upload.again().unwrap().size_hint().lower(), KEPT as u64);
    let (mut other, without_room) = body();
    other.frame().now_or_never().unwrap().unwrap().unwrap();
    assert!(without_room.again().is_none(), "the room is that of the first");
    let mut again = upload.again().unwrap();
    assert_eq!(read(&mut again), (vec![b'x'; KEPT + 1], true));
    assert!(upload.again().is_none(), "more than is kept");
    assert_eq!(room.available_permits(), KEPT + 100);
}
