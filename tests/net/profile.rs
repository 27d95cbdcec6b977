//! Profiles set by builder, by share, by distance and on open connections, and congestion control by name.

use std::io::ErrorKind;

use millstream::net::{Profile, TcpListener, TcpListenerBuilder, TcpStream, UnixStream};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use testkit::http::on_both;
use testkit::noise;

/// Returns whether the profile limits the bytes that the kernel holds.
fn is_small(stream: &TcpStream) -> bool {
    SockRef::from(stream).tcp_notsent_lowat().unwrap() == 16 << 10
}

async fn connect(listener: &TcpListener) -> (TcpStream, tokio::net::TcpStream) {
    let client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (listener.accept().await.unwrap().0, client)
}

async fn bind(builder: TcpListenerBuilder) -> TcpListener {
    builder.bind("127.0.0.1:0").await.unwrap()
}

#[test]
fn a_profile_is_what_the_kernel_was_told() {
    if testkit::portable("profiles have no effect on sockets") {
        return;
    }
    on_both(|| async {
        let listener = bind(TcpListener::builder()).await;
        let (plain, _client) = connect(&listener).await;
        let system = SockRef::from(&plain).tcp_notsent_lowat().unwrap();
        let buffer = SockRef::from(&plain).send_buffer_size().unwrap();
        assert_eq!((plain.handle().profile(), is_small(&plain)), (Some(Profile::System), false));

        let listener = bind(TcpListener::builder().profile(Profile::Latency)).await;
        let (ours, _client) = connect(&listener).await;
        let handle = ours.handle();
        assert_eq!((handle.profile(), is_small(&ours)), (Some(Profile::Latency), true));
        handle.set_profile(Profile::Bulk);
        assert_eq!(SockRef::from(&ours).tcp_notsent_lowat().unwrap(), system);
        handle.set_profile(Profile::Latency);
        assert!(is_small(&ours));
        handle.set_profile(Profile::System);
        assert_eq!((handle.profile(), is_small(&ours)), (Some(Profile::System), false));
        drop(ours);
        handle.set_profile(Profile::Latency);
        assert_eq!(handle.profile(), None);
        assert_eq!(SockRef::from(&plain).send_buffer_size().unwrap(), buffer, "other sockets are unchanged");
    });
}

#[test]
fn a_send_buffer_that_was_small_grows_again() {
    if testkit::portable("profiles have no effect on sockets") {
        return;
    }
    on_both(|| async {
        let listener = bind(TcpListener::builder().profile(Profile::Latency)).await;
        let (mut ours, mut theirs) = connect(&listener).await;
        let handle = ours.handle();
        let held = SockRef::from(&ours).send_buffer_size().unwrap();
        let reader = tokio::spawn(async move {
            let mut buf = vec![0; 1 << 20];
            while theirs.read(&mut buf).await.unwrap() > 0 {}
        });
        let bytes = noise(1 << 20);
        for _ in 0..16 {
            ours.write_all(&bytes).await.unwrap();
        }
        assert_eq!(SockRef::from(&ours).send_buffer_size().unwrap(), held, "a set size stays");
        handle.set_profile(Profile::Bulk);
        // The profile sets twice the default; the kernel grows the buffer later.
        for _ in 0..64 {
            ours.write_all(&bytes).await.unwrap();
        }
        let grown = SockRef::from(&ours).send_buffer_size().unwrap();
        assert!(grown > held, "{grown} after {held}");
        ours.shutdown().await.unwrap();
        reader.await.unwrap();
    });
}

