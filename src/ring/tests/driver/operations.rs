//! Operations on open files give the same results on a ring and by plain calls, for any number of bytes per call.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::FallocateFlags;

use crate::ops::program::Program;
use crate::ops::rw::{Read, Write};
use crate::ops::stat::Stat;
use crate::ops::sync::{Allocate, SetLen, Sync};
use crate::ops::vectored::{ReadVectored, WriteVectored};
use crate::ops::*;
use crate::ring::tests::both::both_ways;
use io_uring::squeue::Flags;

fn by_calls<T: Operation>(mut op: T, limit: usize) -> (T, u64) {
    let mut files = Files::default();
    loop {
        let n = op.perform(&mut files, limit).unwrap();
        if op.advance(n) != Progress::More {
            let bytes = op.bytes();
            return (op, bytes);
        }
    }
}

fn file() -> (Arc<File>, Target) {
    let file = Arc::new(tempfile::tempfile().unwrap());
    (Arc::clone(&file), file.into())
}

#[test]
fn many_pieces_are_written_and_read_whatever_one_call_takes() {
    // Pieces of 0 to 6 bytes, more than one call accepts.
    let pieces: Vec<Bytes> = (0..1500usize).map(|n| Bytes::from(vec![n as u8; n % 7])).collect();
    let whole: Vec<u8> = pieces.concat();
    let lens: Vec<usize> = pieces.iter().map(Bytes::len).collect();
    let (std, target) = file();
    let wrote = || {
        let mut bytes = vec![0; whole.len() + 3];
        std.read_exact_at(&mut bytes, 0).unwrap();
        std.set_len(0).unwrap();
        bytes[3..] == whole
    };
    let write = || {
        std.set_len(0).unwrap();
        WriteVectored::new(target.clone(), 3, pieces.clone())
    };
    let read = || ReadVectored::new(target.clone(), 3, &lens);
    for limit in [1, 5, 1000, usize::MAX] {
        assert_eq!(by_calls(write(), limit).1, whole.len() as u64);
        assert!(by_calls(read(), limit).0.into_pieces() == pieces, "{limit}");
        assert!(wrote(), "{limit}");
    }
    for program in both_ways(|| Program::of(write())) {
        assert_eq!(program.into_single::<WriteVectored>().1.unwrap(), whole.len() as u64);
    }
    for program in both_ways(|| Program::of(read())) {
        assert!(program.into_single::<ReadVectored>().0.into_pieces() == pieces);
    }
    assert!(wrote());
}

#[test]
fn pieces_behind_the_end_of_the_file_are_empty() {
    let (std, target) = file();
    std.write_all_at(&[7; 100], 0).unwrap();
    let read = || ReadVectored::new(target.clone(), 10, &[50, 0, 50, 50]);
    let mut all = vec![by_calls(read(), 9)];
    for program in both_ways(|| Program::of(read())) {
        assert_eq!(program.outcome(0), StepOutcome::Short(90));
        let (read, got) = program.into_single();
        all.push((read, got.unwrap()));
    }
    for (read, got) in all {
        assert_eq!(got, 90);
        let lens: Vec<usize> = read.into_pieces().iter().map(Bytes::len).collect();
        assert_eq!(lens, [50, 0, 40, 0]);
    }
}

#[test]
fn room_and_length_are_changed_and_seen() {
    let (std, target) = file();
    let done = |program: Program| assert_eq!(program.outcome(0), StepOutcome::Done(0));
    let allocate = || Allocate::new(target.clone(), FallocateFlags::empty(), 0, 8192);
    both_ways(|| {
        std.set_len(0).unwrap();
        Program::of(allocate())
    })
    .into_iter()
    .for_each(done);
    assert_eq!(std.metadata().unwrap().len(), 8192);
    both_ways(|| Program::of(SetLen::new(target.clone(), 5000))).into_iter().for_each(done);
    assert_eq!(std.metadata().unwrap().len(), 5000);
    for data_only in [false, true] {
        both_ways(|| Program::of(Sync::new(target.clone(), data_only))).into_iter().for_each(done);
    }
    for program in both_ways(|| Program::of(Stat::new(target.clone()))) {
        let stat = program.into_single::<Stat>().0;
        assert_eq!(stat.found().unwrap().stx_size, 5000);
        assert_eq!(stat.found().unwrap().stx_ino, std::os::unix::fs::MetadataExt::ino(&std.metadata().unwrap()));
    }
}

#[test]
fn long_operations_run_on_kernel_threads() {
    let (_, target) = file();
    let flags_of = |op: &mut dyn Operation| {
        let entry = format!("{:?}", op.entry(&Files::default()));
        let (_, flags) = entry.split_once("flags: ").expect("an entry shows its flags");
        Flags::from_bits(flags.split(',').next().unwrap().parse().unwrap()).unwrap()
    };
    for (len, expected) in [(1 << 20, Flags::empty()), ((1 << 20) + 1, Flags::ASYNC)] {
        let bytes = Bytes::from(vec![0; len]);
        let ops: [Box<dyn Operation>; 4] = [
            Box::new(Read::new(target.clone(), 0, len)),
            Box::new(Write::new(target.clone(), 0, bytes.clone())),
            Box::new(ReadVectored::new(target.clone(), 0, &[5, len - 5])),
            Box::new(WriteVectored::new(target.clone(), 0, vec![bytes.slice(..9), bytes.slice(9..)])),
        ];
        for mut op in ops {
            assert_eq!(flags_of(&mut *op), expected, "{op:?}");
        }
    }
}
