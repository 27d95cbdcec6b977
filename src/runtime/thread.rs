//! The life of one core: a thread, its CPU, its runtime, its ring.

use std::cell::Cell;
use std::io;
use std::sync::mpsc::Sender;
use std::time::Instant;

use tokio::runtime::{Builder, Handle, LocalOptions, LocalRuntime};
use tokio::sync::oneshot;

use crate::runtime::DriverBuilder;
#[cfg(feature = "uring")]
use crate::runtime::RuntimeBuilderExt;
use crate::sys::cpu;

/// One of the [`Cores`](super::Cores), as what runs on it sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Core {
    index: usize,
    count: usize,
    cpu: Option<usize>,
}

thread_local! {
    static CURRENT: Cell<Option<Core>> = const { Cell::new(None) };
}

impl Core {
    /// Its number, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The number of the CPU that its thread is pinned to, if it is.
    pub fn cpu(&self) -> Option<usize> {
        self.cpu
    }

    /// The core that the calling thread is. `None` on other threads, those of its blocking pool included.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Cell::get).ok().flatten()
    }
}

/// What a core is to be.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) index: usize,
    pub(super) count: usize,
    /// The CPU to pin the thread to.
    pub(super) cpu: Option<usize>,
    /// The CPUs for the threads of its blocking pool.
    pub(super) everywhere: Vec<usize>,
    pub(super) driver: DriverBuilder,
}

/// A core that runs.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) core: Core,
    pub(super) runtime: Handle,
    /// Why the thread is not pinned although it should be.
    pub(super) loose: Option<io::Error>,
}

/// Says at the end of the thread that it has come, however it came.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) index: usize,
    pub(super) tell: Sender<usize>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        // Whoever does not wait for it does not want to know.
        let _ = self.tell.send(self.index);
    }
}

impl Plan {
    /// Runs the core on the calling thread, until `stop` says by when it has to end.
    pub(super) fn run(self, started: Sender<io::Result<Started>>, stop: oneshot::Receiver<Instant>) {
        let (core, loose) = self.settle();
        CURRENT.set(Some(core));
        let runtime = match self.runtime(core) {
            Ok(runtime) => runtime,
            Err(e) => {
                let _ = started.send(Err(e));
                return;
            }
        };
        let _ = started.send(Ok(Started { core, runtime: runtime.handle().clone(), loose }));
        drop(started);
        // Nobody says anything if the other cores could not be started.
        let deadline = runtime.block_on(stop).unwrap_or_else(|_| Instant::now());
        runtime.shutdown_timeout(deadline.saturating_duration_since(Instant::now()));
    }

    /// Has the thread stay on its CPU; the error says why it does not.
    fn settle(&self) -> (Core, Option<io::Error>) {
        let pinned = self.cpu.map(|cpu| cpu::stay_on(&[cpu]));
        let (cpu, loose) = match pinned {
            Some(Ok(())) => (self.cpu, None),
            Some(Err(e)) => (None, Some(e)),
            None => (None, None),
        };
        (Core { index: self.index, count: self.count, cpu }, loose)
    }

    fn runtime(self, core: Core) -> io::Result<LocalRuntime> {
        let mut builder = Builder::new_current_thread();
        builder.enable_all();
        #[cfg(feature = "uring")]
        builder.drive_rings_at_park();
        if core.cpu.is_some() {
            // The threads of its blocking pool inherit the CPU, where they would be in the way of what waits for them.
            let everywhere = self.everywhere;
            builder.on_thread_start(move || {
                let _ = cpu::stay_on(&everywhere);
            });
        }
        let runtime = builder.build_local(LocalOptions::default())?;
        // The thread that installs it is the one that runs it to its end.
        #[cfg(feature = "uring")]
        let driver = self.driver.single_thread(true);
        #[cfg(not(feature = "uring"))]
        let driver = self.driver;
        runtime.block_on(async { driver.install() })?;
        Ok(runtime)
    }
}
