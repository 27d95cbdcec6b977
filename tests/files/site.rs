//! Features of a site beside its files: a fallback, a page for status 404, types, caching, well-known and compressed
//! names. The differential test compares with tower-http's `ServeDir`.

use std::time::Duration;

use http::HeaderValue;
use millstream::files::cache_by_name;
use proptest::prelude::*;
use tower::ServiceExt;
use tower_http::services::ServeDir;

use super::*;

const INDEX: &[u8] = b"<!doctype html><title>index</title>";
const PAGE: &[u8] = b"<!doctype html><title>nothing here</title>";

fn site() -> tempfile::TempDir {
    dir(&[
        ("index.html", INDEX),
        ("404.html", PAGE),
        ("app.3f9a1c2b.js", b"1"),
        ("app.css", b"2"),
        ("docs/index.html", b"docs"),
        ("empty/.keep", b""),
        (".env", b"secret"),
        (".well-known/security.txt", b"Contact: "),
        (".well-known/.git", b"secret"),
    ])
}

fn with(
    dir: &tempfile::TempDir,
    set: impl FnOnce(millstream::files::FilesBuilder) -> millstream::files::FilesBuilder,
) -> Files {
    set(Files::builder(dir.path()).validate_every(Duration::ZERO)).build().unwrap()
}

