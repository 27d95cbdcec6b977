//! Unit tests of `kept_stream`: readers that come and leave while a stream is checked.

use std::sync::Barrier;
use std::thread;

use super::*;

const GRACE: Duration = Duration::from_secs(30);

fn stream(options: StreamsBuilder) -> Arc<KeptStream> {
    let setup = Arc::new(Setup { options, running: AtomicUsize::new(0) });
    Arc::new(KeptStream::new(&setup, Arc::from(&b"name"[..]), None))
}

fn started(stream: &KeptStream) -> Instant {
    lock(&stream.state).started
}

fn builder() -> StreamsBuilder {
    crate::Streams::builder().abandoned(GRACE)
}

#[test]
fn a_reader_of_the_last_moment_wins_or_loses() {
    let stream = stream(builder());
    let late = started(&stream) + GRACE;
    let reader = stream.seat(None, false).unwrap();
    assert!(stream.check(late).is_some_and(|next| next == late + GRACE));
    assert_eq!(stream.end(), None);
    // Another reader enters after this one has left and before the stream learns of it.
    let other = stream.seat(None, false).unwrap();
    drop(reader);
    stream.emptied();
    stream.check(late + GRACE);
    assert_eq!(stream.end(), None);
    drop(other);
    let left = lock(&stream.state).since;
    stream.check(left + GRACE - Duration::from_nanos(1));
    assert_eq!(stream.end(), None);
    stream.check(left + GRACE);
    assert_eq!(stream.end(), Some(StreamEnd::Abandoned));
    // The loser knows: it gets the event of the end, and then nothing more.
    let loser = stream.seat(None, false).unwrap();
    drop(loser);
    let last = kept::id_of(stream.epoch, 0).to_string();
    assert!(matches!(stream.seat(Some(&last), false), Err(StreamError::Ended)));
}

#[test]
fn a_stream_with_a_reader_is_not_abandoned_by_any_thread() {
    for _ in 0..500 {
        let stream = stream(builder());
        let (late, together) = (started(&stream) + GRACE, Barrier::new(2));
        let seat = thread::scope(|scope| {
            let seat = scope.spawn(|| {
                together.wait();
                stream.seat(None, false).unwrap()
            });
            together.wait();
            stream.check(late);
            seat.join().unwrap()
        });
        // The hub of a reader that came after the end has not got the event of the end.
        let hub = lock(&stream.state).hub.clone().unwrap();
        assert!(format!("{hub:?}").contains("ring_events: 0"), "abandoned with a reader");
        drop(seat);
    }
}

#[test]
fn checks_are_never_too_late_for_a_reader_that_leaves_or_an_end() {
    let stream = stream(builder().ttl(Duration::from_secs(3)).max_age(Duration::from_secs(3600)));
    let start = started(&stream);
    assert_eq!(stream.check(start), Some(start + Duration::from_secs(3)));
    stream.finish(StreamEnd::Complete);
    let ended = lock(&stream.state).since;
    assert_eq!(stream.check(ended), Some(ended + Duration::from_secs(3)));
    assert_eq!(stream.check(ended + Duration::from_secs(3)), None);
    // Zero times do not make a check follow another at once.
    let stream = self::stream(builder().ttl(Duration::ZERO).abandoned(Duration::ZERO));
    let reader = stream.seat(None, false).unwrap();
    let start = started(&stream);
    assert_eq!(stream.check(start), Some(start + PAUSE));
    drop(reader);
}

#[test]
fn a_hub_lives_as_long_as_its_readers() {
    let stream = stream(builder().readers(2));
    let readers = [(); 2].map(|()| stream.seat(None, false).unwrap());
    assert!(matches!(stream.seat(None, false), Err(StreamError::TooManyReaders)));
    assert!(lock(&stream.state).hub.is_some());
    drop(readers);
    assert!(lock(&stream.state).hub.is_none());
    assert_eq!(Arc::strong_count(&stream), 1);
    let none = self::stream(builder().readers(0));
    assert!(matches!(none.seat(None, false), Err(StreamError::TooManyReaders)));
    assert!(lock(&none.state).hub.is_none() && Arc::strong_count(&none) == 1);
}
