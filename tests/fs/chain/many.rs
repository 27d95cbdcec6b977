//! Many chains at once, and chains without a ring.

use std::fs;
use std::time::Duration;

use millstream::fs::OpenOptions;
use millstream::fs::chain::{Chain, ChainPath};
use millstream::metrics::Snapshot;
use millstream::runtime::{DriverBuilder, Io};

use super::both::{Place, both, new_file, on, reading};
use testkit::HANGS;

use testkit::alone;
use testkit::report::report;

fn replace(place: &Place, n: usize) -> Chain {
    let (temp, path) = (place.path(&format!("{n}.tmp")), place.path(&n.to_string()));
    Chain::new().open(&temp, new_file()).write(vec![n as u8; 1000]).rename(&temp, path)
}

#[test]
fn chains_that_come_together_are_handed_over_together() {
    if alone::ran_in_child() {
        return;
    }
    if testkit::lacks("io_uring") {
        return;
    }
    on(Io::Uring, async |place| {
        let before = Snapshot::now();
        // Four entries each, including the close: 32 chains fill the ring exactly.
        let all: Vec<_> = (0..32).map(|n| tokio::spawn(replace(place, n).run())).collect();
        for one in all {
            assert_eq!(one.await.unwrap().unwrap().path(), ChainPath::Ring);
        }
        let counted = Snapshot::now().since(&before);
        assert_eq!((counted.ring_enters, counted.ring_submissions, counted.ring_completions), (1, 128, 128));
        assert_eq!(place.files().len(), 32);
    });
}

#[test]
fn more_chains_than_entries_and_places_are_all_done() {
    if alone::ran_in_child() {
        return;
    }
    both(async |place| {
        let all: Vec<_> = (0..1000).map(|n| tokio::spawn(replace(place, n).run())).collect();
        for one in all {
            // As many as fit use the ring, the others the pool.
            tokio::time::timeout(HANGS, one).await.expect("it ends").unwrap().unwrap();
        }
        let files = place.files();
        assert_eq!(files.len(), 1000);
        assert!(files.iter().all(|(n, bytes)| *bytes == vec![n.parse::<usize>().unwrap() as u8; 1000]));
    });
}

#[test]
fn many_threads_share_the_work() {
    if alone::ran_in_child() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let all: Vec<_> = (0..500)
            .map(|n| {
                let (temp, path) = (dir.path().join(format!("{n}.tmp")), dir.path().join(n.to_string()));
                tokio::spawn(async move {
                    Chain::new().open(&temp, new_file()).write(vec![n as u8; 500]).rename(temp, &path).run().await?;
                    let report = Chain::new().open(&path, reading()).read(500).run().await?;
                    Ok::<_, std::io::Error>(report.reads()[0] == vec![n as u8; 500])
                })
            })
            .collect();
        for one in all {
            assert!(tokio::time::timeout(HANGS, one).await.expect("it ends").unwrap().unwrap());
        }
    });
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 500);
}

#[test]
fn a_chain_too_long_for_the_ring_goes_to_the_pool() {
    if alone::ran_in_child() {
        return;
    }
    if testkit::lacks("io_uring") {
        return;
    }
    on(Io::Uring, async |place| {
        let open = Chain::new().open(place.path("file"), new_file());
        let long = (0..Chain::STEPS_MAX - 1).fold(open, |chain, _| chain.write("x").timeout(Duration::from_secs(60)));
        let report = long.run().await.unwrap();
        assert_eq!(report.path(), ChainPath::Pool);
        assert_eq!(fs::metadata(place.path("file")).unwrap().len(), Chain::STEPS_MAX as u64 - 1);
        // The first part of the chain would fit.
        let nops = (0..100).fold(Chain::new().unlink(place.path("file")), |chain, _| chain.nop().timeout(HANGS));
        let report = tokio::time::timeout(HANGS, nops.run()).await.expect("it ends").unwrap();
        assert_eq!(report.path(), ChainPath::Pool);
    });
}

#[test]
fn without_an_io_driver_the_pool_takes_over() {
    if alone::ran_in_child() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let report = Chain::new().open(dir.path().join("file"), new_file()).write("x").run().await.unwrap();
        assert_eq!(report.path(), ChainPath::Pool);
    });
}

#[test]
fn without_a_runtime_there_is_an_error() {
    if alone::ran_in_child() {
        return;
    }
    let mut running = std::pin::pin!(Chain::new().unlink("/no/such/file").run());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(Err(error)) = running.as_mut().poll(&mut cx) else { panic!("no error") };
    assert_eq!(error.step(), None);
    assert!(report(&error).starts_with("chain: there is no reactor running"), "{error}");
}

#[test]
fn by_itself_it_goes_the_way_that_is_asked_for() {
    if alone::ran_in_child() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        DriverBuilder::new().io(Io::Auto).install().unwrap();
        let read = OpenOptions::new().read(true);
        let report = Chain::new().open("/proc/self/status", read).read(10).run().await.unwrap();
        let expected = if testkit::lacks("io_uring") { ChainPath::Pool } else { ChainPath::Ring };
        assert_eq!(report.path(), expected);
    });
}
