//! A scripted kernel: carries entries out like the real one, or partially, late, twice, out of order, or not at all.
//!
//! Asserts that nothing is pushed without room, chains are submitted whole, the completion queue never overflows, and
//! the descriptor of an entry stays open until the entry has ended.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use io_uring::opcode;
use io_uring::squeue::Entry;
use rustix::io::Errno;

pub(super) use super::sqe::{Sqe, Submitted};
use crate::ring::port::Port;
use crate::sys::uring::Completion;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Do,
    Short(u32),
    Fail(Errno),
    /// Completes with this number and does nothing.
    Give(u32),
    Hold,
    /// Its time limit, the entry linked after it, expires.
    TimeOut,
}

pub(super) type Script = Box<dyn FnMut(&Sqe) -> Act + Send>;

struct FakeState {
    capacity: usize,
    completions: usize,
    pushed: VecDeque<(Sqe, bool)>,
    flight: Vec<VecDeque<Submitted>>,
    done: VecDeque<Completion>,
    script: Script,
    enter_errors: VecDeque<Errno>,
    takes: usize,
    obeys_cancel: bool,
    cancel_errors: VecDeque<Errno>,
    timers: Vec<u64>,
    reversed: bool,
    dropped: u32,
    forked: bool,
    unsupported: Vec<u8>,
    closed_files: Vec<u32>,
    enters: usize,
    submitted: usize,
}

pub(super) struct Fake(Arc<Mutex<FakeState>>);

#[derive(Clone)]
pub(super) struct Handle(Arc<Mutex<FakeState>>);

/// Creates a fake ring of `capacity` entries that end as `script` decides.
pub(super) fn fake(capacity: usize, script: impl FnMut(&Sqe) -> Act + Send + 'static) -> (Box<Fake>, Handle) {
    let state = FakeState {
        capacity,
        completions: capacity * 4,
        pushed: VecDeque::new(),
        flight: Vec::new(),
        done: VecDeque::new(),
        script: Box::new(script),
        enter_errors: VecDeque::new(),
        takes: usize::MAX,
        obeys_cancel: true,
        cancel_errors: VecDeque::new(),
        timers: Vec::new(),
        reversed: false,
        dropped: 0,
        forked: false,
        unsupported: Vec::new(),
        closed_files: Vec::new(),
        enters: 0,
        submitted: 0,
    };
    let state = Arc::new(Mutex::new(state));
    (Box::new(Fake(Arc::clone(&state))), Handle(state))
}

impl Handle {
    fn state(&self) -> MutexGuard<'_, FakeState> {
        self.0.lock().unwrap()
    }

    pub(super) fn set_script(&self, script: impl FnMut(&Sqe) -> Act + Send + 'static) {
        self.state().script = Box::new(script);
    }

    pub(super) fn proceed(&self) {
        self.state().proceed();
    }

    pub(super) fn fail_enters(&self, errors: impl IntoIterator<Item = Errno>) {
        self.state().enter_errors.extend(errors);
    }

    pub(super) fn take_at_most(&self, takes: usize) {
        self.state().takes = takes;
    }

    /// Makes cancels ineffective, as for an operation that runs on a kernel thread.
    pub(super) fn ignore_cancels(&self) {
        self.state().obeys_cancel = false;
    }

    /// Makes one more of the next cancels fail.
    pub(super) fn fail_cancel(&self, errno: Errno) {
        self.state().cancel_errors.push_back(errno);
    }

    pub(super) fn reverse(&self) {
        self.state().reversed = true;
    }

    pub(super) fn drop_completions(&self) {
        self.state().dropped = 1;
    }

    /// Marks the process as a forked child: every other call fails the test.
    pub(super) fn fork(&self) {
        self.state().forked = true;
    }

    pub(super) fn without(&self, opcode: u8) {
        self.state().unsupported.push(opcode);
    }

    /// Reports a completion out of turn. An entry in flight with this key has ended: its owner may free its memory.
    pub(super) fn complete(&self, key: u64, result: Result<u32, i32>) {
        let mut state = self.state();
        state.flight.iter_mut().for_each(|chain| chain.retain(|entry| entry.sqe.user_data != key));
        state.flight.retain(|chain| !chain.is_empty());
        state.complete(key, result);
    }

    pub(super) fn elapse(&self) {
        let mut state = self.state();
        for key in std::mem::take(&mut state.timers) {
            state.complete(key, Err(Errno::TIME.raw_os_error()));
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.state().flight.iter().map(VecDeque::len).sum::<usize>()
    }

    pub(super) fn enters(&self) -> usize {
        self.state().enters
    }

    pub(super) fn submitted(&self) -> usize {
        self.state().submitted
    }

    pub(super) fn closed_files(&self) -> Vec<u32> {
        self.state().closed_files.clone()
    }
}

impl FakeState {
    fn complete(&mut self, key: u64, result: Result<u32, i32>) {
        self.done.push_back(Completion { key, result });
        assert!(self.done.len() <= self.completions, "the completion queue overflows");
    }

    fn proceed(&mut self) {
        let flight = std::mem::take(&mut self.flight);
        for mut chain in flight {
            self.run(&mut chain);
            if !chain.is_empty() {
                self.flight.push(chain);
            }
        }
    }

