//! Unit tests of `serving`: the next process ends, or errs, at each of its steps.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream as StdStream;

use http_body_util::BodyExt;
use millstream::sse::{Event, Hub};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::*;
use crate::adopt::Adoption;
use crate::calm::CALM;
use crate::link::NOT_AWAITED;
use crate::rights;

const HANGS: Duration = Duration::from_secs(60);

struct Case {
    path: PathBuf,
    serving: Serving,
    /// Says that the process before goes on.
    before: watch::Sender<Option<String>>,
    _dir: tempfile::TempDir,
}

impl Case {
    fn new() -> Self {
        // There was no process before.
        Self::behind(watch::channel(()).1)
    }

    fn behind(adopting: Receiver<()>) -> Self {
        Self::with(adopting, Vec::new())
    }

    fn with(adopting: Receiver<()>, hubs: Vec<NamedHub>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        let control = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let socket = tempfile::tempfile().unwrap().into();
        let named = Named { name: "http".to_owned(), socket, adopted: Arc::default() };
        let (tell, before) = Before::new();
        let serving = Serving::new(path.clone(), control, vec![named], hubs, Arc::default(), adopting, before);
        Self { path, serving: serving.unwrap(), before: tell, _dir: dir }
    }

    async fn connect(&self) -> Link {
        Link::new(UnixStream::connect(&self.path).await.unwrap()).unwrap()
    }

    /// Connects a process that gets the listeners.
    async fn greet(&self) -> Link {
        let link = self.connect().await;
        link.send(&Record::Hello(VERSION, VERSION), &[]).await.unwrap();
        let (record, sockets) = link.answer().await.unwrap();
        assert_eq!((record, sockets.len()), (Record::Listeners(vec!["http".to_owned()]), 2));
        link
    }

    /// Gives a connection away, and returns its other end.
    fn give(&self) -> StdStream {
        let (client, socket) = StdStream::pair().unwrap();
        client.set_read_timeout(Some(HANGS)).unwrap();
        self.serving.0.given.push(Given::Connection(0, socket.into(), None));
        client
    }

    /// Returns the connections that came back.
    fn returned(&self) -> Vec<OwnedFd> {
        let adopted = &self.serving.0.listeners[0].adopted;
        std::iter::from_fn(|| adopted.pop_if(|_| true)).map(|adopted| adopted.socket).collect()
    }

    /// Finishes with a process that has taken all connections.
    async fn end(&self, link: &Link) -> io::Result<Option<usize>> {
        let confirm = async {
            assert_eq!(link.answer().await.unwrap().0, Record::Done);
            link.send(&Record::Taken, &[]).await.unwrap();
        };
        tokio::join!(self.finish(), confirm).0
    }

    async fn finish(&self) -> io::Result<Option<usize>> {
        timeout(HANGS, self.serving.finish()).await.expect("it ends")
    }
}

fn say(socket: &OwnedFd, text: &str) {
    StdStream::from(socket.try_clone().unwrap()).write_all(text.as_bytes()).unwrap();
}

