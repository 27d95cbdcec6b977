//! Files that change, and clients that disconnect.

use super::*;
use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;

const HOUR: Duration = Duration::from_secs(3600);

fn every(dir: &Path, age: Duration) -> Files {
    Files::builder(dir).validate_every(age).build().unwrap()
}

/// Drops the pages of a file from the page cache, so that loading it has to wait.
fn cool(dir: &Path, name: &str) {
    let file = File::open(dir.join(name)).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// Counts the descriptors of this process that refer to a file.
fn descriptors(path: &Path) -> usize {
    let path = path.canonicalize().unwrap();
    let links =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| *link == path).count()
}

#[tokio::test]
async fn a_replaced_file_is_seen_when_it_is_looked_at() {
    let dir = dir(&[("f", b"old")]);
    // Kept bytes are checked each second, and opened anew where the kernel does not tell whether they are in memory.
    let never = Files::builder(dir.path()).validate_every(HOUR).kept_bytes(0).build().unwrap();
    let always = every(dir.path(), Duration::ZERO);
    let old = get(&never, "/f", &[]).await;
    assert_eq!(get(&always, "/f", &[]).await.headers, old.headers);
    replace(dir.path(), "f", b"new!");
    let kept = get(&never, "/f", &[]).await;
    assert_eq!((&kept.bytes[..], kept.headers), (&b"old"[..], old.headers.clone()), "old bytes with the old tag");
    let new = get(&always, "/f", &[]).await;
    assert_eq!(new.bytes, b"new!");
    assert_ne!(new.header("etag"), old.header("etag"));
    std::fs::remove_file(dir.path().join("f")).unwrap();
    assert_eq!(get(&always, "/f", &[]).await.status, StatusCode::NOT_FOUND);
    assert_eq!(get(&never, "/f", &[]).await.bytes, b"old");
    write(dir.path(), "f", b"again");
    assert_eq!(get(&always, "/f", &[]).await.bytes, b"again", "a 404 is not remembered");
}

#[tokio::test]
async fn a_file_written_in_place_is_seen_when_it_is_looked_at() {
    let dir = dir(&[("f", b"old")]);
    let always = every(dir.path(), Duration::ZERO);
    let old = get(&always, "/f", &[]).await;
    write(dir.path(), "f", b"longer than before");
    let new = get(&always, "/f", &[]).await;
    assert_eq!(new.bytes, b"longer than before");
    assert_ne!(new.header("etag"), old.header("etag"));
}

#[tokio::test]
async fn a_file_written_in_place_has_another_tag_though_size_and_time_are_the_same() {
    use std::os::unix::fs::MetadataExt;
    let dir = dir(&[("f", b"old")]);
    let path = dir.path().join("f");
    let always = every(dir.path(), Duration::ZERO);
    let old = get(&always, "/f", &[]).await;
    let before = std::fs::metadata(&path).unwrap();
    let changed = || std::fs::metadata(&path).map(|now| (now.ctime(), now.ctime_nsec())).unwrap();
    // Until the file system's clock has advanced.
    while changed() == (before.ctime(), before.ctime_nsec()) {
        write(dir.path(), "f", b"new");
        File::options().write(true).open(&path).unwrap().set_modified(before.modified().unwrap()).unwrap();
    }
    let now = std::fs::metadata(&path).unwrap();
    assert_eq!((now.len(), now.mtime_nsec(), now.ino()), (before.len(), before.mtime_nsec(), before.ino()));
    let tag = old.header("etag");
    let new = get(&always, "/f", &[("if-none-match", tag)]).await;
    assert_eq!((new.status, &new.bytes[..]), (StatusCode::OK, &b"new"[..]));
    assert_ne!(new.header("etag"), tag);
    let resumed = get(&always, "/f", &[("range", "bytes=1-"), ("if-range", tag)]).await;
    assert_eq!((resumed.status, &resumed.bytes[..]), (StatusCode::OK, &b"new"[..]), "no part of another version");
}

