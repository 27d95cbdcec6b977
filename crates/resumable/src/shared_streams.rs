//! Streams that the instances of a service share.

use std::fmt;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use millstream::internal::kept::Asked;
use millstream::sse::EventBody;
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};

use crate::builder::StreamsBuilder;
use crate::end::StreamEnd;
use crate::error::{SharedError, StreamError};
use crate::handle::StreamHandle;
use crate::kept_stream::KeptStream;
use crate::log_task::{LogTask, catch_up};
use crate::owner::Owner;
use crate::reaper;
use crate::sender::{Producing, Running, StreamSender};
use crate::stream_log::{StreamLog, StreamLogs};
use crate::table::{StreamsShared, StreamsStats};

/// Number of streams that are found or opened at a time.
const TURNS: usize = 64;
/// Number of times that a stream is looked for which this instance loses meanwhile.
const ATTEMPTS: usize = 3;

/// [Streams](crate::Streams) that several instances of a service share by a log: a reader that is moved to another
/// instance continues there, and another instance continues a stream whose process has ended.
///
/// Built by [`StreamsBuilder::build_shared`] from a `DiskStreams` (feature `disk`) in a directory, from the
/// `RedisStreams` of the crate `millstream-redis`, or from your own [`StreamLogs`]. All instances need the same options.
/// Clones are handles to the same streams.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// use std::sync::Arc;
///
/// use millstream::fs::Durability;
/// use millstream::sse::{Event, SendError};
/// use millstream_resumable::{DiskStreams, StreamSender, Streams};
///
/// /// Sends the tokens of an answer that no earlier process has sent.
/// async fn generate(sender: StreamSender) -> Result<(), SendError> {
///     for n in sender.resumed_from()..100 {
///         sender.send(Event::new().data(format!("token {n}")))?;
///     }
///     Ok(())
/// }
///
/// let logs = Arc::new(DiskStreams::open(directory, Durability::None).await?);
/// let one = Streams::builder().build_shared(logs.clone());
/// let other = Streams::builder().build_shared(logs);
///
/// let stream = one.open("answer 1", "alice", generate).await?;
/// let same = other.get("answer 1", "alice").await?;
/// assert_eq!(stream.ended().await, same.ended().await);
/// # Ok(())
/// # }
/// ```
///
/// # One writer
///
/// One instance has the claim of a stream, and runs its producer. An event is published when the log has it, so no
/// reader gets an event that a later writer does not know. The others read the log. If the process that writes ends
/// without an end of the stream, its claim ends, and the next [`open`](Self::open) at any instance continues: its
/// producer starts, and [`StreamSender::resumed_from`] tells how many events there are. If no instance opens it for the
/// [patience](StreamsBuilder::patience), one that follows it ends it as failed. A process that loses its claim, because
/// it was paused, can append nothing more: its producer is cancelled, and its readers reconnect.
///
/// When the last handle is dropped, or the runtime ends, the streams of this instance do not end. Their producers are
/// cancelled and the claims are released, so that another instance continues. Call [`stop`](Self::stop) for each
/// stream that is to end.
///
/// # Readers of all instances
///
/// A stream is [abandoned](StreamsBuilder::abandoned) when it has no readers at any instance. Instances tell each other
/// of their readers four times in a second. A stream is cancelled within a second after its time, and never before. A
/// reader that returns later than that time may be refused although the producer still runs.
///
/// # Failures of the log
///
/// While the log is unreachable, events wait. After the [patience](StreamsBuilder::patience) the producer is cancelled
/// and readers of this instance get an `event: error` without an id. The instance then forgets the stream. A reader that
/// reconnects is answered from the log once it is reachable. Calls of this type fail with [`SharedError::Log`], whose
/// response is `503 Service Unavailable` with `Retry-After`.
///
/// # Cost
///
/// A stream has one task at each instance, and its events are in the memory of each instance where it has been read,
/// see [Memory](crate::Streams#memory). [`get`](Self::get) and [`attach`](Self::attach) read the log once, or twice if
/// the stream is new at the instance.
#[derive(Clone)]
pub struct SharedStreams(Arc<Instance>);

struct Instance {
    streams: Arc<StreamsShared>,
    logs: Arc<dyn StreamLogs>,
    /// Held while a stream is found or opened, chosen by its name: a stream is in the table once.
    turns: [AsyncMutex<()>; TURNS],
}

