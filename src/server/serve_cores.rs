//! A server on several cores.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::accept::Settings;
use super::drain::Drained;
use super::request::HttpService;
use super::serve::Server;
use crate::net::{Accept, EachListener};
use crate::runtime::{Cores, Run};
use crate::sync::{Mutex, lock};

/// Serves on each of `cores` the connections of one of `listeners`, as [`serve`](super::serve()) does, with clones of
/// `service`. A function in place of the listeners wraps each: see [`EachListener`]. Connections are counted together.
/// For a different service on each core, use [`Cores::run`].
///
/// ```no_run
/// use millstream::files::Files;
/// use millstream::net::TcpListener;
/// use millstream::runtime::Cores;
/// use millstream::server;
///
/// fn main() -> std::io::Result<()> {
///     let cores = Cores::new(4)?;
///     let listeners = TcpListener::builder().bind_each("127.0.0.1:8080", cores.count())?;
///     server::serve_cores(&cores, listeners, Files::new("public")?).run().wait()
/// }
/// ```
pub fn serve_cores<E: EachListener, S: HttpService>(
    cores: &Cores,
    listeners: E,
    service: S,
) -> Server<(&Cores, E), S, <E::Listener as Accept>::Addr> {
    Server { listener: (cores, listeners), service, settings: Settings::default() }
}

impl<'a, E: EachListener, S: HttpService> Server<(&'a Cores, E), S, <E::Listener as Accept>::Addr> {
    /// Starts the server. It already runs when this returns. Block on the returned value, await it, or drop it to close
    /// the listeners.
    ///
    /// # Errors
    ///
    /// If a listener fails permanently, or there are fewer of them than cores. Then all close; see
    /// [`Listeners`](crate::net::Listeners).
    ///
    /// # Cancel safety
    ///
    /// Dropping the returned value closes the listeners. Open connections are finished by their own tasks, until the
    /// cores are [shut down](Cores::shutdown) or dropped.
    pub fn run(self) -> Run<(), io::Error, ()> {
        let (cores, each) = self.split();
        let run = cores.run(move |_| {
            let server = each();
            async move { server?.await }
        });
        run.combined(drop)
    }

    /// Starts the server, and [drains](Self::drain) all cores when `signal` is ready. The first core polls `signal`.
    /// The returned counts are sums over the cores; the duration is the longest one.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run), before the signal.
    ///
    /// # Cancel safety
    ///
    /// As for [`run`](Self::run), before the signal. After it the connections are drained regardless.
    pub fn drain<F>(self, signal: F, deadline: Duration) -> Run<Drained, io::Error, Drained>
    where
        F: Future + Send + 'static,
    {
        let (cores, each) = self.split();
        let signal = Arc::new(Mutex::new(Some(signal)));
        let (sender, receiver) = watch::channel(false);
        let sender = Arc::new(sender);
        let run = cores.run(move |core| {
            let server = each();
            let signal = if core.index() == 0 { lock(&signal).take() } else { None };
            let (sender, mut receiver) = (Arc::clone(&sender), receiver.clone());
            let signal = async move {
                if let Some(signal) = signal {
                    signal.await;
                    sender.send_replace(true);
                }
                let _ = receiver.wait_for(|&drains| drains).await;
            };
            async move { server?.drain(signal, deadline).await }
        });
        run.combined(|drained| drained.into_iter().fold(Drained::default(), Drained::and))
    }

    /// Returns the cores, and the function that makes the server of a core.
    fn split(self) -> (&'a Cores, impl Fn() -> io::Result<Server<E::Listener, S>> + Clone + Send + 'static) {
        let Self { listener: (cores, listeners), service, settings } = self;
        let each =
            move || Ok(Server { listener: listeners.listen()?, service: service.clone(), settings: settings.clone() });
        (cores, each)
    }
}
