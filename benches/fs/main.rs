//! Files: reads, chains of operations by io_uring, and headers prepended to contents.
//!
//! | module | cases |
//! |---|---|
//! | `read` | 4 KiB at random and front to back, in memory and from the disk |
//! | `chain` | no-ops, linked operations, single operations: by io_uring, by `tokio::fs`, by one job of the blocking pool |
//! | `prepend` | many small files, and a large one |

#[path = "../common/mod.rs"]
mod common;

mod chain;
mod prepend;
mod read;

use millstream::runtime::{DriverBuilder, Io};
use tokio::runtime::Runtime;

fn on(io: Io) -> Runtime {
    let runtime = common::runtime();
    runtime.block_on(async { DriverBuilder::new().io(io).install().unwrap() });
    runtime
}

fn main() {
    let mut suite = common::suite::Suite::new(env!("CARGO_CRATE_NAME"));
    read::run(&mut suite);
    chain::run(&mut suite);
    prepend::run(&mut suite);
    suite.finish();
}
