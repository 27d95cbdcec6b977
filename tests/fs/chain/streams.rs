//! Steps that wait: pipes and sockets, blocking or not, slow, stalled or closed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use millstream::fs::chain::Chain;
use millstream::fs::chain::StepOutcome::{Done, Failed, Short, Skipped};
use rustix::io::Errno;

use super::both::{both, failed, new_file, reading};

use testkit::alone;

/// Timeout of a step for which no data arrives.
const LIMIT: Duration = Duration::from_millis(30);
const LEN: usize = 300_000;

/// Returns a pipe with a capacity of 4096 bytes.
fn pipe(nonblocking: bool) -> (Arc<OwnedFd>, Arc<OwnedFd>) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    assert_eq!(rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap(), 4096);
    for end in [&reader, &writer] {
        rustix::io::ioctl_fionbio(end, nonblocking).unwrap();
    }
    (Arc::new(reader), Arc::new(writer))
}

/// Returns a connection with small buffers, and its other end.
fn connection(nonblocking: bool) -> (Arc<TcpStream>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let theirs = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    theirs.set_recv_buffer_size(4096).unwrap();
    theirs.connect(&listener.local_addr().unwrap().into()).unwrap();
    let ours = listener.accept().unwrap().0;
    socket2::SockRef::from(&ours).set_send_buffer_size(4096).unwrap();
    ours.set_nonblocking(nonblocking).unwrap();
    (Arc::new(ours), theirs.into())
}

/// Reads to the end on another thread.
fn drain(mut from: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "on its own thread, so that the other side finds the pipe empty now and then"
)]
fn pause(time: Duration) {
    thread::sleep(time);
}

#[test]
fn a_write_that_the_pipe_takes_in_parts_is_finished_before_the_next() {
    if alone::ran_in_child() {
        return;
    }
    let bytes = testkit::noise(LEN);
    for nonblocking in [false, true] {
        let (outcomes, arrived) = both(async |place| {
            let (reader, writer) = pipe(false);
            rustix::io::ioctl_fionbio(&*writer, nonblocking).unwrap();
            let arrived = drain(std::fs::File::from(Arc::into_inner(reader).unwrap()));
            let chain = Chain::new().on(writer).write(bytes[..LEN / 2].to_vec()).write(bytes[LEN / 2..].to_vec());
            let chain = chain.open(place.path("done"), new_file());
            (place.outcomes(chain).await, arrived.join().unwrap() == bytes)
        });
        assert_eq!(outcomes, [Done(LEN as u64 / 2), Done(LEN as u64 / 2), Done(0)], "nonblocking: {nonblocking}");
        assert!(arrived);
    }
}

#[test]
fn a_read_goes_on_until_it_is_full_or_the_pipe_ends() {
    if alone::ran_in_child() {
        return;
    }
    let bytes = testkit::noise(LEN);
    for nonblocking in [false, true] {
        let (outcomes, arrived) = both(async |place| {
            let (reader, writer) = pipe(false);
            rustix::io::ioctl_fionbio(&*reader, nonblocking).unwrap();
            let mut writer = std::fs::File::from(Arc::into_inner(writer).unwrap());
            let sent = bytes.clone();
            let writing = thread::spawn(move || {
                for piece in sent.chunks(10_000) {
                    writer.write_all(piece).unwrap();
                    // Lets the reader find the pipe empty now and then.
                    pause(Duration::from_micros(100));
                }
            });
            let ended = place.run(Chain::new().on(reader).read(LEN - 10).read(100)).await;
            writing.join().unwrap();
            (ended.0, ended.1.concat() == bytes)
        });
        assert_eq!(outcomes, [Done(LEN as u64 - 10), Short(10)], "nonblocking: {nonblocking}");
        assert!(arrived);
    }
}

#[test]
fn a_splice_waits_for_either_side() {
    if testkit::portable("there is no splice") {
        return;
    }
    if alone::ran_in_child() {
        return;
    }
    let bytes = testkit::noise(LEN);
    for nonblocking in [false, true] {
        let (outcomes, arrived) = both(async |place| {
            std::fs::write(place.path("file"), &bytes).unwrap();
            let ((reader, full), (empty, writer)) = (pipe(false), pipe(false));
            for end in [&full, &empty] {
                rustix::io::ioctl_fionbio(end, nonblocking).unwrap();
            }
            let there = drain(std::fs::File::from(Arc::into_inner(reader).unwrap()));
            let mut writer = std::fs::File::from(Arc::into_inner(writer).unwrap());
            let sent = bytes.clone();
            let back = thread::spawn(move || sent.chunks(10_000).for_each(|piece| writer.write_all(piece).unwrap()));
            let chain = Chain::new().open(place.path("file"), reading()).splice_to(full, LEN);
            let chain = chain.open(place.path("copy"), new_file()).splice_from(empty, LEN);
            let outcomes = place.outcomes(chain).await;
            back.join().unwrap();
            let copy = std::fs::read(place.path("copy")).unwrap();
            (outcomes, (there.join().unwrap() == bytes, copy == bytes))
        });
        assert_eq!(outcomes, [Done(0), Done(LEN as u64), Done(0), Done(LEN as u64)], "nonblocking: {nonblocking}");
        assert_eq!(arrived, (true, true));
    }
}

