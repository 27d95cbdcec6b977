//! The same requests to nginx: ranges, conditions and precompressed files.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use tokio::net::UnixStream;

use super::*;
use testkit::http::{H1, ask, h1, h1_over, start};
use testkit::skip;

/// nginx in one process, killed when dropped.
struct Nginx {
    child: Child,
    socket: PathBuf,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Nginx {
    /// Serves `dir/www`. `None` if there is no nginx.
    fn start(dir: &Path) -> Option<Self> {
        let (at, socket) = (dir.display(), dir.join("socket"));
        let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {at}/{name};\n"))
            .concat();
        let config = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/log; events {{ worker_connections 64; }}\n\
             http {{ access_log off; keepalive_requests 1000000; {temp} types {{ text/html html; text/css css; }} gzip_static on; gzip_vary on;\n\
             if_modified_since before;\n\
             server {{ listen unix:{}; root {at}/www; }} }}",
            socket.display()
        );
        std::fs::write(dir.join("conf"), config).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(dir).arg("-c").arg(dir.join("conf")).stdin(Stdio::null()).stderr(Stdio::null());
        Some(Self { child: command.spawn().ok()?, socket })
    }

    async fn connect(&self) -> H1 {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match UnixStream::connect(&self.socket).await {
                Ok(stream) => return h1_over(stream).await,
                Err(e) => assert!(Instant::now() < deadline, "nginx does not listen: {e}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A request, in which `{etag}` and `{date}` stand for the validators of the server that is asked.
type Sent<'a> = [(&'a str, &'a str)];

/// A server and a connection to it, which the server may close after a response.
struct Peer<F> {
    connect: F,
    client: Option<H1>,
}

async fn send(
    peer: &mut Peer<impl AsyncFn() -> H1>,
    method: &str,
    path: &str,
    fields: &Sent<'_>,
    first: Option<&Answer>,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header("host", "mill");
    for (name, value) in fields {
        let validator = |name| first.map_or("", |first| first.header(name));
        let value = value.replace("{etag}", validator("etag")).replace("{date}", validator("last-modified"));
        request = request.header(*name, value);
    }
    let request = request.body(http_body_util::Empty::<Bytes>::new()).unwrap();
    loop {
        let (mut client, is_new) = match peer.client.take() {
            Some(client) => (client, false),
            None => ((peer.connect)().await, true),
        };
        let sent = match client.ready().await {
            Ok(()) => client.send_request(request.clone()).await,
            Err(e) => Err(e),
        };
        // A server may close a connection between two requests.
        let (head, body) = match sent {
            Err(_) if !is_new => continue,
            sent => sent.unwrap().into_parts(),
        };
        let bytes = body.collect().await.unwrap().to_bytes().to_vec();
        peer.client = Some(client);
        return Answer { status: head.status, headers: head.headers, bytes };
    }
}

const RANGES: [&str; 13] = [
    "",
    "bytes=0-8",
    "bytes=-10",
    "bytes=10-",
    "bytes=0-0",
    "bytes=999-999",
    "bytes=0-99999",
    "bytes=-99999",
    "bytes=1000-",
    "bytes=99999-100000",
    "bytes=0-8,20-28",
    "bytes=0-8,99999-",
    "bytes=1000-,99999-",
];

/// Ranges that RFC 9110 §14.2 says to ignore, to which nginx answers 416.
const IGNORED: [&str; 3] = ["bytes=9-8", "bytes=x-y", "lines=0-8"];

const CONDITIONS: [(&str, &str); 22] = [
    ("", ""),
    ("if-range", "{etag}"),
    ("if-range", "\"other\""),
    ("if-range", "W/{etag}"),
    ("if-range", "{date}"),
    ("if-range", "Thu, 01 Jan 1970 00:00:00 GMT"),
    ("if-modified-since", "{date}"),
    ("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT"),
    ("if-modified-since", "Fri, 01 Jan 2100 00:00:00 GMT"),
    ("if-modified-since", "nonsense"),
    ("if-none-match", "{etag}"),
    ("if-none-match", "W/{etag}"),
    ("if-none-match", "\"other\", {etag}"),
    ("if-none-match", "\"other\""),
    ("if-none-match", "*"),
    ("if-match", "{etag}"),
    ("if-match", "\"other\""),
    ("if-match", "\"other\" , {etag}"),
    ("if-match", "*"),
    ("if-unmodified-since", "{date}"),
    ("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT"),
    ("if-unmodified-since", "Fri, 01 Jan 2100 00:00:00 GMT"),
];

const CODINGS: [Option<&str>; 5] = [None, Some("gzip"), Some("gzip;q=0"), Some("br, gzip;q=0.5"), Some("deflate")];

#[tokio::test]
async fn answers_are_those_of_nginx() {
    let dir = tempfile::tempdir().unwrap();
    let www = dir.path().join("www");
    for (name, bytes) in [("plain.html", &noise(1000)[..]), ("both.css", &noise(1000)), ("both.css.gz", b"zipped")] {
        write(&www, name, bytes);
        // A date counts for If-Range only once its second is over.
        let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        std::fs::File::options().write(true).open(www.join(name)).unwrap().set_modified(old).unwrap();
    }
    let Some(nginx) = Nginx::start(dir.path()) else { return skip("the answers of nginx", "there is no nginx") };
    let files = Files::new(&www).unwrap();
    let addr = start(move |request| {
        let files = files.clone();
        async move { ask(&files, &request, |body| body).await }
    })
    .await;
    let mut ours = Peer { connect: async || h1(addr).await, client: None };
    let mut theirs = Peer { connect: async || nginx.connect().await, client: None };
    for path in ["/plain.html", "/both.css", "/absent"] {
        for coding in CODINGS {
            let accept: Vec<_> = coding.iter().map(|coding| ("accept-encoding", *coding)).collect();
            let first = (
                send(&mut ours, "GET", path, &accept, None).await,
                send(&mut theirs, "GET", path, &accept, None).await,
            );
            for method in ["GET", "HEAD"] {
                // §14.2 defines ranges for GET only, nginx answers 206 to HEAD too. It has no ranges of compressed files.
                let ranges = method == "GET" && first.1.header("content-encoding").is_empty();
                for range in if ranges { &RANGES[..] } else { &[""] } {
                    for condition in CONDITIONS {
                        let mut fields = accept.clone();
                        fields.extend([("range", *range)].into_iter().filter(|_| !range.is_empty()));
                        fields.extend([condition].into_iter().filter(|(name, _)| !name.is_empty()));
                        let our = send(&mut ours, method, path, &fields, Some(&first.0)).await;
                        let their = send(&mut theirs, method, path, &fields, Some(&first.1)).await;
                        compare(&format!("{method} {path} {fields:?}"), &our, &their);
                    }
                }
            }
            for range in IGNORED {
                let mut fields = accept.clone();
                fields.push(("range", range));
                let our = send(&mut ours, "GET", path, &fields, None).await;
                assert_eq!((our.status, &our.bytes), (first.0.status, &first.0.bytes), "{fields:?}");
            }
        }
    }
}

fn compare(what: &str, ours: &Answer, theirs: &Answer) {
    assert_eq!(ours.status, theirs.status, "{what}");
    let names: &[&str] = match ours.status.as_u16() {
        200 => &["content-type", "content-length", "content-encoding", "last-modified", "vary"],
        206 => &["content-range", "content-encoding", "last-modified", "vary"],
        304 => &["last-modified"],
        416 => &["content-range"],
        _ => &[],
    };
    for name in names {
        let (our, their) = (ours.header(name).replace("; charset=utf-8", ""), theirs.header(name));
        assert!(our.eq_ignore_ascii_case(their), "{what}: {name}: {our} and {their}");
    }
    if ours.status.is_success() && !ours.header("content-type").starts_with("multipart/") {
        assert!(ours.bytes == theirs.bytes, "{what}");
    }
}
