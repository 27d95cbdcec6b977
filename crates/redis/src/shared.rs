//! State shared by the writer, the tail and the replays of a log.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::backoff;
use super::builder::RedisBuilder;
use super::entry::Fields;
use super::link::Server;
use super::seen::Places;
use super::sizes::Sizes;
use super::stats::Stats;
use millstream::internal::log_queue::Queue;

#[derive(Debug)]
pub(crate) struct RedisShared {
    pub(crate) server: Server,
    pub(crate) key: String,
    pub(crate) max_len: usize,
    pub(crate) expire_after: Option<Duration>,
    pub(crate) writer_id: u64,
    pub(crate) queue: Queue<Fields>,
    pub(crate) stats: Stats,
    pub(crate) sizes: Sizes,
    places: Mutex<Places>,
}

impl RedisShared {
    pub(crate) fn new(options: RedisBuilder, server: Server) -> Self {
        Self {
            server,
            key: options.key,
            max_len: options.max_len,
            expire_after: options.expire_after,
            writer_id: backoff::random(),
            queue: Queue::new(options.queue, options.queue_bytes),
            stats: Stats::default(),
            sizes: Sizes::new(),
            places: Mutex::default(),
        }
    }

    pub(crate) fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