#[test]
fn who_waits_too_long_fails_and_the_rest_is_skipped() {
    if testkit::portable("there is no splice") {
        return;
    }
    if alone::ran_in_child() {
        return;
    }
    for nonblocking in [false, true] {
        let ended = both(async |place| {
            let (reader, writer) = pipe(nonblocking);
            let ((from, _keep), (_keep_too, to)) = (pipe(nonblocking), pipe(nonblocking));
            let limited = |chain: Chain| chain.timeout(LIMIT).nop();
            let mut ended = Vec::new();
            // Nothing to read; room for a part; nothing to splice; no reader for spliced bytes.
            ended.push(place.outcomes(limited(Chain::new().on(reader.clone()).read(10))).await);
            ended.push(place.outcomes(limited(Chain::new().on(writer).write(vec![7; 10_000]))).await);
            ended.push(place.outcomes(limited(Chain::new().on(to.clone()).splice_from(from, 10))).await);
            ended.push(place.outcomes(limited(Chain::new().on(to).write(vec![7; 4096]).splice_from(reader, 10))).await);
            ended
        });
        let timed_out = failed(Errno::TIMEDOUT);
        assert_eq!(ended[..3], [vec![timed_out, Skipped], vec![timed_out, Skipped], vec![timed_out, Skipped]]);
        assert_eq!(ended[3], [Done(4096), timed_out, Skipped], "nonblocking: {nonblocking}");
    }
}

#[test]
fn what_must_run_after_a_limit_does() {
    if alone::ran_in_child() {
        return;
    }
    let ended = both(async |place| {
        let (reader, _writer) = pipe(false);
        let chain = Chain::new().on(reader).read(10).timeout(LIMIT).hardlink().open(place.path("after"), new_file());
        let ended = place.outcomes(chain.write("x")).await;
        (ended, place.files().len())
    });
    assert_eq!(ended, (vec![failed(Errno::TIMEDOUT), Done(0), Done(1)], 1));
}

#[test]
fn a_slow_drip_does_not_extend_a_limit_for_ever() {
    if alone::ran_in_child() {
        return;
    }
    let ended = both(async |place| {
        let (reader, writer) = pipe(false);
        let mut writer = std::fs::File::from(Arc::into_inner(writer).unwrap());
        let dripping = thread::spawn(move || {
            // Until the reader is gone; the standard library ignores SIGPIPE.
            while writer.write_all(b"x").is_ok() {
                pause(Duration::from_millis(1));
            }
        });
        let ended = place.outcomes(Chain::new().on(reader).read(10_000_000).timeout(LIMIT).nop()).await;
        dripping.join().unwrap();
        ended
    });
    assert_eq!(ended, [failed(Errno::TIMEDOUT), Skipped]);
}

#[test]
fn all_is_sent_whatever_the_socket_takes_at_once() {
    if alone::ran_in_child() {
        return;
    }
    let bytes = testkit::noise(LEN);
    for nonblocking in [false, true] {
        let (outcomes, arrived) = both(async |place| {
            let (ours, theirs) = connection(nonblocking);
            let arrived = drain(theirs);
            let chain = Chain::new().on(ours).send(bytes[..LEN / 2].to_vec()).send(bytes[LEN / 2..].to_vec());
            (place.outcomes(chain).await, arrived.join().unwrap() == bytes)
        });
        assert_eq!(outcomes, [Done(LEN as u64 / 2); 2], "nonblocking: {nonblocking}");
        assert!(arrived);
    }
}

#[test]
fn a_peer_that_resets_in_the_middle_stops_the_chain() {
    if alone::ran_in_child() {
        return;
    }
    let ended = both(async |place| {
        let (ours, mut theirs) = connection(true);
        let peer = thread::spawn(move || {
            theirs.read_exact(&mut [0; 1000]).unwrap();
            socket2::SockRef::from(&theirs).set_linger(Some(Duration::ZERO)).unwrap();
        });
        let ended =
            place.outcomes(Chain::new().on(ours).send(vec![7; 4 << 20]).open(place.path("after"), new_file())).await;
        peer.join().unwrap();
        // The first failing call reports the reset, later ones the missing connection.
        let is_gone = |errno| [Errno::CONNRESET, Errno::PIPE].iter().any(|gone| gone.raw_os_error() == errno);
        assert!(matches!(ended[0], Failed(errno) if is_gone(errno)), "{ended:?}");
        (ended[1], place.files().len())
    });
    assert_eq!(ended, (Skipped, 0));
}

#[test]
fn a_reader_that_stalls_is_given_up() {
    if alone::ran_in_child() {
        return;
    }
    for nonblocking in [false, true] {
        let ended = both(async |place| {
            let (ours, theirs) = connection(nonblocking);
            let ended = place.outcomes(Chain::new().on(ours).send(vec![7; 8 << 20]).timeout(LIMIT).nop()).await;
            drop(theirs);
            ended
        });
        assert_eq!(ended, [failed(Errno::TIMEDOUT), Skipped], "nonblocking: {nonblocking}");
    }
}
