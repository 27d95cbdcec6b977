//! Shares of the paths: exact, evenly spread, and changed while they are read.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use millstream::net::SendStrategy;

/// All paths, by number.
pub(super) const PATHS: [SendStrategy; SendStrategy::ALL.len()] = *SendStrategy::ALL.first_chunk().unwrap();

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
mod tests;
