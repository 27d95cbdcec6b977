//! Compressed responses, decoded by others: curl and Python.

use std::net::SocketAddr;
use std::process::Stdio;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use millstream::server::RequestBody;
use tokio::process::Command;

use crate::served::serve;
use testkit::http::{Answer, boxed, on_both};
use testkit::{noise, skip};

/// Decodes what it reads, and fails unless it is one whole stream.
const PYTHON: &str = "import sys, zlib
d = zlib.decompressobj(31)
text = d.decompress(sys.stdin.buffer.read()) + d.flush()
assert d.eof and not d.unused_data
sys.stdout.buffer.write(text)";

fn pieces() -> Vec<Bytes> {
    let mut all: Vec<Bytes> = (0..500).map(|n| format!("piece {n} of an answer\n").into()).collect();
    all.extend([Bytes::from(noise(300_000)), Bytes::from(vec![b'x'; 500_000])]);
    all
}

fn answer(_: Request<RequestBody>) -> Answer {
    let frames = stream::unfold((pieces().into_iter(), 0), async |(mut pieces, n)| {
        if n % 5 == 0 {
            tokio::task::yield_now().await;
        }
        Some((Ok::<_, std::io::Error>(Frame::data(pieces.next()?)), (pieces, n + 1)))
    });
    Response::new(boxed(StreamBody::new(Box::pin(frames))))
}

/// Returns the output of a program; `None` if it is not installed.
async fn run(program: &str, args: &[&str], input: Option<Vec<u8>>) -> Option<Vec<u8>> {
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut command = Command::new(program);
    // Without a buffer, a call of Python that is interrupted writes a part only.
    command.args(args).env_remove("PYTHONUNBUFFERED");
    let command = command.stdin(stdin).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            skip(program, error);
            return None;
        }
    };
    if let Some(input) = input {
        let mut stdin = child.stdin.take().unwrap();
        tokio::spawn(async move {
            tokio::io::AsyncWriteExt::write_all(&mut stdin, &input).await.unwrap();
        });
    }
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", output.status);
    Some(output.stdout)
}

async fn curl(addr: SocketAddr, args: &[&str]) -> Option<Vec<u8>> {
    let url = format!("http://{addr}/");
    run("curl", &[&["-sS", "--max-time", "30", "--noproxy", "*"], args, &[url.as_str()]].concat(), None).await
}

#[test]
fn curl_decodes_all_codings() {
    on_both(|| async {
        let addr = serve(None, answer).await;
        let expected = pieces().concat();
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            let Some(version_text) = run("curl", &["-V"], None).await else { return };
            let version_text = String::from_utf8(version_text).unwrap();
            for (accept, feature) in [("gzip", "libz"), ("br", "brotli"), ("zstd", "zstd")] {
                if !version_text.split_whitespace().any(|word| word == feature) {
                    skip("curl", format!("without {feature}"));
                    continue;
                }
                // With --compressed it decodes any coding, also under a header that names one.
                let header = format!("Accept-Encoding: {accept}");
                let decoded = curl(addr, &[version, "--compressed", "-H", &header]).await.unwrap();
                assert!(decoded == expected, "{version} {accept}");
                let raw = curl(addr, &[version, "-H", &header]).await.unwrap();
                assert!(raw.len() < expected.len() && raw != expected, "{version} {accept}: not compressed");
            }
            assert!(curl(addr, &[version]).await.unwrap() == expected, "{version}: the identity");
        }
    });
}

#[test]
fn python_decodes_gzip() {
    on_both(|| async {
        let addr = serve(None, answer).await;
        let Some(raw) = curl(addr, &["-H", "Accept-Encoding: gzip"]).await else { return };
        let Some(decoded) = run("python3", &["-c", PYTHON], Some(raw)).await else { return };
        assert!(decoded == pieces().concat());
    });
}
