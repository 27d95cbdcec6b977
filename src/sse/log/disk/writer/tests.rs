//! Unit tests of `writer`.

use super::*;
use crate::sse::log::disk::recover;
use crate::sse::log::disk::{Disk, DiskBuilder};

fn opened(builder: &DiskBuilder) -> (Writer, DiskShared) {
    let opened = recover::open(builder).unwrap();
    (Writer::new(&opened), DiskShared::new(builder, opened))
}

#[test]
fn events_without_room_are_given_up_after_the_last_hub() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, shared) = opened(&Disk::builder(dir.path()));
    shared.queue.enter();
    shared.queue.push(Unnumbered::new(b"data: x\n".to_vec())).unwrap();
    for hub_leaves in [false, true] {
        let batch = writer.take(&shared).unwrap();
        assert_eq!(batch.len(), 1);
        if hub_leaves {
            shared.queue.leave();
            shared.give_up_left();
        }
        let full = DiskError::io(dir.path(), "write")(io::ErrorKind::StorageFull.into());
        assert_eq!(retry_or_fail(&shared, batch, CommitFailure::before_sync(full)), Outcome::TryLater);
        let given_up = u64::from(hub_leaves);
        assert_eq!((shared.queue.len().0 as u64, shared.state().given_up), (1 - given_up, given_up));
    }
}
