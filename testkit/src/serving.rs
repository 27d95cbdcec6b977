//! [`serve`] for tests. The compiler builds hyper, and what the server adds, once for each type of service and listener,
//! which for closures is once for each test. Here all services have one type.

use bytes::Bytes;
use hyper::Request;
use hyper::body::Body;
use millstream::net::Accept;
use millstream::server::{self, RequestBody, Server};
use tower::Service;
use tower::util::{BoxCloneService, ServiceExt};

use crate::http::{Answer, BoxError, boxed};

pub type AnyService = BoxCloneService<Request<RequestBody>, Answer, BoxError>;

/// Serves as [`server::serve`] does. The server sees the frames of a body only: events of a hub, and bodies of the proxy,
/// offer more, and are tested by `server::serve` itself. So is what a user passes as it is, such as a router.
pub fn serve<L, S, B>(listener: L, service: S) -> Server<L, AnyService>
where
    L: Accept,
    S: Service<Request<RequestBody>, Response = hyper::Response<B>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    server::serve(listener, any(service))
}

/// Hides the type of a service and of its bodies.
pub fn any<S, B>(service: S) -> AnyService
where
    S: Service<Request<RequestBody>, Response = hyper::Response<B>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    service.map_response(|response: hyper::Response<B>| response.map(boxed)).map_err(Into::into).boxed_clone()
}
