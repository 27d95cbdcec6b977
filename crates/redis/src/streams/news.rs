//! The streams that wait for new events, by their channel.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{FromRedisValue, PushInfo, PushKind};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct News(Mutex<HashMap<String, Vec<Arc<Notify>>>>);

impl News {
    fn waiting(&self) -> MutexGuard<'_, HashMap<String, Vec<Arc<Notify>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, channel: &str, waiter: &Arc<Notify>) {
        self.waiting().entry(channel.to_owned()).or_default().push(Arc::clone(waiter));
    }

    /// Returns whether no other stream waits for the channel.
    pub(super) fn remove(&self, channel: &str, waiter: &Arc<Notify>) -> bool {
        let mut waiting = self.waiting();
        let Some(waiters) = waiting.get_mut(channel) else { return false };
        waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        let is_last = waiters.is_empty();
        if is_last {
            waiting.remove(channel);
        }
        is_last
    }

    pub(super) fn is_awaited(&self, channel: &str) -> bool {
        self.waiting().contains_key(channel)
    }

    pub(super) fn heard(&self, push: &PushInfo) {
        match push.kind {
            PushKind::Message => {
                let channel = push.data.first().and_then(|channel| String::from_redis_value_ref(channel).ok());
                let waiting = self.waiting();
                channel.and_then(|channel| waiting.get(&channel)).into_iter().flatten().for_each(|w| w.notify_one());
            }
            // All read again, and subscribe again.
            PushKind::Disconnection => self.waiting().values().flatten().for_each(|waiter| waiter.notify_one()),
            _ => {}
        }
    }
}
