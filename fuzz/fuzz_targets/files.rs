//! Paths, ranges, preconditions and codings of a request against `files::Files`, beside a plain reading of RFC 9110: the
//! status, the bytes of the file that the response names, and nothing from outside of the directory.
#![no_main]

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use arbitrary::Arbitrary;
use http::{HeaderMap, HeaderValue, Method, Uri};
use libfuzzer_sys::fuzz_target;
use millstream::files::Files;
use millstream_fuzz::{run, whole};

/// What no response may contain.
const SECRET: &[u8] = b"NOT FOR CLIENTS";

struct Site {
    files: Files,
    /// The contents and the tag by name; those of the variants of `app.js` by coding.
    contents: HashMap<&'static str, (Vec<u8>, HeaderValue)>,
    modified: SystemTime,
}

static SITE: LazyLock<Site> = LazyLock::new(|| {
    let dir: PathBuf = tempfile::Builder::new().prefix("millstream-fuzz-").tempdir().unwrap().keep();
    let root = dir.join("root");
    for name in ["page", ".git", "list/deep"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    fs::write(dir.join("secret"), SECRET).unwrap();
    fs::write(root.join(".git/config"), SECRET).unwrap();
    fs::write(root.join(".env"), SECRET).unwrap();
    std::os::unix::fs::symlink(dir.join("secret"), root.join("link")).unwrap();
    std::os::unix::fs::symlink("..", root.join("up")).unwrap();
    let numbers = |len: u32| (0..len).map(|n| b'a' + (n % 23) as u8).collect::<Vec<_>>();
    let list = [
        ("text.txt", numbers(1000)),
        ("large.bin", numbers(300_000)),
        ("empty", Vec::new()),
        ("page/index.html", numbers(77)),
        ("a b%.css", numbers(40)),
        ("app.js", numbers(500)),
        ("app.js.gz", numbers(300)),
        ("app.js.br", numbers(200)),
    ];
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let files = Files::new(&root).unwrap();
    let contents = list.map(|(name, contents)| {
        fs::write(root.join(name), &contents).unwrap();
        fs::File::options().write(true).open(root.join(name)).unwrap().set_modified(modified).unwrap();
        (name, contents)
    });
    let contents = contents.map(|(name, contents)| {
        let uri: Uri = format!("/{}", name.replace('%', "%25").replace(' ', "%20")).parse().unwrap();
        let response = run(files.get(&Method::GET, &uri, &HeaderMap::new()));
        (name, (contents, response.headers()["etag"].clone()))
    });
    // A variant has another tag than the file that has its bytes.
    let mut contents = HashMap::from(contents);
    for (name, coding) in [("app.js.gz", "gzip"), ("app.js.br", "br")] {
        let bytes = contents[name].0.clone();
        let headers = HeaderMap::from_iter([(http::header::ACCEPT_ENCODING, HeaderValue::from_static(coding))]);
        let response = run(files.get(&Method::GET, &Uri::from_static("/app.js"), &headers));
        contents.insert(coding, (bytes, response.headers()["etag"].clone()));
    }
    Site { files, contents, modified }
});

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    method: u8,
    path: Vec<Segment<'a>>,
    fields: Vec<Field<'a>>,
}

#[derive(Arbitrary, Debug)]
enum Segment<'a> {
    Known(u8),
    Encoded(u8),
    Dots(u8),
    Empty,
    Text(&'a [u8]),
}

#[derive(Arbitrary, Debug)]
enum Field<'a> {
    Ranges(Vec<(Option<u16>, Option<u16>)>),
    Tags(u8, Vec<(u8, bool)>),
    Date(u8, i8),
    Accept(Vec<(u8, Option<u16>)>),
    Text(u8, &'a [u8]),
}

const NAMES: [&str; 15] = [
    "text.txt",
    "large.bin",
    "empty",
    "page",
    "page/index.html",
    "a%20b%25.css",
    "app.js",
    "app.js.gz",
    ".git/config",
    ".env",
    "link",
    "up/secret",
    "list",
    "absent",
    "text.txt/",
];
const CONDITIONS: [&str; 7] =
    ["if-match", "if-none-match", "if-range", "if-modified-since", "if-unmodified-since", "range", "accept-encoding"];
const CODINGS: [&str; 6] = ["gzip", "br", "identity", "*", "x-gzip", "zstd"];

