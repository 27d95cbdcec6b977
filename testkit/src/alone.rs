//! Tests that need their own process. Counters, descriptors, threads, limits and budgets belong to the process, and
//! other tests of the same program run concurrently.
//!
//! ```text
//! #[test]
//! fn two_writes_leave_in_one_call() {
//!     if alone::ran_in_child() {
//!         return;
//!     }
//!     let before = Snapshot::now();
//! ```

use std::env;
use std::thread;
use std::time::Duration;

use crate::child;

const ALONE: &str = "MILLSTREAM_TEST_ALONE";

/// Longer than the watchdog of any test.
const DEADLINE: Duration = Duration::from_secs(400);

/// Runs the calling test again in a child process, alone, and returns `true` once it has passed. In the child, returns
/// `false` at once. A failure of the child panics here; its output is forwarded.
///
/// Call it first, on the thread of the test: the name of that thread is the name of the test. Do not combine it with
/// `#[should_panic]`: a child that panics as expected has passed.
pub fn ran_in_child() -> bool {
    if env::var_os(ALONE).is_some() || child::task().is_some() {
        return false;
    }
    let thread = thread::current();
    let name = thread.name().expect("the thread of a test has its name");
    child::run_within(DEADLINE, child::again(name).env(ALONE, "1"));
    true
}
