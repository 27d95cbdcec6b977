//! `Files` as a service, without sockets: the response to each request, files that are never served, and changes of
//! files.

mod answers;
#[cfg(feature = "server")]
mod bodies;
mod changes;
#[cfg(feature = "server")]
mod cold;
mod degraded;
mod escapes;
#[cfg(feature = "server")]
mod hyper_bodies;
#[cfg(feature = "server")]
mod listing;
mod mapped;
#[cfg(feature = "server")]
mod memory;
#[cfg(feature = "server")]
mod nginx;
#[cfg(feature = "server")]
mod paths;
#[cfg(feature = "server")]
mod peers;
#[cfg(feature = "server")]
mod replaced;
mod site;
mod slow;
mod switched;
#[cfg(all(feature = "codec", feature = "server"))]
mod torn;
#[cfg(feature = "server")]
mod wire;

use std::io;
use std::path::Path;

use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use millstream::files::{Files, FilesBody};
use testkit::{letters, noise};
use tower_service::Service;

/// Creates a temporary directory with files.
fn dir(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        write(dir.path(), name, bytes);
    }
    dir
}

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// Replaces a file by a rename, the recommended way to publish.
fn replace(dir: &Path, name: &str, bytes: &[u8]) {
    let new = dir.join(format!("{name}.new"));
    std::fs::write(&new, bytes).unwrap();
    std::fs::rename(new, dir.join(name)).unwrap();
}

async fn send(files: &Files, method: &str, uri: &str, headers: &[(&str, &str)]) -> Response<FilesBody> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    // Any body type works: files do not read it.
    let Ok(response) = files.clone().call(request.body("unread").unwrap()).await;
    let promised = http_body::Body::size_hint(response.body()).exact();
    let has_page = response.status() == StatusCode::NOT_FOUND && response.headers().contains_key("content-type");
    if method != "HEAD" && (response.status().is_success() || has_page) {
        // A listing is as long as it turns out to be.
        assert_eq!(header(&response, "content-length"), promised.map_or(String::new(), |len| len.to_string()));
    } else {
        assert_eq!(promised, Some(0), "only a GET that found something has a body");
    }
    response
}

async fn get(files: &Files, uri: &str, headers: &[(&str, &str)]) -> Answer {
    collect(send(files, "GET", uri, headers).await).await.unwrap()
}

async fn collect(response: Response<FilesBody>) -> io::Result<Answer> {
    let (head, body) = response.into_parts();
    let promised = http_body::Body::size_hint(&body).exact();
    let bytes = body.collect().await?.to_bytes().to_vec();
    let len = bytes.len() as u64;
    assert_eq!(len, promised.unwrap_or(len), "a body is as long as it said or an error");
    Ok(Answer { status: head.status, headers: head.headers, bytes })
}

fn header<'a, B>(response: &'a Response<B>, name: &str) -> &'a str {
    text(response.headers(), name)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).map_or("", |value| value.to_str().unwrap())
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    bytes: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        text(&self.headers, name)
    }
}
