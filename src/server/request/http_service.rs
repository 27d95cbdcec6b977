//! The services that a server runs, as one bound.

use std::error::Error;

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::request_body::RequestBody;
use crate::server::error::BoxError;

/// A tower service that [`serve`](crate::server::serve()) accepts, for example an axum `Router`. Implemented for every
/// service of the right shape; implement [`tower::Service`](https://docs.rs/tower/latest/tower/trait.Service.html).
///
/// An axum `Router` is one itself; `router.into_make_service()` and `router.into_make_service_with_connect_info()` are
/// not, because they are services for connections. Handlers find `ConnectInfo` without them (feature `axum-08`).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a service for the requests of this server",
    note = "pass an axum `Router` itself, without `into_make_service` and `into_make_service_with_connect_info`",
    note = "other services are `tower::Service<http::Request<millstream::server::RequestBody>>`, return an `http::Response` \
            with a body that is `Send`, and are `Clone`, `Send` and `'static`, as are their futures"
)]
pub trait HttpService:
    Service<
        Request<RequestBody>,
        Response = Response<Self::ResponseBody>,
        Error: Into<Box<dyn Error + Send + Sync>>,
        Future: Send + 'static,
    > + Clone
    + Send
    + 'static
{
    /// The body of its responses.
    type ResponseBody: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;
}

#[diagnostic::do_not_recommend]
impl<S, B> HttpService for S
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error: Into<BoxError>, Future: Send + 'static>
        + Clone
        + Send
        + 'static,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    type ResponseBody = B;
}
