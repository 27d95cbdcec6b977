//! Memory without the kernel: send queues, and the source of their memory.
//!
//! | cases | ours | rivals |
//! |---|---|---|
//! | `queue, small` | [`Queue`] copies into pool chunks | `BytesMut` append; a list of `Bytes`, each copied |
//! | `queue, large owned` | [`Queue`] copies borrowed memory | the same two |
//! | `queue, large leased` | [`Queue`] keeps leases by reference | `BytesMut` append (a copy); a list of `Bytes` clones |
//! | `lease` | [`lease`], filled and frozen | `BytesMut::with_capacity`, `Vec` |
//!
//! In `queue` a case accepts 64 KiB as borrowed slices, like a stream, and returns them like to a socket: slices for
//! one call, then an advance by a count that fits no boundary. hyper keeps a list of clones when it owns the `Bytes`; a
//! stream cannot, because it is given slices. So for large pieces that list is the floor, not a rival. Lists of small
//! pieces take longer because 64 of their slices hold less than one call would accept.
//!
//! In `lease` the memory is filled, because untouched memory costs nothing. The last 16 blocks stay alive, because an
//! allocator that always returns the same block looks faster than it is.
//!
//! Criterion measures each contender alone; in the table they take turns. **Noise**: single nanoseconds, and `lease`
//! from 64 KiB on, where the copy into the memory dominates. These cases show cost only: a queue saves calls, which
//! `net/gather` measures.

use std::collections::VecDeque;
use std::hint::black_box;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};
use criterion::Throughput;
use millstream::buf::{Front, Queue, lease};

mod common;
use common::contest::{Case, Contender};
use common::noise;
use common::suite::Suite;

/// Bytes through a queue in one case.
const TOTAL: usize = 64 << 10;
const TAKE: usize = 10_007;
/// Slices for one call.
const SLICES: usize = 64;
/// Blocks in use at a time.
const ALIVE: usize = 16;

/// A send queue as the cases use it.
trait Waiting: Default {
    fn push(&mut self, bytes: &Bytes);
    /// Passes at most `limit` bytes from the front to `taker` and drops them. Returns their number.
    fn take(&mut self, limit: usize, taker: &mut dyn FnMut(&[u8])) -> usize;
}

fn show(slices: &[IoSlice<'_>], limit: usize, taker: &mut dyn FnMut(&[u8])) -> usize {
    let mut left = limit;
    for slice in slices {
        let n = slice.len().min(left);
        taker(&slice[..n]);
        left -= n;
    }
    limit - left
}

impl Waiting for Queue {
    fn push(&mut self, bytes: &Bytes) {
        Queue::push(self, bytes);
    }

    fn take(&mut self, limit: usize, taker: &mut dyn FnMut(&[u8])) -> usize {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let Front::Memory { slices: n, .. } = self.front(&mut slices) else { return 0 };
        let taken = show(&slices[..n], limit, taker);
        self.advance(taken);
        taken
    }
}

#[derive(Default)]
struct Append(BytesMut);

impl Waiting for Append {
    fn push(&mut self, bytes: &Bytes) {
        self.0.extend_from_slice(bytes);
    }

    fn take(&mut self, limit: usize, taker: &mut dyn FnMut(&[u8])) -> usize {
        let taken = show(&[IoSlice::new(&self.0)], limit, taker);
        self.0.advance(taken);
        taken
    }
}

/// A list of buffers that is read as one, as in `http-body-util` and hyper.
#[derive(Default)]
struct List(VecDeque<Bytes>);

impl List {
    fn take(&mut self, limit: usize, taker: &mut dyn FnMut(&[u8])) -> usize {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut n = 0;
        for (slot, bytes) in slices.iter_mut().zip(&self.0) {
            *slot = IoSlice::new(bytes);
            n += 1;
        }
        let taken = show(&slices[..n], limit, taker);
        let mut left = taken;
        while let Some(front) = self.0.front_mut().filter(|_| left > 0) {
            let n = front.len().min(left);
            left -= n;
            if n == front.len() {
                self.0.pop_front();
            } else {
                front.advance(n);
            }
        }
        taken
    }
}

/// A list of buffers, each copied from its slice.
#[derive(Default)]
struct Copies(List);

impl Waiting for Copies {
    fn push(&mut self, bytes: &Bytes) {
        self.0.0.push_back(Bytes::copy_from_slice(bytes));
    }

    fn take(&mut self, limit: usize, taker: &mut dyn FnMut(&[u8])) -> usize {
        self.0.take(limit, taker)
    }
}

/// A list of buffers shared with their owner.
#[derive(Default)]
struct Clones(List);

impl Waiting for Clones {
    fn push(&mut self, bytes: &Bytes) {
        self.0.0.push_back(bytes.clone());
    }

    fn take(&mut self, limit: usize, taker: &mut dyn FnMut(&[u8])) -> usize {
        self.0.take(limit, taker)
    }
}

/// Pushes everything, then takes everything. Returns the number of bytes taken.
fn pass<W: Waiting>(pieces: &[Bytes], taker: &mut dyn FnMut(&[u8])) -> usize {
    let mut waiting = W::default();
    for piece in pieces {
        waiting.push(piece);
    }
    let mut total = 0;
    loop {
        match waiting.take(TAKE, taker) {
            0 => return total,
            n => total += n,
        }
    }
}

fn queue(suite: &mut Suite, name: &str, pieces: &[Bytes], ways: &[Way]) {
    let all = pieces.concat();
    let title = format!("queue, {name}");
    let case = Case::new(&title, "CPU us/64 KiB", 1);
    suite.run_micro(&case, Throughput::Bytes(all.len() as u64), || {
        let contenders = ways.iter().map(|&(name, pass)| {
            let mut out = Vec::new();
            pass(pieces, &mut |bytes| out.extend_from_slice(bytes));
            assert!(out == all, "{name}: output differs from input");
            let len = all.len();
            Contender::of(name, move || {
                let total = pass(black_box(pieces), &mut |bytes| {
                    black_box(bytes);
                });
                assert_eq!(total, len);
            })
        });
        contenders.collect()
    });
}

type Way = (&'static str, fn(&[Bytes], &mut dyn FnMut(&[u8])) -> usize);

const OURS: Way = ("millstream Queue", pass::<Queue>);
const APPEND: Way = ("BytesMut append", pass::<Append>);
const COPIES: Way = ("list of copies", pass::<Copies>);
const CLONES: Way = ("floor, list of clones", pass::<Clones>);

fn queues(suite: &mut Suite) {
    let bytes = Bytes::from(noise(TOTAL));
    let pieces = |len: usize| (0..TOTAL / len).map(|i| bytes.slice(i * len..(i + 1) * len)).collect::<Vec<_>>();
    for len in [40, 300] {
        queue(suite, &format!("small, {len} B"), &pieces(len), &[OURS, APPEND, COPIES, CLONES]);
    }
    let large = pieces(8 << 10);
    queue(suite, "large owned, 8 KiB", &large, &[OURS, APPEND, COPIES, CLONES]);
    let leased = |bytes: &Bytes| {
        let mut lease = lease(bytes.len());
        lease.extend_from_slice(bytes);
        lease.freeze()
    };
    let leased: Vec<Bytes> = large.iter().map(leased).collect();
    queue(suite, "large leased, 8 KiB", &leased, &[OURS, APPEND, CLONES]);
}

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
    queues(&mut suite);
    leases(&mut suite);
    suite.finish();
}
