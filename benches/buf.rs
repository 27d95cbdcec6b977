//! Leases of pool memory, without the kernel.
//!
//! | cases | ours | rivals |
//! |---|---|---|
//! | `lease` | [`lease`], filled and frozen | `BytesMut::with_capacity`, `Vec` |
//!
//! The memory is filled, because untouched memory costs nothing. The last 16 blocks stay alive, because an allocator that
//! always returns the same block looks faster than it is.
//!
//! Criterion measures each contender alone; in the table they take turns. **Noise**: single nanoseconds, and all cases
//! from 64 KiB on, where the copy into the memory dominates.

use std::collections::VecDeque;
use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use criterion::Throughput;
use millstream::buf::lease;

mod common;
use common::contest::{Case, Contender};
use common::noise;
use common::suite::Suite;

/// Blocks in use at a time.
const ALIVE: usize = 16;

/// Returns memory filled with `bytes`.
type Fill = fn(&[u8]) -> Bytes;

fn leases(suite: &mut Suite) {
    let ways: [(&str, Fill); 3] = [
        ("millstream lease", |bytes| {
            let mut lease = lease(bytes.len());
            lease.extend_from_slice(bytes);
            lease.freeze()
        }),
        ("BytesMut::with_capacity", |bytes| {
            let mut memory = BytesMut::with_capacity(bytes.len());
            memory.extend_from_slice(bytes);
            memory.freeze()
        }),
        ("Vec", |bytes| {
            let mut memory = Vec::with_capacity(bytes.len());
            memory.extend_from_slice(bytes);
            memory.into()
        }),
    ];
    for len in [512, 4 << 10, 16 << 10, 64 << 10, 256 << 10] {
        let source = noise(len);
        let size = if len < 1024 { format!("{len} B") } else { format!("{} KiB", len >> 10) };
        let title = format!("lease, {size}");
        suite.run_micro(&Case::new(&title, "CPU us/lease", 1), Throughput::Bytes(len as u64), || {
            let contenders = ways.iter().map(|&(way, fill)| {
                let mut alive: VecDeque<Bytes> = (0..ALIVE).map(|_| fill(&source)).collect();
                assert!(alive.iter().all(|bytes| bytes[..] == source[..]), "{way}: wrong bytes");
                let source = &source;
                Contender::of(way, move || {
                    alive.pop_front();
                    alive.push_back(fill(black_box(source)));
                })
            });
            contenders.collect()
        });
    }
}

fn main() {
    let mut suite = Suite::new(env!("CARGO_CRATE_NAME"));
    leases(&mut suite);
    suite.finish();
}
