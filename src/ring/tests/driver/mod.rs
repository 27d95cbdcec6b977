//! The driver against a scripted kernel.
//!
//! ```text
//!  life    ownership, from submission to shutdown
//!  steps   outcomes of chains, the same on the ring and by plain calls
//!  busy    a kernel that lacks room, memory or operations
//!  panics  code of users that panics
//!  full    a ring that is full of programs that never end
//!  models  concurrent threads, by loom's model checker
//! ```

use std::fs::File;
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::contents::{counted, pattern};
use super::fake::{Act, Handle, Sqe, fake};
use crate::ops::StepOutcome;
use crate::ops::Target;
use crate::ops::program::Program;
use crate::ops::rw::{Read, Write};
use crate::ring::driver::{RingDriver, Running};
use crate::ring::slots::Ended;
#[cfg(not(millstream_loom))]
use crate::sync::lock;

#[cfg(not(millstream_loom))]
mod busy;
#[cfg(not(millstream_loom))]
mod full;
#[cfg(not(millstream_loom))]
mod life;
#[cfg(millstream_loom)]
mod models;
#[cfg(not(millstream_loom))]
mod opens;
#[cfg(not(millstream_loom))]
mod operations;
#[cfg(not(millstream_loom))]
mod panics;
#[cfg(not(millstream_loom))]
mod steps;

/// Creates a driver of a fake ring with `capacity` entries and 8 places for files.
fn driver(capacity: usize, script: impl FnMut(&Sqe) -> Act + Send + 'static) -> (Arc<RingDriver>, Handle) {
    let (port, handle) = fake(capacity, script);
    (Arc::new(RingDriver::new(port, 8, Box::new(|| {}))), handle)
}

fn submit(driver: &Arc<RingDriver>, program: Program) -> Running {
    driver.submit(Box::new(program)).expect("the ring refused the program")
}

fn poll(running: &mut Running) -> Option<Ended> {
    match Pin::new(running).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ended) => Some(ended),
        Poll::Pending => None,
    }
}

#[track_caller]
fn finished(running: &mut Running) -> Program {
    match poll(running) {
        Some(Ended::Finished(program)) => *program,
        other => panic!("not finished: {other:?}"),
    }
}

fn outcomes(program: &Program) -> Vec<StepOutcome> {
    (0..program.len()).map(|step| program.outcome(step)).collect()
}

fn file() -> Arc<File> {
    Arc::new(tempfile::tempfile().unwrap())
}

fn target(file: &Arc<File>) -> Target {
    Arc::clone(file).into()
}

fn write(file: &Arc<File>, offset: u64, bytes: impl Into<Bytes>) -> Write {
    Write::new(target(file), offset, bytes.into())
}

fn read(file: &Arc<File>, offset: u64, len: usize) -> Read {
    Read::new(target(file), offset, len)
}

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn chain(steps: impl IntoIterator<Item = Write>) -> Program {
    let mut program = Program::new();
    steps.into_iter().for_each(|step| program.push(step));
    program
}
