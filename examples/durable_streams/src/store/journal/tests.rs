//! The bound of the queue, and when segments are written again.

use std::time::Duration;

use super::*;
use crate::store::record::{Expiry, Meta};
use futures_util::FutureExt;

fn stream() -> Arc<Stream> {
    let meta = Meta { id: 0, path: "/".into(), content_type: "".into(), expiry: Expiry::Never, origin: None };
    Arc::new(Stream::new(meta, None))
}

fn push(journal: &Journal, stream: &Arc<Stream>, data: &[u8], room: Room) -> u64 {
    let change = |data| Change::Data { stream: Arc::clone(stream), data, close: false, _room: room };
    journal.push(&Record::Delete { id: 0 }, data, change)
}

#[tokio::test]
async fn the_queue_has_a_bound() {
    let dir = tempfile::tempdir().unwrap();
    let segment = 8 << 20;
    prepare(dir.path(), segment).unwrap();
    let journal = Arc::new(Journal::new(1, segment, 9));
    let stream = stream();
    let data = vec![0; 200 << 10];
    let mut queued = 0;
    // Requests that are given up keep their place.
    while let Some(room) = journal.room(data.len()).now_or_never().filter(|_| queued < 99) {
        queued = push(&journal, &stream, &data, room.unwrap());
    }
    assert_eq!(queued, 5, "an eighth of a segment");
    let (run, path) = (Arc::clone(&journal), dir.path().to_owned());
    let task = tokio::spawn(async move { run.run(path, u64::MAX).await });
    journal.wait(queued).await;
    assert!(journal.room(1 << 30).now_or_never().is_some(), "longer than the queue, which is empty");
    task.abort();
}

#[tokio::test]
async fn a_segment_is_not_written_again_before_it_is_covered() {
    let dir = tempfile::tempdir().unwrap();
    let segment = 16 << 10;
    prepare(dir.path(), segment).unwrap();
    let journal = Arc::new(Journal::new(1, segment, 9));
    let (run, path) = (Arc::clone(&journal), dir.path().to_owned());
    let task = tokio::spawn(async move { run.run(path, u64::MAX).await });
    let stream = stream();
    let (mut last, mut late) = (0, None);
    // Until a commit is behind the end of the last segment.
    while let Ok(Some(room)) = tokio::time::timeout(Duration::from_millis(200), journal.room(900)).await {
        late = journal.room(900).now_or_never().flatten();
        last = push(&journal, &stream, &[7; 900], room);
        journal.wait(last).await;
        if *journal.gate.borrow() == Gate::Full {
            break;
        }
        late = None;
    }
    assert_eq!(last, 4 * 17 + 1, "all segments are full");
    assert!(journal.room(900).now_or_never().is_none());
    // An append that has got room before is committed. A checkpoint may wait for it.
    if let Some(room) = late {
        last = push(&journal, &stream, &[7; 900], room);
        journal.wait(last).await;
    }
    for index in 0..SEGMENTS {
        let len = std::fs::metadata(segment_path(dir.path(), index)).unwrap().len();
        assert_eq!(len, file_len(segment), "the file has not grown");
    }
    // The first segment is covered. The others are still needed.
    assert_eq!(journal.due(), 18);
    journal.cover(17);
    assert_eq!(journal.due(), 18);
    journal.cover(18);
    assert_eq!(journal.due(), 0);
    journal.resume();
    for _ in 0..5 {
        let room = journal.room(900).await.unwrap();
        last = push(&journal, &stream, &[7; 900], room);
        journal.wait(last).await;
    }
    assert_eq!(lock(&journal.segments).used.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [1, 2, 3, 0]);
    assert_eq!(stream.view().end, last * 900);
    task.abort();
}
