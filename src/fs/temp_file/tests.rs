//! Unit tests of `temp_file`.

use super::*;
use std::fs::File;

fn target() -> (tempfile::TempDir, Target) {
    let dir = tempfile::tempdir().unwrap();
    let (target, _) = Target::open(&dir.path().join("file"), false).unwrap();
    (dir, target)
}

#[test]
fn a_slot_that_was_given_to_another_temp_file_meanwhile_is_not_emptied() {
    let (dir, target) = target();
    let (name, path) = (slot_name(target.name(), 0), dir.path().join(".file.millstream-0"));
    let open = || file::open_at(target.dir(), &name, Access::Read).unwrap();
    File::create(&path).unwrap();
    let dead = open();
    std::fs::remove_file(&path).unwrap();
    // Not locked yet, so that only the check of the name detects it.
    File::create(&path).unwrap();
    sweep_opened(&target, &name, dead).unwrap();
    assert!(path.exists());
    sweep_opened(&target, &name, open()).unwrap();
    assert!(!path.exists());
}

#[test]
fn a_temp_file_that_a_sweeper_has_taken_is_not_ours() {
    let (dir, target) = target();
    let path = dir.path().join("temp");
    let create = || file::create_at(target.dir(), OsStr::new("temp"), Access::Change, 0o600).unwrap();
    let (ours, sweeper) = (create(), File::open(&path).unwrap());
    sweeper.lock().unwrap();
    assert!(!is_ours(ours.as_fd()).unwrap(), "another descriptor holds the lock");
    drop(sweeper);
    assert!(is_ours(ours.as_fd()).unwrap());
    std::fs::remove_file(&path).unwrap();
    let ours = create();
    std::fs::remove_file(&path).unwrap();
    assert!(!is_ours(ours.as_fd()).unwrap(), "the name is gone");
}

#[test]
fn names_are_slots_first_and_then_random() {
    let all: Vec<_> = names(OsStr::new("a")).map(|name| name.into_string().unwrap()).collect();
    assert_eq!(all.len(), SLOTS + RANDOM);
    assert_eq!((&*all[0], &*all[7]), (".a.millstream-0", ".a.millstream-7"));
    assert!(all[8..].iter().all(|name| name.len() == ".a.millstream-".len() + 16), "{all:?}");
    assert_ne!(all[8], all[9]);
    assert!(names(OsStr::new(&"n".repeat(255))).all(|name| name.len() <= 255));
}
