//! Servers: tonic on our listener, uploads, shared frames, windows of HTTP/2, and several workers.
//!
//! | module | cases |
//! |---|---|
//! | `grpc` | streams of messages by tonic, on our listener and on its own |
//! | `uploads` | bodies into files, by `body::save` and by axum and tokio |
//! | `windows` | uploads over a long distance, with growing windows and with fixed ones |
//! | `shared` | frames in memory shared with another process, and the same over a Unix stream |
//! | `cores` | CPU-bound responses, from one worker and from two |

#[path = "../common/mod.rs"]
mod common;

mod cores;
mod grpc;
mod shared;
mod ticks;
mod uploads;
mod windows;

fn main() {
    let mut suite = common::suite::Suite::new(env!("CARGO_CRATE_NAME"));
    {
        let _pinned = common::pinned();
        grpc::run(&mut suite);
        uploads::run(&mut suite);
        shared::run(&mut suite);
    }
    windows::run(&mut suite);
    cores::run(&mut suite);
    suite.finish();
}
