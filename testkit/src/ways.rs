//! All drivers of file operations, on both kinds of runtime.

use millstream::runtime::{DriverBuilder, Io};

use crate::http::{Flavour, watched};
use crate::lacks;

/// The drivers: all by io_uring, none by io_uring, each by the faster one.
pub const WAYS: [Io; 3] = [Io::Uring, Io::Epoll, Io::Auto];

/// Runs `test` as a task on each driver and each kind of runtime.
pub fn on_every_way<R>(test: impl Fn(Io) -> R + Send + 'static)
where
    R: Future<Output = ()> + Send + 'static,
{
    // Without io_uring one of the drivers uses the pool, which is reported and no failure.
    lacks("io_uring");
    watched(move || {
        for flavour in Flavour::BOTH {
            for io in WAYS {
                // Shown only if the test fails.
                println!("{flavour:?}, {io}");
                on_way(flavour, io, test(io));
            }
        }
    });
}

/// Runs `test` as a task of a runtime with one driver.
pub fn on_way<T: Send + 'static>(flavour: Flavour, io: Io, test: impl Future<Output = T> + Send + 'static) -> T {
    flavour.runtime().block_on(async {
        DriverBuilder::new().io(io).install().unwrap();
        match tokio::spawn(test).await {
            Ok(done) => done,
            Err(e) => std::panic::resume_unwind(e.into_panic()),
        }
    })
}

/// Least size of a page.
const PAGE: usize = 4096;

/// Drops a file from the page cache. Returns `false`, and reports a skip, if the kernel keeps the pages.
pub fn cool(file: &std::fs::File) -> bool {
    use rustix::fs::{Advice, fadvise};
    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    file.sync_all().unwrap();
    fadvise(file, 0, None, Advice::DontNeed).unwrap();
    let mut byte = [0];
    let mut slices = [std::io::IoSliceMut::new(&mut byte)];
    let len = file.metadata().unwrap().len();
    // Any page may be in use. The probe is for kernels that do not tell; it is one of the last page, because it starts
    // read-ahead.
    let kept = (0..len).step_by(PAGE).any(|page| millstream::internal::is_resident(file, page, 1));
    let cold = !kept && preadv2(file, &mut slices, len - 1, ReadWriteFlags::NOWAIT) == Err(Errno::AGAIN);
    if !cold {
        // Not deterministic: pages may be in use.
        crate::skips::tell("a cold file: this file system keeps pages that it was told to drop");
    }
    cold
}
