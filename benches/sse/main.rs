//! Event streams.
//!
//! | module | cases |
//! |---|---|
//! | `events` | 1000 independent streams |
//! | `hub` | one event for 1000 readers |
//! | `gzip` | one compressed event for 1000 readers |
//! | `tls` | one event for 1000 readers over TLS |
//! | `memory` | memory of 2000 readers, in a process of its own |
//!
//! Each server is a current-thread runtime on its own thread and CPU; the load is this program's main thread, the same
//! for all, and compares every byte. The figures are the CPU time of all threads but the main one; those of
//! `memory` are bytes.

#[path = "../common/mod.rs"]
mod common;

mod events;
mod gzip;
mod hub;
mod memory;
mod readers;
mod tls;

fn main() {
    if let Some(child) = memory::child() {
        return child.run();
    }
    let mut suite = common::suite::Suite::new(env!("CARGO_CRATE_NAME"));
    let _pinned = common::pinned();
    events::run(&mut suite);
    hub::run(&mut suite);
    gzip::run(&mut suite);
    tls::run(&mut suite);
    memory::run(&mut suite);
    suite.finish();
}
