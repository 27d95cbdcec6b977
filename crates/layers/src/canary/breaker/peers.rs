//! Peers that end responses early, in a table of fixed size.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::thresholds::Thresholds;

const SHARDS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Peers {
    /// End of the last cool-down of any peer, in nanoseconds. After it no table is searched.
    until: AtomicU64,
    shards: [Mutex<Vec<PeerRecord>>; SHARDS],
}

#[derive(Debug)]
struct PeerRecord {
    key: u128,
    resets: VecDeque<Duration>,
    heard: Duration,
    strikes: u32,
    until: Duration,
}

/// Returns the key of an address. For IPv6 it is the /64 network, because one host may own the whole network.
fn key(peer: IpAddr) -> u128 {
    match peer.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits() & !u128::from(u64::MAX),
    }
}

impl Peers {
    fn shard(&self, key: u128) -> MutexGuard<'_, Vec<PeerRecord>> {
        let folded = (key ^ key >> 64) as u64;
        let at = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        self.shards[at as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether `peer` is excluded from the path.
    pub(super) fn is_out(&self, peer: IpAddr, now: Duration) -> bool {
        if super::nanos(now) >= self.until.load(Ordering::Relaxed) {
            return false;
        }
        let key = key(peer);
        self.shard(key).iter().any(|peer| peer.key == key && now < peer.until)
    }

    pub(super) fn reset_by(&self, peer: IpAddr, limits: &Thresholds, now: Duration) {
        let key = key(peer);
        let mut shard = self.shard(key);
        let at = shard.iter().position(|peer| peer.key == key).unwrap_or_else(|| {
            // A loop, because the limit may have become smaller.
            while shard.len() >= limits.peers.div_ceil(SHARDS).max(1) {
                // Excluded peers are kept before others.
                let oldest = shard.iter().enumerate().min_by_key(|(_, peer)| (now < peer.until, peer.heard));
                let (oldest, _) = oldest.expect("internal: a full table is not empty");
                shard.swap_remove(oldest);
            }
            shard.push(PeerRecord { key, resets: VecDeque::new(), heard: now, strikes: 0, until: Duration::ZERO });
            shard.len() - 1
        });
        let peer = &mut shard[at];
        if now.saturating_sub(peer.heard.max(peer.until)) >= limits.longest_cool_down() {
            peer.strikes = 0;
        }
        peer.heard = now;
        if now < peer.until {
            // The request was admitted before the trip.
            return;
        }
        peer.resets.retain(|&at| now.saturating_sub(at) < limits.resets_within);
        peer.resets.push_back(now);
        if peer.strikes > 0 || peer.resets.len() >= limits.resets as usize {
            peer.resets.clear();
            peer.until = now.saturating_add(limits.cool_down_after(peer.strikes));
            peer.strikes = peer.strikes.saturating_add(1);
            self.until.fetch_max(super::nanos(peer.until), Ordering::Relaxed);
        }
    }

    /// Returns the number of excluded peers.
    pub(super) fn out(&self, now: Duration) -> usize {
        let lock = |shard: &Mutex<Vec<PeerRecord>>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.iter().filter(|peer| now < peer.until).count()
        };
        self.shards.iter().map(lock).sum()
    }

    pub(super) fn clear(&self) {
        for shard in &self.shards {
            shard.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        self.until.store(0, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }
}
