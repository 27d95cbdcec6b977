//! Unit tests of `origin`.

use super::*;
use crate::buf::pool;
use crate::skips::skip;
use crate::sys::call;
use crate::sys::caps::Support;
use std::io::Write;
use std::os::unix::fs::FileExt;

fn file(len: usize) -> Arc<File> {
    let mut file = tempfile::tempfile().unwrap();
    // Uses `repeat`: miri takes microseconds for each step of a loop.
    let mut bytes = (0..=250).collect::<Vec<u8>>().repeat(len / 251 + 1);
    bytes.truncate(len);
    file.write_all(&bytes).unwrap();
    Arc::new(file)
}

fn kept(bytes: &[u8]) -> Option<Kept> {
    Kept::of(OriginSlice::new(bytes))
}

#[test]
#[cfg_attr(portable, ignore = "files are not mapped")]
fn a_slice_of_a_mapping_leads_to_its_file() {
    let f = file(100_000);
    let mapping = Mapping::new(Arc::clone(&f), 5000, 90_000).unwrap();
    let bytes = mapping.bytes();
    drop(mapping);
    assert_eq!(bytes.len(), 90_000);
    assert_eq!(bytes[0], (5000 % 251) as u8);
    let slice = bytes.slice(1000..2000);
    drop(bytes);
    let (_, offset) = OriginSlice::new(&slice).file().unwrap();
    assert_eq!(offset, 6000);
    let kept = kept(&slice).unwrap();
    drop(slice);
    assert_eq!(kept.as_ref()[0], (6000 % 251) as u8);
    assert_eq!(kept.file().unwrap().1, 6000);
    assert_eq!(Arc::strong_count(&f), 2);
    drop(kept);
    assert_eq!(Arc::strong_count(&f), 1, "the mapping is dropped with its last reference");
}

#[test]
fn strangers_have_no_origin() {
    let local = vec![1, 2, 3];
    assert!(!OriginSlice::new(&local).is_known());
    assert!(kept(&local).is_none());
    assert!(kept(&[]).is_none());
    let mut lease = pool::lease_block(512);
    lease.extend_from_slice(&[1; 512]);
    assert!(kept(&lease.freeze()[512..]).is_none(), "an empty slice has no owner");
}

#[test]
fn a_block_of_the_pool_is_kept_until_its_last_share() {
    let mut lease = pool::lease_block(4096);
    lease.extend_from_slice(&[7; 4096]);
    let address = lease.as_ref().as_ptr();
    let bytes = lease.freeze();
    let kept = kept(&bytes[100..200]).unwrap();
    assert!(kept.file().is_none());
    drop(bytes);
    let others: Vec<_> = (0..100).map(|_| pool::lease(4096)).collect();
    assert!(others.iter().all(|o| o.as_ref().as_ptr() != address), "leased again while a reference lived");
    assert_eq!(kept.as_ref(), &[7; 100]);
}

#[test]
#[cfg_attr(portable, ignore = "files are not mapped")]
fn keeping_and_dropping_leaves_no_granule_behind() {
    let range = map::range().unwrap();
    let f = file(10_000);
    drop(Mapping::new(Arc::clone(&f), 0, 10_000).unwrap());
    let before = range.available();
    for _ in 0..if cfg!(miri) { 20 } else { 1000 } {
        let bytes = Mapping::new(Arc::clone(&f), 0, 10_000).unwrap().bytes();
        drop(kept(&bytes));
    }
    // Other tests of this process may hold a few granules at any time.
    assert!(range.available() + 16 >= before);
}

#[test]
fn a_mapping_remembers_for_a_second_whether_it_is_warm() {
    if let Support::No(why) = Capabilities::get().cachestat() {
        return skip("cachestat", why);
    }
    let f = file(1 << 20);
    f.sync_all().unwrap();
    let mapping = Mapping::new(Arc::clone(&f), 0, 1 << 20).unwrap();
    assert!(mapping.is_warm_at(WARM));
    // Some file systems keep everything in memory.
    call::drop_cached(f.as_fd(), 0, 1 << 20);
    let is_resident = || page_cache::is_resident(f.as_fd(), 0, 1 << 20);
    let stays = is_resident();
    assert!(mapping.is_warm_at(2 * WARM - 2));
    assert_eq!(mapping.is_warm_at(2 * WARM), stays);
    let mut read = vec![0; 1 << 20];
    f.read_exact_at(&mut read, 0).unwrap();
    assert!(is_resident());
    assert_eq!(mapping.is_warm_at(3 * WARM - 2), stays);
    assert!(mapping.is_warm_at(3 * WARM));
}
