//! Replaces `net` in builds without io_uring: no socket receives or sends by a ring.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(crate) type ZeroCopy = Arc<AtomicBool>;

pub(crate) mod receive {
    /// Settings without effect.
    #[derive(Clone, Copy, Debug, Default)]
    pub(crate) struct Buffers {
        pub(crate) count: u16,
        pub(crate) size: u32,
    }
}

pub(crate) mod send {
    #[derive(Debug)]
    pub(crate) enum SendOp {}

    #[derive(Debug, Default)]
    pub(crate) struct SendBatch {
        pub(crate) send_ops: Vec<SendOp>,
    }
}
