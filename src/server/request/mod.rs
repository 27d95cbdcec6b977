//! A request, from hyper to the service.
//!
//! - `adapter`: applies the limits, calls the service, and returns its response to hyper.
//! - `head`: what the server reads in the head of a request.
//! - `host`: the host of a request.
//! - `request_body`: the body, within its limits.
//! - `body_error`: errors of request bodies.
//! - `http_service`: the services that a server accepts.

mod adapter;
mod body_error;
mod head;
mod host;
mod http_service;
mod request_body;

pub(super) use adapter::Adapter;
pub use body_error::{BodyError, status_of};
pub(super) use head::is_grpc;
pub use host::{Host, Name};
pub use http_service::HttpService;
pub use request_body::RequestBody;
