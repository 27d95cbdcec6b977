//! The services that a server runs, as one bound.

use std::error::Error;

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body_error::BoxError;
use super::request_body::RequestBody;

/// A tower service that [`serve`](super::serve()) accepts, for example an axum `Router`. Implemented for every service
/// of the right shape; implement [`tower::Service`](https://docs.rs/tower/latest/tower/trait.Service.html).
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
