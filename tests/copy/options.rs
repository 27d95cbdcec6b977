//! Limits, rates, progress callbacks, and file positions.

use std::io::{Seek, SeekFrom};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream::copy::{Copier, CopyPath, copy};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::ends::{Plain, Source, Target, collect, file, ours, tcp};
use super::noise;
use testkit::http::on_both;

type Told = Arc<Mutex<Vec<(u64, Option<u64>)>>>;

/// Returns a progress callback and its record.
fn watcher() -> (Told, impl FnMut(u64, Option<u64>) + Send + 'static) {
    let told = Told::default();
    let tell = Arc::clone(&told);
    (told, move |bytes, total| tell.lock().unwrap().push((bytes, total)))
}

#[test]
fn who_watches_is_told_after_each_step() {
    on_both(|| async {
        const LEN: usize = 10 << 20;
        let (told, tell) = watcher();
        let (mut from, mut to) =
            (tokio::fs::File::from_std(file(noise(LEN))), <tokio::fs::File as Target>::open().await.0);
        let report = Copier::new().on_progress(tell).run(&mut from, &mut to).await.unwrap();
        let told = told.lock().unwrap().clone();
        assert_eq!(told.last(), Some(&(LEN as u64, Some(LEN as u64))));
        assert!(told.is_sorted(), "{told:?}");
        if report.path != CopyPath::Clone {
            assert_eq!(told[0].0, 8 << 20, "a step, {told:?}");
        }

        // With a limit below the length, and one above.
        for (limit, total) in [(1000, 1000), (u64::MAX, 50_000)] {
            let (told, tell) = watcher();
            let mut from = tokio::fs::File::from_std(file(noise(50_000)));
            let (mut to, got) = <TcpStream as Target>::open().await;
            Copier::new().limit(limit).on_progress(tell).run(&mut from, &mut to).await.unwrap();
            assert!(told.lock().unwrap().iter().all(|&(_, of)| of == Some(total)), "{told:?}");
            assert_eq!(told.lock().unwrap().last(), Some(&(total, Some(total))));
            drop(to);
            assert_eq!(got.await.unwrap().unwrap().len() as u64, total);
        }

        // The total of a socket is unknown.
        let (told, tell) = watcher();
        let mut from = <TcpStream as Source>::open(noise(100_000).to_vec()).await;
        Copier::new().on_progress(tell).run(&mut from, &mut tokio::io::sink()).await.unwrap();
        assert_eq!(told.lock().unwrap().last(), Some(&(100_000, None)));
    });
}

/// The rate follows the paused clock, which advances only when every task waits.
#[tokio::test(start_paused = true)]
async fn a_rate_is_kept_and_used() {
    const RATE: u64 = 100_000;
    let rate = NonZeroU64::new(RATE).unwrap();
    for len in [1usize, 10_000, 10_001, 250_000] {
        let since = tokio::time::Instant::now();
        let (mut from, mut to) = (noise(len), Vec::new());
        let report = Copier::new().rate(rate).run(&mut from, &mut to).await.unwrap();
        assert!(to == noise(len));
        assert_eq!(report.bytes, len as u64);
        let took = since.elapsed();
        // The burst of a tenth of a second is immediate.
        let least = Duration::from_nanos((len as u64).saturating_sub(RATE / 10) * 1_000_000_000 / RATE);
        assert!(took >= least, "{len} bytes in {took:?}");
        // Timers have millisecond resolution, and the end waits for half a burst.
        assert!(took <= least + least / 10 + Duration::from_millis(60), "{len} bytes in {took:?}");
    }
}

#[tokio::test]
async fn a_rate_holds_for_every_way() {
    const LEN: usize = 300_000;
    // A high rate keeps the test short; the point is that many small steps add up.
    let paced = || Copier::new().rate(NonZeroU64::new(2_000_000).unwrap());
    let mut from = tokio::fs::File::from_std(file(noise(LEN)));
    let (mut to, got) = <tokio::fs::File as Target>::open().await;
    let report = paced().run(&mut from, &mut to).await.unwrap();
    assert_ne!(report.path, CopyPath::Clone, "a clone cannot be rate-limited");
    drop(to);
    assert!(got.await.unwrap().unwrap() == noise(LEN));
    for _ in 0..2 {
        let mut from = <TcpStream as Source>::open(noise(LEN).to_vec()).await;
        let (mut to, got) = <millstream::net::TcpStream as Target>::open().await;
        assert!(paced().run(&mut from, &mut to).await.unwrap().waits > 0);
        to.close().await;
        assert!(got.await.unwrap().unwrap() == noise(LEN));
    }
}