#[test]
fn auto_looks_how_far_the_peer_is_after_some_bytes() {
    if testkit::portable("profiles have no effect on sockets") {
        return;
    }
    on_both(|| async {
        let listener = bind(TcpListener::builder().profile(Profile::Auto)).await;
        let (mut ours, mut theirs) = connect(&listener).await;
        let handle = ours.handle();
        let bytes = noise(60 << 10);
        let mut got = vec![0; 60 << 10];
        ours.write_all(&bytes).await.unwrap();
        theirs.read_exact(&mut got).await.unwrap();
        ours.flushed().await.unwrap();
        assert!(!is_small(&ours), "before the measurement");
        ours.write_all(&bytes).await.unwrap();
        theirs.read_exact(&mut got).await.unwrap();
        ours.flushed().await.unwrap();
        assert_eq!((handle.profile(), is_small(&ours)), (Some(Profile::Auto), true), "loopback counts as near");
        handle.set_profile(Profile::Bulk);
        for _ in 0..10 {
            ours.write_all(&bytes).await.unwrap();
            theirs.read_exact(&mut got).await.unwrap();
        }
        assert!(!is_small(&ours));
        handle.set_profile(Profile::Auto);
        ours.write_all(&bytes).await.unwrap();
        theirs.read_exact(&mut got).await.unwrap();
        ours.flushed().await.unwrap();
        assert!(is_small(&ours));
    });
}

#[test]
fn a_share_of_new_connections_is_tried_and_taken_back() {
    if testkit::portable("profiles have no effect on sockets") {
        return;
    }
    on_both(|| async {
        let builder = TcpListener::builder().profile_share(Profile::Latency, 25);
        let switch = builder.profile_switch();
        let listener = bind(builder).await;
        assert_eq!(listener.profile_switch().get(), (Profile::Latency, 25));
        let small = async |connections: usize| {
            let (mut small, mut kept) = (0, Vec::new());
            for _ in 0..connections {
                let pair = connect(&listener).await;
                small += usize::from(is_small(&pair.0));
                kept.push(pair);
            }
            (small, kept)
        };
        let (few, live) = small(40).await;
        assert_eq!(few, 10);
        switch.set(Profile::Latency, 0);
        assert_eq!(small(20).await.0, 0);
        assert_eq!(live.iter().filter(|(ours, _)| is_small(ours)).count(), 10, "open connections keep their profile");
        listener.profile_switch().set(Profile::Latency, 100);
        assert_eq!(small(20).await.0, 20);
    });
}

#[test]
fn congestion_control_goes_by_name() {
    if testkit::portable("congestion control is not chosen") {
        return;
    }
    on_both(|| async {
        let listener = bind(TcpListener::builder()).await;
        let (ours, _client) = connect(&listener).await;
        let handle = ours.handle();
        let system = handle.congestion().unwrap();
        let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap();
        for name in available.split_whitespace() {
            handle.set_congestion(name).unwrap();
            assert_eq!(handle.congestion().as_deref(), Some(name));
            let listener = bind(TcpListener::builder().congestion(name)).await;
            let (ours, _client) = connect(&listener).await;
            assert_eq!(ours.handle().congestion().as_deref(), Some(name), "inherited");
        }
        let error = handle.set_congestion("no-such").unwrap_err();
        assert!(error.to_string().contains("no-such") && error.to_string().contains(&system), "{error}");
        let error = TcpListener::builder().congestion("no-such").bind("127.0.0.1:0").await.unwrap_err();
        assert!(error.to_string().contains("no-such") && error.to_string().contains(&system), "{error}");
        drop(ours);
        assert_eq!(handle.congestion(), None);
        assert_eq!(handle.set_congestion(&system).unwrap_err().kind(), ErrorKind::NotConnected);
    });
}

#[test]
fn a_unix_stream_keeps_a_profile_and_is_no_different() {
    if testkit::portable("profiles have no effect on sockets") {
        return;
    }
    on_both(|| async {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let handle = ours.handle();
        let buffer = SockRef::from(&ours).send_buffer_size().unwrap();
        for profile in [Profile::Latency, Profile::Bulk, Profile::Auto] {
            handle.set_profile(profile);
            assert_eq!(handle.profile(), Some(profile));
            for _ in 0..4 {
                let bytes = noise(60 << 10);
                let mut got = vec![0; bytes.len()];
                let (sent, read) = tokio::join!(ours.write_all(&bytes), theirs.read_exact(&mut got));
                sent.unwrap();
                read.unwrap();
                assert!(got == bytes);
            }
        }
        assert_eq!(SockRef::from(&ours).send_buffer_size().unwrap(), buffer);
        assert_eq!(handle.congestion(), None);
        assert!(handle.set_congestion("cubic").unwrap_err().to_string().contains("not TCP"));
        tokio::time::timeout(testkit::HANGS, ours.flushed()).await.unwrap().unwrap();
    });
}
