//! Threads that share nothing: how they start, get work, and end.

use std::any::Any;
use std::io;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle as Thread};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_local};

use super::place::{Facts, Places};
use super::run::{Aborting, Caught, Run};
use super::thread::{Core, Ending, Plan, Started};
use crate::counters::log;
use crate::runtime::DriverBuilder;
use crate::sys::cpu;

/// Time limit for the end of dropped cores.
const PATIENCE: Duration = Duration::from_secs(5);

/// Threads that share nothing: each is pinned to a CPU and runs a current-thread runtime with its own ring.
///
/// ```
/// use millstream::runtime::Cores;
///
/// # fn main() -> std::io::Result<()> {
/// let squares = Cores::new(2)?.run(async |core| Ok::<_, std::io::Error>(core.index() * core.index())).wait()?;
/// assert_eq!(squares, [0, 1]);
/// # Ok(())
/// # }
/// ```
///
/// A server with one listener per core is [`server::serve_cores`](crate::server::serve_cores()).
///
/// # CPUs
///
/// Cores use the allowed CPUs of this process in order
/// ([sched_setaffinity(2)](https://man7.org/linux/man-pages/man2/sched_setaffinity.2.html)), starting over if there are
/// more cores. A thread that cannot be pinned runs anywhere, which is logged once. Cores are not pinned if a cgroup
/// quota allows less CPU time than the number of allowed CPUs, because all such containers would choose the same first
/// CPUs. Threads of the blocking pools may run on all CPUs; threads that a core starts by other means stay on its CPU.
///
/// # Shutdown
///
/// Dropping `Cores` calls [`shutdown`](Self::shutdown) with a limit of 5 s.
#[derive(Debug)]
pub struct Cores {
    cores: Vec<Running>,
    ended: Mutex<Receiver<usize>>,
}

#[derive(Debug)]
struct Running {
    core: Core,
    runtime: Handle,
    stop: oneshot::Sender<Instant>,
    thread: Thread<()>,
}

/// Builder of [`Cores`], from [`Cores::builder`].
#[derive(Clone, Debug)]
#[must_use = "builders do nothing unless built"]
pub struct CoresBuilder {
    workers: Option<usize>,
    pin: bool,
    driver: DriverBuilder,
    name: String,
}

impl CoresBuilder {
    /// Sets the number of cores, at least 1. The default is the number of CPUs available to this process, by its
    /// affinity and its cgroup ([`available_parallelism`](std::thread::available_parallelism)).
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers.max(1));
        self
    }

    /// Sets whether threads are pinned to CPUs; on by default. Turn it off if other programs pin their threads too.
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = pin;
        self
    }

    /// Sets the driver options of each core. [`DriverBuilder::single_thread`] is always set.
    pub fn driver(mut self, driver: DriverBuilder) -> Self {
        self.driver = driver;
        self
    }

    /// Sets the prefix of the thread names, followed by the index; `core-` by default. Linux shows the first 15 bytes.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Starts the threads. Returns when their runtimes run.
    ///
    /// # Errors
    ///
    /// Fails if a thread or a runtime cannot be created, and ends the others. A failure to pin is not an error.
    pub fn build(self) -> io::Result<Cores> {
        let parallelism = thread::available_parallelism().map_or(1, usize::from);
        let allowed = cpu::allowed();
        let everywhere = allowed.as_ref().map_or(Vec::new(), Clone::clone);
        let places = match self.pin {
            true => Facts { allowed, parallelism }.places(),
            false => Places::Anywhere("as asked for".to_owned()),
        };
        let count = self.workers.unwrap_or(parallelism);
        let (sender, ended) = channel();
        let mut cores = Cores { cores: Vec::with_capacity(count), ended: Mutex::new(ended) };
        let mut loose = match &places {
            Places::Anywhere(reason) if self.pin => Some(reason.clone()),
            _ => None,
        };
        for index in 0..count {
            let (started, start) = channel();
            let (stop, stopped) = oneshot::channel();
            let (everywhere, driver) = (everywhere.clone(), self.driver.clone());
            let plan = Plan { index, count, cpu: places.of(index), everywhere, driver };
            let ending = Ending { index, sender: sender.clone() };
            let body = move || {
                let _ending = ending;
                plan.run(started, stopped);
            };
            let failed = |e: io::Error| io::Error::new(e.kind(), format!("core {index} of {count} did not start: {e}"));
            let thread = thread::Builder::new().name(format!("{}{index}", self.name)).spawn(body).map_err(failed)?;
            let gone = || Err(io::Error::other("its thread ended"));
            let Started { core, runtime, loose: error } = start.recv().unwrap_or_else(|_| gone()).map_err(failed)?;
            loose = loose.or_else(|| error.map(|e| e.to_string()));
            cores.cores.push(Running { core, runtime, stop, thread });
        }
        if let Some(reason) = loose {
            log::unsupported("pinned threads", &reason);
        }
        Ok(cores)
    }
}