#[test]
fn files_are_copied_from_their_position_to_their_position() {
    on_both(|| async {
        // A file with read-ahead: the descriptor's position is beyond the bytes read.
        let mut from = tokio::fs::File::from_std(file(noise(100_000)));
        from.read_exact(&mut [0; 10]).await.unwrap();
        // A file with unflushed writes.
        let kept = file(b"");
        let mut to = tokio::fs::File::from_std(kept.try_clone().unwrap());
        to.write_all(b"before").await.unwrap();
        let report = Copier::new().limit(50_000).run(&mut from, &mut to).await.unwrap();
        assert_eq!(report.bytes, 50_000);
        assert_eq!(from.stream_position().await.unwrap(), 50_010);
        assert_eq!(to.stream_position().await.unwrap(), 50_006);
        to.write_all(b"after").await.unwrap();
        to.flush().await.unwrap();
        let mut next = [0; 20];
        from.read_exact(&mut next).await.unwrap();
        assert!(next == noise(50_030)[50_010..]);
        let mut all = Vec::new();
        (&kept).rewind().unwrap();
        std::io::Read::read_to_end(&mut &kept, &mut all).unwrap();
        assert!(all == [b"before", &noise(50_010)[10..], b"after"].concat());

        // The same with our files, whose positions are independent of the descriptor's.
        let mut from = millstream::fs::File::from_std(file(noise(100_000))).unwrap().reader();
        from.read_exact(&mut [0; 10]).await.unwrap();
        let kept = file(b"");
        let mut to = millstream::fs::File::from_std(kept.try_clone().unwrap()).unwrap().writer();
        to.write_all(b"before").await.unwrap();
        Copier::new().limit(50_000).run(&mut from, &mut to).await.unwrap();
        assert_eq!(from.stream_position().await.unwrap(), 50_010);
        assert_eq!(to.stream_position().await.unwrap(), 50_006);
        to.write_all(b"after").await.unwrap();
        to.shutdown().await.unwrap();
        from.read_exact(&mut next).await.unwrap();
        assert!(next == noise(50_030)[50_010..]);
        let mut all = Vec::new();
        (&kept).rewind().unwrap();
        std::io::Read::read_to_end(&mut &kept, &mut all).unwrap();
        assert!(all == [b"before", &noise(50_010)[10..], b"after"].concat());

        // A seek in progress, and one beyond the end.
        let mut from = tokio::fs::File::from_std(file(noise(100)));
        tokio::io::AsyncSeek::start_seek(std::pin::Pin::new(&mut from), SeekFrom::Start(90)).unwrap();
        let mut to = <tokio::fs::File as Target>::open().await.0;
        assert_eq!(copy(&mut from, &mut to).await.unwrap().bytes, 10);
        from.seek(SeekFrom::Start(1000)).await.unwrap();
        assert_eq!(copy(&mut from, &mut to).await.unwrap().bytes, 0);
        let (mut to, _got) = <TcpStream as Target>::open().await;
        assert_eq!(copy(&mut from, &mut to).await.unwrap().bytes, 0);
    });
}

#[test]
fn positions_are_right_after_streams_too() {
    on_both(|| async {
        let kept = file(b"");
        let mut to = tokio::fs::File::from_std(kept.try_clone().unwrap());
        to.write_all(b"before").await.unwrap();
        // Little, much, little: read and write, splice, read and write.
        for len in [10, 3 << 20, 10] {
            let mut from = <TcpStream as Source>::open(noise(len).to_vec()).await;
            assert_eq!(copy(&mut from, &mut to).await.unwrap().bytes, len as u64);
        }
        assert_eq!(to.stream_position().await.unwrap(), 6 + 20 + (3 << 20));
        to.write_all(b"after").await.unwrap();
        to.flush().await.unwrap();
        let mut all = Vec::new();
        (&kept).rewind().unwrap();
        std::io::Read::read_to_end(&mut &kept, &mut all).unwrap();
        assert!(all == [b"before", noise(10), noise(3 << 20), noise(10), b"after"].concat());
    });
}

#[test]
fn what_is_appended_to_is_appended_to() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "before").unwrap();
        let mut expected = b"before".to_vec();
        for _ in 0..2 {
            let mut from = tokio::fs::File::from_std(file(noise(300_000)));
            let mut to = tokio::fs::File::options().append(true).open(&path).await.unwrap();
            let report = copy(&mut from, &mut to).await.unwrap();
            assert_eq!((report.path, report.refused), (CopyPath::Pump, None), "it is known beforehand");
            let mut from = <TcpStream as Source>::open(noise(300_000).to_vec()).await;
            let report = copy(&mut from, &mut to).await.unwrap();
            assert_eq!((report.path, report.refused), (CopyPath::Pump, None), "it is known beforehand");
            let mut to = millstream::fs::File::options().append(true).open(&path).await.unwrap().writer();
            copy(&mut &noise(1000)[..], &mut to).await.unwrap();
            expected.extend([noise(300_000), noise(300_000), noise(1000)].concat());
        }
        assert!(std::fs::read(&path).unwrap() == expected);
    });
}

