//! Sends of many streams by the ring, in one call.

use std::sync::Arc;

use super::dirty::{Flush, guarded};
use super::setup::Io;
use super::turns::Turn;
use crate::ring::net::send::{RingSend, SendBatch};

/// Minimum number of streams that are sent by one call of the ring instead of one call each.
const TOGETHER: usize = 4;

/// The batch of a flusher; empty between two flushes.
#[derive(Default)]
pub(super) struct RingSends {
    batch: SendBatch,
    sending: Vec<Arc<dyn RingSend>>,
}

impl RingSends {
    /// Sends streams by the ring if that saves calls. Leaves in `streams` those that must be flushed by their own
    /// calls.
    pub(super) fn send(&mut self, turn: &Arc<Turn>, streams: &mut Vec<Arc<dyn Flush>>) {
        let by_ring = |stream: &Arc<dyn Flush>| Arc::clone(stream).by_ring();
        let joining = streams.iter().filter_map(by_ring).map(|stream| stream.joins()).fold(0, usize::saturating_add);
        let Some(driver) = (if joining >= turn.together() { turn.driver() } else { None }) else { return };
        streams.retain(|stream| {
            let Some(stream) = by_ring(stream) else { return true };
            match guarded(|| Arc::clone(&stream).begin()) {
                Some(Some(send_op)) => {
                    self.batch.send_ops.push(send_op);
                    self.sending.push(stream);
                    false
                }
                Some(None) => true,
                None => false,
            }
        });
        driver.send(&mut self.batch);
        for (stream, send_op) in self.sending.drain(..).zip(self.batch.send_ops.drain(..)) {
            guarded(|| stream.end(send_op));
        }
    }
}

impl Turn {
    /// Returns the number of streams that must be due at once to be sent by the ring.
    fn together(&self) -> usize {
        match self.io() {
            Io::Auto => TOGETHER,
            Io::Uring => 1,
            Io::Epoll => usize::MAX,
        }
    }

    /// Returns whether several connections have received bytes, so that their answers can leave together.
    pub(crate) fn answers_together(&self) -> bool {
        let ring = self.shards[self.shard()].ring.get();
        ring.is_some_and(|ring| ring.as_ref().is_ok_and(|reactor| reactor.driver.arrived() >= self.together()))
    }
}
