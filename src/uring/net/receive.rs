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

use super::super::closing::leak;
use super::super::driver::{Driver, Ring};
use super::super::key::{About, Key};
use super::super::port::Port;
use super::super::queue::{After, Queue};
use super::super::sync::lock;
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

enum State {
    Free,
    Queued(Arc<dyn Receiver>),
    Armed(Arc<dyn Receiver>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffers {
    pub(crate) count: u16,
    pub(crate) size: u32,
}

impl Default for Buffers {
    fn default() -> Self {
        Self { count: 512, size: 4 << 10 }
    }
}

pub(in crate::uring) struct MultishotRecv {
    places: Vec<(u32, State)>,
    free: Vec<u32>,
    /// Receives to submit; keys that were stopped stay and are skipped.
    pub(in crate::uring) queued: VecDeque<Key>,
    pub(in crate::uring) stopping: VecDeque<Key>,
    pub(in crate::uring) armed: usize,
    /// Number of completions with bytes since the last query.
    pub(in crate::uring) arrivals: usize,
    buffers: Buffers,
    provided: Option<Arc<Provided>>,
    has_bundles: bool,
    refused: Option<String>,
}

impl MultishotRecv {
    pub(in crate::uring) fn new(buffers: Buffers) -> Self {
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

    fn get(&mut self, key: Key) -> Option<&mut State> {
        self.places.get_mut(key.index as usize).filter(|place| place.0 == key.generation).map(|place| &mut place.1)
    }

    fn insert(&mut self, receiver: Arc<dyn Receiver>) -> Key {
        let state = State::Queued(receiver);
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.places.push((0, State::Free));
                self.places.len() as u32 - 1
            }
        };
        let place = &mut self.places[index as usize];
        place.1 = state;
        Key::new(index, place.0)
    }

    fn release(&mut self, key: Key) -> State {
        let place = &mut self.places[key.index as usize];
        place.0 = place.0.wrapping_add(1);
        self.free.push(key.index);
        std::mem::replace(&mut place.1, State::Free)
    }

    pub(in crate::uring) fn arm(&mut self, key: Key) -> Option<Entry> {
        let has_bundles = self.has_bundles;
        let state = self.get(key)?;
        let State::Queued(receiver) = std::mem::replace(state, State::Free) else { return None };
        let fd = types::Fd(receiver.as_fd().as_raw_fd());
        *state = State::Armed(receiver);
        self.armed += 1;
        Some(match has_bundles {
            true => opcode::RecvMultiBundle::new(fd, GROUP).build(),
            false => opcode::RecvMulti::new(fd, GROUP).build(),
        })
    }

    pub(in crate::uring) fn is_armed(&mut self, key: Key) -> bool {
        matches!(self.get(key), Some(State::Armed(_)))
    }

    pub(in crate::uring) fn complete(&mut self, key: Key, completion: Completion, after: &mut After) {
        let bytes = completion.buffer.zip(self.provided.as_ref()).map(|(buffer, provided)| {
            // SAFETY: the completion was just reaped from the only ring with these buffers, and is handled only once.
            unsafe { provided.chunks(buffer, completion.result.unwrap_or(0) as usize) }
        });
        // A final completion may name a buffer too, without bytes.
        let bytes = bytes.into_iter().flatten().inspect(|_| count(Counter::ReceiveBuffers, 1));
        let bytes = bytes.filter(|chunk| !chunk.as_ref().is_empty());
        self.arrivals += 1;
        let Some(State::Armed(receiver)) = self.get(key) else {
            count(Counter::RingStrays, 1);
            bytes.for_each(drop);
            return;
        };
        let mut stop = false;
        for chunk in bytes {
            let answer = receiver.arrived(Arrival::Bytes(chunk));
            after.wake.extend(answer.wake);
            stop |= answer.stop;
        }
        if completion.more {
            if stop {
                self.stopping.push_back(key);
            }
            return;
        }
        let ending = match completion.result {
            Ok(0) => Ending::Eof,
            Ok(_) => Ending::Stopped,
            Err(e) if e == Errno::CANCELED.raw_os_error() || e == Errno::INTR.raw_os_error() => Ending::Stopped,
            Err(e) if e == Errno::NOBUFS.raw_os_error() => Ending::NoBuffers,
            Err(e) => Ending::Failed(e),
        };
        after.wake.extend(receiver.arrived(Arrival::Ended(ending)).wake);
        self.armed -= 1;
        if let State::Armed(receiver) = self.release(key) {
            after.receivers.push(receiver);
        }
    }

    pub(in crate::uring) fn close(&mut self, after: &mut After) {
        self.stopping.clear();
        while let Some(key) = self.queued.pop_front() {
            if matches!(self.get(key), Some(State::Queued(_)))
                && let State::Queued(receiver) = self.release(key)
            {
                after.wake.extend(receiver.arrived(Arrival::Ended(Ending::Stopped)).wake);
                after.receivers.push(receiver);
            }
        }
    }

    /// Ends armed receives whose last completions are lost; their buffers must never be reused.
    pub(in crate::uring) fn lose(&mut self, after: &mut After) {
        if self.armed == 0 {
            return;
        }
        self.armed = 0;
        leak(self.provided.clone());
        for index in 0..self.places.len() as u32 {
            let key = Key::new(index, self.places[index as usize].0);
            if self.is_armed(key)
                && let State::Armed(receiver) = self.release(key)
            {
                after.wake.extend(receiver.arrived(Arrival::Ended(Ending::Failed(Errno::IO.raw_os_error()))).wake);
                after.receivers.push(receiver);
            }
        }
    }

    fn provide(&mut self, port: &mut dyn Port) -> Result<(), String> {
        if let Some(reason) = &self.refused {
            return Err(reason.clone());
        }
        if self.provided.is_some() {
            return Ok(());
        }
        let registered = Provided::new(self.buffers.count, self.buffers.size as usize).and_then(|provided| {
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

impl Driver {
    /// Starts a receive for `receiver`, until it is stopped or ends. The error says why this ring cannot do it.
    pub(crate) fn receive(&self, receiver: Arc<dyn Receiver>) -> Result<Key, String> {
        let mut queue = lock(&self.queue);
        if let Some(why) = &queue.closed {
            return Err(why.clone());
        }
        if queue.net.receive.provided.is_none() {
            drop(queue);
            // The locks are taken in this order everywhere.
            let mut ring = lock(&self.ring);
            queue = lock(&self.queue);
            let Some(ring) = ring.as_mut() else { return Err("the runtime has shut down".to_owned()) };
            queue.net.receive.provide(&mut *ring.port)?;
        }
        let key = queue.net.receive.insert(receiver);
        let is_first = queue.net.receive.queued.is_empty();
        queue.net.receive.queued.push_back(key);
        drop(queue);
        if is_first {
            (self.kick)();
        }
        Ok(key)
    }

    /// Stops a receive. Bytes received until then, and the end, still arrive, unless the receive was not submitted yet.
    pub(crate) fn stop_receiving(&self, key: Key) {
        let mut queue = lock(&self.queue);
        let is_armed = queue.net.receive.is_armed(key);
        let mut dropped = State::Free;
        if is_armed && queue.closed.is_none() {
            queue.net.receive.stopping.push_back(key);
        } else if !is_armed && queue.net.receive.get(key).is_some() {
            dropped = queue.net.receive.release(key);
        }
        drop(queue);
        drop(dropped);
        if is_armed {
            (self.kick)();
        }
    }

    /// Pushes stops while there is room for control entries, and receives.
    pub(in crate::uring) fn fill_receives(&self, ring: &mut Ring, queue: &mut Queue) {
        while queue.room.control.left() > 0
            && ring.port.room() > 0
            && let Some(key) = queue.net.receive.stopping.pop_front()
        {
            if queue.net.receive.is_armed(key) {
                let entry = opcode::AsyncCancel::new(About::Receive(key).user_data()).build();
                // SAFETY: a cancel entry contains no pointers.
                unsafe { ring.push_control(&entry, About::Stop(key), queue) };
            }
        }
        while ring.port.room() > 0
            && let Some(key) = queue.net.receive.queued.pop_front()
        {
            if let Some(entry) = queue.net.receive.arm(key) {
                // SAFETY: a receive points only to the provided buffers, which `MultishotRecv` keeps.
                unsafe { ring.push(&entry, About::Receive(key).user_data(), false) };
            }
        }
    }

    /// Returns whether a receive would find a free buffer, as far as is known.
    pub(crate) fn has_buffers(&self) -> bool {
        let queue = lock(&self.queue);
        queue.net.receive.provided.as_ref().is_none_or(|provided| provided.lent() < usize::from(provided.count()))
    }
}
