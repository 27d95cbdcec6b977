//! The origin of each slice of a write is looked up once, whichever way the slice is sent, and torn files are found.

use std::io::Write;

use super::super::pace::{Grant, SharedPace};
use super::*;
use crate::buf::origin::{LOOKUPS, Mapping};
use crate::buf::pool::lease_block;
use crate::net::egress::socket_writer::SendFailure;
use crate::sys::errno::Errno;

/// Bytes of unknown origin, of pool memory and of a file.
struct Bytes {
    head: Vec<u8>,
    pool: bytes::Bytes,
    file: bytes::Bytes,
}

impl Bytes {
    fn new() -> Self {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 100 << 10]).unwrap();
        let mut pool = lease_block(4 << 10);
        pool.extend_from_slice(&[8; 4 << 10]);
        Self {
            head: vec![9; 100],
            pool: pool.freeze(),
            file: Mapping::new(Arc::new(file), 0, 100 << 10).unwrap().bytes(),
        }
    }

    /// Slices of all kinds, among them two adjacent ones of the file.
    fn mixed(&self) -> [IoSlice<'_>; 5] {
        [&self.head[..], &self.pool, &self.file[..40 << 10], &self.file[40 << 10..], &self.head].map(IoSlice::new)
    }
}

fn egress() -> (Arc<Egress>, tokio::net::UnixStream) {
    let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
    let ours = ours.into_std().unwrap();
    (Egress::new(ours.into(), Turn::current(), Options::of_a_gathering_stream()).unwrap(), theirs)
}

