//! Listings of directories, by real clients too.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::Value;

use super::*;
use testkit::alone::ran_in_child;
use testkit::http::{Flavour, ask, h1, on_both, request, start, watched, whole};

fn tree() -> tempfile::TempDir {
    let dir = dir(&[
        ("b.txt", &noise(1536)),
        ("A.txt", b"1"),
        ("c <script>alert(1).txt", b"22"),
        ("sub/inner", b"x"),
        ("Sub2/index.html", b"index"),
        (".hidden", b"x"),
        (".well-known/x", b"x"),
    ]);
    symlink("b.txt", dir.path().join("link")).unwrap();
    symlink("/etc/passwd", dir.path().join("out")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("fifo"), rustix::fs::Mode::RUSR).unwrap();
    std::fs::write(dir.path().join(std::ffi::OsStr::from_bytes(b"\xff\xfe")), "333").unwrap();
    dir
}

fn listed(dir: &tempfile::TempDir) -> Files {
    Files::builder(dir.path()).listing(true).build().unwrap()
}

async fn json(files: &Files, uri: &str) -> Value {
    let answer = get(files, uri, &[("accept", "application/json")]).await;
    assert_eq!((answer.status, answer.header("content-type")), (StatusCode::OK, "application/json"));
    serde_json::from_slice(&answer.bytes).unwrap()
}