/// The same file on two machines: another inode, the same contents and time, so the same tag.
#[tokio::test]
async fn machines_of_a_fleet_may_have_the_same_tags() {
    let dirs =
        [dir(&[("f.css", b"plain"), ("f.css.gz", b"packs")]), dir(&[("f.css", b"plain"), ("f.css.gz", b"packs")])];
    let deployed = std::time::SystemTime::now() - HOUR;
    for dir in &dirs {
        for name in ["f.css", "f.css.gz"] {
            File::options().write(true).open(dir.path().join(name)).unwrap().set_modified(deployed).unwrap();
        }
    }
    for encoding in ["identity", "gzip"] {
        let mut tags = std::collections::HashSet::new();
        for dir in &dirs {
            let files = Files::builder(dir.path()).ctime_in_tags(false).validate_every(Duration::ZERO).build().unwrap();
            let answer = get(&files, "/f.css", &[("accept-encoding", encoding)]).await;
            let tag = answer.header("etag").to_owned();
            let known = get(&files, "/f.css", &[("accept-encoding", encoding), ("if-none-match", &tag)]).await;
            assert_eq!((known.status, known.header("etag")), (StatusCode::NOT_MODIFIED, &*tag));
            tags.insert(tag);
            write(dir.path(), "f.css", b"longer");
            assert!(encoding == "gzip" || get(&files, "/f.css", &[]).await.header("etag") != known.header("etag"));
            replace(dir.path(), "f.css", b"plain");
            File::options().write(true).open(dir.path().join("f.css")).unwrap().set_modified(deployed).unwrap();
        }
        assert_eq!(tags.len(), 1, "{tags:?}");
    }
    // Variants of equal size and time have different tags.
    let files = Files::builder(dirs[0].path()).ctime_in_tags(false).build().unwrap();
    let [plain, packed] = ["identity", "gzip"].map(|encoding| [("accept-encoding", encoding)]);
    let (plain, packed) = (get(&files, "/f.css", &plain).await, get(&files, "/f.css", &packed).await);
    assert_eq!((&plain.bytes[..], &packed.bytes[..]), (&b"plain"[..], &b"packs"[..]));
    assert_ne!(plain.header("etag"), packed.header("etag"));
}