fn path(segments: &[Segment<'_>]) -> Vec<u8> {
    let mut path = Vec::new();
    for segment in segments {
        path.push(b'/');
        match segment {
            Segment::Known(n) => path.extend_from_slice(NAMES[usize::from(*n) % NAMES.len()].as_bytes()),
            Segment::Encoded(n) => {
                for byte in NAMES[usize::from(*n) % NAMES.len()].bytes() {
                    path.extend_from_slice(format!("%{byte:02x}").as_bytes());
                }
            }
            Segment::Dots(n) => {
                path.extend_from_slice([&b"."[..], b"..", b"%2e", b"%2e.", b".%2E"][usize::from(n % 5)])
            }
            Segment::Empty => {}
            Segment::Text(text) => path.extend_from_slice(text),
        }
    }
    if path.is_empty() { b"/".to_vec() } else { path }
}

fn headers(fields: &[Field<'_>], tags: &[HeaderValue], modified: SystemTime) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for field in fields.iter().take(20) {
        let (name, value) = match field {
            Field::Ranges(list) => {
                let number = |n: Option<u16>| n.map_or(String::new(), |n| n.to_string());
                let list: Vec<_> = list.iter().map(|(a, b)| format!("{}-{}", number(*a), number(*b))).collect();
                ("range", format!("bytes={}", list.join(", ")).into_bytes())
            }
            Field::Tags(name, list) => {
                let mut value = Vec::new();
                for (n, weak) in list {
                    let tag = tags.get(usize::from(*n)).map_or(&b"\"other, tag\""[..], HeaderValue::as_bytes);
                    value.extend_from_slice(if *weak { b", W/" } else { b", " });
                    value.extend_from_slice(tag);
                }
                (CONDITIONS[usize::from(name % 3)], value.split_off(value.len().min(2)))
            }
            Field::Date(name, offset) => {
                let date = if *offset < 0 {
                    modified - Duration::from_secs(u64::from(offset.unsigned_abs()))
                } else {
                    modified + Duration::from_secs(u64::from(offset.unsigned_abs()))
                };
                (CONDITIONS[2 + usize::from(name % 3)], httpdate::fmt_http_date(date).into_bytes())
            }
            Field::Accept(list) => {
                let member = |(n, q): &(u8, Option<u16>)| {
                    let weight = q.map_or(String::new(), |q| format!(";q={}.{:03}", q % 1001 / 1000, q % 1001 % 1000));
                    format!("{}{weight}", CODINGS[usize::from(*n) % CODINGS.len()])
                };
                ("accept-encoding", list.iter().map(member).collect::<Vec<_>>().join(", ").into_bytes())
            }
            Field::Text(name, text) => (CONDITIONS[usize::from(*name) % CONDITIONS.len()], text.to_vec()),
        };
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            headers.append(name, value);
        }
    }
    headers
}

/// What a path leads to.
#[derive(Debug, PartialEq)]
enum Place {
    File(String),
    /// A directory without its slash.
    Redirect,
    Nothing,
}

fn place(path: &str) -> Place {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut is_directory = false;
    for segment in path.split('/').skip(1) {
        is_directory = segment.is_empty();
        let mut name = Vec::new();
        let mut rest = segment.as_bytes();
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            if byte != b'%' {
                name.push(byte);
                continue;
            }
            let Some((digits, after)) = rest.split_at_checked(2) else { return Place::Nothing };
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return Place::Nothing;
            }
            name.push(u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap());
            rest = after;
        }
        match &name[..] {
            b"" | b"." => {}
            name if name.contains(&b'/') || name.contains(&0) => return Place::Nothing,
            b".well-known" if names.is_empty() => return Place::Nothing,
            name if name.starts_with(b".") => return Place::Nothing,
            name => names.push(name.to_vec()),
        }
    }
    let Ok(name) = String::from_utf8(names.join(&b'/')) else { return Place::Nothing };
    match (&*name, is_directory) {
        ("page", true) => Place::File("page/index.html".to_owned()),
        ("page" | "list" | "list/deep", false) => Place::Redirect,
        (_, true) => Place::Nothing,
        (name, false) if SITE.contents.contains_key(name) && !matches!(name, "gzip" | "br") => {
            Place::File(name.to_owned())
        }
        _ => Place::Nothing,
    }
}

/// Chooses the variant of `app.js`: `None` if the reference does not understand the field.
fn variant(headers: &HeaderMap) -> Option<&'static str> {
    let mut weights: HashMap<String, u32> = HashMap::new();
    for value in headers.get_all("accept-encoding") {
        for member in value.to_str().ok()?.split(',') {
            let (name, weight) = member.split_once(";q=").unwrap_or((member, "1"));
            let name = name.trim().to_ascii_lowercase();
            if name.is_empty() && weight == "1" {
                continue;
            }
            let is_name =
                name == "*" || !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
            let is_weight = weight.len() <= 5
                && (weight.starts_with("0.") || matches!(weight, "0" | "1" | "1.000"))
                && weight.bytes().all(|b| b.is_ascii_digit() || b == b'.');
            if !is_name || !is_weight {
                return None;
            }
            let weight = (weight.parse::<f64>().ok()? * 1000.0).round() as u32;
            let name = if name == "x-gzip" { "gzip".to_owned() } else { name };
            // Of a name that comes twice the last counts.
            weights.insert(name, weight);
        }
    }
    let weight = |name: &str| weights.get(name).or(weights.get("*")).copied().unwrap_or(0);
    let identity = weights.get("identity").copied().unwrap_or(0);
    let (br, gzip) = (weight("br"), weight("gzip"));
    Some(match () {
        () if br > 0 && br >= identity && br >= gzip => "br",
        () if gzip > 0 && gzip >= identity => "gzip",
        () => "app.js",
    })
}

