//! Threads that share nothing: starting them, giving them work, ending them.

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

/// How long cores that are dropped may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Threads that share nothing: each is pinned to a CPU and runs a current-thread runtime with a ring of its own.
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
/// A server with a listener for each core is [`http::serve_cores`](crate::server::serve_cores()).
///
/// # CPUs
///
/// The cores take the CPUs this process may run on in order
/// ([sched_setaffinity(2)](https://man7.org/linux/man-pages/man2/sched_setaffinity.2.html)), and start again from the first if
/// they are more. Where a thread cannot be pinned it runs wherever the kernel puts it, and the log is told once: so also
/// where a cgroup's quota gives this process the time of fewer CPUs than it may run on, because every container with such
/// a quota would choose the same first ones. The threads of the blocking pools may run on all CPUs; threads that a core
/// starts by other means stay on its CPU.
///
/// # Ending
///
/// Dropping this is [`shutdown`](Self::shutdown) with 5 s of patience.
#[derive(Debug)]
pub struct Cores {
    cores: Vec<Running>,
    /// Told by each thread that it has ended.
    ended: Mutex<Receiver<usize>>,
}

#[derive(Debug)]
struct Running {
    core: Core,
    runtime: Handle,
    stop: oneshot::Sender<Instant>,
    thread: Thread<()>,
}

/// Options of [`Cores`], from [`Cores::builder`].
#[derive(Clone, Debug)]
#[must_use = "no thread is started until it is built"]
pub struct CoresBuilder {
    workers: Option<usize>,
    pin: bool,
    driver: DriverBuilder,
    name: String,
}

impl CoresBuilder {
    /// How many, at least 1. By default as many as this process is given CPUs, by its affinity and by its cgroup
    /// ([`available_parallelism`](std::thread::available_parallelism)).
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers.max(1));
        self
    }

    /// Whether each thread stays on a CPU of its own; on by default. Turn it off where other programs that pin their
    /// threads share the machine.
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = pin;
        self
    }

    /// How each of them drives its files. [`DriverBuilder::single_thread`] is set for it.
    pub fn driver(mut self, driver: DriverBuilder) -> Self {
        self.driver = driver;
        self
    }

    /// What the threads are called, with their number behind it; `core-` by default. Linux shows the first 15 bytes.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Starts the threads, and returns when their runtimes run.
    ///
    /// # Errors
    ///
    /// A thread or a runtime could not be made; the others are ended then. That a thread could not be pinned is no error.
    pub fn build(self) -> io::Result<Cores> {
        let parallelism = thread::available_parallelism().map_or(1, usize::from);
        let allowed = cpu::allowed();
        let everywhere = allowed.as_ref().map_or(Vec::new(), Clone::clone);
        let places = match self.pin {
            true => Facts { allowed, parallelism }.places(),
            false => Places::Anywhere("as asked for".to_owned()),
        };
        let count = self.workers.unwrap_or(parallelism);
        let (tell, ended) = channel();
        // Dropped on an error, which ends those that run.
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
            let ending = Ending { index, tell: tell.clone() };
            let body = move || {
                let _ending = ending;
                plan.run(started, stopped);
            };
            let failed = |e: io::Error| io::Error::new(e.kind(), format!("core {index} of {count} did not start: {e}"));
            let thread = thread::Builder::new().name(format!("{}{index}", self.name)).spawn(body).map_err(failed)?;
            let gone = || Err(io::Error::other("its thread has ended"));
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

    /// Options other than the defaults.
    pub fn builder() -> CoresBuilder {
        CoresBuilder { workers: None, pin: true, driver: DriverBuilder::new(), name: "core-".to_owned() }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.cores.len()
    }

    /// The runtime of a core, for futures that are `Send`. A future that is not is built on its core by
    /// [`spawn_on`](Self::spawn_on). Do not run the handle's `block_on` on a core.
    ///
    /// # Panics
    ///
    /// If there is no core of that number.
    #[track_caller]
    pub fn handle(&self, core: usize) -> &Handle {
        match self.cores.get(core) {
            Some(running) => &running.runtime,
            None => panic!("there are {} cores and none has the number {core}", self.count()),
        }
    }

    /// Has a core call `work` and run the future it gives, which need not be `Send`.
    ///
    /// What is returned is tokio's: awaiting it gives the result or the panic, dropping it lets the future go on, and
    /// aborting it drops the future. After the cores have ended it says that the task was cancelled.
    ///
    /// # Panics
    ///
    /// If there is no core of that number.
    #[track_caller]
    pub fn spawn_on<F, T>(&self, core: usize, work: impl FnOnce(Core) -> F + Send + 'static) -> JoinHandle<T>
    where
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let runtime = self.handle(core);
        let core = self.cores[core].core;
        runtime.spawn(async move {
            // Both are tasks of this core; the first can be handed over, the second is born there.
            let mut local = Aborting(spawn_local(async move { work(core).await }));
            match (&mut local.0).await {
                Ok(done) => done,
                Err(e) if e.is_panic() => resume_unwind(e.into_panic()),
                // Cancelled by the end of the runtime, and so is this.
                Err(_) => std::future::pending().await,
            }
        })
    }

    /// Runs one future on each core. `work` is called on the core's thread, inside its runtime; the future need not be
    /// `Send`. Await what is returned, or [`wait`](Run::wait) for it; dropping it drops the futures.
    pub fn run<W, F, T, E>(&self, work: W) -> Run<T, E>
    where
        W: Fn(Core) -> F + Clone + Send + 'static,
        F: Future<Output = Result<T, E>> + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        // One outcome from each.
        let (tell, told) = mpsc::channel(self.count());
        let task = |index| {
            let (work, tell) = (work.clone(), tell.clone());
            Aborting(self.spawn_on(index, async move |core| {
                let outcome = Caught(pin!(async move { work(core).await })).await;
                let _ = tell.try_send((core.index(), outcome));
            }))
        };
        let tasks: Vec<_> = (0..self.count()).map(task).collect();
        let results = tasks.iter().map(|_| None).collect();
        Run { tasks, told, results }
    }

    /// Ends all cores: their tasks are dropped, connections with them, and their threads joined. Work on a blocking pool
    /// that has begun is waited for. Streams send what they have queued as far as their sockets take it at once.
    ///
    /// # Errors
    ///
    /// `ErrorKind::TimedOut` names the cores that have not ended within `patience`, because a task does not come back from
    /// its poll or the kernel does not let go of memory. Their threads are left to themselves.
    ///
    /// # Panics
    ///
    /// With the panic of a thread that did not end by itself.
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

    /// Gives the numbers of the cores that have not ended in time, and a panic that has ended one.
    fn end(&mut self, patience: Duration) -> (Vec<usize>, Option<Box<dyn Any + Send>>) {
        let deadline = Instant::now() + patience;
        // All are told before one is waited for, so that none serves what another has stopped to.
        let mut threads: Vec<Option<Thread<()>>> = Vec::with_capacity(self.cores.len());
        for Running { stop, thread, .. } in self.cores.drain(..) {
            let _ = stop.send(deadline);
            // Dropped by a task of its own, a core cannot be waited for: it ends when that task comes back.
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
        // A panic that has ended a thread was printed by then; another one here might end the process.
        let (late, _) = self.end(PATIENCE);
        if !late.is_empty() {
            log::cores_left(&late);
        }
    }
}
