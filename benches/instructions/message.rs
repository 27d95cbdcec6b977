//! Messages of gRPC, as generated code would have them.

use bytes::Bytes;

pub(crate) const METHOD: &str = "/millstream.bench.Messages/Watch";

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Watch {
    /// Whether messages come as fast as they are read, and not one a turn.
    #[prost(bool, tag = "1")]
    pub(crate) is_full: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GrpcMessage {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) payload: Bytes,
}
