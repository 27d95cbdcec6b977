//! A server on several cores.

use std::io;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use tower_service::Service;

use super::serve::{BoxError, serve};
use crate::net::Listeners;
use crate::runtime::{Cores, Run};

/// Serves on each of `cores` the connections of one of `listeners`, as [`serve`] does, with clones of one
/// `service`. For a service made anew on each core, or something else besides, give [`Cores::run`] such a function.
///
/// What is returned serves already: wait for it, await it, or drop it to close the listeners.
///
/// ```no_run
/// use std::convert::Infallible;
///
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use hyper::{Request, Response, body::Incoming};
/// use millstream::{http, net::TcpListener, runtime::Cores};
///
/// fn main() -> std::io::Result<()> {
///     let hello = tower::service_fn(async |_: Request<Incoming>| {
///         Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("Hello, world!"))))
///     });
///     let cores = Cores::new(4)?;
///     let listeners = TcpListener::builder().bind_each("127.0.0.1:8080", cores.count())?;
///     http::serve_cores(&cores, listeners, hello).wait().map(drop)
/// }
/// ```
///
/// # Errors
///
/// When a listener fails for good, or there are fewer of them than cores: then all are closed, see [`Listeners`].
///
/// # Cancellation
///
/// Dropping what is returned closes the listeners. Connections that run are finished by their own tasks, until the cores
/// are [shut down](Cores::shutdown) or dropped.
pub fn serve_cores<S, B>(cores: &Cores, listeners: Listeners, service: S) -> Run<(), io::Error>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    cores.run(move |_| {
        let (listener, service) = (listeners.take(), service.clone());
        async move { serve(listener?, service).await }
    })
}
