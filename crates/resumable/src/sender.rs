//! The producer of a stream: its sender, and its task.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread::panicking;

use millstream::internal::{Counter, count};
use millstream::sse::{Event, EventId, SendError};
use pin_project_lite::pin_project;

use crate::end::StreamEnd;
use crate::events;
use crate::kept_stream::KeptStream;

/// Sends the events of a stream, for the producer that [`Streams::get_or_start`](crate::Streams::get_or_start) starts.
///
/// Clones send into the same stream. The future of the producer is dropped when the stream is cancelled. Tasks and
/// threads that the producer has started are not: they have a clone, and end when a send fails, or when
/// [`cancelled`](Self::cancelled) is ready.
#[derive(Clone)]
pub struct StreamSender(pub(crate) Arc<KeptStream>);

impl StreamSender {
    /// Sends an event to all readers, and keeps it for later ones. The stream assigns the id. Works on any thread, and
    /// never waits. In [`SharedStreams`](crate::SharedStreams) the event waits in a queue until the log has it; only
    /// then readers get it.
    ///
    /// # Errors
    ///
    /// [`SendError::Closed`] if the stream has ended; [`SendError::TooLarge`] if the event exceeds the
    /// [maximum](crate::StreamsBuilder::bytes), which ends the stream; [`SendError::IdNotOurs`] and
    /// [`SendError::InvalidName`] for an invalid event.
    pub fn send(&self, event: Event) -> Result<EventId, SendError> {
        self.0.send(&event)
    }

    /// Waits for the end of the stream. Cancel safe.
    pub async fn cancelled(&self) {
        self.0.closed().await;
    }

    /// Returns whether the stream has ended.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_closed()
    }

    /// Returns the number of events that earlier producers of this stream have sent, which readers may have. It is not
    /// 0 if [`SharedStreams::open`](crate::SharedStreams::open) continues a stream whose process has ended.
    pub fn resumed_from(&self) -> u64 {
        self.0.resumed_from()
    }
}

impl fmt::Debug for StreamSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StreamSender").field(&self.0).finish()
    }
}

/// A stream whose producer runs. A producer that panics has failed. One that is dropped before its end has, too, unless
/// the stream has a log: its runtime ends, and another instance can continue.
pub(crate) struct Running(Arc<KeptStream>);

impl Running {
    pub(crate) fn new(stream: &Arc<KeptStream>) -> Self {
        count(Counter::StreamsStarted, 1);
        Self(Arc::clone(stream))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if panicking() {
            self.0.finish(StreamEnd::Failed);
        } else {
            self.0.leave(StreamEnd::Failed);
        }
    }
}

pin_project! {
    /// The task of a producer.
    pub(crate) struct Producing<F> {
        // Dropped before the stream ends.
        #[pin]
        producer: F,
        running: Running,
    }
}

impl<F> Producing<F> {
    pub(crate) fn new(producer: F, running: Running) -> Self {
        Self { producer, running }
    }
}

impl<F, E> Future for Producing<F>
where
    F: Future<Output = Result<(), E>>,
    E: fmt::Display,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        match ready!(this.producer.poll(cx)) {
            Ok(()) => {
                this.running.0.finish(StreamEnd::Complete);
            }
            Err(error) => {
                if this.running.0.finish(StreamEnd::Failed) {
                    events::producer_failed(&error);
                }
            }
        }
        Poll::Ready(())
    }
}