fn heard(mut client: StdStream, len: usize) -> String {
    let mut text = vec![0; len];
    client.read_exact(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn a_process_that_ends_or_errs_before_it_is_ready_changes_nothing() {
    let case = Case::new();
    let mut successor = std::pin::pin!(tokio::spawn(case.serving.successor()));
    drop(case.connect().await);
    let hello = Record::Hello(VERSION, VERSION);
    for record in [Record::Ready(vec![]), Record::Taken, Record::Done, Record::Listeners(vec![])] {
        let link = case.connect().await;
        let fds = if matches!(record, Record::Listeners(_) | Record::Ready(_)) { 1 } else { 0 };
        let file = tempfile::tempfile().unwrap();
        link.send(&record, &vec![file.as_fd(); fds]).await.unwrap();
        assert!(link.receive().await.is_ok_and(|end| end.is_none()), "{record:?}");
    }
    let mut garbage = StdStream::connect(&case.path).unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    for (low, high) in [(0, 0), (VERSION + 1, VERSION + 9), (9, 1)] {
        let link = case.connect().await;
        link.send(&Record::Hello(low, high), &[]).await.unwrap();
        assert!(matches!(link.answer().await.unwrap().0, Record::Refused(why) if why.contains("version")), "{low}");
    }
    drop(case.greet().await);
    let link = case.greet().await;
    link.send(&hello, &[]).await.unwrap();
    assert_eq!(link.answer().await.unwrap().0, Record::Refused(NOT_AWAITED.to_owned()), "greeted twice");
    assert!(link.receive().await.is_ok_and(|end| end.is_none()), "greeted twice");
    for _ in 0..100 {
        yield_now().await;
    }
    assert!(!successor.is_finished());
    assert!(case.finish().await.unwrap().is_none(), "there is no next process");
    // Another one is.
    let link = case.greet().await;
    let late = case.connect().await;
    assert_eq!(late.answer().await.unwrap().0, Record::Refused("another process is starting".to_owned()));
    let _back = say_ready(&link).await;
    timeout(HANGS, &mut successor).await.expect("ready").unwrap();
    assert_eq!(link.answer().await.unwrap().0, Record::Serve);
    let client = case.give();
    let (record, sockets) = link.answer().await.unwrap();
    assert_eq!((record, sockets.len()), (Record::Connections(0, vec![None]), 1));
    link.send(&Record::Taken, &[]).await.unwrap();
    assert_eq!(link.answer().await.unwrap().0, Record::Yours);
    say(&sockets[0], "new");
    assert_eq!(heard(client, 3), "new");
    assert_eq!(case.end(&link).await.unwrap(), Some(1));
    assert!(case.returned().is_empty());
}

/// Says that a process is ready. Returns its end of the connection for its events.
async fn say_ready(link: &Link) -> StdStream {
    let (ours, theirs) = StdStream::pair().unwrap();
    link.send(&Record::Ready(vec![]), &[theirs.as_fd()]).await.unwrap();
    ours
}

/// Makes a process ready, which sends no events.
async fn ready(case: &Case) -> Link {
    let successor = tokio::spawn(case.serving.successor());
    let link = case.greet().await;
    let _back = say_ready(&link).await;
    timeout(HANGS, successor).await.expect("ready").unwrap();
    assert_eq!(link.answer().await.unwrap().0, Record::Serve);
    link
}

#[tokio::test]
async fn what_a_process_that_ends_has_not_taken_comes_back() {
    // After it was ready, at the first batch, and with a wrong answer to it.
    for step in 0..4 {
        let case = Case::new();
        let link = ready(&case).await;
        let mut link = Some(link);
        if step == 0 {
            link = None;
        }
        let clients = [case.give(), case.give()];
        if let Some(link) = &link {
            let (record, sockets) = link.answer().await.unwrap();
            assert_eq!(record, Record::Connections(0, vec![None; sockets.len()]));
        }
        match step {
            2 => link.as_ref().unwrap().send(&Record::Done, &[]).await.unwrap(),
            3 => link.as_ref().unwrap().send(&Record::Yours, &[]).await.unwrap(),
            _ => link = None,
        }
        let third = case.give();
        if let Some(link) = &link {
            assert_eq!(link.answer().await.unwrap().0, Record::Keeps);
            let early = timeout(Duration::from_millis(20), link.receive()).await;
            assert!(early.is_err(), "it serves until this process has drained: {early:?}");
        }
        case.finish().await.expect_err("the next process has failed");
        if let Some(link) = link {
            assert_eq!(link.answer().await.unwrap().0, Record::Refused(GOES_ON.to_owned()));
        }
        let returned = case.returned();
        assert_eq!(returned.len(), 3, "step {step}");
        for (socket, client) in returned.iter().zip(clients.into_iter().chain([third])) {
            say(socket, "old");
            assert_eq!(heard(client, 3), "old");
        }
        // A further process gets what the first one did not.
        let link = ready(&case).await;
        let _client = case.give();
        assert_eq!(link.answer().await.unwrap().1.len(), 1);
        link.send(&Record::Taken, &[]).await.unwrap();
        assert_eq!(link.answer().await.unwrap().0, Record::Yours);
        assert_eq!(case.end(&link).await.unwrap(), Some(1));
    }
}

#[tokio::test]
async fn a_process_that_ends_before_it_has_confirmed_the_end_is_no_successor() {
    let case = Case::new();
    let link = ready(&case).await;
    let confirm = async {
        assert_eq!(link.answer().await.unwrap().0, Record::Done);
        drop(link);
    };
    let (finished, ()) = tokio::join!(case.finish(), confirm);
    assert_eq!(finished.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    case.end(&ready(&case).await).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_take_a_batch_is_not_waited_for() {
    let case = Case::new();
    let link = ready(&case).await;
    let _client = case.give();
    let error = case.finish().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    assert_eq!(case.returned().len(), 1);
    // It is told so.
    assert_eq!(link.answer().await.unwrap().0, Record::Connections(0, vec![None]));
    assert_eq!(link.answer().await.unwrap().0, Record::Keeps);
    assert_eq!(link.answer().await.unwrap().0, Record::Refused(GOES_ON.to_owned()));
}

#[tokio::test]
async fn a_process_that_confirms_the_end_wrongly_is_told_that_this_one_goes_on() {
    let case = Case::new();
    let link = ready(&case).await;
    let confirm = async {
        assert_eq!(link.answer().await.unwrap().0, Record::Done);
        link.send(&Record::Yours, &[]).await.unwrap();
        link.answer().await.unwrap().0
    };
    let (finished, told) = tokio::join!(case.finish(), confirm);
    assert_eq!(told, Record::Refused(GOES_ON.to_owned()));
    finished.unwrap_err();
}

#[tokio::test]
async fn a_process_ends_if_the_one_before_it_goes_on() {
    let case = Case::new();
    let successor = tokio::spawn(case.serving.successor());
    case.before.send_replace(Some(GOES_ON.to_owned()));
    timeout(HANGS, successor).await.expect("it drains").unwrap();
    let mut client = case.give();
    let error = case.finish().await.unwrap_err();
    assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::ConnectionRefused, GOES_ON.to_owned()));
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "nobody else has the connection");
    // A process that serves all the same can be replaced.
    let link = ready(&case).await;
    case.end(&link).await.unwrap();
}

#[tokio::test]
async fn a_process_for_which_nobody_waits_any_more_is_not_ready() {
    let case = Case::new();
    let successor = tokio::spawn(case.serving.successor());
    let adoption = Adoption { link: case.greet().await, queues: vec![None], hubs: Vec::new() };
    // Its next record is not read.
    successor.abort();
    let error = adoption.begin().await.expect_err("the process before lives");
    assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::ConnectionRefused, NOT_AWAITED.to_owned()));
}