/// Writes `slices` and flushes. Returns the number of bytes accepted, and of look-ups.
fn write(egress: &Arc<Egress>, slices: &[IoSlice<'_>]) -> (usize, usize) {
    let before = LOOKUPS.get();
    let written = egress.poll_write(&mut Context::from_waker(Waker::noop()), slices);
    let Poll::Ready(Ok(n)) = written else { panic!("{written:?}") };
    Arc::clone(egress).flush();
    (n, LOOKUPS.get() - before)
}

#[tokio::test]
#[cfg_attr(portable, ignore = "files are not mapped")]
async fn a_gathered_write_looks_up_each_slice_once() {
    let (bytes, (egress, _theirs)) = (Bytes::new(), egress());
    let slices = bytes.mixed();
    let offered = slices.iter().map(|s| s.len()).sum();
    assert_eq!(write(&egress, &slices), (offered, 5));
}

#[tokio::test]
#[cfg_attr(portable, ignore = "files are not mapped")]
async fn a_write_that_goes_through_looks_up_each_slice_once() {
    let (bytes, (egress, _theirs)) = (Bytes::new(), egress());
    egress.received(1);
    let memory = [&bytes.head[..], &bytes.pool].map(IoSlice::new);
    assert_eq!(write(&egress, &memory), (100 + (4 << 10), 0), "an answer without a file needs no origin");
    // The memory before the file and the first part of the file, which is as much as one call sends.
    egress.received(1);
    let (n, lookups) = write(&egress, &bytes.mixed());
    assert!(n > 0);
    assert_eq!(lookups, 5);
}

#[tokio::test]
#[cfg_attr(portable, ignore = "files are not mapped")]
async fn a_write_of_many_slices_looks_up_each_once() {
    let (bytes, (egress, _theirs)) = (Bytes::new(), egress());
    for len in [1, 4, 5, 64, 65, 1000] {
        let slices = vec![IoSlice::new(&bytes.head[..10]); len];
        assert_eq!(write(&egress, &slices), (10 * len, len));
        egress.received(1);
        let (n, lookups) = write(&egress, &slices);
        assert_eq!((n, lookups), (10 * len.min(64), if len > 64 { len } else { 0 }));
    }
}

#[tokio::test]
#[cfg_attr(portable, ignore = "files are not mapped")]
async fn a_file_that_was_torn_while_its_bytes_waited_is_not_sent() {
    let (mut file, (egress, theirs)) = (tempfile::tempfile().unwrap(), egress());
    file.write_all(&[7; 100 << 10]).unwrap();
    let bytes = Mapping::new(Arc::new(file.try_clone().unwrap()), 0, 100 << 10).unwrap().bytes();
    let kept = [IoSlice::new(&bytes[60 << 10..70 << 10])];
    let written = egress.poll_write(&mut Context::from_waker(Waker::noop()), &kept);
    assert!(matches!(written, Poll::Ready(Ok(n)) if n == 10 << 10), "{written:?}");
    file.set_len(0).unwrap();
    assert_eq!(std::hint::black_box(&kept)[0][0], 0, "readers see zeros");
    Arc::clone(&egress).flush();
    assert_eq!(egress.check().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert!(theirs.try_read(&mut [0]).is_err(), "zeros were sent");
}

/// A full socket takes a part of the queue and nothing of the write.
#[tokio::test(start_paused = true)]
async fn bytes_of_the_queue_that_leave_before_the_socket_is_full_use_up_the_rate() {
    let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
    // The clock stands still, so the tenth of a second that may be sent at once is all.
    let pace = SharedPace::new(std::num::NonZeroU64::new(10_000).unwrap());
    let options = Options { pace: Some(pace.clone()), ..Options::of_a_gathering_stream() };
    let egress = Egress::new(ours.into_std().unwrap().into(), Turn::current(), options).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let piece = vec![5; 16 << 10];
    while egress.queued() < 900 << 10 {
        assert!(egress.poll_write(&mut cx, &[IoSlice::new(&piece)]).is_ready());
    }
    let waited = egress.queued();
    assert!(egress.poll_write(&mut cx, &[IoSlice::new(&[6; 200 << 10])]).is_pending());
    assert!((1..waited).contains(&egress.queued()), "{} of {waited} are left", egress.queued());
    assert_eq!(pace.may_send(1, Waker::noop(), &Handle::current()), Grant::Later);
    drop(theirs);
}

#[tokio::test]
async fn a_write_that_is_likely_the_only_one_of_its_turn_leaves_at_once() {
    let (egress, theirs) = egress();
    let write = || {
        assert!(egress.poll_write(&mut Context::from_waker(Waker::noop()), &[IoSlice::new(b"token")]).is_ready());
        egress.queued()
    };
    for _ in 0..2 {
        assert_eq!(write(), 5, "no pattern yet");
        Arc::clone(&egress).flush();
    }
    assert_eq!(write(), 0);
    // At the latest when the credit is spent.
    let waited = (0..3).map(|_| write()).find(|&queued| queued > 0);
    assert_eq!(waited, Some(5));
    write();
    Arc::clone(&egress).flush();
    assert_eq!(write(), 5, "the last turn had two writes");
    Arc::clone(&egress).flush();
    let mut got = vec![0; 100];
    theirs.readable().await.unwrap();
    let n = theirs.try_read(&mut got).unwrap();
    assert!(got[..n].chunks(5).all(|token| token == b"token") && n >= 30, "{n} bytes");
}

#[tokio::test]
async fn a_stream_that_never_waits_expects_nothing() {
    let (ours, _theirs) = tokio::net::UnixStream::pair().unwrap();
    let options = Options { limit: Duration::ZERO, ..Options::of_a_gathering_stream() };
    let egress = Egress::new(ours.into_std().unwrap().into(), Turn::current(), options).unwrap();
    for _ in 0..10 {
        assert!(egress.poll_write(&mut Context::from_waker(Waker::noop()), &[IoSlice::new(b"token")]).is_ready());
        assert_eq!(egress.queued(), 0);
    }
    assert!(!egress.expects_single.load(Ordering::Relaxed));
}

/// The kernel returns an error of a socket once. Here the flusher has it, and has not recorded it yet.
#[tokio::test]
async fn a_reader_at_the_end_gets_an_error_that_is_recorded_later() {
    let (egress, _theirs) = egress();
    let mut state = egress.state();
    let (send, checked) = std::sync::mpsc::sync_channel(1);
    let reader = Arc::clone(&egress);
    let reader = std::thread::spawn(move || send.send(reader.check_end()));
    let early = checked.recv_timeout(Duration::from_millis(100));
    assert!(early.is_err(), "the reader did not wait: {early:?}");
    egress.fail(&mut state, SendFailure::Errno(Errno::TIMEDOUT));
    drop(state);
    assert_eq!(checked.recv().unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    reader.join().unwrap().unwrap();
}
