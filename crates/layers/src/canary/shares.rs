//! Shares of the paths: exact, evenly spread, and changed while they are read.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use millstream::net::SendStrategy;

/// All paths, by number.
pub(super) const PATHS: [SendStrategy; 5] =
    [SendStrategy::Auto, SendStrategy::Uring, SendStrategy::Epoll, SendStrategy::NoSendfile, SendStrategy::NoCork];

/// Unit of the shares of a canary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShareUnit {
    /// Requests, each on its own; for HTTP/2, connections.
    #[default]
    Requests,
    /// Connections: all requests of a connection take the same path, until the shares change.
    Connections,
}

/// 100 %, in hundredths of a percent.
const WHOLE: u64 = 10_000;

/// Shares of all paths but `auto`, 16 bits each, by number.
#[derive(Debug, Default)]
pub(super) struct Shares {
    word: AtomicU64,
    version: AtomicU32,
}

/// Number of draws. On its own cache lines, because all threads write it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Draws(AtomicU64);

fn shift(path: SendStrategy) -> Option<u32> {
    (path as u32).checked_sub(1).map(|n| n * 16)
}

fn share(word: u64, path: SendStrategy) -> u64 {
    let others = || WHOLE - PATHS.iter().filter_map(|&path| shift(path)).map(|by| word >> by & 0xffff).sum::<u64>();
    shift(path).map_or_else(others, |by| word >> by & 0xffff)
}

impl Shares {
    pub(super) fn set(&self, path: SendStrategy, percent: f64) -> io::Result<()> {
        let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        let Some(shift) = shift(path) else {
            return refuse(format!("{percent} % for {path}: the rest is for this path; set the shares of the others"));
        };
        if !(0.0..=100.0).contains(&percent) {
            return refuse(format!("{percent} % for {path}: a share is from 0 to 100 %"));
        }
        let new = (percent * 100.0).round() as u64;
        let set = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            (new <= share(word, path) + share(word, SendStrategy::Auto))
                .then_some(word & !(0xffff << shift) | new << shift)
        });
        match set {
            Ok(_) => {
                self.have_changed();
                Ok(())
            }
            Err(word) => {
                let free = (share(word, path) + share(word, SendStrategy::Auto)) as f64 / 100.0;
                refuse(format!("{percent} % for {path}: the other paths leave {free} %"))
            }
        }
    }

    /// Makes connections that keep a path choose again.
    pub(super) fn have_changed(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self, path: SendStrategy) -> f64 {
        share(self.word.load(Ordering::Relaxed), path) as f64 / 100.0
    }

    pub(super) fn version(&self) -> u32 {
        self.version.load(Ordering::Relaxed)
    }

    pub(super) fn draw(&self, draws: &Draws) -> SendStrategy {
        let word = self.word.load(Ordering::Relaxed);
        if word == 0 {
            return SendStrategy::Auto;
        }
        let mut at = spread(draws.0.fetch_add(1, Ordering::Relaxed));
        let taken = PATHS.into_iter().skip(1).find(|&path| {
            let share = share(word, path);
            let here = at < share;
            at = at.wrapping_sub(share);
            here
        });
        taken.unwrap_or(SendStrategy::Auto)
    }
}

/// Returns the place of the `n`th draw among ten thousand. Ten thousand in a row have all places, a hundred in a row
/// have each hundred once, and neighbours lie far apart (61 is near 100 times the golden section, and coprime to it).
fn spread(n: u64) -> u64 {
    let place = |n: u64| n % 100 * 61 % 100;
    place(n) * 100 + place(n / 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drawn(shares: &Shares, draws: &Draws, count: usize) -> [usize; 5] {
        let mut counts = [0; 5];
        (0..count).for_each(|_| counts[shares.draw(draws) as usize] += 1);
        counts
    }

    #[test]
    fn shares_are_exact_over_any_ten_thousand() {
        let (shares, draws) = (Shares::default(), Draws::default());
        for (path, percent) in PATHS.into_iter().skip(1).zip([12.34, 0.01, 50.0, 7.0]) {
            shares.set(path, percent).unwrap();
            assert_eq!(shares.get(path), percent);
        }
        assert_eq!(shares.get(SendStrategy::Auto), 30.65);
        drawn(&shares, &draws, 777);
        for _ in 0..3 {
            assert_eq!(drawn(&shares, &draws, 10_000), [3065, 1234, 1, 5000, 700]);
        }
    }

    #[test]
    fn shares_are_from_nothing_to_all() {
        let shares = Shares::default();
        shares.set(SendStrategy::Uring, 60.0).unwrap();
        for (path, percent) in [
            (SendStrategy::Epoll, 40.01),
            (SendStrategy::Epoll, -1.0),
            (SendStrategy::Epoll, f64::NAN),
            (SendStrategy::Uring, 101.0),
            (SendStrategy::Auto, 10.0),
        ] {
            let error = shares.set(path, percent).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
        shares.set(SendStrategy::Epoll, 40.0).unwrap();
        shares.set(SendStrategy::Uring, 10.0).unwrap();
        assert_eq!((shares.get(SendStrategy::Auto), shares.version()), (50.0, 3));
        shares.set(SendStrategy::Epoll, 90.0).unwrap();
        assert_eq!(drawn(&shares, &Draws::default(), 100), [0, 10, 90, 0, 0]);
    }

    #[test]
    fn threads_that_draw_together_keep_the_shares() {
        let (shares, draws) = (Shares::default(), Draws::default());
        shares.set(SendStrategy::NoCork, 33.0).unwrap();
        let counts = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| drawn(&shares, &draws, 25_000))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()[SendStrategy::NoCork as usize]).sum::<usize>()
        });
        assert_eq!(counts, 33_000);
    }

    proptest! {
        #[test]
        fn whole_percents_are_exact_over_any_hundred(start in 0u64..1 << 40, a in 0u8..=100, b in 0u8..=100) {
            let (shares, draws) = (Shares::default(), Draws(AtomicU64::new(start)));
            let b = b.min(100 - a);
            shares.set(SendStrategy::Uring, a.into()).unwrap();
            shares.set(SendStrategy::NoSendfile, b.into()).unwrap();
            let counts = drawn(&shares, &draws, 100);
            prop_assert_eq!(counts, [usize::from(100 - a - b), a.into(), 0, b.into(), 0]);
            // Every part of them has about its share.
            let counts = drawn(&shares, &draws, 20);
            prop_assert!(counts[1].abs_diff(usize::from(a) / 5) <= 4, "{} of 20 at {} %", counts[1], a);
        }
    }
}
