//! One stream in a directory. Its calls are jobs on the blocking pool.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millstream::sse::log::LogFuture;
use tokio::time::sleep;

use super::stream_file::StreamFile;
use crate::disk::job::{discard, job};
use crate::end::StreamEnd;
use crate::stream_log::{LogPage, LogStatus, StreamLog, StreamLogError};

/// Time between two looks at the length of a file that is read.
const LOOK: Duration = Duration::from_millis(25);

type LogResult<T> = Result<T, StreamLogError>;

#[derive(Debug)]
pub(super) struct DiskStream {
    epoch: u32,
    /// `None` while it is dropped.
    file: Option<Arc<StreamFile>>,
    /// Whether a look at the length may wait for a server or another process.
    may_wait: bool,
}

impl DiskStream {
    pub(super) fn new(file: StreamFile, may_wait: bool) -> Self {
        Self { epoch: file.epoch, file: Some(Arc::new(file)), may_wait }
    }

    fn job<T: Send + 'static>(
        &self,
        work: impl FnOnce(&StreamFile) -> LogResult<T> + Send + 'static,
    ) -> LogFuture<'_, LogResult<T>> {
        let file = self.file.clone();
        let job = job(move || Ok(file.map_or(Err(StreamLogError::Gone), |file| work(&file))));
        Box::pin(async move { job.await? })
    }
}

impl StreamLog for DiskStream {
    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn claim(&self, keep: Duration) -> LogFuture<'_, LogResult<Option<u64>>> {
        self.job(move |file| file.claim(keep))
    }

    fn append<'a>(
        &'a self,
        token: u64,
        first: u64,
        events: &'a [Bytes],
        end: Option<(StreamEnd, Duration)>,
    ) -> LogFuture<'a, LogResult<()>> {
        let events = events.to_vec();
        self.job(move |file| file.append(token, first, &events, end))
    }

    fn beat(&self, token: Option<u64>, is_read: bool) -> LogFuture<'_, LogResult<LogStatus>> {
        self.job(move |file| file.beat(token, is_read))
    }

    fn read(&self, from: u64) -> LogFuture<'_, LogResult<LogPage>> {
        self.job(move |file| file.read(from))
    }

    fn grown(&self, _from: u64) -> LogFuture<'_, ()> {
        Box::pin(async move {
            loop {
                sleep(LOOK).await;
                let has_grown = match self.may_wait {
                    true => self.job(|file| Ok(file.has_grown())).await.unwrap_or(true),
                    false => self.file.as_ref().is_none_or(|file| file.has_grown()),
                };
                if has_grown {
                    return;
                }
            }
        })
    }

    fn request_stop(&self) -> LogFuture<'_, LogResult<()>> {
        self.job(StreamFile::request_stop)
    }
}

impl Drop for DiskStream {
    fn drop(&mut self) {
        // Closing a file that was removed waits for the disk.
        discard(self.file.take());
    }
}
