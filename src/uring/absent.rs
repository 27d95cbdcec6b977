//! Replaces this module in builds without io_uring. No ring exists, so no value of [`Driver`] or [`SendOp`]
//! exists, and the code that needs one is unreachable.
//!
//! [`Driver`]: driver::Driver
//! [`SendOp`]: net::send::SendOp

pub(crate) mod driver {
    use super::net::send::SendBatch;
    use std::time::Duration;

    #[derive(Debug)]
    pub(crate) enum Driver {}

    impl Driver {
        pub(crate) fn has_work(&self) -> bool {
            match *self {}
        }

        pub(crate) fn turn(&self) -> bool {
            match *self {}
        }

        pub(crate) fn arrived(&self) -> usize {
            match *self {}
        }

        pub(crate) fn closed(&self) -> Option<String> {
            match *self {}
        }

        pub(crate) fn send(&self, _: &mut SendBatch) {
            match *self {}
        }

        pub(crate) fn shutdown(&self, _: Duration) -> usize {
            match *self {}
        }
    }
}

pub(crate) mod net {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    pub(crate) type ZeroCopy = Arc<AtomicBool>;

    /// Settings without effect.
    pub(crate) mod receive {
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
}
