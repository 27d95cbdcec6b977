//! Responses to each kind of request, RFC 9110 §13 and §14.

use super::*;

const HELLO: &[u8] = b"hello, stream";

#[tokio::test]
async fn a_file_has_its_head_and_its_bytes() {
    let dir = dir(&[("a.html", HELLO), ("data", &noise(100_000)), ("b.svg", b"<svg/>"), ("empty.css", b"")]);
    let files = Files::new(dir.path()).unwrap();
    let answer = get(&files, "/a.html", &[]).await;
    assert_eq!((answer.status, &answer.bytes[..]), (StatusCode::OK, HELLO));
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    assert_eq!(answer.header("accept-ranges"), "bytes");
    assert_eq!(answer.headers.get("vary"), None, "there is nothing to choose from");
    assert_eq!(answer.headers.get("content-encoding"), None);
    let etag = answer.header("etag");
    assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 2, "{etag}");
    let modified = std::fs::metadata(dir.path().join("a.html")).unwrap().modified().unwrap();
    assert_eq!(answer.header("last-modified"), httpdate::fmt_http_date(modified));

    let data = get(&files, "/data", &[]).await;
    assert_eq!(data.header("content-type"), "application/octet-stream");
    assert!(data.bytes == noise(100_000));
    assert_eq!(get(&files, "/b.svg", &[]).await.header("content-type"), "image/svg+xml");
    let empty = get(&files, "/empty.css", &[]).await;
    assert_eq!((empty.status, empty.bytes.len(), empty.header("content-length")), (StatusCode::OK, 0, "0"));
    // The second response comes from the cache and is the same.
    assert_eq!(get(&files, "/a.html?x=1", &[]).await.headers, answer.headers);
}

#[tokio::test]
async fn files_of_every_size_are_whole() {
    let sizes = [1, 4095, 4096, 4097, 32 << 10, (32 << 10) + 1, 256 << 10, (256 << 10) + 1, (5 << 20) + 3];
    let dir = dir(&[]);
    for len in sizes {
        write(dir.path(), &len.to_string(), &noise(len));
    }
    for kept in [0, 64 << 20] {
        let files = Files::builder(dir.path()).kept_bytes(kept).build().unwrap();
        for len in sizes {
            for _ in 0..2 {
                assert!(get(&files, &format!("/{len}"), &[]).await.bytes == noise(len), "{len}, {kept} kept");
            }
        }
    }
}

#[tokio::test]
async fn other_methods_are_refused() {
    let dir = dir(&[("a", HELLO)]);
    let files = Files::new(dir.path()).unwrap();
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PURGE"] {
        let response = send(&files, method, "/a", &[]).await;
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{method}");
        assert_eq!(header(&response, "allow"), "GET, HEAD");
    }
}

