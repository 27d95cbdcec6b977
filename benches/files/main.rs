//! Files as responses, and response bodies.
//!
//! | module | cases |
//! |---|---|
//! | `responses` | files of 10 KiB to 64 MiB over HTTP/1.1, beside `ReaderStream` and tower-http |
//! | `batch` | small frames of a body, merged |

#[path = "../common/mod.rs"]
mod common;

mod batch;
mod responses;

fn main() {
    let mut suite = common::suite::Suite::new(env!("CARGO_CRATE_NAME"));
    responses::run(&mut suite);
    batch::run(&mut suite);
    suite.finish();
}
