//! Unit tests of `adopt`: the process before ends at each of its steps.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;

struct Case {
    /// The process before.
    link: Link,
    adopting: JoinHandle<Option<String>>,
    queue: Arc<Queue<Adopted>>,
    /// The other end of the connection that is given, and that connection.
    client: StdStream,
    socket: OwnedFd,
}

impl Case {
    fn new() -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let link = |stream| Link::new(stream).unwrap();
        // The process before takes no events.
        let own = OwnEvents { link: link(UnixStream::pair().unwrap().0), hubs: Vec::new() };
        let queue = Arc::<Queue<Adopted>>::default();
        let queues = vec![Some(Arc::clone(&queue)), None];
        let (client, socket) = StdStream::pair().unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self {
            link: link(ours),
            adopting: tokio::spawn(Adoption { link: link(theirs), queues, hubs: Vec::new() }.run(own)),
            queue,
            client,
            socket: socket.into(),
        }
    }

    async fn send(&self, listener: u8) {
        self.link.send(&Record::Connections(listener, vec![None]), &[self.socket.as_fd()]).await.unwrap();
    }

    async fn expect(&self, record: Record) {
        assert_eq!(self.link.answer().await.unwrap().0, record);
    }

    /// Ends the process before, and returns whether the connection was adopted.
    async fn end(self) -> bool {
        let Self { link, adopting, queue, mut client, socket } = self;
        drop((link, socket));
        timeout(Duration::from_secs(60), adopting).await.expect("it ends").unwrap();
        let adopted = queue.pop_if(|_| true);
        // Without any descriptor of it the connection is closed.
        assert_eq!(client.write_all(b"x").is_ok(), adopted.is_some());
        adopted.is_some()
    }
}

#[tokio::test]
async fn a_batch_is_adopted_if_it_was_given_or_if_nobody_else_has_it() {
    let case = Case::new();
    assert!(!case.end().await, "nothing was sent");

    let case = Case::new();
    case.send(0).await;
    assert!(case.end().await, "dead behind the batch");

    let case = Case::new();
    case.send(0).await;
    case.expect(Record::Taken).await;
    assert!(case.end().await, "dead behind the answer");

    let case = Case::new();
    case.send(0).await;
    case.expect(Record::Taken).await;
    case.link.send(&Record::Yours, &[]).await.unwrap();
    assert!(case.end().await, "given");

    let case = Case::new();
    case.send(0).await;
    case.link.send(&Record::Keeps, &[]).await.unwrap();
    assert!(!case.end().await, "kept");

    let case = Case::new();
    case.send(0).await;
    case.expect(Record::Taken).await;
    case.link.send(&Record::Ready(vec![]), &[]).await.unwrap();
    assert!(!case.end().await, "no such record here");
}

#[tokio::test]
async fn a_listener_that_is_not_known_gets_nothing() {
    for listener in [1, 2] {
        let case = Case::new();
        case.send(listener).await;
        case.expect(Record::Refused("there is no such listener".to_owned())).await;
        // The next batch is taken.
        case.send(0).await;
        case.expect(Record::Taken).await;
        case.link.send(&Record::Yours, &[]).await.unwrap();
        case.link.send(&Record::Done, &[]).await.unwrap();
        case.expect(Record::Taken).await;
        assert!(case.end().await);
    }
}

#[tokio::test]
async fn the_process_before_can_say_at_each_step_that_it_goes_on() {
    for step in 0..3 {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (before, link) = (Link::new(ours).unwrap(), Link::new(theirs).unwrap());
        let queue = Arc::<Queue<Adopted>>::default();
        let adoption = Adoption { link, queues: vec![Some(Arc::clone(&queue))], hubs: Vec::new() };
        let (client, socket) = StdStream::pair().unwrap();
        match step {
            0 => {}
            1 => before.send(&Record::Connections(0, vec![None]), &[socket.as_fd()]).await.unwrap(),
            // It did not wait for the answer.
            _ => before.send(&Record::Done, &[]).await.unwrap(),
        }
        before.refuse(GOES_ON);
        drop(before);
        let error = adoption.receive_all(&mut 0).await.unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::ConnectionRefused, GOES_ON.to_owned()), "{step}");
        assert!(queue.pop_if(|_| true).is_none(), "the other process has it");
        drop(client);
    }
}