#[tokio::test]
async fn head_says_what_get_would() {
    let dir = dir(&[("a.txt", HELLO), ("a.txt.gz", b"zipped")]);
    let files = Files::new(dir.path()).unwrap();
    for headers in [&[][..], &[("accept-encoding", "gzip")], &[("if-none-match", "\"x\"")]] {
        let head = send(&files, "HEAD", "/a.txt", headers).await;
        let answer = get(&files, "/a.txt", headers).await;
        assert_eq!((head.status(), head.headers()), (answer.status, &answer.headers));
    }
    let ranged = send(&files, "HEAD", "/a.txt", &[("range", "bytes=0-1")]).await;
    assert_eq!((ranged.status(), header(&ranged, "content-length")), (StatusCode::OK, "13"));
    assert_eq!(send(&files, "HEAD", "/b", &[]).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn one_range_is_exact() {
    let bytes = noise(500_000);
    let dir = dir(&[("big", &bytes), ("small", &bytes[..1000])]);
    let files = Files::new(dir.path()).unwrap();
    for (name, len) in [("/big", 500_000), ("/small", 1000)] {
        for (range, from, to) in
            [("0-0", 0, 1), ("0-99", 0, 100), ("1-", 1, len), ("-7", len - 7, len), ("990-9999999", 990, len)]
        {
            let answer = get(&files, name, &[("range", &format!("bytes={range}"))]).await;
            assert_eq!(answer.status, StatusCode::PARTIAL_CONTENT, "{name} {range}");
            assert_eq!(answer.header("content-range"), format!("bytes {from}-{}/{len}", to - 1));
            assert!(answer.bytes == bytes[from..to], "{name} {range}");
            assert_ne!(answer.header("etag"), "");
        }
        let none = get(&files, name, &[("range", &format!("bytes={len}-"))]).await;
        assert_eq!(none.status, StatusCode::RANGE_NOT_SATISFIABLE);
        assert_eq!(none.header("content-range"), format!("bytes */{len}"));
        for unit in ["Bytes", "BYTES", "bYtEs"] {
            let answer = get(&files, name, &[("range", &format!("{unit}=1-3,-1"))]).await;
            assert_eq!(answer.status, StatusCode::PARTIAL_CONTENT, "{unit}");
            let answer = get(&files, name, &[("range", &format!("{unit}=0-4"))]).await;
            assert_eq!(
                (answer.status, answer.header("content-range")),
                (StatusCode::PARTIAL_CONTENT, &*format!("bytes 0-4/{len}"))
            );
        }
        for ignored in ["bytes=5-4", "lines=1-2", "bytes=x", "Bytes 1-2", "Bytes =1-2", "bytes", "byteß=1-2"] {
            assert_eq!(get(&files, name, &[("range", ignored)]).await.status, StatusCode::OK, "{ignored}");
        }
    }
}

#[tokio::test]
async fn several_ranges_are_exact() {
    let bytes = noise(500_000);
    let dir = dir(&[("big.txt", &bytes), ("small.txt", &bytes[..1000])]);
    for (files, name, len) in [
        (Files::new(dir.path()).unwrap(), "/big.txt", 500_000),
        (Files::new(dir.path()).unwrap(), "/small.txt", 1000),
        (Files::builder(dir.path()).kept_bytes(0).build().unwrap(), "/small.txt", 1000),
    ] {
        let answer = get(&files, name, &[("range", "bytes=900-999, 0-0, -10")]).await;
        assert_eq!((answer.status, answer.headers.get("content-range")), (StatusCode::PARTIAL_CONTENT, None));
        let boundary = answer.header("content-type").strip_prefix("multipart/byteranges; boundary=").unwrap();
        let mut expected = Vec::new();
        for (i, (from, to)) in [(900, 1000), (0, 1), (len - 10, len)].into_iter().enumerate() {
            let lead = if i == 0 { "" } else { "\r\n" };
            let fields = "Content-Type: text/plain; charset=utf-8\r\nContent-Range: bytes";
            let head = format!("{lead}--{boundary}\r\n{fields} {from}-{}/{len}\r\n\r\n", to - 1);
            expected.extend_from_slice(head.as_bytes());
            expected.extend_from_slice(&bytes[from..to]);
        }
        expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        assert!(answer.bytes == expected, "{}", String::from_utf8_lossy(&answer.bytes));
    }
    let files = Files::new(dir.path()).unwrap();
    let seventeen = (0..17).map(|i| format!("{i}-{i}")).collect::<Vec<_>>().join(",");
    let answer = get(&files, "/small.txt", &[("range", &format!("bytes={seventeen}"))]).await;
    assert_eq!((answer.status, answer.bytes.len()), (StatusCode::OK, 1000));
    // Ranges that overlap may not make the response larger than the file.
    let answer = get(&files, "/small.txt", &[("range", "bytes=0-600,400-999")]).await;
    assert_eq!((answer.status, answer.bytes.len()), (StatusCode::OK, 1000));
}

#[tokio::test]
async fn the_date_of_a_file_from_the_future_stays_what_it_was() {
    let dir = dir(&[("a.txt", HELLO)]);
    let hour = std::time::Duration::from_secs(3600);
    let future = std::time::SystemTime::now() + hour;
    std::fs::File::options().write(true).open(dir.path().join("a.txt")).unwrap().set_modified(future).unwrap();
    // Neither checked nor, because nothing is kept, found cold: the file is opened once.
    let files = Files::builder(dir.path()).validate_every(hour).kept_bytes(0).build().unwrap();
    let date = get(&files, "/a.txt", &[]).await.header("last-modified").to_owned();
    // The next second begins.
    let second = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let first = second();
    while second() == first {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    for (condition, status) in [("if-unmodified-since", 200), ("if-modified-since", 304)] {
        let answer = get(&files, "/a.txt", &[(condition, &date)]).await;
        assert_eq!((answer.status.as_u16(), answer.header("last-modified")), (status, &*date), "{condition}");
    }
}

#[tokio::test]
async fn conditions_decide() {
    let dir = dir(&[("a.txt", HELLO)]);
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    std::fs::File::options().write(true).open(dir.path().join("a.txt")).unwrap().set_modified(old).unwrap();
    let files = Files::new(dir.path()).unwrap();
    let plain = get(&files, "/a.txt", &[]).await;
    let (tag, date) = (plain.header("etag").to_owned(), plain.header("last-modified").to_owned());
    let weak = format!("W/{tag}");
    let epoch = "Thu, 01 Jan 1970 00:00:00 GMT";
    let table: &[(&[(&str, &str)], u16)] = &[
        (&[("if-none-match", &tag)], 304),
        (&[("if-none-match", &weak)], 304),
        (&[("if-none-match", "*")], 304),
        (&[("if-none-match", "\"other\"")], 200),
        (&[("if-modified-since", &date)], 304),
        (&[("if-modified-since", epoch)], 200),
        (&[("if-none-match", "\"other\""), ("if-modified-since", &date)], 200),
        (&[("if-match", &tag)], 200),
        (&[("if-match", &weak)], 412),
        (&[("if-match", "\"other\"")], 412),
        (&[("if-unmodified-since", epoch)], 412),
        (&[("if-unmodified-since", &date)], 200),
        (&[("if-match", &tag), ("if-unmodified-since", epoch)], 200),
        (&[("if-match", "\"other\""), ("if-none-match", &tag)], 412),
        (&[("range", "bytes=0-1"), ("if-range", &tag)], 206),
        (&[("range", "bytes=0-1"), ("if-range", &date)], 206),
        (&[("range", "bytes=0-1"), ("if-range", &weak)], 200),
        (&[("range", "bytes=0-1"), ("if-range", "\"other\"")], 200),
        (&[("range", "bytes=0-1"), ("if-range", epoch)], 200),
        (&[("range", "bytes=99-"), ("if-range", "\"other\"")], 200),
        (&[("range", "bytes=99-"), ("if-none-match", &tag)], 304),
        (&[("range", "bytes=99-"), ("if-match", "\"other\"")], 412),
        (&[("range", "bytes=99-")], 416),
    ];
    for (headers, status) in table {
        let answer = get(&files, "/a.txt", headers).await;
        assert_eq!(answer.status, *status, "{headers:?}");
        assert_eq!(answer.header("etag"), tag, "{headers:?}");
        let expected = match status {
            200 => HELLO,
            206 => &HELLO[..2],
            _ => b"",
        };
        assert_eq!(answer.bytes, expected, "{headers:?}");
        if *status == 304 {
            assert_eq!(answer.headers.get("content-type"), None);
            assert_eq!(answer.headers.get("content-length"), None);
        }
    }
}

#[tokio::test]
async fn precompressed_variants_are_chosen_and_named() {
    let dir = dir(&[
        ("app.js", b"plain javascript"),
        ("app.js.br", b"brotli"),
        ("app.js.zst", b"zstandard"),
        ("app.js.gz", b"gzipped"),
        ("only.css", b"plain style"),
        ("only.css.gz", b"gz style"),
    ]);
    let files = Files::new(dir.path()).unwrap();
    let mut tags = std::collections::HashSet::new();
    for (accept, encoding, bytes) in [
        ("gzip, br, zstd", "br", "brotli"),
        ("gzip, zstd", "zstd", "zstandard"),
        ("gzip", "gzip", "gzipped"),
        ("br;q=0, gzip;q=0.5", "gzip", "gzipped"),
        ("br;q=0, *", "zstd", "zstandard"),
        ("identity", "", "plain javascript"),
        ("", "", "plain javascript"),
    ] {
        let answer = get(&files, "/app.js", &[("accept-encoding", accept)]).await;
        assert_eq!((answer.header("content-encoding"), &answer.bytes[..]), (encoding, bytes.as_bytes()), "{accept}");
        assert_eq!(answer.header("content-type"), "text/javascript; charset=utf-8");
        assert_eq!(answer.header("vary"), "accept-encoding");
        tags.insert(answer.header("etag").to_owned());

        let again = [("accept-encoding", accept), ("if-none-match", answer.header("etag"))];
        let known = get(&files, "/app.js", &again).await;
        assert_eq!((known.status, known.header("vary")), (StatusCode::NOT_MODIFIED, "accept-encoding"));
        let range = get(&files, "/app.js", &[("accept-encoding", accept), ("range", "bytes=1-2")]).await;
        assert_eq!((range.header("content-encoding"), &range.bytes[..]), (encoding, &bytes.as_bytes()[1..3]));
        let outside = get(&files, "/app.js", &[("accept-encoding", accept), ("range", "bytes=99-")]).await;
        assert_eq!(outside.header("content-range"), format!("bytes */{}", bytes.len()));
        assert_eq!(outside.header("vary"), "accept-encoding");
    }
    assert_eq!(tags.len(), 4, "each representation has its own tag");
    let only = get(&files, "/only.css", &[("accept-encoding", "br, gzip")]).await;
    assert_eq!((only.header("content-encoding"), &only.bytes[..]), ("gzip", &b"gz style"[..]));
    // A variant requested by its own name is an ordinary file.
    assert_eq!(get(&files, "/app.js.gz", &[]).await.headers.get("content-encoding"), None);
    let off = Files::builder(dir.path()).precompressed(false).build().unwrap();
    let answer = get(&off, "/app.js", &[("accept-encoding", "br")]).await;
    assert_eq!((answer.headers.get("vary"), &answer.bytes[..]), (None, &b"plain javascript"[..]));
}

#[tokio::test]
async fn directories_have_an_index_and_a_slash() {
    let dir = dir(&[("index.html", b"top"), ("docs/index.html", b"docs"), ("docs/a b/index.html", b"ab")]);
    std::fs::create_dir(dir.path().join("bare")).unwrap();
    std::fs::create_dir_all(dir.path().join("odd/index.html")).unwrap();
    let files = Files::new(dir.path()).unwrap();
    for (uri, bytes) in [("/", "top"), ("/index.html", "top"), ("/docs/", "docs"), ("/docs/a%20b/", "ab")] {
        let answer = get(&files, uri, &[]).await;
        assert_eq!((answer.status, &answer.bytes[..]), (StatusCode::OK, bytes.as_bytes()), "{uri}");
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    }
    for (uri, location) in
        [("/docs", "./docs/"), ("/docs?page=2", "./docs/?page=2"), ("/docs/a%20b", "./a%20b/"), ("/bare", "./bare/")]
    {
        let answer = get(&files, uri, &[]).await;
        assert_eq!(answer.status, StatusCode::TEMPORARY_REDIRECT, "{uri}");
        assert_eq!(answer.header("location"), location);
    }
    for uri in ["/bare/", "/odd/", "/index.html/", "/bare//", "/index.html//"] {
        assert_eq!(get(&files, uri, &[]).await.status, StatusCode::NOT_FOUND, "{uri}");
    }
    let other = Files::builder(dir.path()).index("start.html").build().unwrap();
    assert_eq!(get(&other, "/", &[]).await.status, StatusCode::NOT_FOUND);
    for name in ["", "a/b", "..", "a\0"] {
        let error = Files::builder(dir.path()).index(name).build().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}

#[tokio::test]
async fn a_mounted_directory_answers_beneath_its_prefix_only() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.txt"), "a").unwrap();
    std::fs::write(dir.path().join("index.html"), "index").unwrap();
    let files = millstream::files::Files::builder(dir.path()).mounted_at("/static").build().unwrap();
    for (path, status) in [
        ("/static/a.txt", 200),
        ("/static/%61.txt", 200),
        ("/static/", 200),
        ("/static", 307),
        ("/a.txt", 404),
        ("/staticky/a.txt", 404),
        ("/statica.txt", 404),
        ("/static//a.txt", 200),
        ("/static/./a.txt", 200),
        ("/static/../a.txt", 404),
        ("//static/a.txt", 404),
    ] {
        // Twice: once loaded, once from the cache.
        for _ in 0..2 {
            let uri = path.parse().unwrap();
            let answer = files.get(&http::Method::GET, &uri, &http::HeaderMap::new()).await;
            assert_eq!(answer.status(), status, "{path}");
        }
    }
    for prefix in ["static", "/static/", "/"] {
        assert!(millstream::files::Files::builder(dir.path()).mounted_at(prefix).build().is_err(), "{prefix}");
    }
}

/// Compares the handling of each spelling of a path with tower-http's `ServeDir`. Redirects lead to the same host.
#[tokio::test]
async fn empty_segments_and_dots_are_served_as_others_do() {
    let dir = dir(&[("index.html", b"top"), ("a.txt", b"a"), ("docs/index.html", b"docs"), ("docs/b.txt", b"b")]);
    std::fs::create_dir(dir.path().join("evil.example")).unwrap();
    let files = Files::new(dir.path()).unwrap();
    for (uri, status) in [
        ("//a.txt", 200),
        ("///a.txt", 200),
        ("/./a.txt", 200),
        ("/././a.txt", 200),
        ("/.//a.txt", 200),
        ("/%2e/a.txt", 200),
        ("/docs//b.txt", 200),
        ("/docs/./b.txt", 200),
        ("//docs/.//b.txt", 200),
        ("/docs/%2E/b.txt", 200),
        ("/docs//", 200),
        ("/docs/./", 200),
        ("//docs//", 200),
        ("//", 200),
        ("/./", 200),
        ("/docs", 307),
        ("//docs", 307),
        ("/docs/.", 307),
        ("/./docs", 307),
        ("//evil.example", 307),
        ("//evil.example/..", 404),
        ("/a.txt/", 404),
        ("/a.txt//", 404),
        ("/a.txt/./", 404),
        ("//..//a.txt", 404),
        ("/docs/../a.txt", 404),
        ("/docs//../a.txt", 404),
        ("/./../a.txt", 404),
        ("/..", 404),
        ("//..", 404),
        ("/docs/..", 404),
        ("/%2e%2e/a.txt", 404),
    ] {
        let request = Request::get(uri).body("unread").unwrap();
        let others =
            tower::ServiceExt::oneshot(tower_http::services::ServeDir::new(dir.path()), request).await.unwrap();
        assert_eq!(others.status(), status, "ServeDir {uri}");
        let others = others.into_body().collect().await.unwrap().to_bytes();
        // Twice: once loaded, once from the cache.
        for _ in 0..2 {
            let answer = get(&files, uri, &[]).await;
            assert_eq!(answer.status, status, "{uri}");
            assert!(status != 200 || answer.bytes == others, "{uri}");
            if status == 307 {
                // A reference without authority and without a leading slash stays on its host (RFC 3986 §5.2.2).
                let location = answer.header("location");
                assert!(location.starts_with("./") && location.ends_with('/'), "{uri}: {location}");
            }
        }
    }
    // ServeDir sends one more redirect.
    assert_eq!(get(&files, "/.", &[]).await.bytes, b"top");
}

#[tokio::test]
async fn a_handler_passes_on_what_it_gets() {
    use axum::response::IntoResponse;
    use tower::ServiceExt;

    let dir = dir(&[("a", HELLO)]);
    let files = Files::new(dir.path()).unwrap();
    let app = axum::Router::new().fallback(async move |request: axum::extract::Request| {
        let found = files.get(request.method(), request.uri(), request.headers()).await;
        found.map(axum::body::Body::new).into_response()
    });
    for (path, status, bytes) in [("/a", 206, &HELLO[7..]), ("/absent", 404, b"")] {
        let request = Request::get(path).header("range", "bytes=7-").body(axum::body::Body::empty()).unwrap();
        let answer = app.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
        assert_eq!(answer.headers().contains_key("etag"), status == 206);
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), bytes);
    }
}
