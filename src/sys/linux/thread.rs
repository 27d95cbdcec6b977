//! Activity of the threads of this process, as reported by
//! [proc(5)](https://man7.org/linux/man-pages/man5/proc.5.html).

use std::cell::Cell;
use std::fs;
use std::time::Duration;

use rustix::thread::gettid;

pub(crate) type ThreadId = i32;

#[inline]
pub(crate) fn current() -> ThreadId {
    thread_local! {
        static ID: Cell<ThreadId> = const { Cell::new(0) };
    }
    let id = ID.try_with(Cell::get).unwrap_or(0);
    if id != 0 {
        return id;
    }
    let id = gettid().as_raw_pid();
    let _ = ID.try_with(|known| known.set(id));
    id
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Activity {
    pub(crate) runnable: bool,
    pub(crate) ran: Duration,
}

/// Returns the activity of a thread; `None` if it has ended, or the kernel does not report it.
pub(crate) fn activity(thread: ThreadId) -> Option<Activity> {
    let read = |name| fs::read_to_string(format!("/proc/self/task/{thread}/{name}")).ok();
    // The name, in parentheses, may contain any characters.
    let runnable = read("stat")?.rsplit_once(") ")?.1.starts_with('R');
    let ran = read("schedstat")?.split(' ').next()?.parse().ok()?;
    Some(Activity { runnable, ran: Duration::from_nanos(ran) })
}

#[cfg(test)]
mod tests;
