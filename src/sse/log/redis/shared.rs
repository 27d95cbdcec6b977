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
use crate::sse::log::queue::Queue;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) server: Server,
    pub(super) key: String,
    pub(super) max_len: usize,
    pub(super) expire_after: Option<Duration>,
    pub(super) writer_id: u64,
    pub(super) queue: Queue<Fields>,
    pub(super) stats: Stats,
    pub(super) sizes: Sizes,
    places: Mutex<Places>,
}

impl Shared {
    pub(super) fn new(options: RedisBuilder, server: Server) -> Self {
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

    pub(super) fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
