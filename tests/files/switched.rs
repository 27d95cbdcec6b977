//! The files served when the path of the directory leads to a different directory than before.

use super::*;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Creates two releases, and the link `current` to the first of them.
fn releases() -> (tempfile::TempDir, PathBuf) {
    let dir = dir(&[
        ("1/a.txt", b"one"),
        ("1/big", &vec![1; 9 << 20]),
        ("1/removed", b"removed"),
        ("2/a.txt", b"two"),
        ("2/big", &vec![2; 9 << 20]),
        ("2/added", b"added"),
        ("2/docs/index.html", b"docs"),
    ]);
    let current = dir.path().join("current");
    symlink("1", &current).unwrap();
    (dir, current)
}

/// Points the link at a release by a rename over it, as a deployment does.
fn switch(current: &Path, to: &str) {
    let new = current.with_extension("new");
    symlink(to, &new).unwrap();
    std::fs::rename(new, current).unwrap();
}

fn every(dir: &Path, age: Duration) -> Files {
    Files::builder(dir).validate_every(age).build().unwrap()
}

/// Counts descriptors of this process that lead beneath a directory, deleted or not.
fn descriptors(dir: &Path) -> usize {
    let links =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link.starts_with(dir)).count()
}

async fn bytes(files: &Files, uri: &str) -> Vec<u8> {
    let answer = get(files, uri, &[]).await;
    assert_eq!(answer.status, StatusCode::OK, "{uri}");
    answer.bytes
}

#[tokio::test]
async fn a_link_that_is_switched_is_followed() {
    let (dir, current) = releases();
    let files = every(&current, Duration::ZERO);
    assert_eq!(bytes(&files, "/a.txt").await, b"one");
    assert_eq!(bytes(&files, "/removed").await, b"removed");
    // This file is not requested again, but it is closed nevertheless.
    bytes(&files, "/big").await;
    switch(&current, "2");
    // A cached name, a name that was not cached, a directory, and a name that no longer exists.
    assert_eq!(bytes(&files, "/a.txt").await, b"two");
    assert_eq!(bytes(&files, "/added").await, b"added");
    assert_eq!(bytes(&files, "/docs/").await, b"docs");
    assert_eq!(get(&files, "/removed", &[]).await.status, StatusCode::NOT_FOUND);
    std::fs::remove_dir_all(dir.path().join("1")).unwrap();
    assert_eq!(bytes(&files, "/a.txt").await, b"two");
    assert_eq!(descriptors(&dir.path().join("1")), 0, "what was removed is still open");
}

#[tokio::test]
async fn a_miss_follows_the_link_as_well() {
    let (dir, current) = releases();
    let files = every(&current, Duration::ZERO);
    switch(&current, "2");
    std::fs::remove_dir_all(dir.path().join("1")).unwrap();
    assert_eq!(bytes(&files, "/a.txt").await, b"two");
}

#[tokio::test]
async fn a_link_further_up_is_followed() {
    let dir = dir(&[("1/public/a.txt", b"one"), ("2/public/a.txt", b"two")]);
    let current = dir.path().join("current");
    symlink("1", &current).unwrap();
    let files = every(&current.join("public"), Duration::ZERO);
    assert_eq!(bytes(&files, "/a.txt").await, b"one");
    switch(&current, "2");
    assert_eq!(bytes(&files, "/a.txt").await, b"two");
}

#[tokio::test]
async fn a_directory_that_is_replaced_is_followed() {
    let (dir, _) = releases();
    let (public, old) = (dir.path().join("1"), dir.path().join("old"));
    let files = every(&public, Duration::ZERO);
    assert_eq!(bytes(&files, "/a.txt").await, b"one");
    std::fs::rename(&public, &old).unwrap();
    // While the path does not exist, the previous files are still served.
    assert_eq!(bytes(&files, "/a.txt").await, b"one");
    assert_eq!(bytes(&files, "/removed").await, b"removed");
    std::fs::rename(dir.path().join("2"), &public).unwrap();
    assert_eq!(bytes(&files, "/a.txt").await, b"two");
    assert_eq!(get(&files, "/removed", &[]).await.status, StatusCode::NOT_FOUND);
    // A directory that is removed and created again may get the inode number of the previous one.
    std::fs::remove_dir_all(&public).unwrap();
    assert_eq!(get(&files, "/a.txt", &[]).await.status, StatusCode::NOT_FOUND);
    write(&public, "a.txt", b"three");
    assert_eq!(bytes(&files, "/a.txt").await, b"three");
}

#[tokio::test]
async fn a_path_that_leads_to_no_directory_changes_nothing() {
    let (_dir, current) = releases();
    let files = every(&current, Duration::ZERO);
    for to in ["1/a.txt", "nowhere", "current"] {
        switch(&current, to);
        assert_eq!(bytes(&files, "/a.txt").await, b"one", "{to}");
    }
    switch(&current, "2");
    assert_eq!(bytes(&files, "/a.txt").await, b"two");
}

