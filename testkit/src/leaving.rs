//! A service that tells when its client has left, and clients that leave.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{Full, StreamBody};
use hyper::body::Frame;
use hyper::{Request, Response};
use millstream::server::{Connection, Limits, RequestBody};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::HANGS;
use crate::http::{Answer, boxed};
use crate::serving::{AnyService, any};

/// Tells on drop.
struct Tells(mpsc::Sender<&'static str>);

impl Drop for Tells {
    fn drop(&mut self) {
        // The test may have ended.
        let _ = self.0.try_send("gone");
    }
}

async fn answer(request: Request<RequestBody>, sender: mpsc::Sender<&'static str>) -> Result<Answer, Infallible> {
    let connection = request.extensions().get::<Connection>().unwrap().clone();
    match request.uri().path() {
        "/waits" => {
            sender.try_send("begun").unwrap();
            // A service whose client has reset the connection is dropped at once.
            let tells = Tells(sender);
            connection.gone().await;
            drop(tells);
            std::future::pending().await
        }
        "/pending" => {
            tokio::spawn(async move {
                connection.gone().await;
                sender.try_send("gone").unwrap();
            });
            let frames = stream::pending::<Result<Frame<Bytes>, Infallible>>();
            Ok(Response::new(boxed(StreamBody::new(frames))))
        }
        _ => {
            tokio::spawn(async move {
                let early = timeout(Duration::from_millis(50), connection.gone()).await.is_ok();
                // The test may have ended.
                let _ = sender.try_send(if early { "gone" } else { "here" });
            });
            Ok(Response::new(boxed(Full::new(Bytes::from("hello")))))
        }
    }
}

/// Messages of the service.
pub struct Told {
    receiver: mpsc::Receiver<&'static str>,
    /// Times from the client's last call to the news.
    after: Vec<Duration>,
}

impl Told {
    pub async fn next(&mut self) -> &'static str {
        timeout(HANGS, self.receiver.recv()).await.expect("told in time").unwrap()
    }

    /// Asserts that the service was told nothing yet.
    pub fn nothing(&mut self) {
        assert!(self.receiver.try_recv().is_err(), "the client is here");
    }

    /// Asserts that the service is told of a client that leaves now.
    pub async fn of<C>(&mut self, how: &str, leaves: impl AsyncFnOnce() -> C) {
        self.nothing();
        let since = Instant::now();
        let _kept = leaves().await;
        assert_eq!(self.next().await, "gone", "{how}");
        self.after.push(since.elapsed());
    }

    /// Prints how late the news was.
    pub fn report(mut self, of: &str) {
        self.after.sort_unstable();
        let (all, last) = (self.after.len(), *self.after.last().unwrap());
        let late = self.after.iter().filter(|after| **after > Duration::from_millis(10)).count();
        println!("{of}: {all} of {all} told, median {:?}, last {last:?}, {late} after 10 ms", self.after[all / 2]);
    }
}

/// Returns a service that tells when its client has left, while it waits or while its body is pending.
pub fn service() -> (AnyService, Told) {
    let (sender, receiver) = mpsc::channel(16);
    let service = tower::service_fn(move |request| answer(request, sender.clone()));
    (any(service), Told { receiver, after: Vec::new() })
}

/// Limits with which a response outlives the end of the client's side.
pub fn limits() -> Limits {
    Limits::default().half_close(HANGS)
}
