//! A server on several cores.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Extensions;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::TokioExecutor;
use tokio::sync::watch;

use super::accept::{Connection, Settings};
use super::drain::Drained;
use super::limits::Limits;
use super::lock::lock;
use super::request::HttpService;
use super::serve::Serve;
use crate::net::{Listeners, TcpListener};
use crate::runtime::{Cores, Run};
#[cfg(tls)]
use crate::server::tls::Tls;

/// Serves on each of `cores` the connections of one of `listeners`, as [`serve`](super::serve()) does, with clones of
/// `service`. For a different service on each core, use [`Cores::run`].
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
///     server::serve_cores(&cores, listeners, Files::new("public")?).run().wait().map(drop)
/// }
/// ```
pub fn serve_cores<S: HttpService>(cores: &Cores, listeners: Listeners, service: S) -> ServeCores<'_, S> {
    ServeCores { cores, listeners, service, settings: Settings::default() }
}

/// A server on several cores, from [`serve_cores`]. It starts with [`run`](Self::run) or [`drain`](Self::drain).
#[must_use = "a server does nothing until it runs"]
pub struct ServeCores<'a, S> {
    cores: &'a Cores,
    listeners: Listeners,
    service: S,
    settings: Settings<SocketAddr>,
}

impl<S> ServeCores<'_, S> {
    /// Sets the limits; see [`Serve::limits`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Serves over TLS; see [`Serve::tls`].
    #[cfg(tls)]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.settings.tls = Some(tls);
        self
    }

    /// Sets whether HTTP/1 responses are taken over from hyper; see [`Serve::takeover`].
    pub fn takeover(mut self, on: bool) -> Self {
        self.settings.takeover = on;
        self
    }

    /// Changes options of hyper's HTTP/1 server; see [`Serve::http1`].
    pub fn http1(mut self, options: impl Fn(&mut http1::Builder) + Send + Sync + 'static) -> Self {
        self.settings.hooks.one = Some(Arc::new(options));
        self
    }

    /// Changes options of hyper's HTTP/2 server; see [`Serve::http2`].
    pub fn http2(mut self, options: impl Fn(&mut http2::Builder<TokioExecutor>) + Send + Sync + 'static) -> Self {
        self.settings.hooks.two = Some(Arc::new(options));
        self
    }

    /// Sets a hook for each connection; see [`Serve::on_connection`].
    pub fn on_connection(
        mut self,
        hook: impl Fn(&mut Extensions, &Connection, &SocketAddr) + Send + Sync + 'static,
    ) -> Self {
        self.settings.on_connection = Some(Arc::new(hook));
        self
    }
}

impl<S: HttpService> ServeCores<'_, S> {
    /// Starts the server. The returned value runs already: block on it, await it, or drop it to close the listeners.
    ///
    /// # Errors
    ///
    /// If a listener fails permanently, or there are fewer of them than cores. Then all close; see [`Listeners`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the returned value closes the listeners. Open connections are finished by their own tasks, until the
    /// cores are [shut down](Cores::shutdown) or dropped.
    pub fn run(self) -> Run<(), io::Error> {
        let (cores, plan) = self.plan();
        cores.run(move |_| {
            let serve = plan.serve();
            async move { serve?.await }
        })
    }

    /// Starts the server, and drains all cores as [`Serve::drain`] when `signal` is ready. The first core polls it.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run), before the signal.
    ///
    /// # Cancel safety
    ///
    /// As for [`run`](Self::run), before the signal. After it the connections are drained regardless.
    pub fn drain<F>(self, signal: F, deadline: Duration) -> DrainingCores
    where
        F: Future + Send + 'static,
    {
        let (cores, plan) = self.plan();
        let signal = Arc::new(Mutex::new(Some(signal)));
        let (sender, receiver) = watch::channel(false);
        let sender = Arc::new(sender);
        let run = cores.run(move |core| {
            let serve = plan.serve();
            let signal = if core.index() == 0 { lock(&signal).take() } else { None };
            let (sender, mut receiver) = (Arc::clone(&sender), receiver.clone());
            let signal = async move {
                if let Some(signal) = signal {
                    signal.await;
                    sender.send_replace(true);
                }
                let _ = receiver.wait_for(|&drains| drains).await;
            };
            async move { serve?.drain(signal, deadline).await }
        });
        DrainingCores { run }
    }
}

impl<'a, S> ServeCores<'a, S> {
    fn plan(self) -> (&'a Cores, Plan<S>) {
        let Self { cores, listeners, service, settings } = self;
        (cores, Plan { listeners, service, settings })
    }
}

/// Settings for the server of each core. Connections are counted together.
#[derive(Clone)]
struct Plan<S> {
    listeners: Listeners,
    service: S,
    settings: Settings<SocketAddr>,
}

impl<S: HttpService> Plan<S> {
    fn serve(&self) -> io::Result<Serve<TcpListener, S>> {
        let Self { listeners, service, settings } = self;
        Ok(Serve { listener: listeners.take()?, service: service.clone(), settings: settings.clone() })
    }
}

/// A running server on several cores, from [`ServeCores::drain`]. Block on it or await it.
#[derive(Debug)]
#[must_use = "the server stops when this is dropped"]
pub struct DrainingCores {
    run: Run<Drained, io::Error>,
}

impl DrainingCores {
    /// Blocks the calling thread until all cores have drained. The counts are sums; the duration is the longest.
    ///
    /// # Errors
    ///
    /// As [`ServeCores::drain`].
    ///
    /// # Panics
    ///
    /// As [`Run::wait`].
    #[track_caller]
    pub fn wait(self) -> io::Result<Drained> {
        self.run.wait().map(sum)
    }
}

impl Future for DrainingCores {
    type Output = io::Result<Drained>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Drained>> {
        Pin::new(&mut self.run).poll(cx).map(|drained| drained.map(sum))
    }
}

fn sum(drained: Vec<Drained>) -> Drained {
    drained.into_iter().fold(Drained::default(), Drained::and)
}

impl<S> fmt::Debug for ServeCores<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listeners, settings, .. } = self;
        f.debug_struct("ServeCores")
            .field("listeners", listeners)
            .field("limits", &settings.limits)
            .finish_non_exhaustive()
    }
}