#[tokio::test]
async fn what_has_begun_ends_with_the_directory_it_began_with() {
    let (dir, current) = releases();
    for kept in [0, 64 << 20] {
        switch(&current, "1");
        let files = Files::builder(&current).validate_every(Duration::ZERO).kept_bytes(kept).build().unwrap();
        let begun = send(&files, "GET", "/big", &[]).await;
        let range = send(&files, "GET", "/big", &[("range", "bytes=5-")]).await;
        switch(&current, "2");
        assert!(bytes(&files, "/big").await == vec![2; 9 << 20]);
        std::fs::rename(dir.path().join("1"), dir.path().join("gone")).unwrap();
        assert!(collect(begun).await.unwrap().bytes == vec![1; 9 << 20]);
        assert!(collect(range).await.unwrap().bytes == vec![1; (9 << 20) - 5]);
        std::fs::rename(dir.path().join("gone"), dir.path().join("1")).unwrap();
    }
}

#[tokio::test]
async fn the_path_is_looked_at_as_often_as_entries_are() {
    let (_dir, current) = releases();
    let (never, soon) = (every(&current, HOUR), every(&current, Duration::from_millis(50)));
    for files in [&never, &soon] {
        assert_eq!(bytes(files, "/a.txt").await, b"one");
    }
    switch(&current, "2");
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(bytes(&soon, "/a.txt").await, b"two");
    assert_eq!(bytes(&never, "/a.txt").await, b"one");
    assert_eq!(get(&never, "/added", &[]).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_new_directory_keeps_its_paths_as_the_old_one_did() {
    let (dir, current) = releases();
    write(dir.path(), "secret", b"the secret");
    for release in ["1", "2"] {
        symlink("../secret", dir.path().join(release).join("out")).unwrap();
        symlink("a.txt", dir.path().join(release).join("in")).unwrap();
    }
    let strict = every(&current, Duration::ZERO);
    let lax = Files::builder(&current).validate_every(Duration::ZERO).follow_links_beneath(true).build().unwrap();
    for (release, contents) in [("1", b"one"), ("2", b"two")] {
        switch(&current, release);
        for _ in 0..2 {
            for uri in ["/out", "/../secret", "/%2e%2e/secret", "/../1/a.txt"] {
                for files in [&strict, &lax] {
                    assert_eq!(get(files, uri, &[]).await.status, StatusCode::NOT_FOUND, "{release} {uri}");
                }
            }
            assert_eq!(get(&strict, "/in", &[]).await.status, StatusCode::NOT_FOUND);
            assert_eq!(bytes(&lax, "/in").await, contents);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_is_of_one_release_while_they_are_switched() {
    let (dir, current) = releases();
    let dir = Arc::new(dir);
    let files = every(&current, Duration::ZERO);
    let switching = tokio::task::spawn_blocking({
        let (current, dir) = (current.clone(), Arc::clone(&dir));
        move || {
            for n in 0..100 {
                switch(&current, if n % 2 == 0 { "2" } else { "1" });
            }
            drop(dir);
        }
    });
    while !switching.is_finished() {
        let one = bytes(&files, "/a.txt").await;
        assert!(one == b"one" || one == b"two");
        let big = bytes(&files, "/big").await;
        assert!(big == vec![1; 9 << 20] || big == vec![2; 9 << 20]);
    }
    switching.await.unwrap();
    assert_eq!(bytes(&files, "/a.txt").await, b"one", "the last one wins");
}

#[tokio::test]
async fn a_directory_is_reopened_at_once_when_asked() {
    let (dir, current) = releases();
    let files = every(&current, HOUR);
    let clone = files.clone();
    assert_eq!(bytes(&files, "/a.txt").await, b"one");
    assert_eq!(get(&files, "/added", &[]).await.status, StatusCode::NOT_FOUND);
    switch(&current, "2");
    files.reopen().unwrap();
    for files in [&files, &clone] {
        assert_eq!(bytes(files, "/a.txt").await, b"two");
        assert_eq!(bytes(files, "/added").await, b"added");
    }
    // The same directory with different files in it.
    replace(&dir.path().join("2"), "a.txt", b"anew");
    assert_eq!(bytes(&files, "/a.txt").await, b"two");
    files.reopen().unwrap();
    assert_eq!(bytes(&files, "/a.txt").await, b"anew");
    switch(&current, "nowhere");
    assert_eq!(files.reopen().unwrap_err().kind(), io::ErrorKind::NotFound);
    switch(&current, "1/a.txt");
    assert_eq!(files.reopen().unwrap_err().kind(), io::ErrorKind::NotADirectory);
    assert_eq!(bytes(&files, "/a.txt").await, b"anew");
}

/// A load that began before the switch and ends after it: its result is not given to other requests, neither to those
/// that wait for it nor to later ones.
#[tokio::test]
async fn a_load_of_before_is_for_those_of_before() {
    use futures_util::FutureExt;
    for waits in [true, false] {
        let (dir, current) = releases();
        for name in ["1/a.txt", "2/a.txt"] {
            let file = std::fs::File::open(dir.path().join(name)).unwrap();
            file.sync_all().unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
        let files = every(&current, Duration::ZERO);
        let mut before = Box::pin(get(&files, "/a.txt", &[]));
        // The load is ready at once where the file system keeps entries that it was told to drop.
        let early = before.as_mut().now_or_never();
        switch(&current, "2");
        assert_eq!(bytes(&files, "/docs/").await, b"docs");
        let before = async {
            match early {
                Some(before) => before,
                None => before.await,
            }
        };
        let after = get(&files, "/a.txt", &[]);
        let (before, after) = match waits {
            true => futures_util::future::join(before, after).await,
            false => (before.await, after.await),
        };
        assert_eq!((&before.bytes[..], &after.bytes[..]), (&b"one"[..], &b"two"[..]));
    }
}
