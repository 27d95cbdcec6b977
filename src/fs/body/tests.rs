//! Unit tests of `body`.

use super::super::target::Target;
use super::super::work;
use super::*;
use crate::sys::fd::AsFd;
use testkit::mounts::Mount;

#[tokio::test]
async fn a_file_that_was_truncated_is_not_cloned_short() {
    if testkit::portable("files share no blocks") {
        return;
    }
    let Some(disk) = Mount::image("sharing blocks", "mkfs.btrfs -q", 128, "defaults") else { return };
    let path = disk.path().join("from");
    for (len, at) in [(8192, 0), (8192, 4096), (5000, 0), (0, 0)] {
        std::fs::write(&path, vec![1; len]).unwrap();
        let from = std::fs::File::open(&path).unwrap();
        let to = disk.path().join("to");
        let moved = work::run(&path, move |caller| {
            let (target, _) = Target::open(&to, false)?;
            let temp_file = TempFile::new(target, 0o600)?;
            let way = |len| Body { from: from.as_fd(), len }.move_to(&temp_file, at, caller, None);
            assert_eq!(way(len as u64).ok(), Some(if len == 0 { Moved::Stayed } else { Moved::Cloned }));
            way(16384)
        });
        assert_eq!(moved.await.unwrap_err().step(), Step::Recheck, "{len} bytes at {at}");
    }
}
