//! Unit tests of `receive`.

use super::*;
use crate::fs::Replace;
use futures_util::stream;
use std::pin::pin;
use std::sync::Mutex;

/// The length of the pieces of each job.
#[derive(Clone, Default)]
struct Jobs(Arc<Mutex<Vec<usize>>>);

impl Inspect for Jobs {
    fn see(&mut self, pieces: &[Bytes]) {
        self.0.lock().unwrap().push(len_of(pieces));
    }
}

#[tokio::test]
async fn short_contents_take_one_job_and_long_ones_one_for_each_batch() {
    let dir = tempfile::tempdir().unwrap();
    for (items, expected, jobs) in [
        (vec![], 0, vec![0]),
        (vec![1; 1000], 1000, vec![1000]),
        (vec![1; 1000], 0, vec![1000]),
        (vec![FULL - 1], FULL - 1, vec![FULL - 1]),
        (vec![FULL], 0, vec![FULL, 0]),
        // The first one opens the file.
        (vec![FULL, FULL, 5], 2 * FULL + 5, vec![0, FULL, FULL, 5]),
        (vec![FULL, FULL, 5], 0, vec![FULL, FULL, 5]),
    ] {
        let seen = Jobs::default();
        let replace = Replace::new(dir.path().join("file"));
        let mut receiver = replace.receiver(SinkMode::Replace, expected as u64, seen.clone());
        receiver.open().await.unwrap();
        let stream = stream::iter(items.iter().map(|&len| Ok::<_, std::io::Error>(vec![7; len])));
        let last = receiver.pump(pin!(stream), |_| {}).await.unwrap();
        receiver.finish(last, |_| Ok::<_, Error>(())).await.unwrap();
        assert_eq!(*seen.0.lock().unwrap(), jobs, "{} items, {expected} expected", items.len());
    }
}
