//! Error of a connection or a service.

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;
