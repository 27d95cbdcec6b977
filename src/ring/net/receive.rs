//! Multishot receives: the kernel receives from a socket into provided buffers until it is stopped.
//!
//! ```text
//!            receive            submitted          last completion
//!  (free) ───────────▶ Queued ───────────▶ Armed ─────────────────▶ (free)
//!                         │ stop              │ stop: a cancel, and then the last completion
//!                         ▼ (free)            ▼
//! ```
//!
//! Invariants:
//! 1. A receiver, and so its descriptor, is kept until the last completion of its receive is reaped.
//! 2. Arrivals reach a receiver in the order in which the kernel reports them, because they are delivered under the
//!    locks of the driver. So a receiver must not call the driver from there.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::task::Waker;

use io_uring::squeue::Entry;
use io_uring::{opcode, types};
use rustix::io::Errno;

use super::super::key::Key;
use super::super::port::{Port, leak};
use crate::counters::{Counter, count};
use crate::sys::uring::{Chunk, Completion, Provided};

const GROUP: u16 = 0;

#[derive(Debug)]
pub(crate) enum Arrival {
    Bytes(Chunk),
    /// No more bytes arrive by this receive.
    Ended(Ending),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Eof,
    /// Stopped by the caller or the kernel; can be armed again.
    Stopped,
    /// No buffer was free; can be armed again when one is.
    NoBuffers,
    Failed(i32),
}

/// A consumer of arrivals, with the socket they come from.
pub(crate) trait Receiver: AsFd + Send + Sync {
    /// Handles an arrival. The locks of the driver are held (invariant 2).
    fn arrived(&self, arrival: Arrival) -> Answer;
}

#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) wake: Option<Waker>,
    pub(crate) stop: bool,
}

enum ReceiveState {
    Free,
    Queued(Arc<dyn Receiver>),
    Armed(Arc<dyn Receiver>),
}

pub(in crate::ring) struct MultishotRecv {
    places: Vec<(u32, ReceiveState)>,
    free: Vec<u32>,
    /// Receives to submit; keys that were stopped stay and are skipped.
    pub(in crate::ring) queued: VecDeque<Key>,
    pub(in crate::ring) stopping: VecDeque<Key>,
    pub(in crate::ring) armed: usize,
    /// Number of completions with bytes since the last query.
    pub(in crate::ring) arrivals: usize,
    /// The number of provided buffers, and the bytes of each.
    buffers: (u16, u32),
    pub(super) provided: Option<Arc<Provided>>,
    has_bundles: bool,
    refused: Option<String>,
}