/// Returns whether one of the tags in the field is `tag`; `None` if the field is malformed.
fn has_tag(headers: &HeaderMap, name: &str, tag: &HeaderValue, weakly: bool) -> Option<bool> {
    let mut found = false;
    for value in headers.get_all(name) {
        if value == "*" {
            found = true;
            continue;
        }
        let mut rest = value.as_bytes();
        loop {
            while let [b' ' | b'\t' | b',', after @ ..] = rest {
                rest = after;
            }
            if rest.is_empty() {
                break;
            }
            let weak = rest.starts_with(b"W/");
            rest = rest.strip_prefix(b"W/").unwrap_or(rest);
            let inner = rest.strip_prefix(b"\"")?;
            let len = inner.iter().position(|&b| b == b'"')? + 2;
            found |= rest[..len] == *tag.as_bytes() && (weakly || !weak);
            rest = &rest[len..];
            if !rest.is_empty() && !matches!(rest[0], b' ' | b'\t' | b',') {
                return None;
            }
        }
    }
    Some(found)
}

/// Returns the date of a field. One with several values is ignored, RFC 9110 §13.1.3.
fn date(headers: &HeaderMap, name: &str) -> Option<SystemTime> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

/// Returns the status of the preconditions, 200 if they hold; `None` if a field is malformed.
fn precondition(headers: &HeaderMap, tag: &HeaderValue, modified: SystemTime) -> Option<u16> {
    if headers.contains_key("if-match") {
        if !has_tag(headers, "if-match", tag, false)? {
            return Some(412);
        }
    } else if date(headers, "if-unmodified-since").is_some_and(|since| modified > since) {
        return Some(412);
    }
    if headers.contains_key("if-none-match") {
        if has_tag(headers, "if-none-match", tag, true)? {
            return Some(304);
        }
    } else if date(headers, "if-modified-since").is_some_and(|since| modified <= since) {
        return Some(304);
    }
    Some(200)
}

/// The ranges of the request, each as its first byte and its end.
#[derive(Debug)]
enum Ranges {
    Ignored,
    Unsatisfiable,
    Some(Vec<(u64, u64)>),
}

fn ranges(headers: &HeaderMap, len: u64) -> Ranges {
    let mut values = headers.get_all("range").iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Ranges::Ignored };
    let set = value.to_str().ok().and_then(|text| text.split_once('='));
    let Some((unit, set)) = set else { return Ranges::Ignored };
    if !unit.eq_ignore_ascii_case("bytes") || set.split(',').count() > 16 {
        return Ranges::Ignored;
    }
    let number = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) {
        true => text.parse::<u64>().ok(),
        false => None,
    };
    let mut found = Vec::new();
    for range in set.split(',') {
        let Some((first, last)) = range.trim_matches([' ', '\t']).split_once('-') else { return Ranges::Ignored };
        let (from, to) = match (first, last) {
            ("", last) => match number(last).filter(|&n| n > 0) {
                Some(_) if len == 0 => return Ranges::Ignored,
                Some(n) => (len.saturating_sub(n), len),
                None => return Ranges::Ignored,
            },
            (first, "") => match number(first) {
                Some(first) => (first, len),
                None => return Ranges::Ignored,
            },
            (first, last) => match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last => (first, len.min(last.saturating_add(1))),
                _ => return Ranges::Ignored,
            },
        };
        if from < len {
            found.push((from, to));
        }
    }
    match found.iter().map(|(from, to)| to - from).sum::<u64>() {
        sum if sum > len => Ranges::Ignored,
        _ if found.is_empty() => Ranges::Unsatisfiable,
        _ => Ranges::Some(found),
    }
}

/// Takes a `multipart/byteranges` body apart.
fn parts(body: &[u8], boundary: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut rest =
        body.strip_prefix(b"--").expect("a boundary").strip_prefix(boundary.as_bytes()).expect("the boundary");
    let end = format!("\r\n--{boundary}");
    while rest != b"--\r\n" {
        rest = rest.strip_prefix(b"\r\n").expect("the head of a part");
        let head = rest.windows(4).position(|w| w == b"\r\n\r\n").expect("the end of the head");
        let text = std::str::from_utf8(&rest[..head]).expect("a head of text");
        let range = text.lines().find_map(|line| line.strip_prefix("Content-Range: ")).expect("a range").to_owned();
        rest = &rest[head + 4..];
        let len = rest.windows(end.len()).position(|w| w == end.as_bytes()).expect("the end of the part");
        found.push((range, rest[..len].to_vec()));
        rest = &rest[len + end.len()..];
    }
    found
}

