//! Functions of the user in the limits.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;

pub(super) type Streams = Hook<dyn Fn(&Parts) -> bool + Send + Sync>;
pub(super) type OnRefusal = Hook<dyn Fn(&mut Response<Bytes>) + Send + Sync>;

pub(in crate::server) struct Hook<F: ?Sized>(pub(in crate::server) Arc<F>);

impl<F: ?Sized> Clone for Hook<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: ?Sized> fmt::Debug for Hook<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}
