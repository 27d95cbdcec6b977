//! Files that are never served.

use super::*;
use std::os::unix::fs::symlink;

/// Creates `secret` next to the served directory.
fn house() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = dir(&[
        ("secret", b"the secret"),
        ("public/a.txt", b"public"),
        ("public/sub/b.txt", b"below"),
        ("public/.env", b"KEY=1"),
        ("public/.git/config", b"[core]"),
        ("public/sub/.hidden", b"hidden"),
        ("public/100%", b"percent"),
        ("public/back\\slash", b"ordinary"),
        ("public/a b+c", b"spaced"),
    ]);
    let public = dir.path().join("public");
    symlink("../secret", public.join("out-relative")).unwrap();
    symlink(dir.path().join("secret"), public.join("out-absolute")).unwrap();
    symlink("..", public.join("up")).unwrap();
    symlink("a.txt", public.join("in")).unwrap();
    symlink("sub", public.join("in-dir")).unwrap();
    symlink("loop", public.join("loop")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, public.join("fifo"), 0o644.into()).unwrap();
    drop(std::os::unix::net::UnixListener::bind(public.join("socket")).unwrap());
    (dir, public)
}

const NOWHERE: &[&str] = &[
    "/../secret",
    "/%2e%2e/secret",
    "/%2E%2E/secret",
    "/.%2e/secret",
    "/sub/../../secret",
    "/sub/%2e%2e/%2e%2e/secret",
    "/..%2fsecret",
    "/%2e%2e%2fsecret",
    "/sub%2fb.txt",
    "//etc/passwd",
    "/%2fetc/passwd",
    "/%2Fetc%2Fpasswd",
    "/a.txt%00",
    "/a.txt%00.html",
    "/a.txt%",
    "/a.txt%2",
    "/%zz",
    "/a.txt/",
    "/a.txt/b",
    "//../secret",
    "/.//../secret",
    "/./%2e%2e/secret",
    "/sub//..//../secret",
    "//.env",
    "/./.env",
    "/sub//.hidden",
    "/.%2fa.txt",
    "/.env",
    "/%2eenv",
    "/.git/config",
    "/sub/.hidden",
    "/out-relative",
    "/out-absolute",
    "/up/secret",
    "/up/public/a.txt",
    "/loop",
    "/fifo",
    "/socket",
    "/missing",
    "/sub/missing/deeper",
];

#[tokio::test]
async fn nothing_leads_out_whatever_the_settings() {
    let (_dir, public) = house();
    let strict = Files::new(&public).unwrap();
    let lax = Files::builder(&public).follow_links_beneath(true).validate_every(std::time::Duration::ZERO).build();
    for files in [strict, lax.unwrap()] {
        // Twice: a refused file must not be found in the cache either.
        for _ in 0..2 {
            for uri in NOWHERE {
                for method in ["GET", "HEAD"] {
                    let response = send(&files, method, uri, &[]).await;
                    assert_eq!(response.status(), StatusCode::NOT_FOUND, "{method} {uri}");
                    assert!(response.headers().is_empty(), "{method} {uri}");
                }
            }
            assert_eq!(get(&files, "/a.txt", &[]).await.bytes, b"public");
        }
    }
}