#[tokio::test]
async fn variants_come_and_go() {
    let dir = dir(&[("f.css", b"plain")]);
    let always = every(dir.path(), Duration::ZERO);
    let gzip = [("accept-encoding", "gzip")];
    assert_eq!(get(&always, "/f.css", &gzip).await.headers.get("vary"), None);
    write(dir.path(), "f.css.gz", b"packed");
    let packed = get(&always, "/f.css", &gzip).await;
    assert_eq!((&packed.bytes[..], packed.header("vary")), (&b"packed"[..], "accept-encoding"));
    replace(dir.path(), "f.css.gz", b"packed anew");
    assert_eq!(get(&always, "/f.css", &gzip).await.bytes, b"packed anew");
    std::fs::remove_file(dir.path().join("f.css.gz")).unwrap();
    assert_eq!(get(&always, "/f.css", &gzip).await.bytes, b"plain");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_body_is_that_of_its_tag_while_files_are_replaced() {
    let version = |n: u8| vec![n; 1000 + usize::from(n) * 997];
    let dir = Arc::new(dir(&[("f", &version(0))]));
    let files = every(dir.path(), Duration::ZERO);
    let writer = tokio::task::spawn_blocking({
        let dir = Arc::clone(&dir);
        move || (1..=200).for_each(|n| replace(dir.path(), "f", &version(n)))
    });
    let mut by_tag: HashMap<String, u8> = HashMap::new();
    let mut done = false;
    while !done {
        done = writer.is_finished();
        let answer = get(&files, "/f", &[]).await;
        let n = answer.bytes[0];
        assert!(answer.bytes == version(n), "bytes of two versions");
        let known = *by_tag.entry(answer.header("etag").to_owned()).or_insert(n);
        assert_eq!(known, n, "one tag for two versions");
    }
    writer.await.unwrap();
    assert_eq!(get(&files, "/f", &[]).await.bytes, version(200), "the last one wins");
}

#[tokio::test]
async fn a_file_truncated_before_its_body_is_read_fails_the_body() {
    for (len, kept) in [(20_000, 0), (200_000, 0), (3_000_000, 0), (3_000_000, 64 << 20)] {
        for left in [0, 4096, len - 1] {
            let dir = dir(&[("f", &noise(len))]);
            let files = Files::builder(dir.path()).validate_every(HOUR).kept_bytes(kept).build().unwrap();
            for range in [None, Some("bytes=1-"), Some("bytes=0-9,-100")] {
                let headers: Vec<_> = range.map(|range| ("range", range)).into_iter().collect();
                write(dir.path(), "f", &noise(len));
                let response = send(&files, "GET", "/f", &headers).await;
                assert!(response.status().is_success());
                File::options().write(true).open(dir.path().join("f")).unwrap().set_len(left as u64).unwrap();
                let error = collect(response).await.err().expect("a clean end of a file that shrank");
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{len} {left} {range:?}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn a_file_truncated_while_its_body_is_read_fails_the_body() {
    for kept in [0, 64 << 20] {
        let dir = dir(&[("f", &noise(9 << 20))]);
        let files = Files::builder(dir.path()).kept_bytes(kept).build().unwrap();
        let mut body = send(&files, "GET", "/f", &[]).await.into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(first[..] == noise(9 << 20)[..first.len()]);
        File::options().write(true).open(dir.path().join("f")).unwrap().set_len(5 << 20).unwrap();
        let rest = body.collect().await;
        assert_eq!(rest.expect_err("a clean end of a file that shrank").kind(), io::ErrorKind::UnexpectedEof);
    }
}

#[tokio::test]
async fn an_open_file_that_was_truncated_is_opened_anew() {
    // Truncated by less than a page, and completely.
    for (len, left) in [(20_000, 19_999), (20_000, 0), (3_000_000, 2_999_999), (3_000_000, 10)] {
        let dir = dir(&[("f", &noise(len))]);
        let files = every(dir.path(), HOUR);
        assert_eq!(get(&files, "/f", &[]).await.bytes.len(), len);
        File::options().write(true).open(dir.path().join("f")).unwrap().set_len(left).unwrap();
        // Lengths are checked once a millisecond.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let answer = get(&files, "/f", &[]).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert!(answer.bytes == noise(len)[..left as usize]);
    }
}

#[tokio::test]
async fn a_torn_entry_is_opened_anew() {
    if !millstream::Capabilities::get().mapping().is_yes() {
        return; // Without a mapping there is no tear.
    }
    let dir = dir(&[("f", &noise(3_000_000))]);
    let files = every(dir.path(), HOUR);
    let response = send(&files, "GET", "/f", &[]).await;
    let tag = header(&response, "etag").to_owned();
    let frame = response.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
    let file = File::options().write(true).open(dir.path().join("f")).unwrap();
    file.set_len(5).unwrap();
    // A read beyond the end returns zeros and raises no signal.
    assert_eq!(frame.last(), Some(&0));
    // The length is restored: only the torn mapping shows the truncation.
    file.set_len(3_000_000).unwrap();
    let answer = get(&files, "/f", &[]).await;
    assert_ne!(answer.header("etag"), tag);
    assert!(answer.bytes[..5] == noise(5) && answer.bytes[5..] == [0; 2_999_995]);
}

#[tokio::test]
async fn a_hundred_who_miss_at_once_open_it_once() {
    for cold in [false, true] {
        let dir = dir(&[("f", &noise(100_000))]);
        if cold {
            cool(dir.path(), "f");
        }
        let files = every(dir.path(), HOUR);
        let responses = join_all((0..100).map(|_| send(&files, "GET", "/f", &[]))).await;
        assert_eq!(descriptors(&dir.path().join("f")), 1, "held by a hundred responses, cold: {cold}");
        for response in responses {
            assert!(collect(response).await.unwrap().bytes == noise(100_000));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn misses_from_many_threads_open_it_once() {
    let dir = dir(&[("f", &noise(1000))]);
    cool(dir.path(), "f");
    let files = every(dir.path(), HOUR);
    let tasks = (0..100).map(|_| {
        let files = files.clone();
        tokio::spawn(async move { send(&files, "GET", "/f", &[]).await })
    });
    let responses = join_all(tasks).await;
    assert_eq!(descriptors(&dir.path().join("f")), 1);
    for response in responses {
        assert!(collect(response.unwrap()).await.unwrap().bytes == noise(1000));
    }
}

#[tokio::test]
async fn those_who_go_away_wedge_nobody() {
    let dir = dir(&[("f", &noise(100_000))]);
    for leave in 1..4 {
        let files = every(dir.path(), HOUR);
        cool(dir.path(), "f");
        let mut requests: Vec<_> = (0..5).map(|_| Some(Box::pin(send(&files, "GET", "/f", &[])))).collect();
        let mut responses = Vec::new();
        // The first request opens the file; the others wait for it.
        for request in &mut requests {
            if let Some(response) = request.as_mut().and_then(|request| request.as_mut().now_or_never()) {
                responses.push(response);
                *request = None;
            }
        }
        // The request that opens the file is dropped, then each next one in line.
        requests.drain(..leave);
        let rest = join_all(requests.into_iter().flatten());
        responses.extend(tokio::time::timeout(Duration::from_secs(60), rest).await.expect("wedged"));
        assert!(responses.len() >= 5 - leave);
        for response in responses {
            assert!(collect(response).await.unwrap().bytes == noise(100_000));
        }
    }
}

#[tokio::test]
async fn the_cache_is_bounded() {
    let dir = dir(&[]);
    for n in 0..200 {
        write(dir.path(), &format!("f{n}"), &noise(n + 1));
    }
    for capacity in [0, 10] {
        let files = Files::builder(dir.path()).capacity(capacity).build().unwrap();
        for n in 0..200 {
            assert!(get(&files, &format!("/f{n}"), &[]).await.bytes == noise(n + 1));
        }
        let open: usize = (0..200).map(|n| descriptors(&dir.path().join(format!("f{n}")))).sum();
        assert!(open <= capacity, "{open} files open of {capacity}");
    }
}
