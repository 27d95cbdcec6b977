//! Files replaced by renames while they are sent: a response is of one version, and so is its tag.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::header::ETAG;
use millstream::files::Files;

use testkit::http::{ask, h1, h2, on_both, pages, request, sha256, start, whole};

/// Digests of all versions, and the digest for each tag. A rename changes the `ctime` and so the tag, so tags are known
/// only from responses.
type Versions = Arc<Mutex<(HashSet<[u8; 32]>, HashMap<String, [u8; 32]>)>>;

/// Asserts that `sum` is that of one version, and that no other version has its tag.
fn check(versions: &Versions, tag: &str, sum: [u8; 32]) {
    let (all, tags) = &mut *versions.lock().unwrap();
    assert!(all.contains(&sum), "the bytes of {tag}");
    assert_eq!(*tags.entry(tag.to_owned()).or_insert(sum), sum, "two versions with the tag {tag}");
}

/// Lengths of the versions: kept mapped, sent by `sendfile`, read.
const LENGTHS: [usize; 3] = [100 << 10, 2 << 20, 20 << 10];
/// Versions that each client sees before the renames end.
const SEEN: usize = 15;

/// Replaces the file by version `n`.
fn replace(path: &Path, n: usize, versions: &Versions) {
    let mut bytes = pages(LENGTHS[n % LENGTHS.len()]);
    bytes[..8].copy_from_slice(&(n as u64).to_le_bytes());
    let new = path.with_extension("new");
    std::fs::write(&new, &bytes).unwrap();
    versions.lock().unwrap().0.insert(sha256(&bytes));
    std::fs::rename(&new, path).unwrap();
}

#[test]
fn a_response_is_all_of_one_version_and_has_its_tag() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let versions = Versions::default();
        replace(&path, 0, &versions);
        // Every request checks the name.
        let files = Files::builder(dir.path()).validate_every(Duration::ZERO).build().unwrap();
        let addr = start(move |request| {
            let files = files.clone();
            async move { ask(&files, &request, |body| body).await }
        })
        .await;
        let mut clients = Vec::new();
        for n in 0..4 {
            let versions = Arc::clone(&versions);
            clients.push(tokio::spawn(async move {
                let (mut one, mut two) = (h1(addr).await, h2(addr).await);
                let mut seen = HashSet::new();
                while seen.len() < SEEN {
                    let answer = match n % 2 {
                        0 => one.send_request(request("/file")).await,
                        _ => two.send_request(request("/file")).await,
                    };
                    let answer = answer.unwrap();
                    assert_eq!(answer.status(), 200);
                    let tag = answer.headers()[ETAG].to_str().unwrap().to_owned();
                    let sum = sha256(whole(answer).await.unwrap());
                    check(&versions, &tag, sum);
                    seen.insert(tag);
                }
            }));
        }
        let mut last = 0;
        while !clients.iter().all(|client| client.is_finished()) {
            last += 1;
            let (path, versions) = (path.clone(), Arc::clone(&versions));
            tokio::task::spawn_blocking(move || replace(&path, last, &versions)).await.unwrap();
        }
        for client in clients {
            client.await.unwrap();
        }
        // A request after the last rename gets the last version.
        let answer = h1(addr).await.send_request(request("/file")).await.unwrap();
        assert_eq!(whole(answer).await.unwrap()[..8], (last as u64).to_le_bytes());
    });
}

#[test]
fn a_download_that_began_before_a_rename_ends_with_the_old_bytes() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let versions = Versions::default();
        replace(&path, 1, &versions);
        let files = Files::builder(dir.path()).validate_every(Duration::ZERO).build().unwrap();
        let addr = testkit::http::start_with(Some(32 << 10), move |request| {
            let files = files.clone();
            async move { ask(&files, &request, |body| body).await }
        })
        .await;
        let mut client = testkit::http::Raw::connect_narrow(addr).await;
        client.ask("/file").await;
        let head = client.head().await;
        replace(&path, 4, &versions);
        let body = client.body(head.content_length()).await.expect("all of the old version");
        assert_eq!(body[..8], 1u64.to_le_bytes());
        check(&versions, head.field("etag").unwrap(), sha256(body));
        let (_, body) = client.get("/file").await;
        assert_eq!(body[..8], 4u64.to_le_bytes());
    });
}
