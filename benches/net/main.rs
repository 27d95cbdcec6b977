//! Sockets: bursts of small writes, echo, idle connections, slow readers, and WebSockets.
//!
//! | module | cases | rivals |
//! |---|---|---|
//! | `gather` | bursts of 1 to 64 chunks, [`net::TcpStream`](millstream::net::TcpStream) | tokio's stream, `BufWriter`, vectored writes by hand |
//! | `echo` | 64 B back and forth on 1, 8, 64 and 512 connections | tokio's, with spare room in its read buffer |
//! | `idle` | memory of 10 000 idle connections | tokio's stream |
//! | `slow` | 100 slow readers beside 10 fast ones: memory and latency, a mark that follows the rates | fixed buffers of 1 MiB |
//! | `websockets` | messages for 1000 WebSockets, by axum | tokio's listener |
//!
//! The servers of `echo` and `websockets` are current-thread runtimes, each on its own thread and CPU; the load is this program's main
//! thread, the same for all, and compares every byte. CPU time is that of all threads but the main one. A server is idle
//! while another one is measured. Other runtimes are in `benches/peers`.

#[path = "../common/mod.rs"]
mod common;

mod counted;
mod echo;
mod gather;
mod idle;
mod slow;
mod websockets;

fn main() {
    if let Some(child) = idle::child() {
        child.run();
        return;
    }
    if let Some(way) = slow::child() {
        return slow::serve(&way);
    }
    let mut suite = common::suite::Suite::new(env!("CARGO_CRATE_NAME"));
    gather::run(&mut suite);
    let _pinned = common::pinned();
    echo::run(&mut suite);
    websockets::run(&mut suite);
    idle::run(&mut suite);
    slow::run(&mut suite);
    suite.finish();
}