impl Cores {
    /// Starts `workers` threads, at least 1; see [`CoresBuilder::build`].
    pub fn new(workers: usize) -> io::Result<Self> {
        Self::builder().workers(workers).build()
    }

    /// Returns a builder with default options.
    pub fn builder() -> CoresBuilder {
        CoresBuilder { workers: None, pin: true, driver: DriverBuilder::new(), name: "core-".to_owned() }
    }

    /// Returns the number of cores.
    pub fn count(&self) -> usize {
        self.cores.len()
    }

    /// Returns the runtime of a core, for futures that are `Send`; use [`spawn_on`](Self::spawn_on) for others. Do not
    /// call the handle's `block_on` on a core.
    ///
    /// # Panics
    ///
    /// Panics if there is no such core.
    #[track_caller]
    pub fn handle(&self, core: usize) -> &Handle {
        match self.cores.get(core) {
            Some(running) => &running.runtime,
            None => panic!("core {core} does not exist: there are {}", self.count()),
        }
    }

    /// Calls `work` on a core and spawns the returned future there, which need not be `Send`.
    ///
    /// The returned handle is tokio's: awaiting it returns the result or the panic, dropping it detaches the task, and
    /// aborting it drops the future. After the end of the cores the task counts as cancelled.
    ///
    /// # Panics
    ///
    /// Panics if there is no such core.
    #[track_caller]
    pub fn spawn_on<F, T>(&self, core: usize, work: impl FnOnce(Core) -> F + Send + 'static) -> JoinHandle<T>
    where
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let runtime = self.handle(core);
        let core = self.cores[core].core;
        runtime.spawn(async move {
            // Two tasks of the core: the outer one is sent to it, the inner one need not be `Send`.
            let mut local = Aborting(spawn_local(async move { work(core).await }));
            match (&mut local.0).await {
                Ok(done) => done,
                Err(e) if e.is_panic() => resume_unwind(e.into_panic()),
                // The end of the runtime cancels both tasks.
                Err(_) => std::future::pending().await,
            }
        })
    }

    /// Runs one future on each core. `work` is called on the core's thread, inside its runtime; the future need not be
    /// `Send`. Await the result, or [`wait`](Run::wait) for it; dropping it drops the futures.
    pub fn run<W, F, T, E>(&self, work: W) -> Run<T, E>
    where
        W: Fn(Core) -> F + Clone + Send + 'static,
        F: Future<Output = Result<T, E>> + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(self.count());
        let task = |index| {
            let (work, sender) = (work.clone(), sender.clone());
            Aborting(self.spawn_on(index, async move |core| {
                let outcome = Caught(pin!(async move { work(core).await })).await;
                let _ = sender.try_send((core.index(), outcome));
            }))
        };
        let tasks: Vec<_> = (0..self.count()).map(task).collect();
        let results = tasks.iter().map(|_| None).collect();
        Run { tasks, receiver, results, combine: |results| results }
    }

    /// Ends all cores: drops their tasks, including connections, and joins their threads. Waits for running work on a
    /// blocking pool. Streams send queued bytes as far as their sockets accept them at once.
    ///
    /// # Errors
    ///
    /// `ErrorKind::TimedOut` lists the cores that did not end within `patience`, because a task did not return from its
    /// poll, or the kernel did not release memory. Their threads are detached.
    ///
    /// # Panics
    ///
    /// Resumes the panic of a thread that panicked.
    pub fn shutdown(mut self, patience: Duration) -> io::Result<()> {
        let (late, panic) = self.end(patience);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        if late.is_empty() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("cores {late:?} still run after {patience:?}")))
    }

    fn end(&mut self, patience: Duration) -> (Vec<usize>, Option<Box<dyn Any + Send>>) {
        let now = Instant::now();
        // `Duration::MAX` waits for as long as it takes.
        let deadline = now.checked_add(patience).unwrap_or_else(|| now + Duration::from_secs(1 << 30));
        // All are notified before the first one is joined, so that they stop at the same time.
        let mut threads: Vec<Option<Thread<()>>> = Vec::with_capacity(self.cores.len());
        for Running { stop, thread, .. } in self.cores.drain(..) {
            let _ = stop.send(deadline);
            // A core dropped by one of its own tasks cannot be joined: it ends when that task returns.
            threads.push(Some(thread).filter(|thread| thread.thread().id() != thread::current().id()));
        }
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut panic = None;
        while threads.iter().any(Option::is_some) {
            let Ok(index) = ended.recv_timeout(deadline.saturating_duration_since(Instant::now())) else { break };
            if let Some(thread) = threads.get_mut(index).and_then(Option::take) {
                panic = thread.join().err().or(panic);
            }
        }
        let late = threads.iter().enumerate().filter(|(_, thread)| thread.is_some());
        (late.map(|(index, _)| index).collect(), panic)
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        // The thread's panic was already printed; resuming it here might abort the process.
        let (late, _) = self.end(PATIENCE);
        if !late.is_empty() {
            log::cores_left(&late);
        }
    }
}
