//! The thread of one core: its CPU, its runtime, its ring.

use std::cell::Cell;
use std::io;
use std::sync::mpsc::Sender;
use std::time::Instant;

use tokio::runtime::{Builder, Handle, LocalOptions, LocalRuntime};
use tokio::sync::oneshot;

use crate::runtime::DriverBuilder;
#[cfg(feature = "fs")]
use crate::runtime::RuntimeBuilderExt;
use crate::sys::cpu;

/// One of the [`Cores`](super::Cores), as seen by its tasks.
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
    /// Returns the index, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the number of cores.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the CPU that the thread is pinned to, if any.
    pub fn cpu(&self) -> Option<usize> {
        self.cpu
    }

    /// Returns the core of the calling thread; `None` on other threads, including those of its blocking pool.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Cell::get).ok().flatten()
    }
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) index: usize,
    pub(super) count: usize,
    pub(super) cpu: Option<usize>,
    /// The CPUs for the threads of its blocking pool.
    pub(super) everywhere: Vec<usize>,
    pub(super) driver: DriverBuilder,
}

#[derive(Debug)]
pub(super) struct Started {
    pub(super) core: Core,
    pub(super) runtime: Handle,
    pub(super) loose: Option<io::Error>,
}

/// Reports the end of the thread on drop, also after a panic.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) index: usize,
    pub(super) sender: Sender<usize>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        // Fails only if the receiver no longer waits.
        let _ = self.sender.send(self.index);
    }
}

impl Plan {
    /// Runs the core on the calling thread, until `stop` receives the deadline of its shutdown.
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
        // The sender is dropped if the other cores could not be started.
        let deadline = runtime.block_on(stop).unwrap_or_else(|_| Instant::now());
        runtime.shutdown_timeout(deadline.saturating_duration_since(Instant::now()));
    }

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
        #[cfg(feature = "fs")]
        builder.drive_rings_at_park();
        if core.cpu.is_some() {
            // Threads of the blocking pool inherit the CPU, where they would delay the core that waits for them.
            let everywhere = self.everywhere;
            builder.on_thread_start(move || {
                let _ = cpu::stay_on(&everywhere);
            });
        }
        let runtime = builder.build_local(LocalOptions::default())?;
        #[cfg(feature = "fs")]
        let driver = self.driver.single_thread(true);
        #[cfg(not(feature = "fs"))]
        let driver = self.driver;
        runtime.block_on(async { driver.install() })?;
        Ok(runtime)
    }
}
