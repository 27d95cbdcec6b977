//! Unit tests of `link`.

use tokio::io::AsyncWriteExt;

use super::*;

async fn pair() -> (Link, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Link::new(ours).unwrap(), theirs)
}

#[tokio::test]
async fn records_arrive_whole_and_with_their_descriptors() {
    let (one, other) = pair().await;
    let other = Link::new(other).unwrap();
    let file = tempfile::tempfile().unwrap();
    let names: Vec<_> = (0..15).map(|n| n.to_string().repeat(100)).collect();
    one.send(&Record::Connections(3, vec![None; 64]), &[file.as_fd(); 64]).await.unwrap();
    one.send(&Record::Listeners(names.clone()), &[file.as_fd(); 16]).await.unwrap();
    one.send(&Record::Done, &[]).await.unwrap();
    drop(one);
    let (record, fds) = other.receive().await.unwrap().unwrap();
    assert_eq!((record, fds.len()), (Record::Connections(3, vec![None; 64]), 64));
    let (record, fds) = other.receive().await.unwrap().unwrap();
    assert_eq!((record, fds.len()), (Record::Listeners(names), 16));
    assert_eq!(other.answer().await.unwrap().0, Record::Done);
    assert!(other.receive().await.unwrap().is_none());
    assert_eq!(other.answer().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn a_part_of_a_record_is_an_error_at_its_end_or_after_a_time() {
    let bytes = Record::Hello(1, 1).encode(0).unwrap();
    for cut in 1..bytes.len() {
        let (link, mut peer) = pair().await;
        peer.write_all(&bytes[..cut]).await.unwrap();
        drop(peer);
        assert_eq!(link.receive().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{cut}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_says_no_more_is_not_waited_for() {
    let (link, mut peer) = pair().await;
    assert_eq!(link.answer().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    peer.write_all(&[4]).await.unwrap();
    assert_eq!(link.receive().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    // Nor one that reads nothing.
    let long = Record::Refused("x".repeat(1 << 20));
    let error = loop {
        if let Err(error) = link.send(&long, &[]).await {
            break error;
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn more_or_fewer_descriptors_than_a_record_has_are_an_error() {
    for (said, sent) in [(0, 1), (2, 1), (1, 0), (1, 2)] {
        let (link, peer) = pair().await;
        let file = tempfile::tempfile().unwrap();
        let bytes = Record::Connections(0, vec![None; said]).encode(said).unwrap();
        rights::send(peer.as_fd(), &bytes, &vec![file.as_fd(); sent]).unwrap();
        assert_eq!(link.receive().await.unwrap_err().kind(), io::ErrorKind::InvalidData, "{said} {sent}");
    }
}

#[test]
fn only_the_same_user_is_served() {
    check_user(1000, 1000).unwrap();
    for theirs in [0, 1001] {
        let error = check_user(theirs, 1000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains(&theirs.to_string()), "{error}");
    }
}
