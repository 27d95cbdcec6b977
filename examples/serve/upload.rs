//! `PUT /upload/NAME`: a request body into a file of a directory.

use std::path::PathBuf;

use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use millstream::body::Save;
use millstream::files::FilesBody;
use millstream::server::RequestBody;

use crate::common;
use crate::common::Reply;

const PATH: &str = "/upload/";
/// Maximum length of a file.
const MAX_LEN: u64 = 1 << 30;

/// The directory, if there is one.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Uploads {
    /// Directory for PUT /upload/NAME; without it there are no uploads.
    #[arg(long, value_name = "DIR", value_parser = common::options::directory)]
    pub(crate) uploads: Option<PathBuf>,
}

impl Uploads {
    /// Returns the directory and the name for the path of a request, if it is one for an upload.
    pub(crate) fn wants<'a>(&self, path: &'a str) -> Option<(PathBuf, &'a str)> {
        Some((self.uploads.clone()?, path.strip_prefix(PATH)?))
    }
}

/// Saves the body. A name in use is refused, unless the query is `replace`.
pub(crate) async fn save(dir: PathBuf, name: String, request: Request<RequestBody>) -> Response<Reply<FilesBody>> {
    if request.method() != Method::PUT {
        return text(StatusCode::METHOD_NOT_ALLOWED, "PUT\n".to_owned());
    }
    if !is_plain(&name) {
        let rule =
            "a name has letters, digits, `.`, `_` and `-`, does not begin with `.`, and has at most 100 of them\n";
        return text(StatusCode::BAD_REQUEST, rule.to_owned());
    }
    let save = Save::new(dir.join(&name)).max_len(MAX_LEN).mode(0o644).verify(request.headers());
    let save = if request.uri().query() == Some("replace") { save } else { save.create_new() };
    match save.run(request.into_body()).await {
        Ok(saved) => text(StatusCode::CREATED, format!("{name}: {} bytes\n", saved.len)),
        Err(error) => {
            eprintln!("{}", crate::common::report(&error));
            text(error.status(), format!("{name}: not saved\n"))
        }
    }
}

/// Returns whether a name of a client is a name of a file, visible, and in no other directory.
fn is_plain(name: &str) -> bool {
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=100).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(of_name)
}

fn text(status: StatusCode, text: String) -> Response<Reply<FilesBody>> {
    let mut response = Reply::Whole { body: Full::from(text) }.of("text/plain; charset=utf-8");
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::App;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn names_do_not_lead_out_of_the_directory() {
        for name in ["a", "a.txt", "A-1_b..c", &"n".repeat(100)] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["", ".", "..", ".a", "a/b", "a\\b", "a%2fb", "a b", "ä", "a\0", &"n".repeat(101)] {
            assert!(!is_plain(name), "{name}");
        }
    }

    async fn put(app: &Arc<App>, target: &str, body: &str) -> String {
        let listener = millstream::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let app = Arc::clone(app);
        let service = tower::service_fn(move |request| crate::answer(request, app.clone()));
        let server = tokio::spawn(millstream::server::serve(listener, service).into_future());
        let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
        let len = body.len();
        let head =
            format!("PUT {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len}\r\n");
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        server.abort();
        response.split(' ').nth(1).unwrap().to_owned()
    }

    #[tokio::test]
    async fn names_in_use_are_replaced_only_if_asked() {
        let dir = tempfile::tempdir().unwrap();
        let options = crate::Options {
            listen: ([127, 0, 0, 1], 0).into(),
            root: dir.path().to_owned(),
            workers: std::num::NonZero::<usize>::MIN,
        };
        let hosts = || millstream_layers::AllowedHostsLayer::local();
        let (metrics, sites) = (options.listen, crate::Site::default());
        let start = move || crate::Numbers::start(metrics, false, hosts(), async |live| Ok(live.build())).unwrap();
        let numbers = tokio::task::spawn_blocking(start).await.unwrap();
        let app = |uploads| App::new(&options, &sites, &Uploads { uploads }, &numbers, hosts()).unwrap();
        let on = app(Some(dir.path().to_owned()));
        for (target, body, status) in [
            ("/upload/file", "first", "201"),
            ("/upload/file", "second", "409"),
            ("/upload/file?replace", "third", "201"),
            ("/upload/..", "x", "400"),
            ("/upload/", "x", "400"),
        ] {
            assert_eq!(put(&on, target, body).await, status, "{target}");
        }
        assert_eq!(std::fs::read_to_string(dir.path().join("file")).unwrap(), "third");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_ne!(put(&app(None), "/upload/other", "x").await, "201");
        tokio::task::spawn_blocking(move || drop(numbers)).await.unwrap();
    }
}
