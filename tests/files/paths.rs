//! Requests for files outside of the directory, or for non-files: only 404, and the server continues.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use hyper::Request;
use millstream::files::Files;
use rustix::fs::{CWD, FileType, Mode, makedev, mkfifoat, mknodat};
use rustix::io::Errno;
use tempfile::TempDir;

use testkit::http::{Raw, ask, h2, on_both, start, whole};
use testkit::skip;

const SECRET: &str = "the secret outside";

/// Creates `public`, which is served, and `secret` beside it, which is not.
fn tree() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let public = dir.path().join("public");
    std::fs::create_dir_all(public.join("sub/deep")).unwrap();
    std::fs::write(dir.path().join("secret"), SECRET).unwrap();
    for name in ["fine", "sub/file", ".hidden"] {
        std::fs::write(public.join(name), name).unwrap();
    }
    symlink("../secret", public.join("out")).unwrap();
    symlink(dir.path().join("secret"), public.join("out-absolute")).unwrap();
    symlink("../..", public.join("sub/up")).unwrap();
    symlink("fine", public.join("in")).unwrap();
    symlink("loop", public.join("loop")).unwrap();
    symlink("/proc/self/cwd", public.join("magic")).unwrap();
    mkfifoat(CWD, public.join("fifo"), Mode::RUSR).unwrap();
    drop(UnixListener::bind(public.join("socket")).unwrap());
    match mknodat(CWD, public.join("zero"), FileType::CharacterDevice, Mode::RUSR, makedev(1, 5)) {
        Ok(()) => {}
        Err(Errno::PERM) => {
            skip("a device among the files", "only root can create device nodes, so /zero does not exist")
        }
        Err(e) => panic!("{e}"),
    }
    dir
}

/// Targets that do not exist for any client.
const NOWHERE: &[&str] = &[
    "/../secret",
    "/sub/../../secret",
    "/sub/../fine",
    "/..",
    "/../",
    "/%2e%2e/secret",
    "/%2E%2E/secret",
    "/.%2e/secret",
    "/sub/%2e%2e/%2e%2e/secret",
    "/sub/%2e%2e%2f%2e%2e%2fsecret",
    "/..%2fsecret",
    "/..%5csecret",
    "/..\\secret",
    "/sub%2ffile",
    "/%252e%252e/secret",
    "//secret",
    "//etc/passwd",
    "/%2fetc%2fpasswd",
    "/fine%00",
    "/fine%00.html",
    "/%00",
    "/fine/",
    "/fine/file",
    "/%",
    "/%2",
    "/%zz",
    "/%ff%fe",
    "/.hidden",
    "/%2ehidden",
    "/out",
    "/out-absolute",
    "/sub/up/secret",
    "/sub/up/public/fine",
    "/loop",
    "/magic/Cargo.toml",
    "/fifo",
    "/socket",
    "/zero",
    "/sub/deep/",
    "http://mill/../secret",
    "http://mill//etc/passwd",
    "http://mill/%2e%2e/secret",
    "http://mill/out",
];

async fn serve(files: Files) -> std::net::SocketAddr {
    start(move |request: Request<_>| {
        let files = files.clone();
        async move { ask(&files, &request, |body| body).await }
    })
    .await
}

#[test]
fn what_lies_outside_or_is_no_file_is_not_found() {
    on_both(async || {
        let dir = tree();
        let addr = serve(Files::new(dir.path().join("public")).unwrap()).await;
        let mut client = Raw::connect(addr).await;
        // Twice, to test the cache too.
        for target in NOWHERE.iter().chain(NOWHERE) {
            for method in ["GET", "HEAD"] {
                client.send(format!("{method} {target} HTTP/1.1\r\nHost: mill\r\n\r\n")).await;
                let head = client.head().await;
                assert_eq!(head.status, 404, "{method} {target}");
                let len = head.field("content-length").map_or(0, |len| len.parse().unwrap());
                assert_eq!(len, 0, "{method} {target}: an empty 404 is expected");
            }
        }
        for target in ["/fine", "http://mill/fine", "http://other.example/fine"] {
            assert_eq!(client.get(target).await, (200, b"fine".to_vec()), "{target}");
        }
        // A link that stays inside is not served either, unless enabled.
        client.ask("/in").await;
        assert_eq!(client.head().await.status, 404);
        assert_eq!(client.get("/sub/file").await, (200, b"sub/file".to_vec()));
        assert_eq!(client.get("/%66ine").await, (200, b"fine".to_vec()));
    });
}

#[test]
fn what_lies_outside_is_not_found_over_http2_either() {
    on_both(async || {
        let dir = tree();
        let addr = serve(Files::new(dir.path().join("public")).unwrap()).await;
        let mut client = h2(addr).await;
        for target in NOWHERE.iter().filter(|target| target.starts_with('/')) {
            let Ok(uri) = format!("http://mill{target}").parse::<hyper::Uri>() else { continue };
            let request = Request::get(uri).body(http_body_util::Empty::new()).unwrap();
            let answer = client.send_request(request).await.unwrap();
            assert_eq!(answer.status(), 404, "{target}");
            assert!(whole(answer).await.unwrap().is_empty(), "{target}");
        }
        let answer = client.send_request(testkit::http::request("http://mill/fine")).await.unwrap();
        assert_eq!(whole(answer).await.unwrap(), "fine");
    });
}

#[test]
fn links_that_stay_inside_are_followed_on_request_and_others_never() {
    on_both(async || {
        let dir = tree();
        let files = Files::builder(dir.path().join("public")).follow_links_beneath(true).hidden(true).build().unwrap();
        let addr = serve(files).await;
        let mut client = Raw::connect(addr).await;
        assert_eq!(client.get("/in").await, (200, b"fine".to_vec()));
        assert_eq!(client.get("/.hidden").await, (200, b".hidden".to_vec()));
        for target in NOWHERE.iter().filter(|target| !target.ends_with("hidden")) {
            client.ask(target).await;
            let head = client.head().await;
            assert_eq!(head.status, 404, "{target}");
        }
    });
}

#[test]
fn a_request_line_that_is_none_ends_its_connection_only() {
    on_both(async || {
        let dir = tree();
        let addr = serve(Files::new(dir.path().join("public")).unwrap()).await;
        let mut bystander = Raw::connect(addr).await;
        assert_eq!(bystander.get("/fine").await.0, 200);
        for line in
            ["GET /fine\0 HTTP/1.1", "GET  HTTP/1.1", "GET ../secret HTTP/1.1", "GET secret HTTP/1.1", "\0\0\0", "GET"]
        {
            let mut client = Raw::connect(addr).await;
            client.send(format!("{line}\r\nHost: mill\r\nConnection: close\r\n\r\n")).await;
            let got = String::from_utf8_lossy(&client.drain().await).into_owned();
            assert!(
                got.is_empty() || got.starts_with("HTTP/1.1 4") || got.starts_with("HTTP/1.0 4"),
                "{line:?}: {got}"
            );
            assert!(!got.contains(SECRET), "{line:?}");
            assert_eq!(bystander.get("/fine").await.0, 200, "{line:?}");
        }
    });
}