impl MultishotRecv {
    pub(in crate::ring) fn new(buffers: (u16, u32)) -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            queued: VecDeque::new(),
            stopping: VecDeque::new(),
            armed: 0,
            arrivals: 0,
            buffers,
            provided: None,
            has_bundles: false,
            refused: None,
        }
    }

    fn get(&mut self, key: Key) -> Option<&mut ReceiveState> {
        self.places.get_mut(key.index as usize).filter(|place| place.0 == key.generation).map(|place| &mut place.1)
    }

    /// Queues a receive, to be submitted by the next turn.
    pub(super) fn insert(&mut self, receiver: Arc<dyn Receiver>) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, ReceiveState::Free));
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        place.1 = ReceiveState::Queued(receiver);
        let key = Key::new(index, place.0);
        self.queued.push_back(key);
        key
    }

    /// Frees a place. Returns its receiver, to be dropped once no lock is held.
    pub(super) fn release(&mut self, key: Key) -> Option<Arc<dyn Receiver>> {
        let state = std::mem::replace(self.get(key)?, ReceiveState::Free);
        let place = &mut self.places[key.index as usize];
        place.0 = place.0.wrapping_add(1);
        self.free.push(key.index);
        match state {
            ReceiveState::Free => None,
            ReceiveState::Queued(receiver) | ReceiveState::Armed(receiver) => Some(receiver),
        }
    }

    pub(in crate::ring) fn arm(&mut self, key: Key) -> Option<Entry> {
        let has_bundles = self.has_bundles;
        let state = self.get(key)?;
        let ReceiveState::Queued(receiver) = std::mem::replace(state, ReceiveState::Free) else { return None };
        let fd = types::Fd(receiver.as_fd().as_raw_fd());
        *state = ReceiveState::Armed(receiver);
        self.armed += 1;
        Some(match has_bundles {
            true => opcode::RecvMultiBundle::new(fd, GROUP).build(),
            false => opcode::RecvMulti::new(fd, GROUP).build(),
        })
    }

    pub(in crate::ring) fn is_armed(&mut self, key: Key) -> bool {
        matches!(self.get(key), Some(ReceiveState::Armed(_)))
    }

    /// Handles a completion. After the last one of a receive it returns the receiver, to be dropped once no lock is
    /// held.
    pub(in crate::ring) fn complete(
        &mut self,
        key: Key,
        completion: Completion,
        wake: &mut Vec<Waker>,
    ) -> Option<Arc<dyn Receiver>> {
        let bytes = completion.buffer.zip(self.provided.as_ref()).map(|(buffer, provided)| {
            // SAFETY: the completion was just reaped from the only ring with these buffers, and is handled only once.
            unsafe { provided.chunks(buffer, completion.result.unwrap_or(0) as usize) }
        });
        // A final completion may name a buffer too, without bytes.
        let bytes = bytes.into_iter().flatten().inspect(|_| count(Counter::ReceiveBuffers, 1));
        let bytes = bytes.filter(|chunk| !chunk.as_ref().is_empty());
        self.arrivals += 1;
        let Some(ReceiveState::Armed(receiver)) = self.get(key) else {
            count(Counter::RingStrays, 1);
            bytes.for_each(drop);
            return None;
        };
        let mut stop = false;
        for chunk in bytes {
            let answer = receiver.arrived(Arrival::Bytes(chunk));
            wake.extend(answer.wake);
            stop |= answer.stop;
        }
        if completion.more {
            if stop {
                self.stopping.push_back(key);
            }
            return None;
        }
        let ending = match completion.result {
            Ok(0) => Ending::Eof,
            Ok(_) => Ending::Stopped,
            Err(e) if e == Errno::CANCELED.raw_os_error() || e == Errno::INTR.raw_os_error() => Ending::Stopped,
            Err(e) if e == Errno::NOBUFS.raw_os_error() => Ending::NoBuffers,
            Err(e) => Ending::Failed(e),
        };
        wake.extend(receiver.arrived(Arrival::Ended(ending)).wake);
        self.armed -= 1;
        self.release(key)
    }

    /// Ends receives that were not submitted. Returns the receivers, to be dropped once no lock is held.
    pub(in crate::ring) fn close(&mut self, wake: &mut Vec<Waker>) -> Vec<Arc<dyn Receiver>> {
        self.stopping.clear();
        let queued = std::mem::take(&mut self.queued).into_iter().filter_map(|key| {
            let ReceiveState::Queued(receiver) = self.get(key)? else { return None };
            wake.extend(receiver.arrived(Arrival::Ended(Ending::Stopped)).wake);
            self.release(key)
        });
        queued.collect()
    }

    /// Ends armed receives whose last completions are lost; their buffers must never be reused. Returns the receivers.
    pub(in crate::ring) fn lose(&mut self, wake: &mut Vec<Waker>) -> Vec<Arc<dyn Receiver>> {
        if std::mem::take(&mut self.armed) > 0 {
            leak(self.provided.clone());
        }
        let armed = (0..self.places.len() as u32).filter_map(|index| {
            let key = Key::new(index, self.places[index as usize].0);
            let ReceiveState::Armed(receiver) = self.get(key)? else { return None };
            wake.extend(receiver.arrived(Arrival::Ended(Ending::Failed(Errno::IO.raw_os_error()))).wake);
            self.release(key)
        });
        armed.collect()
    }

    pub(super) fn provide(&mut self, port: &mut dyn Port) -> Result<(), String> {
        if let Some(reason) = &self.refused {
            return Err(reason.clone());
        }
        if self.provided.is_some() {
            return Ok(());
        }
        let registered = Provided::new(self.buffers.0, self.buffers.1 as usize).and_then(|provided| {
            // SAFETY: `self` keeps the buffers while a receive is armed, and leaks them if its end is unknown.
            unsafe { port.provide(&provided) }?;
            Ok(provided)
        });
        match registered {
            Ok(provided) => {
                self.has_bundles = port.has_bundles();
                self.provided = Some(provided);
                Ok(())
            }
            Err(e) => {
                let reason = format!("no provided buffers: {e}");
                self.refused = Some(reason.clone());
                Err(reason)
            }
        }
    }
}
