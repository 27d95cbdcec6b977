//! A server on its own thread and CPU.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};

use measuring::cpus;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::{listener, runtime};

/// A server that runs until it is dropped.
pub struct Server {
    pub addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves the connections of a listener, which inherit `TCP_NODELAY`, on a current-thread runtime.
    pub fn start<S, F>(serve: S) -> Self
    where
        S: FnOnce(TcpListener) -> F + Send + 'static,
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        Self::start_on(runtime, serve)
    }

    /// Like [`start`](Self::start), on another runtime.
    pub fn start_on<S, F>(runtime: fn() -> Runtime, serve: S) -> Self
    where
        S: FnOnce(TcpListener) -> F + Send + 'static,
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = listener();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let thread = spawn(move || {
            // Threads started by the runtime inherit the CPU.
            let runtime = runtime();
            runtime.block_on(async {
                tokio::select! {
                    // In a task, as servers run: the future of `block_on` is polled by the thread that built the
                    // runtime.
                    ended = tokio::spawn(serve(listener)) => panic!("the server has ended: {ended:?}"),
                    _ = stopped => {}
                }
            });
        });
        Self { addr, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            // The thread has printed the reason.
            std::process::exit(101);
        }
    }
}

pub fn spawn(work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        if let Some([server, _]) = cpus::ends().unwrap() {
            cpus::pin(server).unwrap();
        }
        work();
    })
}
