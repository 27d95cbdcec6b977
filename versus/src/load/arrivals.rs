//! An open loop: the times at which requests are due, whether or not responses come.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use measuring::random::SplitMix;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// Times at which requests are due: a Poisson process for each connection, so that all together are one, too. The seed
/// and the number of a connection decide the times, so that all servers of a round get the same.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// Between two requests of a connection.
    mean: Duration,
    seed: u64,
    random: Vec<SplitMix>,
    /// The next request of each connection, the earliest first.
    next: BinaryHeap<Reverse<(Instant, usize)>>,
    timer: OwnedFd,
    /// What the timer is set to.
    set: Option<Instant>,
}

impl Arrivals {
    /// Takes the requests a second of each connection.
    pub(super) fn new(rate: f64, seed: u64) -> rustix::io::Result<Self> {
        // A timeout of epoll_wait(2) has steps of a millisecond.
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let mean = Duration::from_secs_f64(1.0 / rate);
        Ok(Self { mean, seed, random: Vec::new(), next: BinaryHeap::new(), timer, set: None })
    }

    /// Adds the next connection, whose number in the run is `number`. Its first request is due after `now`.
    pub(super) fn add(&mut self, number: u64, now: Instant) {
        // Seeds that follow each other would give overlapping sequences.
        let seed = SplitMix::new((self.seed << 32) | number).next_u64();
        let mut random = SplitMix::new(seed);
        self.next.push(Reverse((now + random.exponential(self.mean), self.random.len())));
        self.random.push(random);
    }

    /// Removes the earliest request that is due. Returns its time and its connection.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(Instant, usize)> {
        let Reverse((due, connection)) = *self.next.peek().filter(|Reverse((due, _))| *due <= now)?;
        self.next.pop();
        // After the time at which this one was due, however late that is noticed.
        self.next.push(Reverse((due + self.random[connection].exponential(self.mean), connection)));
        Some((due, connection))
    }

    /// Sets the timer to the next request.
    pub(super) fn arm(&mut self) -> rustix::io::Result<()> {
        let next = self.next.peek().map(|Reverse((due, _))| *due);
        if let Some(due) = next.filter(|_| next != self.set) {
            // Zero would stop the timer.
            let left = due.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
            let left = Timespec::try_from(left).map_err(|_| rustix::io::Errno::INVAL)?;
            let once = Itimerspec { it_interval: Timespec::default(), it_value: left };
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
            self.set = next;
        }
        Ok(())
    }
}

impl AsFd for Arrivals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the requests of so many connections within a second.
    fn second(connections: u64, seed: u64, step: Duration) -> Vec<(Duration, usize)> {
        let mut arrivals = Arrivals::new(50.0, seed).unwrap();
        let start = Instant::now();
        (0..connections).for_each(|number| arrivals.add(number, start));
        let mut found = Vec::new();
        let mut now = start;
        while now < start + Duration::from_secs(1) {
            now += step;
            while let Some((due, connection)) = arrivals.pop(now) {
                assert!(due <= now);
                found.push((due - start, connection));
            }
        }
        found
    }

    #[test]
    fn requests_are_due_at_times_that_only_the_seed_decides() {
        let found = second(64, 3, Duration::from_millis(1));
        assert!((2900..3500).contains(&found.len()), "{}", found.len());
        assert!(found.is_sorted_by_key(|(due, _)| *due));
        assert!((0..64).all(|connection| found.iter().any(|(_, of)| *of == connection)));
        // Whoever looks late finds the same times.
        assert_eq!(second(64, 3, Duration::from_millis(250)), found);
        assert_ne!(second(64, 4, Duration::from_millis(1)), found);
    }
}