/// A stream that has to be read from its log.
struct Found {
    stream: Arc<KeptStream>,
    log: Arc<dyn StreamLog>,
    /// Whether it is not in the table.
    is_new: bool,
}

impl Drop for Found {
    fn drop(&mut self) {
        // Its log could not be used.
        if self.is_new {
            self.stream.lose(false);
        }
    }
}

impl StreamsBuilder {
    /// Builds streams with logs, which other instances share.
    pub fn build_shared(self, logs: Arc<dyn StreamLogs>) -> SharedStreams {
        let turns = std::array::from_fn(|_| AsyncMutex::new(()));
        SharedStreams(Arc::new(Instance { streams: StreamsShared::new(self), logs, turns }))
    }
}

impl SharedStreams {
    /// Returns the stream of this owner with this key, as [`Streams::get_or_start`](crate::Streams::get_or_start) does.
    /// If no instance writes it and it has not ended, calls `producer` and runs its future as a task. Of concurrent
    /// calls at all instances one starts a producer.
    ///
    /// # Errors
    ///
    /// As [`Streams::get_or_start`](crate::Streams::get_or_start), and [`SharedError::Log`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the stream may start nevertheless.
    pub async fn open<F, E>(
        &self,
        key: &str,
        owner: impl Into<Owner>,
        producer: impl FnOnce(StreamSender) -> F + Send + 'static,
    ) -> Result<StreamHandle, SharedError>
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        let name = owner.into().name(key)?;
        let runtime = Handle::try_current().map_err(|_| StreamError::NoRuntime)?;
        let (instance, spawner) = (Arc::clone(&self.0), runtime.clone());
        // In a task, because a claim must be used.
        let opened = runtime.spawn(async move {
            let (stream, starts) = instance.find(&name, true).await?;
            if starts {
                // Ends the stream if `producer` panics.
                let running = Running::new(&stream);
                let producer = producer(StreamSender(Arc::clone(&stream)));
                stream.set_producer(spawner.spawn(Producing::new(producer, running)).abort_handle());
            }
            Ok(StreamHandle(stream))
        });
        match opened.await {
            Ok(opened) => opened,
            Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
            Err(_) => Err(StreamError::NoRuntime.into()),
        }
    }

    /// Returns the stream of this owner with this key, of any instance. At an instance that does not write it, the call
    /// counts as a reader at this moment. Cancel safe.
    ///
    /// # Errors
    ///
    /// As [`Streams::get`](crate::Streams::get), and [`SharedError::Log`].
    pub async fn get(&self, key: &str, owner: impl Into<Owner>) -> Result<StreamHandle, SharedError> {
        let name = owner.into().name(key)?;
        self.0.find(&name, false).await.map(|(stream, _)| StreamHandle(stream))
    }

    /// Answers a request for the events of a stream, as [`Streams::attach`](crate::Streams::attach) does. A reader that
    /// had events from another instance continues behind them. Use it for each request: a [`StreamHandle`] that is kept
    /// may not know yet what another instance has published, and takes its ids for foreign ones.
    ///
    /// The response is `503 Service Unavailable` with `Retry-After` if the log fails. Cancel safe.
    pub fn attach<B, O: Into<Owner>>(
        &self,
        request: &Request<B>,
        key: &str,
        owner: O,
    ) -> impl Future<Output = Response<EventBody>> + Send + use<B, O> {
        let (name, instance) = (owner.into().name(key), Arc::clone(&self.0));
        let asked = Asked::new(&instance.streams.setup.options.hub, request);
        async move {
            let found = match name {
                Ok(name) => instance.find(&name, false).await,
                Err(error) => Err(error.into()),
            };
            match found {
                Ok((stream, _)) => StreamHandle(stream).answer(&asked),
                Err(error) => error.response(),
            }
        }
    }

    /// Stops the stream of this owner with this key at the instance that writes it, within a second. If no instance
    /// writes it, it ends as stopped after the [patience](StreamsBuilder::patience), at an instance that follows it.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get). A stream that has ended stays as it is.
    pub async fn stop(&self, key: &str, owner: impl Into<Owner>) -> Result<(), SharedError> {
        let name = owner.into().name(key)?;
        let here = self.0.kept(&name).filter(|stream| stream.token().is_some());
        if let Some(stream) = here {
            stream.finish(StreamEnd::Stopped);
            return Ok(());
        }
        let log = self.0.logs.open(&hex(&name), None).await?.ok_or(StreamError::NotFound)?;
        Ok(log.request_stop().await?)
    }

    /// Returns the numbers of this instance of now.
    pub fn stats(&self) -> StreamsStats {
        self.0.streams.stats()
    }
}