#[test]
fn files_that_know_no_length_are_read() {
    on_both(|| async {
        let expected = std::fs::read("/proc/self/limits").unwrap();
        assert!(!expected.is_empty());
        let mut from = tokio::fs::File::open("/proc/self/limits").await.unwrap();
        let kept = file(b"");
        let mut to = tokio::fs::File::from_std(kept.try_clone().unwrap());
        assert_eq!(copy(&mut from, &mut to).await.unwrap().bytes, expected.len() as u64);
        let mut from = tokio::fs::File::open("/proc/self/limits").await.unwrap();
        let (mut to, got) = <TcpStream as Target>::open().await;
        copy(&mut from, &mut to).await.unwrap();
        drop(to);
        assert_eq!(got.await.unwrap().unwrap(), expected);
        // Pipes wrapped as files have no position either.
        let (read, mut write) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut write, noise(5000)).unwrap();
        drop(write);
        let (mut to, got) = <tokio::fs::File as Target>::open().await;
        copy(&mut tokio::fs::File::from_std(std::os::fd::OwnedFd::from(read).into()), &mut to).await.unwrap();
        drop(to);
        assert!(got.await.unwrap().unwrap() == noise(5000));
        let (mut read, write) = std::io::pipe().unwrap();
        let mut to = tokio::fs::File::from_std(std::os::fd::OwnedFd::from(write).into());
        copy(&mut tokio::fs::File::from_std(file(noise(5000))), &mut to).await.unwrap();
        drop(to);
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut read, &mut all).unwrap();
        assert!(all == noise(5000));
        let mut from = tokio::fs::File::open("/dev/zero").await.unwrap();
        let (mut to, got) = <TcpStream as Target>::open().await;
        Copier::new().limit(100_000).run(&mut from, &mut to).await.unwrap();
        drop(to);
        assert!(got.await.unwrap().unwrap() == [0; 100_000]);
    });
}

#[test]
fn a_file_that_grows_meanwhile_is_copied_to_its_end() {
    on_both(|| async {
        let kept = file(noise(600_000));
        let mut from = tokio::fs::File::from_std(kept.try_clone().unwrap());
        let (mut to, theirs) = tcp().await;
        let got = collect(theirs);
        let grown = kept.try_clone().unwrap();
        let mut left = 3;
        // The file shares its position with this descriptor, so the copy writes by offset.
        let mut copy = Copier::new().on_progress(move |_, _| {
            if left > 0 {
                left -= 1;
                let end = grown.metadata().unwrap().len();
                std::os::unix::fs::FileExt::write_all_at(&grown, noise(200_000), end).unwrap();
            }
        });
        assert_eq!(copy.run(&mut from, &mut to).await.unwrap().bytes, 1_200_000);
        drop(to);
        assert_eq!(got.await.unwrap().unwrap().len(), 1_200_000);
    });
}

#[test]
fn an_empty_copy_is_no_copy() {
    on_both(|| async {
        let (mut ours, theirs) = ours().await;
        drop(theirs);
        let report = copy(&mut ours, &mut tokio::io::sink()).await.unwrap();
        assert_eq!((report.bytes, report.refused), (0, None));
        let mut ended = Copier::new();
        ended.run(&mut tokio::io::empty(), &mut Vec::new()).await.unwrap();
        // Further runs report the end again.
        let mut to = Vec::new();
        assert_eq!(ended.run(&mut &b"more"[..], &mut to).await.unwrap().bytes, 0);
        assert!(to.is_empty());
    });
}

#[test]
fn what_the_target_gathers_is_flushed_when_the_source_pauses() {
    on_both(|| async {
        let (ours, mut theirs) = tcp().await;
        let (target, mut reader) = tcp().await;
        let mut buffered = tokio::io::BufWriter::with_capacity(1 << 20, target);
        let task = tokio::spawn(async move { copy(&mut Plain(ours), &mut buffered).await });
        for _ in 0..5 {
            theirs.write_all(b"ping").await.unwrap();
            let mut got = [0; 4];
            reader.read_exact(&mut got).await.unwrap();
            assert_eq!(&got, b"ping");
        }
        drop(theirs);
        assert_eq!(task.await.unwrap().unwrap().bytes, 20);
    });
}

/// Ends that are always ready do not starve other tasks.
#[tokio::test]
async fn other_tasks_run_meanwhile() {
    let (mut copy, mut from, mut to) = (Copier::new(), noise(10 << 20), Vec::new());
    let mut polls = 0;
    let mut copying = Box::pin(copy.run(&mut from, &mut to));
    let done = std::future::poll_fn(|cx| {
        polls += 1;
        copying.as_mut().poll(cx)
    });
    assert_eq!(done.await.unwrap().bytes, 10 << 20);
    assert!(polls >= 5, "{polls} polls for 10 MiB");
}
