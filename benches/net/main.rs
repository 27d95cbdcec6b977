//! Sockets against the standard loops: echo, event streams, and connections that do nothing.
//!
//! | part | millstream | against |
//! |---|---|---|
//! | echo | 64 B back and forth on 1, 8, 64 and 512 connections, [`net::TcpStream`](millstream::net::TcpStream) | tokio's, with room for more in its read buffer |
//! | events | 1000 streams of 100 events a second by [`http::serve`](millstream::server::serve()) | hyper on tokio's stream (*stock*), and a bare loop of `send` (*floor*) |
//! | idle | the memory of 10 000 connections that wait | tokio's stream |
//! | slow | 100 readers that are too slow beside 10 that are not: memory and latency, a mark that follows the rates | fixed buffers of 1 MiB |
//!
//! Each server is a current-thread runtime on a thread of its own and a CPU of its own; the load is this program's main
//! thread, the same for all, and compares every byte. CPU time is that of all threads but the main one, the kernel's workers
//! for rings included. A server whose turn it is not has nothing to do.
//!
//! **Look at** the tables at the end: CPU time by turns, and the calls for each message, which are exact. **Noise**: what
//! criterion prints while the echoes run, because wall time is that of server and load together.
//! `cargo bench --bench net -- echo`, `events`, `idle` or `slow` runs one part. Other runtimes are in `benches/peers`.

use criterion::Criterion;

#[path = "../common/mod.rs"]
mod common;
mod echo;
mod events;
mod idle;
mod slow;

use common::is_test;

/// Whether the command line asks for this part, or for none.
fn chosen(part: &str) -> bool {
    let mut filters = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).peekable();
    filters.peek().is_none() || filters.any(|filter| filter.starts_with(part))
}

fn main() {
    if let Some(child) = idle::child() {
        child.run();
        return;
    }
    if let Some(way) = slow::child() {
        return slow::serve(&way);
    }
    common::cpus::pin_load().unwrap();
    let mut criterion = Criterion::default().without_plots().configure_from_args();
    let mut tables = echo::compare(&mut criterion);
    if chosen("events") {
        tables.push(events::compare());
    }
    if chosen("idle") {
        tables.push(idle::compare());
    }
    if chosen("slow") {
        tables.push(slow::compare());
    }
    criterion.final_summary();
    if is_test() {
        println!("\n(a test run, one operation each: the figures mean nothing)");
    }
    println!("{}", tables.concat());
}
