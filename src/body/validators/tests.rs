//! Unit tests of `validators`.

use super::*;
use crate::fs::File;
use std::time::Duration;

#[test]
fn tags_differ_when_contents_may() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let look = || *File::from_std(std::fs::File::open(&path).unwrap()).unwrap().opened();
    std::fs::write(&path, "same").unwrap();
    let before = look();
    assert_eq!(before.etag(), look().etag());
    std::fs::write(&path, "more!").unwrap();
    assert_ne!(before.etag(), look().etag());
    let tag = before.etag();
    let tag = tag.to_str().unwrap();
    assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
    let tags = [Tag::Changed, Tag::Modified].map(|tag| ["", ".gz"].map(|of| tag.of(&before, of)));
    assert_eq!(tags.as_flattened().iter().collect::<std::collections::HashSet<_>>().len(), 4);
    assert_eq!(tags[0][0], before.etag());
}

#[test]
fn times_can_be_represented_in_http() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, "x").unwrap();
    let with = |modified: SystemTime| {
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        file.set_modified(modified).unwrap();
        File::from_std(file).unwrap().opened().last_modified()
    };
    let epoch = SystemTime::UNIX_EPOCH;
    assert_eq!(with(epoch + Duration::from_millis(5900)), Some(epoch + Duration::from_secs(5)));
    assert_eq!(with(epoch - Duration::from_secs(5)), None);
    let future = with(SystemTime::now() + Duration::from_secs(1 << 20)).unwrap();
    assert!(future <= SystemTime::now());
}
