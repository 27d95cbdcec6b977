//! Tower layers and what a proxy puts into heads.
//!
//! | module | cases |
//! |---|---|
//! | `layers` | request ids and the canary, around a service that does nothing |
//! | `inject` | header lines put into a response that passes |
//! | `measure` | requests by HTTP/1.1, measured and not |

#[path = "../common/mod.rs"]
mod common;

mod inject;
mod layers;
mod measure;

fn main() {
    let mut suite = common::suite::Suite::new(env!("CARGO_CRATE_NAME"));
    layers::run(&mut suite);
    inject::run(&mut suite);
    measure::run(&mut suite);
    suite.finish();
}
