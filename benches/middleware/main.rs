//! Tower layers, and header lines added by a proxy.
//!
//! | module | cases |
//! |---|---|
//! | `layers` | request ids and the canary, around a trivial service |
//! | `inject` | header lines inserted into a forwarded response |
//! | `measure` | requests by HTTP/1.1, measured and not |

#[path = "../common/mod.rs"]
mod common;

mod inject;
mod layers;
mod measure;

use common::contest::{Run, Spent};

/// Work on this thread with counted allocations.
struct Work<'a>(Box<dyn FnMut() + 'a>);

impl Run for Work<'_> {
    fn run(&mut self, operations: u64) -> Spent {
        let mut spent = Spent::default();
        spent.on_this_thread(|| (0..operations).for_each(|_| (self.0)()));
        spent
    }

    fn note(&mut self) -> String {
        let times = 1000;
        let counted = allocation_counter::measure(|| (0..times).for_each(|_| (self.0)()));
        format!("{:.2} allocations each", counted.count_total as f64 / f64::from(times))
    }
}

fn main() {
    let mut suite = common::suite::Suite::new(env!("CARGO_CRATE_NAME"));
    layers::run(&mut suite);
    inject::run(&mut suite);
    measure::run(&mut suite);
    suite.finish();
}
