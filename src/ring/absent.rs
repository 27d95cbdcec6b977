//! Replaces this module in builds without io_uring. No ring exists, so no value of [`RingDriver`](driver::RingDriver)
//! exists, and the code that needs one is unreachable.

pub(crate) mod driver {
    use std::time::Duration;

    #[derive(Debug)]
    pub(crate) enum RingDriver {}

    impl RingDriver {
        pub(crate) fn has_work(&self) -> bool {
            match *self {}
        }

        pub(crate) fn turn(&self) -> bool {
            match *self {}
        }

        pub(crate) fn closed(&self) -> Option<String> {
            match *self {}
        }

        pub(crate) fn shutdown(&self, _: Duration) -> usize {
            match *self {}
        }
    }
}

#[cfg(feature = "fs")]
pub(crate) mod slots {
    use std::future::Ready;
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::driver::RingDriver;
    use crate::ops::program::Program;

    #[derive(Debug)]
    pub(crate) enum Ended {
        Finished(Box<Program>),
        Fallback(Box<Program>, Option<usize>),
        Lost,
    }

    impl RingDriver {
        pub(crate) fn waiting_room(&self, _: &Program) -> Option<(Arc<Semaphore>, u32)> {
            match *self {}
        }

        pub(crate) fn submit(&self, _: Box<Program>) -> Result<Ready<Ended>, (Box<Program>, String)> {
            match *self {}
        }

        pub(crate) fn demote(&self, _: &Program, _: usize) {
            match *self {}
        }
    }
}
