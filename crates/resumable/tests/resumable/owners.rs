//! Owners, and limits.

use std::convert::Infallible;
use std::io::ErrorKind;

use hyper::{Method, Request};
use millstream::sse::{Event, SendError};
use millstream_resumable::{Owner, StreamEnd, StreamError, StreamSender, Streams};

use super::{data, hand, settle, started};
use testkit::parse::Hand;

#[tokio::test(start_paused = true)]
async fn another_owner_and_an_unknown_key_are_the_same() {
    let streams = Streams::new();
    let (stream, tell) = started(&streams, "a");
    tell.send("secret");
    settle().await;
    let unknown = format!("{:?}", streams.attach(&Request::new(()), "unknown", "alice"));
    assert!(unknown.contains("404"), "{unknown}");
    for owner in [Owner::from("mallory"), "".into(), "alic".into(), "alicea".into(), Owner::anyone()] {
        let answer = streams.attach(&Request::new(()), "a", &owner);
        assert_eq!(format!("{answer:?}"), unknown, "{owner:?}");
        assert!(Hand::new(answer.into_body()).read().is_empty());
        assert!(streams.stop("a", &owner).is_err() && stream.end().is_none());
    }
    assert_eq!(streams.get("a", "mallory").unwrap_err(), streams.get("unknown", "alice").unwrap_err());
    // A start with the key of another owner neither reads nor stops that stream, and tells nothing.
    let own =
        streams
            .get_or_start("a", "mallory", |sender: StreamSender| async move {
                sender.send(Event::new().data("own")).map(drop)
            })
            .unwrap();
    own.ended().await;
    assert_eq!(data(&hand(&own, None).read()), ["own"]);
    streams.stop("a", "mallory").unwrap();
    assert_eq!((stream.end(), data(&hand(&stream, None).read())), (None, vec!["secret"]));
    let debug = format!("{streams:?} {stream:?} {own:?}");
    assert!(!debug.contains("alice") && !debug.contains("secret"), "{debug}");
}

#[tokio::test(start_paused = true)]
async fn anyone_is_an_owner_like_the_others() {
    let streams = Streams::new();
    let producer = |sender: StreamSender| async move { sender.send(Event::new().data("public")).map(drop) };
    let stream = streams.get_or_start("a", Owner::anyone(), producer).unwrap();
    stream.ended().await;
    assert_eq!(streams.get("a", "alice").unwrap_err(), StreamError::NotFound);
    assert_eq!(data(&hand(&streams.get("a", Owner::anyone()).unwrap(), None).read()), ["public"]);
}

fn never(_: StreamSender) -> std::future::Ready<Result<(), Infallible>> {
    panic!("it must not be called")
}

#[tokio::test(start_paused = true)]
async fn refused_starts_call_no_producer() {
    let streams = Streams::builder().streams(2).build();
    let kept = [started(&streams, "a"), started(&streams, "b")];
    let full = streams.get_or_start("c", "alice", never).unwrap_err();
    assert_eq!(full, StreamError::Full);
    let answer = full.response();
    assert_eq!((answer.status().as_u16(), answer.headers().contains_key("retry-after")), (503, true));
    assert_eq!(streams.get_or_start("d", "", never).unwrap_err(), StreamError::NoOwner);
    assert_eq!(streams.get_or_start(&"k".repeat(1025), "alice", never).unwrap_err(), StreamError::LongKey);
    // Not refused, because it exists.
    streams.get_or_start("a", "alice", never).unwrap();
    assert_eq!((streams.stats().streams, streams.stats().running), (2, 2));
    drop(kept);
}

#[test]
fn outside_of_a_runtime_nothing_starts() {
    let streams = Streams::new();
    assert_eq!(streams.get_or_start("a", "alice", never).unwrap_err(), StreamError::NoRuntime);
    assert_eq!(streams.stats().streams, 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_too_large_ends_and_says_so() {
    for streams in [Streams::builder().events(3), Streams::builder().bytes(200)] {
        let streams = streams.build();
        let producer = |sender: StreamSender| async move {
            for n in 0.. {
                if let Err(error) = sender.send(Event::new().data(format!("{n:030}"))) {
                    assert!(matches!(error, SendError::TooLarge), "{error}");
                    // Ignored errors do not make readers miss events silently.
                    assert!(sender.is_cancelled());
                    assert!(matches!(sender.send(Event::new()), Err(SendError::Closed)));
                    break;
                }
            }
            Ok::<_, Infallible>(())
        };
        let stream = streams.get_or_start("a", "alice", producer).unwrap();
        let mut reader = hand(&stream, None);
        assert_eq!(stream.ended().await, StreamEnd::TooLarge);
        let seen = reader.read();
        assert_eq!(seen.len(), 4, "{seen:?}");
        assert_eq!((&*seen[3].name, &*seen[3].data), ("error", "{\"reason\":\"too_large\"}"));
        assert!(reader.ended);
    }
}

#[tokio::test(start_paused = true)]
async fn readers_have_a_maximum_and_heads_need_no_place() {
    let streams = Streams::builder().readers(1).build();
    let (stream, _tell) = started(&streams, "a");
    let head = Request::builder().method(Method::HEAD).body(()).unwrap();
    let answer = stream.attach(&head);
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["content-type"]),
        (200, &"text/event-stream".parse().unwrap())
    );
    let reader = stream.attach(&Request::new(()));
    assert_eq!(
        (reader.status().as_u16(), &reader.headers()["cache-control"]),
        (200, &"no-cache, no-transform".parse().unwrap())
    );
    let answer = stream.attach(&Request::new(()));
    assert_eq!((answer.status().as_u16(), answer.headers().contains_key("retry-after")), (503, true));
    assert_eq!(stream.attach(&head).status(), 200);
    drop(reader);
    assert_eq!(stream.attach(&Request::new(())).status(), 200);
}

#[tokio::test(start_paused = true)]
async fn events_with_ids_and_bad_names_are_refused() {
    let streams = Streams::new();
    let producer = |sender: StreamSender| async move {
        assert!(matches!(sender.send(Event::new().id("1").data("a")), Err(SendError::IdNotOurs)));
        assert!(matches!(sender.send(Event::new().event("a\nb")), Err(SendError::InvalidName(_))));
        sender.send(Event::new().data("a\n\nb").comment("\n\n").event("e")).map(drop)
    };
    let stream = streams.get_or_start("a", "alice", producer).unwrap();
    assert_eq!(stream.ended().await, StreamEnd::Complete);
    assert_eq!(data(&hand(&stream, None).read()), ["a\n\nb"]);
}

#[test]
fn every_error_says_what_to_do_and_has_a_kind() {
    let errors = [
        (StreamError::NotFound, ErrorKind::NotFound, 404),
        (StreamError::Ended, ErrorKind::UnexpectedEof, 204),
        (StreamError::Full, ErrorKind::QuotaExceeded, 503),
        (StreamError::TooManyReaders, ErrorKind::QuotaExceeded, 503),
        (StreamError::NoOwner, ErrorKind::InvalidInput, 404),
        (StreamError::LongKey, ErrorKind::InvalidInput, 414),
        (StreamError::NoRuntime, ErrorKind::Other, 500),
    ];
    for (error, kind, status) in errors {
        let response = error.response();
        assert_eq!(response.status(), status, "{error}");
        assert_eq!(response.headers().contains_key("retry-after"), status == 503);
        let text = error.to_string();
        let io = std::io::Error::from(error);
        assert_eq!((io.kind(), io.to_string()), (kind, text));
    }
}