/// The fallback of an application answers for absent pages only: it tells them from files that are refused.
#[tokio::test]
async fn refused_files_are_answered_as_absent_ones_unless_a_fallback_answers_for_those() {
    let (_dir, public) = house();
    write(&public, "404.html", b"nothing here");
    write(&public, "locked", b"locked");
    std::fs::set_permissions(public.join("locked"), std::os::unix::fs::PermissionsExt::from_mode(0o0)).unwrap();
    // Unless this user may read everything.
    let locked = std::fs::File::open(public.join("locked")).is_err().then_some("/locked");
    let refused = [
        "/out-relative",
        "/out-absolute",
        "/up/secret",
        "/loop",
        "/fifo",
        "/socket",
        "/in",
        "/in-dir/b.txt",
        "/a.txt/b",
    ];
    let hidden = ["/.env", "/.git/config", "/sub/.hidden", "/.absent", "/sub/.absent/b"];
    let page = Files::builder(&public).not_found_page("404.html").build().unwrap();
    let with_fallback = Files::builder(&public).not_found_page("404.html").fallback("a.txt").build().unwrap();
    for headers in [&[][..], &[("range", "bytes=0-1")], &[("if-match", "\"x\"")], &[("accept-encoding", "gzip")]] {
        let told = async |files: &Files, uri: &str| {
            let answer = get(files, uri, headers).await;
            (answer.status, answer.headers, answer.bytes)
        };
        for files in [&Files::new(&public).unwrap(), &page] {
            let absent = told(files, "/absent").await;
            assert_eq!(absent.0, StatusCode::NOT_FOUND);
            for uri in refused.into_iter().chain(hidden).chain(locked) {
                assert_eq!(told(files, uri).await, absent, "{uri} {headers:?}");
            }
        }
        // Hidden names are refused whether or not they exist.
        let absent = told(&with_fallback, "/.absent").await;
        assert_eq!(absent.2, b"nothing here");
        for uri in hidden {
            assert_eq!(told(&with_fallback, uri).await, absent, "{uri} {headers:?}");
        }
    }
    assert_eq!(get(&with_fallback, "/absent", &[]).await.bytes, b"public");
    assert_eq!(get(&with_fallback, "/fifo", &[]).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn long_names_lead_nowhere() {
    let (_dir, public) = house();
    let files = Files::new(&public).unwrap();
    for len in [256, 4096, 10_000] {
        let uri = format!("/{}", "n".repeat(len));
        assert_eq!(get(&files, &uri, &[]).await.status, StatusCode::NOT_FOUND, "{len}");
    }
}

#[tokio::test]
async fn links_beneath_are_followed_only_when_asked() {
    let (_dir, public) = house();
    let strict = Files::new(&public).unwrap();
    let lax = Files::builder(&public).follow_links_beneath(true).build().unwrap();
    for (uri, bytes) in [("/in", &b"public"[..]), ("/in-dir/b.txt", b"below")] {
        assert_eq!(get(&strict, uri, &[]).await.status, StatusCode::NOT_FOUND, "{uri}");
        assert_eq!(get(&lax, uri, &[]).await.bytes, bytes, "{uri}");
    }
    // A link out of the directory is not used as a variant or an index.
    symlink("../secret", public.join("a.txt.gz")).unwrap();
    symlink("../secret", public.join("index.html")).unwrap();
    let zero = std::time::Duration::ZERO;
    let lax = Files::builder(&public).follow_links_beneath(true).validate_every(zero).build().unwrap();
    for files in [Files::new(&public).unwrap(), lax] {
        for _ in 0..2 {
            let answer = get(&files, "/a.txt", &[("accept-encoding", "gzip")]).await;
            assert_eq!((answer.headers.get("content-encoding"), &answer.bytes[..]), (None, &b"public"[..]));
            assert_eq!(get(&files, "/", &[]).await.status, StatusCode::NOT_FOUND);
        }
    }
}

#[tokio::test]
async fn ordinary_names_with_odd_characters_are_served() {
    let (_dir, public) = house();
    let files = Files::new(&public).unwrap();
    for (uri, bytes) in [
        ("/100%25", &b"percent"[..]),
        ("/%31%30%30%25", b"percent"),
        ("/back%5Cslash", b"ordinary"),
        ("/a%20b+c", b"spaced"),
        ("/a.txt", b"public"),
        ("/%61.txt", b"public"),
        ("/a%2etxt", b"public"),
    ] {
        for _ in 0..2 {
            let answer = get(&files, uri, &[]).await;
            assert_eq!((answer.status, &answer.bytes[..]), (StatusCode::OK, bytes), "{uri}");
        }
    }
}

#[tokio::test]
async fn an_encoded_name_is_not_taken_for_a_file_of_that_name() {
    let dir = dir(&[("a b", b"spaced"), ("a%20b", b"literal"), ("a%252fb", b"deep")]);
    let files = Files::new(dir.path()).unwrap();
    for _ in 0..2 {
        for (uri, bytes) in [("/a%2520b", &b"literal"[..]), ("/a%20b", b"spaced"), ("/a%25252fb", b"deep")] {
            assert_eq!(get(&files, uri, &[]).await.bytes, bytes, "{uri}");
        }
        assert_eq!(get(&files, "/a%252fb", &[]).await.status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn hidden_names_are_served_when_asked() {
    let (_dir, public) = house();
    let files = Files::builder(&public).hidden(true).build().unwrap();
    assert_eq!(get(&files, "/.env", &[]).await.bytes, b"KEY=1");
    assert_eq!(get(&files, "/.git/config", &[]).await.bytes, b"[core]");
    for uri in ["/..", "/../secret", "/%2e%2e/secret", "/./../secret", "/.%2f..%2fsecret"] {
        assert_eq!(get(&files, uri, &[]).await.status, StatusCode::NOT_FOUND, "{uri}");
    }
}

#[tokio::test]
async fn devices_are_not_files() {
    let files = Files::new("/dev").unwrap();
    for uri in ["/null", "/zero", "/random"] {
        assert_eq!(get(&files, uri, &[]).await.status, StatusCode::NOT_FOUND, "{uri}");
    }
    assert_eq!(Files::new("/dev/null").unwrap_err().kind(), io::ErrorKind::NotADirectory);
}