#[tokio::test]
async fn many_connections_go_in_batches() {
    let case = Case::new();
    let link = ready(&case).await;
    let clients: Vec<_> = (0..150).map(|_| case.give()).collect();
    let (mut sockets, mut batches) = (Vec::new(), 0);
    while sockets.len() < clients.len() {
        let (record, mut batch) = link.answer().await.unwrap();
        assert_eq!(record, Record::Connections(0, vec![None; batch.len()]));
        sockets.append(&mut batch);
        link.send(&Record::Taken, &[]).await.unwrap();
        assert_eq!(link.answer().await.unwrap().0, Record::Yours);
        batches += 1;
    }
    assert!(batches <= 4, "{batches} batches");
    assert_eq!(case.end(&link).await.unwrap(), Some(150));
    for (number, socket) in sockets.iter().enumerate() {
        say(socket, &format!("{number:03}"));
    }
    for (number, client) in clients.into_iter().enumerate() {
        assert_eq!(heard(client, 3), format!("{number:03}"));
    }
}

#[tokio::test]
async fn a_process_that_is_refused_breaks_no_record_of_another_one() {
    let case = Case::new();
    let successor = tokio::spawn(case.serving.successor());
    let mut stream = StdStream::connect(&case.path).unwrap();
    let link = Link::from_fd(stream.try_clone().unwrap().into()).unwrap();
    link.send(&Record::Hello(VERSION, VERSION), &[]).await.unwrap();
    assert!(matches!(link.answer().await.unwrap().0, Record::Listeners(_)));
    let (_back, theirs) = StdStream::pair().unwrap();
    let ready = Record::Ready(vec![]).encode(1).unwrap();
    assert_eq!(rights::send(stream.as_fd(), &ready[..3], &[theirs.as_fd()]).unwrap(), 3);
    let late = case.connect().await;
    assert_eq!(late.answer().await.unwrap().0, Record::Refused("another process is starting".to_owned()));
    stream.write_all(&ready[3..]).unwrap();
    timeout(HANGS, successor).await.expect("ready").unwrap();
    assert_eq!(link.answer().await.unwrap().0, Record::Serve);
}

/// Batches arrive more often than it is calm.
#[tokio::test]
async fn readers_that_stay_get_events_of_the_next_process_while_connections_trickle() {
    let (ours, theirs) = (Hub::new(), Hub::new());
    let named = |hub: &Hub| vec![NamedHub { name: "events".to_owned(), hub: hub.clone() }];
    let case = Case::with(watch::channel(()).1, named(&ours));
    assert!(theirs.expect_predecessor());
    let mut reader = ours.subscribe_from(None).unwrap();
    let _successor = tokio::spawn(case.serving.successor());
    let queue = Arc::<Queue<Adopted>>::default();
    let adoption = Adoption { link: case.greet().await, queues: vec![Some(Arc::clone(&queue))], hubs: named(&theirs) };
    let own = adoption.begin().await.unwrap().expect("the process before lives");
    let _adopting = tokio::spawn(adoption.run(own));
    theirs.send(Event::new().data("of the next process")).unwrap();
    let delivered = async {
        loop {
            drop(case.give());
            while queue.pop_if(|_| true).is_some() {}
            let Ok(frame) = timeout(CALM / 5, reader.frame()).await else { continue };
            let bytes = frame.expect("an open stream").unwrap().into_data().unwrap();
            if String::from_utf8_lossy(&bytes).contains("of the next process") {
                break;
            }
        }
    };
    timeout(HANGS, delivered).await.expect("the event of the next process");
}

#[tokio::test(start_paused = true)]
async fn there_is_no_successor_until_the_process_before_has_ended() {
    let (ends, adopting) = watch::channel(());
    let case = Case::behind(adopting);
    let successor = tokio::spawn(case.serving.successor());
    let refused = case.connect().await;
    let why = "the process before this one still drains".to_owned();
    assert_eq!(refused.answer().await.unwrap().0, Record::Refused(why));
    assert!(!successor.is_finished());
    // One that waits is served.
    let link = case.connect().await;
    link.send(&Record::Hello(VERSION, VERSION), &[]).await.unwrap();
    for _ in 0..100 {
        yield_now().await;
    }
    drop(ends);
    assert!(matches!(link.answer().await.unwrap().0, Record::Listeners(_)));
    let _back = say_ready(&link).await;
    successor.await.unwrap();
    assert_eq!(link.answer().await.unwrap().0, Record::Serve);
    case.end(&link).await.unwrap();
}