#[tokio::test]
async fn absent_pages_of_an_application_get_its_index() {
    let dir = site();
    let files = with(&dir, |builder| builder.fallback("index.html").not_found_page("404.html"));
    for path in ["/users/42", "/users/", "/john.doe", "/v1.2/x", "/absent.html", "/empty/", "/a%20b"] {
        let answer = get(&files, path, &[]).await;
        assert_eq!((answer.status, &answer.bytes[..]), (StatusCode::OK, INDEX), "{path}");
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
        let again = get(&files, path, &[("if-none-match", answer.header("etag"))]).await;
        assert_eq!(again.status, StatusCode::NOT_MODIFIED, "{path}");
        let part = get(&files, path, &[("range", "bytes=0-4")]).await;
        assert_eq!((part.status, &part.bytes[..]), (StatusCode::PARTIAL_CONTENT, &INDEX[..5]));
        assert_eq!(send(&files, "HEAD", path, &[]).await.status(), StatusCode::OK);
    }
    // An absent script is an error, and so is what is never served.
    for path in ["/app.00000000.js", "/logo.PNG", "/x/y.wasm", "/.env", "/../etc/passwd", "/a%2fb", "/.git/config"] {
        let answer = get(&files, path, &[]).await;
        assert_eq!((answer.status, &answer.bytes[..]), (StatusCode::NOT_FOUND, PAGE), "{path}");
    }
    assert_eq!(get(&files, "/docs/", &[]).await.bytes, b"docs");
    assert_eq!(send(&files, "GET", "/docs", &[]).await.status(), StatusCode::TEMPORARY_REDIRECT);
    // A replaced index answers from then on.
    replace(dir.path(), "index.html", b"new");
    assert_eq!(get(&files, "/users/42", &[]).await.bytes, b"new");
    std::fs::remove_file(dir.path().join("index.html")).unwrap();
    assert_eq!(get(&files, "/users/42", &[]).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_file_that_is_not_served_is_no_absent_page() {
    let dir = site();
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("out")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("fifo"), rustix::fs::Mode::RUSR).unwrap();
    std::fs::create_dir(dir.path().join("linked")).unwrap();
    std::os::unix::fs::symlink("../index.html", dir.path().join("linked/index.html")).unwrap();
    let files = with(&dir, |builder| builder.fallback("index.html").not_found_page("404.html").listing(true));
    for path in ["/out", "/fifo", "/linked/", "/.well-known/absent", "/.well-known/a/b"] {
        let answer = get(&files, path, &[]).await;
        assert_eq!((answer.status, &answer.bytes[..]), (StatusCode::NOT_FOUND, PAGE), "{path}");
    }
    assert_eq!(get(&files, "/.well-known/security.txt", &[]).await.status, StatusCode::OK);
    // The fallback itself is not served.
    std::fs::remove_file(dir.path().join("index.html")).unwrap();
    std::os::unix::fs::symlink("404.html", dir.path().join("index.html")).unwrap();
    assert_eq!(get(&files, "/users/42", &[]).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_page_for_404_says_nothing_about_the_file() {
    let dir = site();
    write(dir.path(), "404.html.gz", b"zipped");
    let files = with(&dir, |builder| builder.not_found_page("404.html").cache_control(cache_by_name));
    for headers in [&[][..], &[("range", "bytes=0-1")], &[("if-none-match", "*")], &[("if-match", "\"x\"")]] {
        let answer = get(&files, "/absent.js", headers).await;
        assert_eq!((answer.status, &answer.bytes[..]), (StatusCode::NOT_FOUND, PAGE), "{headers:?}");
        for name in ["etag", "last-modified", "accept-ranges", "cache-control"] {
            assert_eq!(answer.headers.get(name), None, "{name}");
        }
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    }
    let zipped = get(&files, "/absent", &[("accept-encoding", "gzip")]).await;
    assert_eq!((zipped.header("content-encoding"), &zipped.bytes[..]), ("gzip", &b"zipped"[..]));
    assert_eq!(zipped.header("vary"), "accept-encoding");
    let head = send(&files, "HEAD", "/absent", &[]).await;
    assert_eq!((head.status(), header(&head, "content-length")), (StatusCode::NOT_FOUND, &*PAGE.len().to_string()));
    // The page itself is a file.
    assert_eq!(get(&files, "/404.html", &[]).await.status, StatusCode::OK);
    std::fs::remove_file(dir.path().join("404.html")).unwrap();
    let answer = get(&files, "/absent", &[]).await;
    assert_eq!((answer.status, answer.bytes.len()), (StatusCode::NOT_FOUND, 0));
    // Under a mount, other paths are no files either.
    replace(dir.path(), "404.html", PAGE);
    let mounted = with(&dir, |builder| builder.mounted_at("/static").not_found_page("404.html"));
    assert_eq!(get(&mounted, "/elsewhere", &[]).await.bytes, PAGE);
}

#[tokio::test]
async fn cache_control_is_that_of_the_file_and_never_of_an_error() {
    let dir = site();
    let files = with(&dir, |builder| builder.cache_control(cache_by_name).fallback("index.html"));
    let immutable = "public, max-age=31536000, immutable";
    for (path, expected) in [
        ("/", "no-cache"),
        ("/docs/", "no-cache"),
        ("/app.3f9a1c2b.js", immutable),
        ("/app.css", ""),
        ("/users", "no-cache"),
    ] {
        let answer = get(&files, path, &[]).await;
        assert_eq!(answer.header("cache-control"), expected, "{path}");
        let tag = answer.header("etag");
        let same = get(&files, path, &[("if-none-match", tag)]).await;
        assert_eq!((same.status, same.header("cache-control")), (StatusCode::NOT_MODIFIED, expected), "{path}");
        let part = get(&files, path, &[("range", "bytes=0-0")]).await;
        assert_eq!((part.status, part.header("cache-control")), (StatusCode::PARTIAL_CONTENT, expected), "{path}");
        for refused in [("range", "bytes=900-"), ("if-match", "\"x\"")] {
            let answer = get(&files, path, &[refused]).await;
            assert!(answer.status.is_client_error(), "{path} {refused:?}");
            assert_eq!(answer.headers.get("cache-control"), None, "{path} {refused:?}");
        }
    }
    for (method, path) in [("GET", "/absent.3f9a1c2b.js"), ("POST", "/app.3f9a1c2b.js"), ("GET", "/docs")] {
        let answer = send(&files, method, path, &[]).await;
        assert!(!answer.status().is_success());
        assert_eq!(answer.headers().get("cache-control"), None, "{method} {path}");
    }
    let own = with(&dir, |builder| {
        builder.cache_control(|asset| {
            assert_eq!(asset.is_page(), asset.path().extension().unwrap() == "html");
            HeaderValue::from_str(&format!("max-age={}", asset.path().as_os_str().len())).ok()
        })
    });
    assert_eq!(get(&own, "/docs/", &[]).await.header("cache-control"), "max-age=15", "docs/index.html");
}

#[tokio::test]
async fn types_are_those_of_the_user_then_ours() {
    let dir = dir(&[("a.ts", b"1"), ("b.TS", b"1"), ("c.jsonl", b"1"), ("d.mjs", b"1"), ("e", b"1"), ("f.txt", b"1")]);
    let files = with(&dir, |builder| builder);
    for (path, expected) in [
        ("/a.ts", "text/typescript; charset=utf-8"),
        ("/c.jsonl", "application/jsonl"),
        ("/d.mjs", "text/javascript; charset=utf-8"),
        ("/e", "application/octet-stream"),
        ("/f.txt", "text/plain; charset=utf-8"),
    ] {
        assert_eq!(get(&files, path, &[]).await.header("content-type"), expected, "{path}");
    }
    let own = with(&dir, |builder| {
        builder.content_type("ts", "video/mp2t").content_type("", "application/json").content_type("TXT", "text/plain")
    });
    for (path, expected) in
        [("/a.ts", "video/mp2t"), ("/b.TS", "video/mp2t"), ("/e", "application/json"), ("/f.txt", "text/plain")]
    {
        assert_eq!(get(&own, path, &[]).await.header("content-type"), expected, "{path}");
    }
}

#[tokio::test]
async fn well_known_files_are_served_and_no_other_hidden_ones() {
    let dir = site();
    for (files, known, hidden) in [
        (with(&dir, |builder| builder), 200, 404),
        (with(&dir, |builder| builder.well_known(false)), 404, 404),
        (with(&dir, |builder| builder.well_known(false).hidden(true)), 200, 200),
    ] {
        assert_eq!(get(&files, "/.well-known/security.txt", &[]).await.status, known);
        for path in ["/.env", "/.well-known/.git", "/empty/.keep"] {
            assert_eq!(get(&files, path, &[]).await.status, hidden, "{path}");
        }
    }
}

#[tokio::test]
async fn a_file_may_exist_in_compressed_form_only() {
    let dir = dir(&[("a.css.gz", b"zipped"), ("b.js.br", b"brotli"), ("b.js.zst", b"zstd"), ("c.txt", b"plain")]);
    let files = with(&dir, |builder| {
        builder.only_compressed(true).cache_control(|_| Some(HeaderValue::from_static("no-cache")))
    });
    for (path, accept, expected) in [
        ("/a.css", Some("gzip"), Some(("gzip", "zipped"))),
        ("/a.css", None, Some(("gzip", "zipped"))),
        ("/a.css", Some("*"), Some(("gzip", "zipped"))),
        ("/a.css", Some("br"), None),
        ("/a.css", Some(""), None),
        ("/a.css", Some("gzip;q=0"), None),
        ("/b.js", Some("br, gzip"), Some(("br", "brotli"))),
        ("/b.js", Some("zstd"), Some(("zstd", "zstd"))),
        ("/b.js", Some("gzip"), None),
        ("/b.js", None, Some(("br", "brotli"))),
        ("/c.txt", Some("gzip"), Some(("", "plain"))),
    ] {
        let headers: Vec<_> = accept.iter().map(|accept| ("accept-encoding", *accept)).collect();
        let answer = get(&files, path, &headers).await;
        match expected {
            Some((encoding, bytes)) => {
                assert_eq!(
                    (answer.status.as_u16(), answer.header("content-encoding")),
                    (200, encoding),
                    "{path} {accept:?}"
                );
                assert_eq!(answer.bytes, bytes.as_bytes());
            }
            None => {
                assert_eq!(answer.status, StatusCode::NOT_ACCEPTABLE, "{path} {accept:?}");
                assert_eq!((answer.header("vary"), answer.headers.get("cache-control")), ("accept-encoding", None));
            }
        }
    }
    let part = get(&files, "/a.css", &[("range", "bytes=1-2")]).await;
    assert_eq!((part.status, &part.bytes[..]), (StatusCode::PARTIAL_CONTENT, &b"ip"[..]));
    assert_eq!(get(&files, "/absent.css", &[]).await.status, StatusCode::NOT_FOUND);
    // The plain file appears, and later goes.
    replace(dir.path(), "a.css", b"plain");
    assert_eq!(get(&files, "/a.css", &[("accept-encoding", "br")]).await.bytes, b"plain");
    assert_eq!(get(&files, "/a.css", &[("accept-encoding", "gzip")]).await.bytes, b"zipped");
    std::fs::remove_file(dir.path().join("a.css")).unwrap();
    assert_eq!(get(&files, "/a.css", &[("accept-encoding", "br")]).await.status, StatusCode::NOT_ACCEPTABLE);
    // Without the option such a file is absent.
    assert_eq!(get(&with(&dir, |builder| builder), "/a.css", &[]).await.status, StatusCode::NOT_FOUND);
}

#[test]
fn options_that_name_no_file_are_refused() {
    let dir = site();
    let build = |set: &dyn Fn(millstream::files::FilesBuilder) -> millstream::files::FilesBuilder| {
        set(Files::builder(dir.path())).build().map(drop).map_err(|e| (e.kind(), e.to_string()))
    };
    for name in ["", "/index.html", "../index.html", "a/", "a//b", "./a", ".env", "a/.well-known/b", "a\0b"] {
        for (what, result) in [
            ("fallback", build(&|builder| builder.fallback(name))),
            ("not-found page", build(&|builder| builder.not_found_page(name))),
        ] {
            let message = format!("{what} {name:?}: not the path of a file beneath the directory");
            assert_eq!(result.unwrap_err(), (io::ErrorKind::InvalidInput, message));
        }
    }
    for name in ["absent.html", "docs/index.html", ".well-known/404.html"] {
        build(&|builder| builder.fallback(name).not_found_page(name)).unwrap();
    }
    build(&|builder| builder.hidden(true).fallback(".env")).unwrap();
    let refused = build(&|builder| builder.content_type("ts", "text/\n").content_type("js", "\0")).unwrap_err();
    assert_eq!(refused.1, "content type \"text/\\n\": not a header value");
}

#[tokio::test]
async fn files_read_past_the_page_cache_are_the_same() {
    let lens = [1, 4096, 32 << 10, (32 << 10) + 1, 300_000, 3_000_001];
    let dir = dir(&[]);
    for len in lens {
        write(dir.path(), &len.to_string(), &noise(len));
    }
    let files = with(&dir, |builder| builder.uncached_above(1000));
    for len in lens {
        let path = format!("/{len}");
        assert!(get(&files, &path, &[]).await.bytes == noise(len), "{len}");
        if len > 4096 {
            let part = get(&files, &path, &[("range", "bytes=3000-30000")]).await;
            assert!(part.bytes == noise(len)[3000..=30000], "{len}");
            let parts = get(&files, &path, &[("range", "bytes=0-9,20-29")]).await;
            assert_eq!(parts.status, StatusCode::PARTIAL_CONTENT);
        }
    }
    std::fs::File::options().write(true).open(dir.path().join("3000001")).unwrap().set_len(1_000_000).unwrap();
    let response = files.get(&http::Method::GET, &"/3000001".parse().unwrap(), &HeaderMap::new()).await;
    if response.headers()["content-length"] == "3000001" {
        assert!(collect(response).await.is_err(), "a part is never the whole");
    }
}

#[tokio::test]
async fn ranges_out_of_order_are_read_past_the_page_cache() {
    // A tmpfs does not support RWF_DONTCACHE.
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return testkit::skip("uncached ranges", "no tmpfs") };
    let bytes = noise(3_000_000);
    write(dir.path(), "big", &bytes);
    let files = with(&dir, |builder| builder.uncached_above(1000));
    for ranges in [[2_000_000..2_001_000, 0..700_000], [0..700_000, 2_000_000..2_001_000], [1_000_000..1_000_009, 5..9]]
    {
        let [one, two] = ranges.clone().map(|range| format!("{}-{}", range.start, range.end - 1));
        let answer = get(&files, "/big", &[("range", &format!("bytes={one},{two}"))]).await;
        assert_eq!(answer.status, StatusCode::PARTIAL_CONTENT, "{one},{two}");
        for part in ranges.map(|range| &bytes[range]) {
            assert!(answer.bytes.windows(part.len()).any(|found| found == part), "{one},{two}");
        }
    }
}

/// Returns the parts of a response that both servers agree on.
async fn common<B>(response: Response<B>) -> (u16, Vec<(&'static str, String)>, Vec<u8>)
where
    B: http_body::Body<Error: std::fmt::Debug>,
{
    let headers = ["content-type", "content-length", "content-range", "content-encoding", "last-modified"]
        .into_iter()
        // They have no charset.
        .map(|name| (name, text(response.headers(), name).replace("; charset=utf-8", "")))
        .collect();
    let status = response.status().as_u16();
    (status, headers, response.into_body().collect().await.unwrap().to_bytes().to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Known differences, each for a reason: we redirect with a relative location; text has a
    /// charset; a malformed range is ignored (RFC 9110 §14.2) instead of refused, and a suffix that is longer than the
    /// file is all of it (§14.1.2).
    #[test]
    fn answers_are_those_of_serve_dir(
        path in r"(/(index\.html|docs|docs/|docs/index\.html|app\.css|absent|a/b|%64ocs/|\.\./x|empty/|app%2ecss)?){1,2}",
        get in any::<bool>(),
        range in proptest::option::of("bytes=([1-9]?[0-9]-([1-9]?[0-9])?|-[1-9]?[0-9])"),
        since in proptest::option::of(any::<bool>()),
        gzip in any::<bool>(),
    ) {
        let dir = site();
        write(dir.path(), "app.css.gz", b"zipped");
        let mut request = Request::builder().method(if get { "GET" } else { "HEAD" }).uri(&path);
        if let Some(range) = range.as_ref().filter(|_| get) {
            request = request.header("range", range);
        }
        if let Some(fresh) = since {
            let date = if fresh { "Fri, 01 Jan 2100 00:00:00 GMT" } else { "Thu, 01 Jan 1970 00:00:00 GMT" };
            request = request.header("if-modified-since", date);
        }
        if gzip {
            request = request.header("accept-encoding", "gzip");
        }
        let request = request.body(String::new()).unwrap();
        let (ours, theirs) = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            let files = Files::new(dir.path()).unwrap();
            let ours = files.oneshot(request.clone()).await.unwrap();
            let theirs = ServeDir::new(dir.path()).precompressed_gzip().oneshot(request).await.unwrap();
            (common(ours).await, common(theirs).await)
        });
        if theirs.0 == 416 {
            let (first, last) = range.as_ref().unwrap()["bytes=".len()..].split_once('-').unwrap();
            let number = |text: &str| text.parse::<u32>().ok();
            let expected = match (number(first), number(last)) {
                (Some(first), Some(last)) if first > last => 200,
                (None, Some(0)) => 200,
                (None, Some(_)) => 206,
                _ => 416,
            };
            prop_assert_eq!(ours.0, expected, "{:?}", range);
        } else if ours.0 == 307 || ours.0 == 404 || ours.0 == 416 {
            prop_assert_eq!(ours.0, theirs.0, "{}", path);
        } else {
            prop_assert_eq!(ours, theirs, "{}", path);
        }
    }
}
