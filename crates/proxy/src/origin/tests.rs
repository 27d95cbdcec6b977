//! The time limit and the errors of PROXY headers.

use super::*;

#[tokio::test]
async fn a_header_that_is_not_taken_is_an_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream: Upstream = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let Ok(mut stream) = upstream.connect(Duration::from_secs(60)).await else { panic!("the upstream listens") };
    inner!(&mut stream, stream => stream.shutdown().await).unwrap();
    let error = send(b"PROXY UNKNOWN\r\n", &mut stream).await.unwrap_err();
    assert!(error.to_string().starts_with("the upstream takes no PROXY header: "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_steps_of_a_connection_have_one_deadline() {
    let start = Instant::now();
    let deadline = start.checked_add(Duration::from_secs(5));
    let step = async |seconds| {
        let sleeping = tokio::time::sleep(Duration::from_secs(seconds));
        in_time(deadline, async {
            sleeping.await;
            Ok(())
        })
        .await
    };
    assert!(step(3).await.is_ok());
    assert_eq!(step(3).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}