impl Instance {
    /// Returns the stream at this instance, unless its log could not be used.
    fn kept(&self, name: &[u8]) -> Option<Arc<KeptStream>> {
        self.streams.table().find(name).filter(|stream| !stream.is_lost())
    }

    /// Returns a stream, and whether it needs a producer. With `opens`, it is created, and written here if no instance
    /// writes it.
    async fn find(&self, name: &Arc<[u8]>, opens: bool) -> Result<(Arc<KeptStream>, bool), SharedError> {
        for _ in 0..ATTEMPTS {
            let (stream, starts) = self.attempt(name, opens).await?;
            // A stream that is lost meanwhile has not ended: its log may have more.
            if !stream.is_lost() {
                return Ok((stream, starts));
            }
        }
        Err(StreamError::Lost.into())
    }

    /// As [`find`](Self::find). The stream may be lost here meanwhile.
    async fn attempt(&self, name: &Arc<[u8]>, opens: bool) -> Result<(Arc<KeptStream>, bool), SharedError> {
        let file = hex(name);
        let turn = self.turn(&file).await;
        if let Some(here) = self.complete(name) {
            return Ok((settled(here, turn).await, false));
        }
        let keep = opens.then(|| self.streams.setup.options.keep());
        let mut found = self.found(name, &file, keep).await?;
        let token = match keep {
            Some(keep) => found.log.claim(keep).await?,
            None => None,
        };
        if token.is_none() {
            // Before the events are read, so that the stream is not abandoned meanwhile.
            found.log.beat(None, true).await?;
        }
        if let Err(error) = catch_up(&found.stream, &*found.log).await {
            if token.is_some() {
                // Releases the claim, which nothing would renew or use.
                found.stream.lose(false);
            }
            return Err(error.into());
        }
        let starts = token.is_some_and(|token| found.stream.promote(token));
        Ok((self.add(&mut found), starts))
    }

    async fn turn(&self, file: &str) -> MutexGuard<'_, ()> {
        let turn = usize::from_str_radix(&file[..2], 16).unwrap_or_default();
        self.turns[turn % TURNS].lock().await
    }

    /// Returns a stream whose log has nothing more: it has ended, or is written here.
    fn complete(&self, name: &[u8]) -> Option<Arc<KeptStream>> {
        self.kept(name).filter(|stream| stream.token().is_some() || stream.end().is_some())
    }

    /// Returns a stream that another instance writes, or none. Creates its log if it has none.
    async fn found(&self, name: &Arc<[u8]>, file: &str, create: Option<Duration>) -> Result<Found, SharedError> {
        let runtime = Handle::try_current().map_err(|_| StreamError::NoRuntime)?;
        reaper::watch_again(&self.streams, &runtime);
        if let Some((stream, (log, _))) = self.kept(name).and_then(|stream| Some((Arc::clone(&stream), stream.log()?)))
        {
            return Ok(Found { stream, log, is_new: false });
        }
        if self.streams.table().len() >= self.streams.setup.options.streams {
            return Err(StreamError::Full.into());
        }
        let log = self.logs.open(file, create).await?.ok_or(StreamError::NotFound)?;
        let stream = Arc::new(KeptStream::new(&self.streams.setup, Arc::clone(name), Some(Arc::clone(&log))));
        Ok(Found { stream, log, is_new: true })
    }

    /// Adds a new stream to the table, and starts its task. Called inside of a runtime.
    fn add(&self, found: &mut Found) -> Arc<KeptStream> {
        if std::mem::take(&mut found.is_new) {
            self.streams.table().add(&found.stream);
            let runtime = Handle::current();
            reaper::watch(&self.streams, &runtime);
            drop(LogTask::new(&found.stream).map(|task| runtime.spawn(task.run())));
        }
        Arc::clone(&found.stream)
    }
}

/// Waits until a stream that is written here has what readers may know from other instances.
async fn settled(here: Arc<KeptStream>, turn: MutexGuard<'_, ()>) -> Arc<KeptStream> {
    drop(turn);
    here.settled().await;
    here
}

/// Returns the name of the log.
fn hex(name: &[u8]) -> String {
    Sha256::digest(name).iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a `String` does not fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

impl fmt::Debug for SharedStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedStreams")
            .field("logs", &self.0.logs)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