fuzz_target!(|input: Input<'_>| {
    let site = &*SITE;
    let Ok(uri) = Uri::try_from(path(&input.path)) else { return };
    let tags: Vec<_> = ["text.txt", "large.bin", "empty", "page/index.html", "app.js", "gzip", "br"]
        .iter()
        .map(|name| site.contents[name].1.clone())
        .collect();
    let headers = headers(&input.fields, &tags, site.modified);
    let method = [Method::GET, Method::GET, Method::HEAD, Method::POST][usize::from(input.method % 4)].clone();
    let (head, body) = run(async {
        let response = site.files.get(&method, &uri, &headers).await;
        let head = response.map(drop);
        let response = site.files.get(&method, &uri, &headers).await;
        (head, whole(response).await.expect("a body"))
    });
    let status = head.status().as_u16();
    let context = || format!("{method} {uri} {headers:?}\n{head:?}");
    assert!(!body.windows(SECRET.len()).any(|w| w == SECRET), "{}", context());

    if method == Method::POST {
        assert_eq!((status, body.len()), (405, 0), "{}", context());
        return;
    }
    let name = match place(uri.path()) {
        Place::Nothing => return assert_eq!((status, body.len()), (404, 0), "{}", context()),
        Place::Redirect => return assert_eq!(status, 307, "{}", context()),
        Place::File(name) => name,
    };
    let variant = if name == "app.js" { variant(&headers) } else { Some(&*name) };
    let coding = head.headers().get("content-encoding").map(|coding| coding.to_str().unwrap());
    let sent = match (&*name, coding) {
        ("app.js", Some("gzip")) => "gzip",
        ("app.js", Some("br")) => "br",
        (name, None) => name,
        _ => panic!("{}", context()),
    };
    let carries = matches!(status, 200 | 206);
    match variant {
        Some(variant) if carries => assert_eq!(sent, variant, "{}", context()),
        _ => {}
    }
    // Without a representation its name is not known.
    let sent = if carries { sent } else { variant.unwrap_or(sent) };
    let (contents, tag) = &site.contents[sent];
    let len = contents.len() as u64;
    if carries {
        assert_eq!(head.headers()["etag"], tag, "{}", context());
    }
    if !headers.contains_key("accept-encoding") || variant.is_some() {
        if let Some(expected) = precondition(&headers, tag, site.modified) {
            match expected {
                200 => assert!(matches!(status, 200 | 206 | 416), "{}", context()),
                expected => assert_eq!(status, expected, "{}", context()),
            }
        }
    }
    let if_range = headers.get_all("if-range").iter().count() <= 1
        && headers
            .get("if-range")
            .is_none_or(|value| value == tag || date(&headers, "if-range") == Some(site.modified));
    let asked = if method == Method::GET && if_range { ranges(&headers, len) } else { Ranges::Ignored };
    match (status, asked) {
        (200, Ranges::Ignored) if method == Method::GET => assert!(body == *contents, "{}", context()),
        (200, Ranges::Ignored) => assert!(body.is_empty(), "{}", context()),
        (416, Ranges::Unsatisfiable) => {
            assert_eq!(head.headers()["content-range"], format!("bytes */{len}"));
            assert!(body.is_empty());
        }
        (206, Ranges::Some(list)) => {
            let range = |(from, to): (u64, u64)| {
                (format!("bytes {from}-{}/{len}", to - 1), contents[from as usize..to as usize].to_vec())
            };
            let expected: Vec<_> = list.into_iter().map(range).collect();
            let kind = head.headers()["content-type"].to_str().unwrap();
            let found = match kind.strip_prefix("multipart/byteranges; boundary=") {
                Some(boundary) => {
                    // Each response has a boundary of its own.
                    let body_boundary = std::str::from_utf8(&body[2..2 + boundary.len()]).unwrap();
                    parts(&body, body_boundary)
                }
                None => vec![(head.headers()["content-range"].to_str().unwrap().to_owned(), body.to_vec())],
            };
            assert!(found == expected, "{}", context());
        }
        (304 | 412, _) => assert!(body.is_empty(), "{}", context()),
        (_, asked) => {
            // Several If-Range lines have no meaning.
            let is_unclear = headers.get_all("if-range").iter().count() > 1;
            assert!(is_unclear && matches!(status, 200 | 206 | 416), "{asked:?} {}", context());
        }
    }
    if carries {
        assert_eq!(
            head.headers()["content-length"],
            if method == Method::HEAD { len } else { body.len() as u64 }.to_string()
        );
    }
});