fn names(listing: &Value) -> Vec<&str> {
    listing["entries"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn json_has_what_is_served_and_nothing_else() {
    let dir = tree();
    let all = [".well-known", "sub", "Sub2", "A.txt", "b.txt", "c <script>alert(1).txt", "\u{fffd}\u{fffd}"];
    let listing = json(&listed(&dir), "/").await;
    assert_eq!((&listing["path"], &listing["truncated"]), (&"/".into(), &false.into()));
    assert_eq!(names(&listing), all);
    let file = &listing["entries"][4];
    assert_eq!((&file["type"], &file["size"]), (&"file".into(), &1536.into()));
    let modified = std::fs::metadata(dir.path().join("b.txt")).unwrap().modified().unwrap();
    assert_eq!(file["modified"], httpdate::fmt_http_date(modified));
    assert_eq!((&listing["entries"][0]["type"], &listing["entries"][0]["size"]), (&"directory".into(), &Value::Null));
    let by_size = json(&listed(&dir), "/?sort=size&order=desc").await;
    assert_eq!(names(&by_size)[3..], ["b.txt", "\u{fffd}\u{fffd}", "c <script>alert(1).txt", "A.txt"]);

    let followed = Files::builder(dir.path()).listing(true).follow_links_beneath(true).build().unwrap();
    let listing = json(&followed, "/").await;
    assert!(names(&listing).contains(&"link") && !names(&listing).contains(&"out"), "{listing}");
    let link = listing["entries"].as_array().unwrap().iter().find(|entry| entry["name"] == "link").unwrap();
    assert_eq!(link["size"], 1536);
    let hidden = Files::builder(dir.path()).listing(true).hidden(true).build().unwrap();
    assert!(names(&json(&hidden, "/").await).contains(&".hidden"));
}

#[tokio::test]
async fn every_link_of_a_page_leads_to_a_file() {
    let dir = tree();
    for name in ["q?x=1", "h#x", "p%41", "s p", "ü", "'\"&", "a:b", "..."] {
        write(dir.path(), name, name.as_bytes());
    }
    let files = Files::builder(dir.path()).listing(true).hidden(true).build().unwrap();
    let answer = get(&files, "/", &[("accept", "text/html,application/xhtml+xml,*/*;q=0.8")]).await;
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    let page = String::from_utf8(answer.bytes).unwrap();
    assert!(!page.contains("<script"), "names are escaped");
    let links: Vec<_> = page.split("href=\"./").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(links.len(), 16, "{links:?}");
    for link in links {
        assert_eq!(get(&files, &format!("/{link}"), &[]).await.status, StatusCode::OK, "{link}");
    }
}

#[tokio::test]
async fn only_directories_without_an_index_are_listed() {
    let dir = tree();
    let files = listed(&dir);
    assert_eq!(get(&files, "/Sub2/", &[]).await.bytes, b"index");
    assert_eq!(send(&files, "GET", "/sub", &[]).await.status(), StatusCode::TEMPORARY_REDIRECT);
    let sub = get(&files, "/sub/", &[]).await;
    let page = String::from_utf8(sub.bytes).unwrap();
    assert!(page.contains("<title>/sub/</title>") && page.contains("href=\"../\""), "{page}");
    for path in ["/absent/", "/b.txt/", "/fifo/", "/.hidden/", "/../", "/sub/../", "/link/", "/out/"] {
        assert_eq!(get(&files, path, &[]).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    let off = Files::new(dir.path()).unwrap();
    assert_eq!(get(&off, "/sub/", &[]).await.status, StatusCode::NOT_FOUND);
    let fallback = Files::builder(dir.path()).listing(true).fallback("Sub2/index.html").build().unwrap();
    assert!(names(&json(&fallback, "/sub/").await).contains(&"inner"), "a directory that exists is listed");
    assert_eq!(get(&fallback, "/absent/", &[]).await.bytes, b"index");
}

#[tokio::test]
async fn a_listing_is_never_stored_and_runs_nothing() {
    let dir = tree();
    let answer = get(&listed(&dir), "/sub/", &[]).await;
    assert_eq!((answer.header("cache-control"), answer.header("vary")), ("no-cache", "accept"));
    assert!(answer.header("content-security-policy").starts_with("default-src 'none'; style-src 'sha256-"));
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    let head = send(&listed(&dir), "HEAD", "/sub/", &[]).await;
    assert_eq!((head.status(), header(&head, "content-length")), (StatusCode::OK, ""));
}

#[tokio::test]
async fn an_empty_directory_and_a_removed_file_are_no_errors() {
    let dir = dir(&[("sub/a", b"1"), ("sub/b", b"2")]);
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    let files = listed(&dir);
    assert_eq!(json(&files, "/empty/").await["entries"], Value::Array(vec![]));
    let page = String::from_utf8(get(&files, "/empty/", &[]).await.bytes).unwrap();
    assert!(page.contains("The directory is empty."), "{page}");
    // The names are read by the time the response is there, the metadata later. The first row may be the removed one.
    for removed in ["a", "b"] {
        let response = send(&files, "GET", "/sub/", &[("accept", "application/json")]).await;
        std::fs::remove_file(dir.path().join("sub").join(removed)).unwrap();
        let listing: Value = serde_json::from_slice(&collect(response).await.unwrap().bytes).unwrap();
        write(dir.path(), &format!("sub/{removed}"), b"1");
        assert_eq!(names(&listing).len(), 1, "{listing}");
        assert!(!names(&listing).contains(&removed));
    }
}

const FILES: usize = 10_000;

#[test]
fn ten_thousand_files_are_streamed() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..FILES {
        std::fs::write(dir.path().join(format!("file-{n:05}")), "").unwrap();
    }
    let files = listed(&dir);
    on_both(move || ten_thousand(files.clone()));
}

async fn ten_thousand(files: Files) {
    let response = send(&files, "GET", "/", &[("accept", "application/json")]).await;
    let mut body = response.into_body();
    let (mut frames, mut bytes) = (0, Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.unwrap().into_data().unwrap();
        assert!(frame.len() < 64 << 10, "a frame of {} bytes", frame.len());
        frames += 1;
        bytes.extend_from_slice(&frame);
    }
    assert!(frames > FILES / 300, "{frames} frames");
    let listing: Value = serde_json::from_slice(&bytes).unwrap();
    let names = names(&listing);
    assert!(names.len() == FILES && names.is_sorted());

    // By a client, with bytes that hyper has framed.
    let addr = start(move |request| {
        let files = files.clone();
        async move { ask(&files, &request, |body| body).await }
    })
    .await;
    let page = h1(addr).await.send_request(request("/")).await.unwrap();
    assert_eq!(page.status(), StatusCode::OK);
    let page = whole(page).await.unwrap();
    assert_eq!(page.windows(5).filter(|bytes| bytes == b"</tr>").count(), FILES + 1);
    let asked = tokio::task::spawn_blocking(move || {
        let url = format!("http://{addr}/?order=desc");
        Command::new("curl").args(["--silent", "--fail", "--header", "accept: application/json", &url]).output()
    });
    let listing: Value = serde_json::from_slice(&asked.await.unwrap().unwrap().stdout).unwrap();
    assert_eq!(listing["entries"][0]["name"], "file-09999");
}

/// The names of all requests would take 600 MiB.
#[test]
fn listings_at_once_take_bounded_memory() {
    const NAMES: usize = 20_000;
    const REQUESTS: usize = 120;
    if ran_in_child() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for n in 0..NAMES {
        std::fs::File::create(dir.path().join(format!("{n:05}{}", "x".repeat(195)))).unwrap();
    }
    let files = listed(&dir);
    watched(move || {
        Flavour::TwoWorkers.runtime().block_on(async {
            let resident = |name: &str| {
                let status = std::fs::read_to_string("/proc/self/status").unwrap();
                let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<usize>().unwrap() << 10
            };
            assert_eq!(collect(send(&files, "GET", "/", &[]).await).await.unwrap().status, StatusCode::OK);
            let before = resident("VmRSS:");
            let requests: Vec<_> = (0..REQUESTS)
                .map(|_| {
                    let files = files.clone();
                    tokio::spawn(async move { send(&files, "GET", "/", &[]).await })
                })
                .collect();
            // The bodies are held until all are answered.
            let mut answers = Vec::new();
            for request in requests {
                answers.push(request.await.unwrap());
            }
            let most = resident("VmHWM:").saturating_sub(before);
            let listed = answers.iter().filter(|answer| answer.status() == StatusCode::OK).count();
            let refused = answers.iter().filter(|answer| answer.status() == StatusCode::SERVICE_UNAVAILABLE).count();
            println!("{listed} listed, {refused} refused, {} MiB", most >> 20);
            assert_eq!(listed + refused, REQUESTS);
            assert!(listed >= 5 && refused > 0, "{listed} listed");
            // The budget is 64 MiB. What threads read at the moment, and what the allocator keeps of it, comes on top and
            // depends on how they are scheduled. Without the budget it is more than 500 MiB.
            assert!(most <= 200 << 20, "{} MiB", most >> 20);
            drop(answers);
            assert_eq!(send(&files, "GET", "/", &[]).await.status(), StatusCode::OK, "the memory is free again");
        });
    });
}