    fn run(&mut self, chain: &mut VecDeque<Submitted>) {
        while let Some(entry) = chain.front() {
            let sqe = entry.sqe;
            let limit = chain.get(1).map(|next| next.sqe).filter(|next| next.opcode == opcode::LinkTimeout::CODE);
            let (result, timed_out) = match (self.script)(&sqe) {
                Act::Hold => return,
                Act::Do => (entry.carry_out(sqe.len), false),
                Act::Short(n) => (entry.carry_out(n.min(sqe.len)), false),
                Act::Fail(errno) => (Err(errno), false),
                Act::Give(n) => (Ok(n), false),
                Act::TimeOut => (Err(Errno::CANCELED), true),
            };
            chain.pop_front();
            let is_soft = match limit {
                Some(limit) => {
                    chain.pop_front();
                    let errno = if timed_out { Errno::TIME } else { Errno::CANCELED };
                    self.complete(limit.user_data, Err(errno.raw_os_error()));
                    limit.is_linked_softly()
                }
                None => sqe.is_linked_softly(),
            };
            self.complete(sqe.user_data, result.map_err(Errno::raw_os_error));
            if is_soft && sqe.fails_its_link(result) {
                for cancelled in std::mem::take(chain) {
                    self.complete(cancelled.sqe.user_data, Err(Errno::CANCELED.raw_os_error()));
                }
            }
        }
    }

    fn cancel(&mut self, target: Option<u64>) -> bool {
        let flight = std::mem::take(&mut self.flight);
        let (cancelled, left): (Vec<_>, Vec<_>) = flight.into_iter().partition(|chain| {
            self.obeys_cancel
                && target.is_none_or(|target| chain.front().is_some_and(|entry| entry.sqe.user_data == target))
        });
        self.flight = left;
        let found = !cancelled.is_empty();
        for entry in cancelled.into_iter().flatten() {
            self.complete(entry.sqe.user_data, Err(Errno::CANCELED.raw_os_error()));
        }
        found
    }
}

impl Fake {
    fn ours(&self) -> MutexGuard<'_, FakeState> {
        let state = self.0.lock().unwrap();
        assert!(!state.forked, "a forked child touches the ring");
        state
    }
}

impl Port for Fake {
    fn is_ours(&self) -> bool {
        !self.0.lock().unwrap().forked
    }

    fn room(&mut self) -> usize {
        let state = self.ours();
        state.capacity - state.pushed.len()
    }

    fn completions(&self) -> usize {
        self.ours().completions
    }

    fn supports(&self, opcode: u8) -> bool {
        !self.ours().unsupported.contains(&opcode)
    }

    unsafe fn push(&mut self, entry: &Entry, linked: bool) {
        let mut state = self.ours();
        assert!(state.pushed.len() < state.capacity, "pushed without room");
        let sqe = Sqe::read(entry);
        assert_eq!(sqe.is_linked(), linked, "the link of {sqe:?}");
        state.pushed.push_back((sqe, linked));
    }

    fn enter(&mut self, submit: usize, _: usize, _: Option<Duration>) -> io::Result<usize> {
        let mut state = self.ours();
        state.enters += 1;
        if let Some(errno) = state.enter_errors.pop_front() {
            return Err(errno.into());
        }
        let taken = submit.min(state.takes);
        state.submitted += taken;
        let mut chain = VecDeque::new();
        for _ in 0..taken {
            let (sqe, linked) = state.pushed.pop_front().expect("more was submitted than was pushed");
            if sqe.opcode == opcode::AsyncCancel::CODE {
                let result = match state.cancel_errors.pop_front() {
                    Some(errno) => Err(errno.raw_os_error()),
                    None if !state.obeys_cancel => Err(Errno::ALREADY.raw_os_error()),
                    None if state.cancel(Some(sqe.addr)) => Ok(0),
                    None => Err(Errno::NOENT.raw_os_error()),
                };
                state.complete(sqe.user_data, result);
                continue;
            }
            if sqe.opcode == opcode::Timeout::CODE {
                state.timers.push(sqe.user_data);
                continue;
            }
            chain.push_back(Submitted::new(sqe));
            if !linked {
                let mut chain = std::mem::take(&mut chain);
                state.run(&mut chain);
                if !chain.is_empty() {
                    state.flight.push(chain);
                }
            }
        }
        if !chain.is_empty() {
            // A chain ends with the submission.
            state.run(&mut chain);
            state.flight.extend((!chain.is_empty()).then_some(chain));
        }
        Ok(taken)
    }

    fn reap(&mut self, into: &mut Vec<Completion>) -> bool {
        let mut state = self.ours();
        let from = into.len();
        into.extend(state.done.drain(..));
        if state.reversed {
            into[from..].reverse();
        }
        false
    }

    fn close_file(&mut self, place: u32) {
        self.ours().closed_files.push(place);
    }

    fn dropped(&mut self) -> u32 {
        self.ours().dropped
    }

    fn cancel_all(&mut self, _: Duration) -> io::Result<()> {
        let mut state = self.ours();
        if let Some(errno) = state.cancel_errors.pop_front() {
            return Err(errno.into());
        }
        state.cancel(None);
        for key in std::mem::take(&mut state.timers) {
            state.complete(key, Err(Errno::CANCELED.raw_os_error()));
        }
        Ok(())
    }
}
